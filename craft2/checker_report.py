"""What the checker answers: anomalies by their names, and how often messages were delivered.

*At most once, at least once, exactly once* are counted, not believed. Send values that are all
different, let each have its effect in a place that survives (a row in a results table), and count:

>>> print(delivery(sent=[1, 2, 3, 4], effects=[1, 2, 2, 4]))
2 once, 1 twice, 1 never

Some never: at most once. Some twice: at least once. All once: exactly once, this time.
The names are those of Jepsen's Kafka workload; `craft2.checker` says what each means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from craft2.errors import Craft2Error
from craft2.history import Operation, Value

NAMES = (
    "lost-write",
    "unseen",
    "duplicate",
    "inconsistent-offsets",
    "G1a",
    "nonmonotonic-send",
    "int-nonmonotonic-send",
    "poll-skip",
    "int-poll-skip",
    "nonmonotonic-poll",
    "int-nonmonotonic-poll",
)


class CheckerError(Craft2Error):
    """A question to a report that makes no sense."""


class Anomaly(NamedTuple):
    """One thing that a correct log would not have shown."""

    name: str  # one of NAMES
    what: str  # in words
    topic: str
    partition: int
    offsets: tuple[int, ...]  # of those skipped, the first few
    values: tuple[Value, ...]
    evidence: tuple[Operation, ...]  # the fewest operations that show it

    @property
    def clients(self) -> tuple[str, ...]:
        """Who saw it, each once."""
        return tuple(dict.fromkeys(operation.client for operation in self.evidence))


class DeliveryCount(NamedTuple):
    """How often messages had their effect. Exactly once: all of them in `once`."""

    never: int
    once: int
    twice: int
    more: int  # three times or more often
    unsent: int  # effects of values that nobody sent

    def __str__(self) -> str:
        text = f"{self.once} once, {self.twice} twice, {self.never} never"
        text += f", {self.more} more often" if self.more else ""
        return text + (f", and {self.unsent} that nobody sent" if self.unsent else "")


def delivery(sent: Iterable[Value], effects: Iterable[Value]) -> DeliveryCount:
    """Count, for each of the values sent, how often it is among the effects."""
    times = Counter(effects)
    often = Counter(times.pop(value, 0) for value in set(sent))
    more = often.total() - often[0] - often[1] - often[2]
    return DeliveryCount(often[0], often[1], often[2], more, times.total())


@dataclass(frozen=True)
class Report:
    """What the checker found. `str()` of it is the short version for people.

    anomalies: name -> what was found under it; a name with nothing is not there.
    counts: values "sent", and of these "acknowledged", "unknown" and "failed" (a value sent several
        times counts once, with its best outcome); messages "polled"; values with "duplicates" in
        the log; values polled that are "unsent": the history does not say who sent them.
    delivered: group -> how often its successful polls returned each value that is in the log, of
        the topics that it polled.
    """

    anomalies: dict[str, list[Anomaly]]
    counts: dict[str, int]
    delivered: dict[str, DeliveryCount]

    def ok(self, allow: Collection[str] = ()) -> bool:
        """Whether nothing was found but what is allowed. Raises CheckerError for a false name."""
        for name in allow:
            if name not in NAMES:
                raise CheckerError(
                    f"there is no anomaly {name!r}", fix=f"allow a set of {', '.join(NAMES)}"
                )
        return all(name in allow for name in self.anomalies)

    def __str__(self) -> str:
        shown = ["sent", "acknowledged"]
        shown += [name for name in ("unknown", "failed", "unsent") if self.counts[name]]
        lines = [", ".join(f"{name} {self.counts[name]}" for name in shown)]
        if list(self.delivered) == [""]:
            lines[0] += f", delivered {self.delivered['']}"
        else:
            for group, count in self.delivered.items():
                lines.append(f"delivered to {group or 'no group'}: {count}")
        for name, found in self.anomalies.items():
            lines.append(f"{name}: {len(found)}")
            lines += [f"  {anomaly.what}" for anomaly in found[:3]]
        return "\n".join(lines if self.anomalies else [*lines, "no anomaly"])
