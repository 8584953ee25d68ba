"""Runs whose traces notebook 05 reads in Spark: logs by key, policies, a kill, stalls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from craft2.apps.bench.harness import closed_loop
from craft2.apps.bench.log import appending
from craft2.apps.bench.results import Result, Results
from craft2.apps.bench.scenarios import bench_in
from craft2.apps.ingestion.flights import Flight, FlightEvent
from craft2.apps.lessons.log_loads import batches
from craft2.apps.lessons.processes import Worker, consume, produce_steadily
from craft2.clock import SystemClock
from craft2.events import EventLog
from craft2.record_batch import encode_values
from phase1_file_queue.log_config import FlushPolicy, LogConfig
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.partitioned_queue import PartitionedQueue
from phase1_file_queue.partitioner import partition_for

_BATCH = 500
_POLICIES: tuple[tuple[FlushPolicy, str], ...] = (
    ("batch", "every batch"),
    ("interval", "every 100 ms"),
    ("never", "never"),
)


def fill_logs(
    root: Path,
    topic: str,
    events: Iterable[FlightEvent],
    key: str,
    num_partitions: int = 4,
) -> None:
    """Logs root/topic-0, topic-1, ... with the events, each in the partition of its key.

    key: the field of the flight to use, "carrier" or "tailnum"; the carrier where it is null.
    """
    waiting: list[list[FlightEvent]] = [[] for _ in range(num_partitions)]
    for event in events:
        flight = msgspec.json.decode(event.value, type=Flight)
        event = event._replace(key=getattr(flight, key) or event.key)
        waiting[partition_for(event.key.encode(), num_partitions)].append(event)
    for partition, all_of_it in enumerate(waiting):
        with PartitionLog(root / f"{topic}-{partition}", LogConfig(flush_policy="never")) as log:
            for batch in batches(all_of_it, _BATCH):
                log.append_durably(batch)


def measure_policies(
    store: Results, clients: Sequence[int] = (1, 4, 16), seconds: float = 0.8
) -> list[Result]:
    """Measure single messages into a log, by flush policy and clients (threads); keep the rows."""
    with bench_in(store.path) as bench:
        for policy, words in _POLICIES:
            for count in clients:
                folder = bench.new_folder("log")
                with PartitionLog(folder / "log-0", LogConfig(flush_policy=policy)) as log:
                    bench.add(
                        closed_loop(partial(appending, log, 1), clients=count, seconds=seconds),
                        phase=1,
                        backend="log",
                        scenario="lesson 05",
                        clients=count,
                        size_bytes=100,
                        acks="durable" if policy == "batch" else "written",
                        fsync_policy=words,
                    )
        store.append(bench.rows)
        return bench.rows


def record_lag(events: Path, root: Path, per_second: int = 200) -> None:
    """A producer and a consumer, each a process; the consumer is killed, and another one started.

    The file `events` gets the lag every 50 ms, and an event for the kill and one for the restart.
    The steps follow counts, so that a slow machine tells the same story. Raises WorkerError if one
    of the processes ends by itself.
    """
    clock, never = SystemClock(), threading.Event()
    PartitionedQueue(root).close()
    producer = Worker(produce_steadily, root, 0, per_second)
    consumers = [Worker(consume, root, "billing", 10**9)]
    working = [producer, *consumers]
    for worker in working:
        worker.follow()
    with EventLog(events, who="watcher") as log:

        def lag_until(reached: Callable[[int], bool]) -> None:
            lag = -1
            while not reached(lag):
                for worker in working:
                    if not worker.running:
                        worker.wait_for(len(worker.acks) + 1)  # raises, with what it said
                clock.wait(never, 0.05)
                handled = {place for worker in consumers for place in list(worker.acks)}
                lag = len(producer.acks) - len(handled)
                log.emit("lag", topic=root.name, group="billing", data={"messages": max(lag, 0)})

        try:
            lag_until(lambda _: len(consumers[0].acks) >= 150)
            working.pop().kill()
            log.emit("killed", group="billing", because="kill -9 by the notebook")
            lag_until(lambda lag: lag >= 200)
            consumers.append(Worker(consume, root, "billing", 10**9))
            consumers[1].follow()
            working.append(consumers[1])
            log.emit("restarted", group="billing", because="another process of the same group")
            lag_until(lambda lag: 0 <= lag <= 5)
            enough = len(producer.acks) + 100
            lag_until(lambda _: len(producer.acks) >= enough)
        finally:
            for worker in working:
                worker.kill()


def record_appends(events: Path, directory: Path, count: int = 3000) -> None:
    """Append `count` messages durably, one by one, to a log of small segments.

    The file `events` gets an event "append" with its latency for each, and the log's own events.
    """
    clock = SystemClock()
    batch = encode_values([b"x" * 200])
    began = clock.monotonic()
    with EventLog(events, who="writer") as log:
        config = LogConfig(segment_bytes=200_000)
        with PartitionLog(directory, config, events=log) as appended:
            for _ in range(count):
                start = clock.monotonic()
                result = appended.append_durably(batch)
                ms = (clock.monotonic() - start) * 1000
                log.emit(
                    "append",
                    offset=result.first_offset,
                    data={"second": start - began, "ms": ms},
                )
