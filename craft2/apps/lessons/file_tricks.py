"""Three ways to make files faster that databases use, measured beside the plain way.

- **mmap**: read a file as memory, without a call for each read. The log's indexes do.
- **Preallocation**: take the disk's space ahead, so that a sync has less to note. With keep-size:
  the file still ends where the data ends, or the zeros behind it would look like a torn tail.
- **Direct I/O**: go past the page cache (O_DIRECT). Needs aligned memory and whole blocks.

The log uses the first, for its indexes. It does without the second, which gains a little on some
file systems, and without the third: consumers read what was written a moment ago, and that is in
the page cache, some fifty times as fast.

Source: the pages mmap(2), fallocate(2) and open(2) of the Linux manual.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from craft2.apps.bench.harness import Operation, Pairs, alternate, calls_per_second
from craft2.errors import Craft2Error

BLOCK = 4096  # bytes; direct I/O wants whole blocks
ROOM = 64 * 1024**2  # bytes that are preallocated, or read back
Contenders = tuple[Operation, Operation]  # with the trick, and the plain way
_KEEP_SIZE = 1  # FALLOC_FL_KEEP_SIZE


class NotHereError(Craft2Error):
    """This system or file system has no such thing."""


def _open(folder: Path, name: str, undo: ExitStack, flags: int = 0) -> int:
    fd = os.open(folder / name, os.O_RDWR | os.O_CREAT | flags, 0o644)
    undo.callback(os.close, fd)
    return fd


def _block(undo: ExitStack) -> mmap.mmap:
    """One block of memory that begins at a page's border, as direct I/O wants it."""
    memory = mmap.mmap(-1, BLOCK)
    undo.callback(memory.close)
    memory.write(b"x" * BLOCK)
    return memory


def mapped_reads(folder: Path, undo: ExitStack) -> Contenders:
    """8 bytes out of a mapped file, and by a call of pread."""
    fd = _open(folder, "index", undo)
    os.pwrite(fd, bytes(ROOM // 64), 0)
    mapped = mmap.mmap(fd, ROOM // 64, prot=mmap.PROT_READ)
    undo.callback(mapped.close)
    return (lambda: mapped[4096:4104]), (lambda: os.pread(fd, 8, 4096))


def preallocated_appends(folder: Path, undo: ExitStack) -> Contenders:
    """A block appended and synced, into preallocated space and into a file that grows."""
    ahead, plain = _open(folder, "ahead", undo), _open(folder, "plain", undo)
    fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)
    size = ctypes.c_long(ROOM)
    if fallocate is None or fallocate(ahead, _KEEP_SIZE, ctypes.c_long(0), size) != 0:
        raise NotHereError("fallocate with keep-size is refused", "measure on another file system")
    return _appending(ahead, b"x" * BLOCK), _appending(plain, b"x" * BLOCK)


def direct_appends(folder: Path, undo: ExitStack) -> Contenders:
    """A block appended and synced, past the page cache and through it."""
    direct, plain = _direct(folder, "direct", undo), _open(folder, "cached", undo)
    return _appending(direct, _block(undo)), _appending(plain, b"x" * BLOCK)


def direct_reads(folder: Path, undo: ExitStack) -> Contenders:
    """A block that was written a moment ago read back, past the page cache and from it."""
    plain = _open(folder, "fresh", undo)
    os.pwrite(plain, b"x" * 16 * BLOCK, 0)
    os.fsync(plain)
    direct, memory = _direct(folder, "fresh", undo), _block(undo)
    return partial(os.preadv, direct, [memory], BLOCK), partial(os.pread, plain, BLOCK, BLOCK)


def _direct(folder: Path, name: str, undo: ExitStack) -> int:
    try:
        return _open(folder, name, undo, os.O_DIRECT)
    except (AttributeError, OSError) as error:
        raise NotHereError("this file system has no O_DIRECT", "measure on another one") from error


def _appending(fd: int, data: bytes | mmap.mmap) -> Operation:
    position = 0
    sync = getattr(os, "fdatasync", os.fsync)

    def append() -> None:
        nonlocal position
        os.pwrite(fd, data, position)
        sync(fd)
        position = (position + BLOCK) % ROOM

    return append


TRICKS = {
    "mmap: read an index entry": mapped_reads,
    "preallocated: append 4 KiB, sync": preallocated_appends,
    "direct: append 4 KiB, sync": direct_appends,
    "direct: read 4 KiB just written": direct_reads,
}


def measure_tricks(folder: Path, seconds: float = 0.2) -> dict[str, Pairs]:
    """Print how each trick does beside the plain way, in turns; returns what could be measured.

    seconds: how long each turn takes; there are three of each side.
    """
    found = {}
    print(f"{'':34}{'with, a second':>16}{'without':>12}{'ratio':>8}")
    for name, make in TRICKS.items():
        with ExitStack() as undo:
            try:
                trick, plain = make(folder, undo)
            except NotHereError as error:
                print(f"{name:34}{error.problem}")
                continue
            rate = partial(calls_per_second, seconds=seconds)
            pairs = found[name] = alternate(partial(rate, trick), partial(rate, plain), rounds=3)
            ours, peer = sorted(pairs.ours)[1], sorted(pairs.peer)[1]
            print(f"{name:34}{ours:>16,.0f}{peer:>12,.0f}{pairs.ratio:>8.2f}")
    return found
