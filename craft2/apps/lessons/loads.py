"""The loads that the notebooks measure: producers in a closed loop, and key order over a growth."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import tempfile
import threading
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from craft2.apps.bench.disk import file_per_message
from craft2.apps.bench.harness import Operation, closed_loop
from craft2.apps.bench.results import Result, Results
from craft2.apps.bench.scenarios import bench_in
from craft2.apps.ingestion.flights import FlightEvent, flights
from craft2.clock import SystemClock
from phase1_file_queue.partitioned_queue import PartitionedQueue
from phase1_file_queue.queue_consumer import QueueConsumer

VALUE_BYTES = 170  # about what a flight takes


def produce_flights(queue: PartitionedQueue, client: int) -> Operation:
    """An operation that produces one flight; each client begins elsewhere in the same thousand."""
    events = _first_thousand()
    turn = itertools.cycle(events[15 * client :] + events[: 15 * client])

    def operation() -> None:
        flight = next(turn)
        queue.produce(flight.key, flight.value, timestamp=flight.event_time_ms)

    return operation


def queue_rate(folder: Path, *, fsync: bool, seconds: float = 0.4) -> float:
    """Messages a second that one client gets into a new queue in `folder`."""
    with _new_queue(folder, fsync) as queue:
        return closed_loop(partial(produce_flights, queue), seconds=seconds).calls_per_s


def bare_rate(folder: Path, *, seconds: float = 0.4) -> float:
    """Files a second by the same system calls with nothing around them: what the disk allows."""
    inside = Path(_new_folder(folder))
    return closed_loop(partial(file_per_message, inside), seconds=seconds).calls_per_s


def measure_clients(
    store: Results, clients: Sequence[int] = (1, 4, 16, 64), seconds: float = 0.6
) -> list[Result]:
    """Measure the queue with and without fsync at each number of clients; keep the rows.

    Clients are threads of this process that share one queue.
    """
    with bench_in(store.path) as bench:
        for fsync, count in itertools.product((True, False), clients):
            with _new_queue(bench.folder, fsync) as queue:
                make = partial(produce_flights, queue)
                load = closed_loop(make, clients=count, seconds=seconds, warmup=1)
            bench.add(
                load,
                phase=1,
                backend="file queue, fsync" if fsync else "file queue, no fsync",
                scenario="produce flights",
                clients=count,
                size_bytes=VALUE_BYTES,
                acks="durable" if fsync else "written",
                fsync_policy="every message" if fsync else "never",
            )
        store.append(bench.rows)
        return bench.rows


def fill(queue: PartitionedQueue, events: Iterable[FlightEvent]) -> list[tuple[int, int]]:
    """Produce all `events`; returns (partition, offset) of each, in the order they were sent."""
    return [queue.produce(e.key, e.value, timestamp=e.event_time_ms) for e in events]


def consumption_order(root: str | os.PathLike[str], group: str) -> list[tuple[int, int]]:
    """(partition, offset) of every message of a queue, in the order one consumer polls them."""
    order: list[tuple[int, int]] = []
    with QueueConsumer(root, group) as consumer:
        while messages := consumer.poll():
            order += [(m.partition, m.offset) for m in messages]
            consumer.commit()
    return order


def drain(consumer: QueueConsumer) -> None:
    """Wait until a started consumer has handled all there is, or stopped at an error.

    Errors are read from `consumer.errors`, so that the log's copy does not appear a second time.
    """
    logging.getLogger("phase1_file_queue").addHandler(logging.NullHandler())
    clock, never = SystemClock(), threading.Event()
    while any(lag and p not in consumer.errors for p, lag in consumer.lag().items()):
        clock.wait(never, 0.01)


def overtaken(keys: Sequence[str], handled: Sequence[int]) -> list[tuple[int, int]]:
    """Where a key's order broke: (the message handled too late, a later one handled before it).

    keys: the key of each message in the order they were sent.
    handled: the same messages, as positions in `keys`, in the order they were handled.
    """
    latest: dict[str, int] = {}
    pairs = []
    for sent in handled:
        ahead = latest.setdefault(keys[sent], sent)
        if ahead > sent:
            pairs.append((sent, ahead))
        latest[keys[sent]] = max(ahead, sent)
    return pairs


@functools.cache
def _first_thousand() -> list[FlightEvent]:
    return list(flights(1000))


def _new_folder(folder: Path) -> str:
    return tempfile.mkdtemp(prefix="load-", dir=folder)


def _new_queue(folder: Path, fsync: bool) -> PartitionedQueue:
    return PartitionedQueue(_new_folder(folder), fsync=fsync)
