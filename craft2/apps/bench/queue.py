"""The message-file queue beside a bare loop that makes the same system calls.

A file per message costs what it costs: the question is how much our code adds to it.
"""

from __future__ import annotations

import fcntl
import os
from functools import partial
from pathlib import Path

from craft2.apps.bench.disk import VALUE
from craft2.apps.bench.harness import MakeOperation, Operation, alternate, closed_loop
from craft2.apps.bench.scenarios import Bench, scenario
from phase1_file_queue.message_file import encode_message
from phase1_file_queue.partitioned_queue import PartitionedQueue

KEY = b"UA"


def producing(queue: PartitionedQueue, client: int) -> Operation:
    """Produces `VALUE` under keys of its own, so that the partitions share the work."""
    turn = 0

    def operation() -> None:
        nonlocal turn
        turn += 1
        queue.produce(f"{client}-{turn}", VALUE)

    return operation


def queue_clients(folder: Path, *, fsync: bool = True) -> MakeOperation:
    """Clients of one new queue of four partitions in `folder`."""
    return partial(producing, PartitionedQueue(folder / "queue", fsync=fsync))


def bare_loop(folder: Path, client: int) -> Operation:
    """The system calls of `produce`, in its order, and nothing else."""
    data = encode_message(KEY, VALUE, 1_700_000_000_000)
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    offsets = os.open(folder / "offset.txt", os.O_RDWR | os.O_CREAT)
    sync = getattr(os, "fdatasync", os.fsync)
    count = 0

    def operation() -> None:
        nonlocal count
        path, staged = f"{folder}/{count:08d}.msg", f"{folder}/.{count:08d}.msg.tmp"
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.pread(offsets, 64, 0)
        os.path.exists(path)
        file = os.open(staged, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        os.pwrite(file, data, 0)
        sync(file)
        os.close(file)
        os.rename(staged, path)
        directory = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        sync(directory)
        os.close(directory)
        os.pwrite(offsets, b"%08d\n" % count, 0)
        fcntl.flock(lock, fcntl.LOCK_UN)
        count += 1

    return operation


@scenario("queue", "the message-file queue: clients, fsync on and off, and a bare loop beside it")
def queue(bench: Bench) -> None:
    """A row per number of clients; one client beside the bare loop, target 0.9."""
    for fsync in (True, False):
        for clients in (1, 4, 16, 64):
            load = closed_loop(
                queue_clients(bench.new_folder("queue"), fsync=fsync),
                clients=clients,
                seconds=bench.seconds(2.0),
                clock=bench.clock,
            )
            bench.add(
                load,
                phase=1,
                backend="file per message",
                scenario="produce",
                clients=clients,
                size_bytes=len(VALUE),
                acks="durable" if fsync else "written",
                fsync_policy="every message" if fsync else "never",
            )
    folder = bench.new_folder("queue")
    ours, bare = queue_clients(folder), partial(bare_loop, bench.new_folder("bare"))

    def rate(make: MakeOperation) -> float:
        return closed_loop(make, seconds=bench.seconds(1.0), clock=bench.clock).calls_per_s

    pairs = alternate(lambda: rate(ours), lambda: rate(bare), rounds=7)
    bench.compare("queue", "produce", "the bare system calls", pairs, target=0.9)
