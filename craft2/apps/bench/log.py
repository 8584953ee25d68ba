"""The partition log: what group commit, batches and the page cache give.

The figures with an absolute target (3 M messages/s, 1 GB/s, ...) are shown as a ratio to it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from craft2.apps.bench.disk import VALUE
from craft2.apps.bench.harness import (
    MakeOperation,
    Operation,
    alternate,
    calls_per_second,
    closed_loop,
)
from craft2.apps.bench.queue import queue_clients
from craft2.apps.bench.scenarios import Bench, scenario
from craft2.record_batch import encode_values
from phase1_file_queue.log_config import FlushPolicy, LogConfig
from phase1_file_queue.partition_log import PartitionLog

THREADS = 64
MEGABYTE = 1_000_000


def appending(log: PartitionLog, size: int, client: int) -> Operation:
    """Encodes `size` values and appends them as one batch, as safe as the log's policy says."""
    values = [VALUE] * size

    def operation() -> None:
        log.append_durably(encode_values(values, timestamps=1_700_000_000_000))

    return operation


def log_clients(folder: Path, size: int, policy: FlushPolicy = "batch") -> MakeOperation:
    """Clients of one new log in `folder` that send batches of `size` messages."""
    return partial(appending, PartitionLog(folder / "log-0", LogConfig(flush_policy=policy)), size)


@scenario("group-commit", "the log, fsync every batch: 64 threads share syncs; beside the queue")
def group_commit(bench: Bench) -> None:
    """Rows by clients and batch size; three ratios to the message-file queue."""
    for size in (1, 100):
        for clients in (1, 4, 16, THREADS):
            load = closed_loop(
                log_clients(bench.new_folder("log"), size),
                clients=clients,
                seconds=bench.seconds(2.0),
                clock=bench.clock,
            )
            bench.add(
                load,
                phase=1,
                backend="log" if size == 1 else f"log, batches of {size}",
                scenario="produce",
                clients=clients,
                size_bytes=len(VALUE),
                messages_per_call=size,
                acks="durable",
                fsync_policy="every batch",
            )

    def rate(make: MakeOperation, clients: int, size: int = 1) -> float:
        load = closed_loop(make, clients=clients, seconds=bench.seconds(1.0), clock=bench.clock)
        return load.calls_per_s * size

    queue = queue_clients(bench.new_folder("queue"))
    for where in (contextlib.nullcontext(""), OneCore()):
        for size, peers, target in ((1, 1, 10.0), (1, THREADS, 5.0), (100, 1, 100.0)):
            log = log_clients(bench.new_folder("log"), size)
            with where as note:
                pairs = alternate(
                    lambda log=log, size=size: rate(log, THREADS, size),  # type: ignore[misc]
                    lambda peers=peers: rate(queue, peers),  # type: ignore[misc]
                )
            ours = f"log, 64 threads, batches of {size}{note}"
            peer = f"queue, {peers} client(s){note}"
            bench.compare("group-commit", ours, peer, pairs, target=target)


class OneCore:
    """Both contenders on one core, where the system can do that (Linux).

    Only one thread can run Python at a time. Handing that right to a thread on another core, which
    may have to be woken first, can cost more than the work that is handed over.
    """

    def __enter__(self) -> str:
        self.before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        if not self.before:
            return ""
        os.sched_setaffinity(0, {min(self.before)})
        return ", one core"

    def __exit__(self, *_: object) -> None:
        if self.before:
            os.sched_setaffinity(0, self.before)


@scenario("log", "one partition's throughput, in and out, encoding included")
def log(bench: Bench) -> None:
    """Four rates beside what was promised."""
    seconds = bench.seconds(2.0)
    values = [b"%05d" % number * 20 for number in range(1000)]
    quiet = PartitionLog(bench.new_folder("log") / "t-0", LogConfig(flush_policy="never"))
    durable = PartitionLog(bench.new_folder("log") / "t-0", LogConfig())

    def append(target: PartitionLog) -> None:
        target.append_durably(encode_values(values, timestamps=1_700_000_000_000))

    def clear(target: PartitionLog) -> None:
        target.reset_to(target.end_offset)

    def encoded_and_appended() -> float:
        clear(quiet)
        return 1000 * calls_per_second(partial(append, quiet), seconds=seconds, clock=bench.clock)

    def read_all(source: PartitionLog) -> None:
        offset, step = source.log_start, 1024**2
        while True:
            piece = source.read(offset, step)
            if not piece.size:
                return
            piece.read()
            offset += 1000 * max(1, piece.size // batch)

    def read_rate() -> float:
        size = quiet.size
        return (
            size
            / MEGABYTE
            * calls_per_second(partial(read_all, quiet), seconds=seconds, clock=bench.clock)
        )

    def durable_in() -> float:
        clear(durable)
        rate = calls_per_second(partial(append, durable), seconds=seconds, clock=bench.clock)
        return rate * batch / MEGABYTE

    def durable_out() -> float:
        size = durable.size
        rate = calls_per_second(partial(read_all, durable), seconds=seconds, clock=bench.clock)
        return rate * size / MEGABYTE

    batch = len(encode_values(values, timestamps=1_700_000_000_000))
    bench.promise("log", "encode and append, no fsync", encoded_and_appended, 3e6)
    bench.promise("log", "read from page cache", read_rate, 1000, unit="MB/s")
    bench.promise("log", "in, fsync every batch of 1,000", durable_in, 50, unit="MB/s")
    bench.promise("log", "out", durable_out, 100, unit="MB/s")


_WRITE_AND_DIE = """
import os, sys
from craft2.record_batch import encode_values
from phase1_file_queue.partition_log import PartitionLog
log = PartitionLog(sys.argv[1])
batch = encode_values([b"x" * 1000] * 1000)
for _ in range(int(sys.argv[2])):
    log.append_as_leader(batch, 0)
    if log.end_offset % 100_000 == 0:
        log.flush()
os._exit(1)
"""


@scenario("open", "opening a log of 10 GB after a clean stop, and after a crash")
def open_log(bench: Bench) -> None:
    """Opens a second, beside one: a 1 GB log with --quick. Needs 10 GB of disk for a moment."""
    folder = bench.new_folder("open")
    gigabytes = 1 if bench.quick else 10
    directory = folder / "t-0"
    batch = encode_values([b"x" * 1000] * 1000)
    with PartitionLog(directory, LogConfig(flush_policy="never")) as filled:
        while filled.end_offset * 1000 < gigabytes * 1e9:
            filled.append_as_leader(batch, 0)
        bench.say(f"a log of {filled.size / 1e9:.1f} GB in {len(filled.segment_bases)} segments")

    def opened() -> float:
        start = time.perf_counter()
        again = PartitionLog(directory)
        seconds = time.perf_counter() - start
        checked = again.recovery.scanned_bytes / MEGABYTE
        bench.say(f"opened in {seconds * 1000:.1f} ms, {checked:,.1f} MB checked")
        again.close()
        return 1 / seconds

    ours = f"open {gigabytes} GB after a clean stop"
    bench.compare("open", ours, "1 s", alternate(opened, lambda: 1.0), unit="opens/s", target=1.0)

    def crashed() -> float:
        command = [sys.executable, "-c", _WRITE_AND_DIE, str(directory), "150"]
        subprocess.run(command, check=False, env={**os.environ})
        return opened()

    ours = f"open {gigabytes} GB after a crash"
    bench.compare("open", ours, "1 s", alternate(crashed, lambda: 1.0), unit="opens/s", target=1.0)
    shutil.rmtree(folder)
