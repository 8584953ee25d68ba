"""What the disk allows: the yardstick for every figure that involves fsync.

Two patterns, with nothing of ours around them but the disk seam:

- *append and sync*: 100 bytes at the end of one file, then a sync: what a log pays a batch;
- *file per message*: create, write, sync, rename, sync the folder: what the message-file queue
  pays a message.

A file per message costs two syncs and two changes of a folder, so it is slower however well it is
written.  Sharing a sync between writers is how a log beats this table.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from craft2.apps.bench.harness import Operation, alternate, closed_loop
from craft2.apps.bench.scenarios import Bench, scenario
from craft2.disk import RealDisk

VALUE = b"x" * 100


def append_and_sync(folder: Path, client: int) -> Operation:
    """An operation that appends `VALUE` to the client's own file in `folder` and syncs it."""
    file = RealDisk().open(str(folder / f"log-{client}"), "create")
    position = 0

    def operation() -> None:
        nonlocal position
        file.write_at(position, VALUE)
        file.sync()
        position += len(VALUE)

    return operation


def file_per_message(folder: Path, client: int) -> Operation:
    """An operation that puts `VALUE` in a file of its own in `folder`, whole and durable."""
    disk = RealDisk()
    count = 0

    def operation() -> None:
        nonlocal count
        hidden, final = f"{folder}/.{client}", f"{folder}/{client}-{count}.msg"
        file = disk.open(hidden, "create")
        try:
            file.write_at(0, VALUE)
            file.sync()
        finally:
            file.close()
        disk.rename(hidden, final)
        disk.sync_dir(str(folder))
        count += 1

    return operation


@scenario("disk", "what this disk allows: synced appends, and a synced file per message")
def disk(bench: Bench) -> None:
    """One row a pattern and number of clients; one comparison, for information."""
    patterns = {"append and sync": append_and_sync, "file per message": file_per_message}
    for clients in (1, 4, 16, 64):
        for name, make in patterns.items():
            load = closed_loop(
                partial(make, bench.new_folder("disk")),
                clients=clients,
                seconds=bench.seconds(2.0),
                clock=bench.clock,
            )
            bench.add(
                load,
                phase=0,
                backend="bare calls",
                scenario=name,
                clients=clients,
                size_bytes=len(VALUE),
                acks="durable",
                fsync_policy="every message",
            )

    def rate(name: str) -> float:
        make = partial(patterns[name], bench.new_folder("disk"))
        return closed_loop(make, seconds=bench.seconds(1.0), clock=bench.clock).calls_per_s

    bench.compare(
        "disk",
        "file per message",
        "append and sync",
        alternate(lambda: rate("file per message"), lambda: rate("append and sync")),
    )
