"""The loads that the notebooks measure: producers in a closed loop, and key order over a growth."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from craft2.apps.bench.disk import file_per_message
from craft2.apps.bench.harness import MakeOperation, Operation, closed_loop
from craft2.apps.bench.results import Result, Results
from craft2.apps.bench.scenarios import Bench, bench_in
from craft2.apps.ingestion.flights import FlightEvent, flights
from craft2.clock import SystemClock
from craft2.errors import Craft2Error
from phase1_file_queue.partitioned_queue import PartitionedQueue
from phase1_file_queue.queue_consumer import QueueConsumer

VALUE_BYTES = 170  # about what a flight takes

# Lessons read errors from `consumer.errors`: the log's copy must not appear a second time.
logging.getLogger("phase1_file_queue").addHandler(logging.NullHandler())


class StandsStillError(Craft2Error):
    """A consumer does not get on, and reports no error."""


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
    store: Results, clients: Sequence[int] = (1, 4, 16, 64), seconds: float = 0.5
) -> list[Result]:
    """Measure the queue, with and without fsync, and the same calls bare; keep the rows.

    Clients are threads of this process; those of the queue share one queue.
    """
    with bench_in(store.path) as bench:
        for count in clients:
            for backend, fsync in (("queue", True), ("queue, no fsync", False)):
                with _new_queue(bench.folder, fsync) as queue:
                    _measure(bench, backend, count, seconds, partial(produce_flights, queue))
            inside = bench.new_folder("bare")
            _measure(bench, "bare calls", count, seconds, partial(file_per_message, inside))
        store.append(bench.rows)
        return bench.rows


def _measure(bench: Bench, backend: str, clients: int, seconds: float, make: MakeOperation) -> None:
    durable = "no fsync" not in backend
    bench.add(
        closed_loop(make, clients=clients, seconds=seconds, warmup=1),
        phase=0 if backend == "bare calls" else 1,
        backend=backend,
        scenario="lesson 01",
        clients=clients,
        size_bytes=100 if backend == "bare calls" else VALUE_BYTES,
        acks="durable" if durable else "written",
        fsync_policy="every message" if durable else "never",
    )


def print_rates(rows: Sequence[Result]) -> None:
    """Print what `measure_clients` found, one line a measurement."""
    print(f"{'':16}{'clients':>8}{'a second':>10}{'p50 ms':>9}{'p99 ms':>9}{'success':>9}")
    for row in sorted(rows, key=lambda row: row.backend, reverse=True):
        print(f"{row.backend:16}{row.clients:>8}{row.messages_per_s:>10,.0f}", end="")
        p50, p99 = (f"{ms:.2f}" if ms is not None else "-" for ms in (row.p50_ms, row.p99_ms))
        print(f"{p50:>9}{p99:>9}{row.success_ratio:>9.1%}")


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


def account(
    sent: Iterable[tuple[int, ...]], handled: Iterable[tuple[int, ...]]
) -> tuple[list[tuple[int, ...]], int]:
    """(the messages that were never handled, how many were handled once too often).

    Both are (partition, offset) and perhaps more, which does not count.
    """
    times = Counter(message[:2] for message in handled)
    lost = sorted({message[:2] for message in sent} - times.keys())
    return lost, times.total() - len(times)


def drain(consumer: QueueConsumer, limit_s: float = 20.0) -> None:
    """Wait until a started consumer has committed all there is, or stopped at an error.

    Raises StandsStillError if that takes longer than `limit_s`.
    """
    clock, never = SystemClock(), threading.Event()
    give_up = clock.monotonic() + limit_s
    while any(lag and p not in consumer.errors for p, lag in consumer.lag().items()):
        if clock.monotonic() > give_up:
            raise StandsStillError(
                f"group {consumer.group!r} is still behind after {limit_s} s: {consumer.lag()}",
                "see what its handler waits for, and that your `finish` (exercise 2.1) passes",
            )
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
