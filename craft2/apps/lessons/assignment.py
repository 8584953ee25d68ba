"""What notebook 11 uses: rebalances on paper, and what a real one has stopped."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from craft2.apps.lessons.groups import handle_slowly, lag_of
from craft2.events import Event
from phase2_groups.assignors import Assignment, Subscription, assignor
from phase2_groups.file_transport import FileTransport
from phase2_groups.group_messages import TopicPartition
from phase2_groups.transport import LATEST
from phase2_groups.worker_pool import WorkerPool


def rebalanced(
    strategy: str,
    topics: Mapping[str, int],
    members: Iterable[str],
    before: Mapping[str, Sequence[TopicPartition]] | None = None,
) -> Assignment:
    """Who reads what when these members, who had what `before` says, have rebalanced.

    A cooperative strategy may need two rounds; this is what comes out in the end.
    """
    owned = dict(before or {})
    chosen = assignor(strategy)
    while True:
        subscriptions = {
            member: Subscription(tuple(topics), tuple(owned.get(member, ())), generation=1)
            for member in members
        }
        shares = chosen.assign(topics, subscriptions)
        given = sum(len(mine) for mine in shares.values())
        if given == sum(topics.values()) or not chosen.cooperative:
            return shares
        owned = {member: list(mine) for member, mine in shares.items()}


def moves(
    before: Mapping[str, Sequence[TopicPartition]], after: Mapping[str, Sequence[TopicPartition]]
) -> int:
    """How many partitions had a reader before, and have another one now."""
    old = {partition: member for member, mine in before.items() for partition in mine}
    return sum(
        old.get(partition, member) != member for member, mine in after.items() for partition in mine
    )


def moves_of_each(
    strategies: Iterable[str], topics: Mapping[str, int], sizes: Sequence[int]
) -> dict[str, list[int]]:
    """strategy -> how many partitions each step moves, of a group that has these sizes in turn.

    Members come and go at the end: of five, `m4` was the last to come and is the first to go.
    """
    counts: dict[str, list[int]] = {}
    for strategy in strategies:
        before = rebalanced(strategy, topics, _members(sizes[0]))
        counts[strategy] = []
        for size in sizes[1:]:
            after = rebalanced(strategy, topics, _members(size), before)
            counts[strategy].append(moves(before, after))
            before = after
    return counts


def _members(size: int) -> list[str]:
    return [f"m{number}" for number in range(size)]


def print_shares(shares: Mapping[str, Sequence[TopicPartition]]) -> None:
    """A line a member: its partitions."""
    for member, mine in shares.items():
        print(f"{member}: {' '.join(f'{topic}-{number}' for topic, number in mine)}")


def stopped(events: Iterable[Event], since: int = 0) -> dict[TopicPartition, float]:
    """partition -> for how many seconds nobody had it, of those that were given up.

    since: leave out the first so many events.
    """
    given_up: dict[TopicPartition, int] = {}
    seconds: dict[TopicPartition, float] = {}
    for event in itertools.islice(events, since, None):
        if event.topic is None or event.partition is None:
            continue
        partition = event.topic, event.partition
        if event.kind == "revoked":
            given_up[partition] = event.when_ms
        elif event.kind == "assigned" and partition in given_up:
            seconds[partition] = (event.when_ms - given_up.pop(partition)) / 1000
    return seconds


def records_by_partition(root: str | os.PathLike[str], topic: str) -> dict[TopicPartition, int]:
    """How many records each partition of a topic holds."""
    with FileTransport(root) as files:
        count = files.metadata([topic])[topic]
        found = files.list_offsets({(topic, number): LATEST for number in range(count)})
        return {partition: listed.offset for partition, listed in found.items()}


def grow_group(
    address: str, topic: str, strategy: str, before: int, after: int
) -> tuple[list[Event], int]:
    """A group of processes that share a topic, and then become more.

    Returns its events, and how many of them are older than the growth. It reads on for a moment
    after it, so that there is something to see.
    """
    settings: dict[str, Any] = {
        "max_poll_records": 50,
        "partition_assignment_strategy": [strategy],
    }
    with WorkerPool(
        address, [topic], strategy, workers=before, handler=handle_slowly, **settings
    ) as pool:

        def shared_by(members: int) -> bool:
            shares = Counter(pool.owners().values()).values()
            even = len(shares) == members and max(shares) - min(shares) <= 1
            return even and lag_of(pool.events()) > 0

        pool.wait_until(lambda: shared_by(before))
        events = len(pool.events())
        pool.add(after - before)
        pool.wait_until(lambda: shared_by(after))
        enough = lag_of(pool.events()) - 1_000
        pool.wait_until(lambda: 0 <= lag_of(pool.events()) < enough)
        return pool.events(), events
