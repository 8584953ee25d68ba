"""What a log remembers of its producers, so that a batch sent twice is stored once.

The log itself only keeps such a state in step with its records: it asks before it appends, tells
after, saves a snapshot with every new segment, and after a crash reads the snapshot and tells again
what followed. What the state is (later: idempotent producers' sequences) is up to whoever opens the
log.
"""

from __future__ import annotations

import os
from typing import NamedTuple, Protocol

from crc32c import crc32c

from craft2.disk import Disk
from craft2.record_batch import BatchHeader
from phase1_file_queue.publish import publish

SUFFIX = ".snapshot"


class AppendResult(NamedTuple):
    """Where a batch, or several, went."""

    first_offset: int
    last_offset: int
    duplicate: bool = False  # nothing was appended: these records were there already


class ProducerState(Protocol):
    """The seam. Calls come one at a time and in the order of the log."""

    def check(self, header: BatchHeader) -> AppendResult | None:
        """Before a leader appends: None to go on, a result if it is a duplicate; may raise."""

    def update(self, header: BatchHeader) -> None:
        """A batch, with its final offsets, is in the log."""

    def snapshot(self) -> bytes:
        """The state after the last `update`."""

    def restore(self, data: bytes) -> None:
        """Go back to a snapshot; empty bytes mean the empty state."""


def _path(directory: str, offset: int) -> str:
    return os.path.join(directory, f"{offset:020d}{SUFFIX}")


def save_snapshot(disk: Disk, directory: str, offset: int, state: ProducerState) -> None:
    """Write the state as it is before the record at `offset`; a checksum comes first."""
    data = state.snapshot()
    publish(disk, _path(directory, offset), crc32c(data).to_bytes(4, "big") + data)


def restore_snapshot(disk: Disk, directory: str, at_most: int, state: ProducerState) -> int:
    """Restore the latest whole snapshot not after `at_most`; returns its offset, 0 without one."""
    for offset in reversed(snapshot_offsets(disk, directory)):
        if offset <= at_most:
            stored = disk.read(_path(directory, offset))
            if crc32c(stored[4:]) == int.from_bytes(stored[:4], "big"):
                state.restore(stored[4:])
                return offset
    state.restore(b"")
    return 0


def drop_snapshots(disk: Disk, directory: str, *, before: int = 0, after: int) -> None:
    """Remove the snapshots outside of `before` ... `after`, but keep the last one before."""
    offsets = snapshot_offsets(disk, directory)
    old = [offset for offset in offsets if offset < before][:-1]
    for offset in old + [offset for offset in offsets if offset > after]:
        disk.unlink(_path(directory, offset))


def snapshot_offsets(disk: Disk, directory: str) -> list[int]:
    """The offsets for which there is a snapshot, ascending."""
    names = [n for n in disk.listdir(directory) if n.endswith(SUFFIX) and not n.startswith(".")]
    return sorted(int(name.removesuffix(SUFFIX)) for name in names)
