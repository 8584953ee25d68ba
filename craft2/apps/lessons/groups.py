"""What the notebooks on consumer groups use: topics full of flights, and groups to look at."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from craft2.apps.ingestion.flights import flights
from craft2.clock import SystemClock
from craft2.disk import RealDisk
from craft2.events import Event
from phase1_file_queue.publish import publish
from phase2_groups.committed_offsets import CommittedOffsets
from phase2_groups.consumer import Consumer
from phase2_groups.consumer_errors import raise_commit_error
from phase2_groups.fetch_buffer import ConsumerRecord
from phase2_groups.file_transport import FileTransport, create_topic
from phase2_groups.group_member import commit_error
from phase2_groups.group_messages import Commit, OffsetToCommit, TopicPartition
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig
from phase2_groups.worker_pool import WorkerPool


def fill_topic(
    root: str | os.PathLike[str], topic: str, partitions: int, count: int, keyed: bool = True
) -> None:
    """Make (or grow) a topic and send `count` flights to it, with their carriers as keys.

    keyed: False sends them without keys, so that every partition gets its share.
    """
    create_topic(root, topic, partitions)
    with FileTransport(root) as files, Producer(ProducerConfig(), files) as producer:
        for number, event in enumerate(flights(count)):
            place = {"key": event.key} if keyed else {"partition": number % partitions}
            producer.send(topic, event.value, **place)  # type: ignore[arg-type]


def take_turns(consumers: Sequence[Consumer], reached: Callable[[], object]) -> None:
    """Poll several consumers of one process in turn until `reached()` is true."""
    for one in itertools.cycle(consumers):
        if reached():
            return
        one.poll(20)


def print_owners(owners: Mapping[TopicPartition, str]) -> None:
    """A line a consumer: its partitions."""
    for who in sorted(set(owners.values())):
        mine = sorted(partition for partition, owner in owners.items() if owner == who)
        print(f"{who}: {' '.join(f'{topic}-{number}' for topic, number in mine)}")


def reasons(events: Sequence[Event]) -> list[str]:
    """Why each rebalance began, in order."""
    return [event.because for event in events if event.kind == "rebalance-begins"]


def handle_slowly(record: ConsumerRecord) -> None:
    """A handler that takes a millisecond, as one that asks another service does."""
    SystemClock().wait(threading.Event(), 0.001)


def handle_more_slowly(record: ConsumerRecord) -> None:
    """Five milliseconds."""
    SystemClock().wait(threading.Event(), 0.005)


def commit_to_files(folder: str | os.PathLike[str], partitions: int) -> None:
    """Commit an offset for each partition as in phase 1: a file each, replaced atomically."""
    disk = RealDisk()
    disk.mkdir(os.fspath(folder))
    for number in range(partitions):
        publish(disk, os.path.join(folder, f"flights-{number}.offset"), b"100\n")


def commit_to_log(folder: str | os.PathLike[str], partitions: int) -> None:
    """The same offsets as one commit to a log."""
    offsets = CommittedOffsets(folder)
    offsets.commit(
        "billing", [("flights", number, OffsetToCommit(offset=100)) for number in range(partitions)]
    )
    offsets.close()


def lag_of(events: Sequence[Event]) -> int:
    """How much a group has still before it, as its members last reported; -1: not all is known."""
    partitions = {(e.topic, e.partition) for e in events if e.kind == "assigned"}
    last = {(e.topic, e.partition): e.data["lag"] for e in events if e.kind == "progress"}
    if not partitions or partitions - last.keys() or None in last.values():
        return -1
    return sum(int(str(lag)) for lag in last.values())


def at_rest(events: Sequence[Event], running: Iterable[str], partitions: int) -> bool:
    """Whether an eager group has shared out so many partitions among all that run, and no
    rebalance has begun since. (In an eager group everybody is told its share every time.)"""
    of_group = [event for event in events if event.kind in ("rebalance-begins", "stable")]
    if not of_group or of_group[-1].kind != "stable":
        return False
    this = [event for event in events if event.generation == of_group[-1].generation]
    shares = [event for event in this if event.kind == "assigned"]
    told = {event.who for event in this if event.kind in ("assigned", "idle")}
    return told >= set(running) and len(shares) == partitions


def until_taken_over(
    pool: WorkerPool, end: Callable[[str], object], partition: TopicPartition, of: int
) -> float:
    """Seconds from when a partition's owner ends (`end(name)`) until all `of` partitions have
    owners again, and it is none of them. Begins when the group is at rest: who says goodbye in the
    middle of a rebalance waits for its end."""
    pool.wait_until(lambda: at_rest(pool.events(), pool.running(), of))
    name = pool.owners()[partition]
    clock = SystemClock()
    began = clock.monotonic()
    end(name)
    pool.wait_until(lambda: len(pool.owners()) == of and name not in pool.owners().values())
    return clock.monotonic() - began


def commit_late(address: str, assigned: Event) -> None:
    """Send the commit of a member that slept since it reported this event, "assigned".

    Raises CommitRefused if its group has gone on without it meanwhile.
    """
    group, topic, number = str(assigned.group), str(assigned.topic), int(assigned.partition or 0)
    request = Commit(
        token="late",
        member_id=str(assigned.data["member"]),
        generation=int(assigned.generation or 0),
        offsets=((topic, number, OffsetToCommit(offset=1)),),
    )
    with FileTransport(address.removeprefix("file:")) as files:
        error = commit_error(files.ask_group(group, request, timeout_ms=10_000))
    raise_commit_error(error, group, group_instance_id=None)


def time_to_drain(address: str, topic: str, members: int) -> float:
    """Seconds that a new group of so many processes, five ms a record, takes for a topic.

    From when each partition has an owner to when nothing is left.
    """
    group = f"{members}-members"
    settings: dict[str, Any] = {"handler": handle_more_slowly, "max_poll_records": 10}
    with WorkerPool(address, [topic], group, workers=members, **settings) as pool:
        pool.wait_until(lambda: len(set(pool.owners().values())) == members)
        clock = SystemClock()
        began = clock.monotonic()
        pool.wait_until(lambda: lag_of(pool.events()) == 0)
        return clock.monotonic() - began


def record_a_story(address: str, topic: str) -> list[Event]:
    """Two members share a topic, a third one joins, one is killed, and the rest reads to the end.

    Returns what happened.
    """
    settings: dict[str, Any] = {"handler": handle_slowly, "max_poll_records": 50}
    with WorkerPool(address, [topic], "story", workers=2, **settings) as pool:
        pool.wait_until(lambda: len(set(pool.owners().values())) == 2)
        pool.add()
        pool.wait_until(lambda: len(set(pool.owners().values())) == 3)
        pool.kill(pool.running()[0])
        pool.wait_until(lambda: len(set(pool.owners().values())) == 2)
        pool.wait_until(lambda: lag_of(pool.events()) == 0)
        return pool.events()
