"""What a rebalance costs: how long partitions stand still.

Those of a consumer that is killed, or leaves: from the signal until the last of them has had a
record handled by somebody else. A silent death is noticed when the session timeout is over, a
leaving consumer says so.

Those that stay where they are while a third consumer joins two: the longest time without a record
of one of them. With the eager protocol (`range`) everybody gives up everything first, with the
cooperative one (`cooperative-sticky`) only what moves.

The workers and their notes are those of `groups`. A poll returns few records, because a consumer
takes part in a rebalance between two polls; and a fetch one small batch of each partition, so that
they take turns quickly.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

from craft2.apps.bench.groups import VALUE, Group, Handled, full_topic
from craft2.apps.bench.harness import Load, Pairs
from craft2.apps.bench.scenarios import Bench, scenario

PARTITIONS, PER_BATCH = 8, 5
SESSION_TIMEOUT_MS = 1_000  # where one is killed
SMALL_STEPS = {"max_poll_records": PER_BATCH, "max_partition_fetch_bytes": 1}
STRATEGIES = ("range", "cooperative-sticky")


def seconds_without(group: Group, end: Callable[[str], None]) -> float:
    """End a consumer; how long until all its partitions have been read again? Then replace it."""
    group.settle()
    victim = group.running()[0]
    lost = {number for (_, number), who in group.owners().items() if who == victim}
    notes, start_s = group.notes(), time.time()
    end(victim)

    def first() -> dict[int, float]:
        """partition -> when it was first read by another."""
        others = [note for note in notes.read() if note.who != victim and note.partition in lost]
        return {note.partition: note.when_s for note in reversed(others)}

    group.wait_until(lambda: first().keys() == lost)
    seconds = max(first().values()) - start_s
    group.add()
    return seconds


class Gaps(NamedTuple):
    """Of the partitions that stay where they are while a third consumer joins two."""

    before_s: float  # the longest time without a record, in a second without a rebalance
    rebalance_s: float  # the same, during the rebalance
    given_up: int  # how many of them were given up, and given back


def gaps(bench: Bench, address: str, strategy: str) -> Gaps:
    """Let a third consumer join two, and look at the partitions that stay."""
    settings = {"partition_assignment_strategy": (strategy,), **SMALL_STEPS}
    with Group(bench, address, PARTITIONS, workers=2, **settings) as group:
        group.settle()
        notes, quiet_s = group.notes(), time.time()
        group.work(1.0)
        owners, count = group.owners(), len(group.events())
        group.add()
        group.settle()
        group.work(0.3)
        events, now = group.events()[count:], group.owners()
    stay = {number for topic, number in owners if owners[topic, number] == now.get((topic, number))}
    begins_ms = min(event.when_ms for event in events if event.kind == "rebalance-begins")
    ends_ms = max(event.when_ms for event in events if event.kind == "assigned")
    given_up = {event.partition for event in events if event.kind == "revoked"} & stay
    handled = notes.read()
    return Gaps(
        longest_gap(handled, stay, quiet_s, quiet_s + 1.0),
        longest_gap(handled, stay, begins_ms / 1000 - 0.2, ends_ms / 1000 + 0.2),
        len(given_up),
    )


def longest_gap(notes: list[Handled], partitions: set[int], start_s: float, end_s: float) -> float:
    """Seconds without a record of one partition, at most, from `start_s` to `end_s`.

    A partition of which there is no record at all has stood still all the time.

    >>> notes = [Handled(1.0, 0, "a"), Handled(1.5, 1, "a"), Handled(3.0, 0, "b")]
    >>> longest_gap(notes, {0, 1}, 1.0, 4.0), longest_gap(notes, {0, 1}, 0.0, 3.0)
    (2.5, 2.0)
    """
    seen = [note for note in notes if start_s <= note.when_s <= end_s]
    times = ([note.when_s for note in seen if note.partition == one] for one in partitions)
    return max(b - a for some in times for a, b in pairwise([start_s, *some, end_s]))


def _keep(bench: Bench, what: str, taken_s: list[float], notes: str = "") -> None:
    """A row whose latencies are these times."""
    latencies_ms = array("d", [1000 * seconds for seconds in taken_s])
    load = Load(latencies_ms, Counter(), "", sum(taken_s))
    bench.add(
        load,
        phase=2,
        backend=what,
        scenario="stands still",
        clients=3,
        size_bytes=len(VALUE),
        notes=notes,
    )


@scenario("rebalance", "kill a consumer, let one leave, add one: how long partitions stand still")
def rebalance(bench: Bench) -> None:
    """Times beside what was promised, a row each; the cooperative protocol beside the eager one."""
    rounds, warmup = (1, 0) if bench.quick else (5, 1)
    address = full_topic(bench, PARTITIONS, PER_BATCH)
    settings = {"session_timeout_ms": SESSION_TIMEOUT_MS, **SMALL_STEPS}
    with Group(bench, address, PARTITIONS, workers=3, **settings) as group:
        for what, end, limit_s in (
            ("a consumer is killed", group.kill, SESSION_TIMEOUT_MS / 1000 + 0.5),
            ("a consumer leaves", group.stop, 0.3),
        ):
            taken: list[float] = []

            def seconds(end: Callable[[str], None] = end, taken: list[float] = taken) -> float:
                taken.append(seconds_without(group, end))
                return taken[-1]

            bench.within("rebalance", what, seconds, limit_s, rounds=rounds, warmup=warmup)
            _keep(bench, what, taken[warmup:])
    _third_joins(bench, address, rounds)


def _third_joins(bench: Bench, address: str, rounds: int) -> None:
    """The partitions that stay, with each strategy in turn."""
    found: dict[str, list[Gaps]] = {strategy: [] for strategy in STRATEGIES}
    for _ in range(rounds):
        for strategy, several in found.items():
            several.append(gaps(bench, address, strategy))
    for strategy, several in found.items():
        given_up = max(each.given_up for each in several)
        taken = [each.rebalance_s for each in several]
        _keep(bench, f"{strategy}, a third joins", taken, f"{given_up} given up that stay")
    eager, cooperative = found.values()

    def rates(seconds: list[float]) -> list[float]:
        return [1 / each for each in seconds]

    during = rates([each.rebalance_s for each in cooperative])
    for peer, peers, target in (
        ("the same, range", rates([each.rebalance_s for each in eager]), 1.0),
        ("the same, in a quiet second", rates([each.before_s for each in cooperative]), 0.5),
    ):
        ours = "stays, cooperative-sticky, a third joins"
        bench.compare("rebalance", ours, peer, Pairs(during, peers), unit="1/s", target=target)
