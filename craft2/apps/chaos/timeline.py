"""What happened when, as all threads of a run note it: seconds since it began.

>>> from craft2.clock import ManualClock
>>> clock = ManualClock()
>>> timeline = Timeline(clock)
>>> with timeline.struck("pause", 2):
...     clock.advance(3)
>>> timeline.faults
[Struck(kind='pause', broker=2, start_s=0.0, end_s=3.0)]
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from craft2.clock import Clock


@dataclass
class Struck:
    """What a broker suffered, and from when to when."""

    kind: str
    broker: int
    start_s: float
    end_s: float


@dataclass
class Timeline:
    """See the module.

    events: what to tell, in words. acknowledged, consumed: messages, by whole second. leaders: when
    which partition was led by whom from then on. ack_times: of each partition.
    """

    clock: Clock
    faults: list[Struck] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    acknowledged: Counter[int] = field(default_factory=Counter)
    consumed: Counter[int] = field(default_factory=Counter)
    leaders: list[tuple[float, int, int]] = field(default_factory=list)
    ack_times: dict[int, list[float]] = field(default_factory=dict)
    end_s: float = 0.0

    def __post_init__(self) -> None:
        self._zero = self.clock.monotonic()

    def now(self) -> float:
        """Seconds since the run began."""
        return self.clock.monotonic() - self._zero

    @contextlib.contextmanager
    def struck(self, kind: str, *brokers: int) -> Iterator[None]:
        """While it lasts, these brokers suffer something."""
        found = [Struck(kind, broker, self.now(), -1.0) for broker in brokers]
        self.faults += found
        try:
            yield
        finally:
            for one in found:
                one.end_s = self.now()

    def note_acknowledged(self, partition: int, now: float) -> None:
        """One message more."""
        self.acknowledged[int(now)] += 1
        self.ack_times.setdefault(partition, []).append(now)

    def longest_gap(self) -> tuple[float, float]:
        """(when it began, how long it was): the longest time without an acknowledgement anywhere,
        from the first one on."""
        return _longest(time for times in self.ack_times.values() for time in times)

    def longest_gap_of_one(self) -> tuple[float, float]:
        """The same for the partition that had the longest."""
        gaps = map(_longest, self.ack_times.values())
        return max(gaps, key=lambda gap: gap[1], default=(0.0, 0.0))


def _longest(times: Iterable[float]) -> tuple[float, float]:
    gaps = ((a, b - a) for a, b in pairwise(sorted(times)))
    return max(gaps, key=lambda gap: gap[1], default=(0.0, 0.0))
