"""The sparse offset index: where in a segment is offset N, roughly?

    byte 0      4          8
        +-------+----------+-------+----------+--- ...
        | 412   | 65 204   | 833   | 131 077  |
        +-------+----------+-------+----------+--- ...
        relative position
        offset   of its batch

One entry of 8 bytes per `index_interval_bytes` of log (4 KiB), not one per record: a gigabyte of
log needs 2 MiB of index. `lookup` finds the last entry at or before an offset; the log itself is
read from there on. Offsets are relative to the segment's base so that 4 bytes are enough.

The file is memory-mapped at its full size (mostly a hole, which takes no space) and cut to its
content when the log is closed. The index holds nothing that the log does not: after a crash it is
thrown away and rebuilt. Unused entries are zero, and no used one is: the segment's first batch
needs none.

Source: `org.apache.kafka.storage.internals.log.OffsetIndex`, which has the same format.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct

from craft2.disk import Disk, File, Map

_ENTRY = Struct(">II")  # relative offset, position
_PAGE = 4096  # bytes of a page of memory
MAX_RELATIVE = 2**31 - 1  # Kafka reads both as signed


class _MappedEntries:
    """Fixed-size entries in a mapped file; what the two kinds of index have in common."""

    def __init__(
        self, disk: Disk, path: str, base_offset: int, entry_size: int, max_bytes: int | None
    ) -> None:
        """max_bytes: room to map for a segment that still grows; None maps what is there."""
        self.base_offset = base_offset
        self._entry_size = entry_size
        self._grows = max_bytes is not None
        self._disk, self._path = disk, path
        self._file: File | None = None
        if self._grows or disk.exists(path):
            self._file = disk.open(path, "create" if self._grows else "read")
        self._is_there = self._file is not None
        self._size = max_bytes or (self._file.size() if self._file else 0)
        self._capacity = self._size // entry_size
        self._map: Map | None = None
        self._view = memoryview(b"")
        self._written = 0  # up to here this object has written the file: nothing there is a hole
        self._remap()
        self.count = 0
        self.refresh()

    def _remap(self) -> None:
        if self._size and self._is_there:
            self._map = self._opened().map(self._size)
            self._view = self._map.view

    def rest(self) -> None:
        """Keep the file open no longer: each use opens it. A map needs a descriptor anyway, and a
        broker with thousands of partitions has none to spare."""
        self._file = None

    def _opened(self) -> File:
        return self._file or self._disk.open(self._path, "write" if self._grows else "read")

    @property
    def full(self) -> bool:
        """Whether only the last entry, which a finished segment needs, still has room."""
        return self.count >= self._capacity - 1

    def refresh(self) -> None:
        """Count the entries again: another process may have added some."""
        low, high = self.count, self._capacity
        if low == high:
            return
        file = self._opened()
        if not self._is_used(file, low):
            return
        while low < high:
            middle = (low + high) // 2
            if self._is_used(file, middle):
                low = middle + 1
            else:
                high = middle
        self.count = low

    def _is_used(self, file: File, number: int) -> bool:
        # Not through the map: where the file is a hole, a mapped read can need space, as on tmpfs.
        return any(file.read_at(number * self._entry_size, self._entry_size))

    def _offset(self, number: int) -> int:
        """The offset in entry `number`."""
        raise NotImplementedError

    def _write(self, entry: bytes) -> None:
        """Add an entry, in mapped memory: a system call for each would cost as much as a tenth of
        an append (`make bench ARGS=send`).

        Where that page of the file is still a hole, zeros are written there first: on a full disk
        that is an error (ENOSPC), while a store into a hole would kill the process (SIGBUS).
        """
        start = self.count * self._entry_size
        end = start + self._entry_size
        if end > self._written:
            page_end = min(-(-end // _PAGE) * _PAGE, self._size)
            zeros = bytes(page_end - start)  # nothing is behind the last entry
            self._opened().write_at(start, zeros)
            self._written = page_end
        self._view[start:end] = entry
        self.count += 1

    def trim(self) -> None:
        """Cut the file to its content. Only when no other process can have it mapped.

        (Touching mapped memory behind a file's end kills a process, too.)
        """
        self.close()
        self._written = 0
        if self._grows:
            self._opened().truncate(self.count * self._entry_size)

    def recover(self, offset: int) -> None:
        """After a crash: keep the entries before `offset`, which were synced, and nothing else."""
        self.count = 0
        last = self.base_offset - 1
        file = self._opened() if self._capacity else None
        while file and self.count < self._capacity and self._is_used(file, self.count):
            entry = self._offset(self.count)
            if not last < entry < offset:
                break
            last = entry
            self.count += 1
        self.trim()
        self._remap()

    def truncate(self, offset: int) -> None:
        """Forget every entry at or after `offset`."""
        count = bisect_right(range(self.count), offset - 1, key=self._offset)
        if count < self.count:
            start, end = count * self._entry_size, self.count * self._entry_size
            self._view[start:end] = bytes(end - start)
            self.count = count

    def sync(self) -> None:
        """Make the entries durable."""
        if self._is_there:
            self._opened().sync()

    def close(self) -> None:
        """Unmap. The file itself closes when nothing refers to it any more."""
        if self._map:
            self._map.close()
            self._map = None
            self._view = memoryview(b"")


class OffsetIndex(_MappedEntries):
    """Offsets to positions, for one segment.

    Invariant: relative offsets and positions both grow from entry to entry.
    """

    def __init__(
        self, disk: Disk, path: str, base_offset: int, max_bytes: int | None = None
    ) -> None:
        super().__init__(disk, path, base_offset, _ENTRY.size, max_bytes)

    def entry(self, number: int) -> tuple[int, int]:
        """(offset, position) of entry `number`, from 0."""
        relative, position = _ENTRY.unpack_from(self._view, number * _ENTRY.size)
        return self.base_offset + relative, position

    def append(self, offset: int, position: int) -> None:
        """Note that the batch that begins with `offset` lies at `position`."""
        self._write(_ENTRY.pack(offset - self.base_offset, position))

    # EXERCISE 3.2 sparse index lookup
    def lookup(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the last entry at or before `offset`.

        offset: one of this segment, so `self.base_offset` or more.
        The batch that holds `offset` lies at that position or behind it, never before it. Where no
        entry is at or before `offset`, that is where the segment starts: `self.base_offset` at 0.

        There are `self.count` entries, numbered from 0, and `self.entry(number)` reads one. Their
        offsets grow, and there may be 250,000: read no more than some twenty of them.
        """
        # BEGIN SOLUTION
        behind = bisect_right(range(self.count), offset, key=self._offset)
        return self.entry(behind - 1) if behind else (self.base_offset, 0)
        # END SOLUTION

    def last_position(self) -> int:
        """The position of the last entry, 0 without one."""
        return self.entry(self.count - 1)[1] if self.count else 0

    def _offset(self, number: int) -> int:
        return self.entry(number)[0]


class TimeIndex(_MappedEntries):
    """Timestamps to offsets, for one segment: 12 bytes an entry, (timestamp, relative offset).

    An entry (t, o) says: no record in the segment up to and including the batch at `o` is later
    than t. Batches need not arrive in the order of time, so it holds the largest timestamp so far.

    Invariant: timestamps and offsets both grow from entry to entry.
    Source: `org.apache.kafka.storage.internals.log.TimeIndex`; KIP-33.
    """

    _ENTRY = Struct(">qI")

    def __init__(
        self, disk: Disk, path: str, base_offset: int, max_bytes: int | None = None
    ) -> None:
        super().__init__(disk, path, base_offset, self._ENTRY.size, max_bytes)

    def entry(self, number: int) -> tuple[int, int]:
        """(timestamp, offset) of entry `number`, from 0."""
        timestamp, relative = self._ENTRY.unpack_from(self._view, number * self._ENTRY.size)
        return timestamp, self.base_offset + relative

    def append(self, timestamp: int, offset: int) -> None:
        """Note that up to the batch at `offset` the largest timestamp is `timestamp`.

        Does nothing if that is no news: no larger timestamp than the last entry's.
        """
        if self.count and timestamp <= self.entry(self.count - 1)[0]:
            return
        if timestamp <= 0 and offset == self.base_offset:
            return  # would look like an unused entry; the lookup starts at the base without it
        self._write(self._ENTRY.pack(timestamp, offset - self.base_offset))

    def lookup(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry before `timestamp`, (timestamp, offset); None if there is none.

        Every record before the batch at that offset is earlier than `timestamp`.
        """
        number = bisect_right(range(self.count), timestamp - 1, key=lambda n: self.entry(n)[0])
        return self.entry(number - 1) if number else None

    def last(self) -> tuple[int, int] | None:
        """The last entry, (timestamp, offset)."""
        return self.entry(self.count - 1) if self.count else None

    def _offset(self, number: int) -> int:
        return self.entry(number)[1]
