"""What the lesson on the log measures: calls, rates, and a log that a power cut leaves behind."""

from __future__ import annotations

import tempfile
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from craft2.apps.bench.harness import MakeOperation, closed_loop
from craft2.apps.ingestion.flights import FlightEvent, batch_of
from craft2.disk import CountingDisk, RealDisk
from craft2.errors import Craft2Error
from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import encode_values, iter_headers
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.partitioned_queue import PartitionedQueue
from phase1_file_queue.segment import Segment, segment_path

SYNCED, APPENDED = 5, 8  # batches of the log that loses its power
LOST = "/flights-0"
_SEGMENT = segment_path(LOST, 0)


def queue_calls(folder: Path, events: Sequence[FlightEvent]) -> Counter[str]:
    """The calls on the disk behind these flights as one file each; the queue is open already."""
    disk: Any = CountingDisk(RealDisk())
    with PartitionedQueue(tempfile.mkdtemp(dir=folder), 1, disk=disk) as queue:
        disk.calls.clear()
        for event in events:
            queue.produce(event.key, event.value, timestamp=event.event_time_ms)
        return Counter(disk.calls)


def log_calls(folder: Path, events: Sequence[FlightEvent], size: int) -> Counter[str]:
    """The same for a log, each batch of `size` flights made durable before the next."""
    disk: Any = CountingDisk(RealDisk())
    with PartitionLog(tempfile.mkdtemp(dir=folder), disk=disk) as log:
        disk.calls.clear()
        for batch in batches(events, size):
            log.append_durably(batch)
        return Counter(disk.calls)


def call_table(folder: Path, events: Sequence[FlightEvent]) -> dict[str, int]:
    """Print the calls, writes and syncs that these flights take; returns the calls of each way."""
    table = {"a file each": queue_calls(folder, events)}
    for size in (1, 10, 100):
        table[f"log, by {size}"] = log_calls(folder, events, size)
    print(f"{len(events):>5,} flights {'calls':>8}{'writes':>8}{'syncs':>8}")
    for way, count in table.items():
        syncs = count["sync"] + count["sync_dir"]
        print(f"{way:14}{count.total():>8,}{count['write_at']:>8,}{syncs:>8,}")
    return {way: count.total() for way, count in table.items()}


def batches(events: Sequence[FlightEvent], size: int) -> list[bytes]:
    """The flights in record batches of `size`."""
    return [batch_of(events[start : start + size]) for start in range(0, len(events), size)]


def segment_of(log: PartitionLog, offset: int) -> Segment:
    """The segment of an open log that holds `offset`."""
    return log._state.segments[bisect_right(log.segment_bases, offset) - 1]


def batches_walked(segment: Segment, offset: int, start: int) -> int:
    """How many batches a reader looks at, from position `start` to the one with `offset`."""
    headers = (header for _, header in segment.headers(start))
    return 1 + next(n for n, header in enumerate(headers) if header.next_offset > offset)


def longest_walk(segment: Segment) -> int:
    """The most batches a reader looks at for any offset of the segment, with its index."""
    return max(
        batches_walked(segment, offset, segment.offset_index.lookup(offset)[1])
        for offset in (header.base_offset for _, header in segment.headers())
    )


class NotLetGoError(Craft2Error):
    """Threads that append wait for ever."""


def _let_go(log: PartitionLog, threads: int = 4, limit_s: float = 5.0) -> None:
    """Before anything is measured: are threads that append together ever let go?"""
    batch = encode_values([b"x"])
    waiting = [
        threading.Thread(target=log.append_durably, args=(batch,), daemon=True)
        for _ in range(threads)
    ]
    for thread in waiting:
        thread.start()
    deadline = time.monotonic() + limit_s
    for thread in waiting:
        thread.join(max(0.0, deadline - time.monotonic()))
    stuck = sum(thread.is_alive() for thread in waiting)
    if stuck:
        raise NotLetGoError(
            f"{stuck} of {threads} threads that appended still wait after {limit_s:.0f} s",
            'see `check("3.1")`: every waiter of a group needs its outcome and its way out',
        )


def log_rate(
    folder: Path, *, clients: int, share: bool = True, size: int = 1, seconds: float = 0.4
) -> float:
    """Durable messages a second into a new log, from `clients` threads in batches of `size`.

    share: whether threads that wait together share a sync; else each syncs for itself, in turn.
    """
    with PartitionLog(tempfile.mkdtemp(dir=folder)) as log:
        if share:
            _let_go(log)
        make = _appending(log, share, size)
        return size * closed_loop(make, clients=clients, seconds=seconds).calls_per_s


def syncs_per_message(
    folder: Path, *, clients: int, share: bool = True, size: int = 1, calls: int = 50
) -> float:
    """The syncs that a durable message costs where `log_rate` has its messages a second."""
    disk: Any = CountingDisk(RealDisk())
    with PartitionLog(tempfile.mkdtemp(dir=folder), disk=disk) as log:
        disk.calls.clear()
        closed_loop(_appending(log, share, size), clients=clients, calls=calls, warmup=0)
        syncs: int = disk.calls["sync"]
        return syncs / (clients * calls * size)


def _appending(log: PartitionLog, share: bool, size: int) -> MakeOperation:
    """What each client repeats: to append a batch of `size` messages, durably."""
    turn = threading.Lock()
    batch = encode_values([b"x" * 170] * size)

    def alone() -> None:
        with turn:
            log.append_as_leader(batch, 0)
            log.flush()

    return lambda client: partial(log.append_durably, batch) if share else alone


def log_without_power(keep: float, seed: int) -> FaultyDisk:
    """The disk after a power cut: a log of 8 batches of one flight, of which 5 were synced.

    keep: the chance of each unsynced sector to have arrived; 1: it was only killed.
    """
    disk = FaultyDisk()
    log = PartitionLog(LOST, LogConfig(flush_policy="never"), disk=disk)
    for number in range(APPENDED):
        if number == SYNCED:
            log.flush()
        log.append_as_leader(encode_values([b"flight %d, " % number * 100]), 0)
    return disk.power_loss(seed=seed, keep=keep)


def power_cuts(count: int) -> None:
    """Print how often a log ends where, and what was cut, after `count` power cuts."""
    ends: Counter[tuple[int, str]] = Counter()
    for seed in range(count):
        with PartitionLog(LOST, disk=log_without_power(0.5, seed)) as log:
            cuts = log.recovery.cuts
            done = "nothing to cut" if not cuts else "a torn tail, cut"
            if any(cut.kept_as for cut in cuts):
                done = "a lost sector, whole batches behind it: cut, and kept in a file"
            ends[log.end_offset, done] += 1
    for (end, done), times in sorted(ends.items()):
        print(f"{times} x the log ends at {end}: {done}")


def flipped_bit(position: int) -> FaultyDisk:
    """A disk with that log, of which everything arrived; but one bit of it flipped."""
    disk = log_without_power(1.0, 0)
    file = disk.open(_SEGMENT, "write")
    file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 1]))
    return disk


def batches_left(disk: FaultyDisk) -> int:
    """How many batches, whole or not, are in the file of that log."""
    return sum(1 for _ in iter_headers(disk.read(_SEGMENT)))
