"""One segment: a file of record batches, and the two sparse indexes into it.

    00000000000000004096.log          batches, one behind the other, as they came
    00000000000000004096.index        offset -> position      (offset_index.OffsetIndex)
    00000000000000004096.timeindex    timestamp -> offset     (offset_index.TimeIndex)

The name is the offset of the first record, 20 digits wide so that names sort like numbers.

A segment knows nothing of locks, other segments or durability; that is `partition_log`'s part. It
promises this: `size` bytes of the file are whole batches with growing offsets from `base_offset`
to `next_offset`, whatever lies behind them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from craft2.batch_header import corrupt
from craft2.disk import Buffer, Disk, FileSlice, Mode
from craft2.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    BatchTooShort,
    CorruptBatch,
    decode,
    iter_headers,
    read_header,
)
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.offset_index import MAX_RELATIVE, OffsetIndex, TimeIndex

SUFFIXES = (".log", ".index", ".timeindex")
_RECENT = 64  # batches whose place is remembered
_WALK_BYTES = 16 * 1024
_SCAN_BYTES = 4 * 1024 * 1024


def segment_path(directory: str, base_offset: int, suffix: str = ".log") -> str:
    """The path of one of a segment's files.

    >>> segment_path("flights-0", 4096)
    'flights-0/00000000000000004096.log'
    """
    return os.path.join(directory, f"{base_offset:020d}{suffix}")


class Segment:
    """See the module. `size`, `next_offset` and the largest timestamp are set by who opens it."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        grows: bool,
        create: bool = False,
    ) -> None:
        """grows: whether batches may still be appended, so that its indexes need room.

        Raises FileNotFoundError for a segment that is not there, unless `create`.
        """
        self.base_offset = base_offset
        self.directory = directory
        self._disk = disk
        self._interval = config.index_interval_bytes
        mode: Mode = "create" if create else "write" if grows else "read"
        self.file = disk.open(segment_path(directory, base_offset), mode)
        room = config.max_index_bytes if grows else None
        self.offset_index = OffsetIndex(disk, self._path(".index"), base_offset, room)
        self.time_index = TimeIndex(disk, self._path(".timeindex"), base_offset, room)
        if (
            config.access == "exclusive"
        ):  # else other processes' entries are looked for all the time
            self.offset_index.rest()
            self.time_index.rest()
        self.size = 0
        self.next_offset = base_offset
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self._first_timestamp: int | None = None
        self._recent: dict[int, tuple[int, BatchHeader]] = {}  # by base offset: appended just now

    def _path(self, suffix: str) -> str:
        return segment_path(self.directory, self.base_offset, suffix)

    @property
    def first_timestamp(self) -> int | None:
        """The largest timestamp of the first batch: rolling by age counts from it."""
        if self._first_timestamp is None and self.size:
            self._first_timestamp = read_header(self.file.read_at(0, HEADER_SIZE)).max_timestamp
        return self._first_timestamp

    @property
    def indexes_full(self) -> bool:
        return self.offset_index.full or self.time_index.full

    def append(self, data: Buffer, batches: list[tuple[int, BatchHeader]]) -> None:
        """Write whole batches behind the last one, with their final offsets.

        data: the batches' bytes. batches: (position within data, header) of each.
        """
        self.file.write_at(self.size, data)
        self.note(batches, self.size)
        if len(self._recent) > _RECENT:
            self._recent.clear()
        for position, header in batches[-_RECENT:]:
            self._recent[header.base_offset] = self.size + position, header
        self.size += len(data)

    def note(self, batches: Iterable[tuple[int, BatchHeader]], start: int = 0) -> None:
        """Take in that batches lie in the file: indexes, next offset, largest timestamp.

        batches: (position, header) of each, the positions counted from `start`.
        """
        indexed = self.offset_index.last_position()
        for position, header in batches:
            if header.max_timestamp > self.max_timestamp:
                self._note_timestamp(header)
            if start + position - indexed > self._interval and not self.indexes_full:
                indexed = start + position
                self.offset_index.append(header.base_offset, indexed)
                self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
            self.next_offset = header.next_offset

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """(position, header) of the first batch that ends after `offset`; None behind the last.

        Whoever reads what was appended a moment ago, as most consumers do, needs no file for that
        (`make bench ARGS=broker-requests`).
        """
        if offset in self._recent:
            return self._recent[offset]
        entry = self.offset_index.lookup(offset)
        position = entry[1] if self._matches(*entry) else 0
        for found, header in self.headers(position):
            if header.next_offset > offset:
                return found, header
        return None

    def end_before(self, offset: int) -> tuple[int, int]:
        """(position, next offset) where the batches end that hold nothing from `offset` on."""
        position, end = 0, self.base_offset
        if offset > end:
            entry = self.offset_index.lookup(offset - 1)
            if self._matches(*entry):
                end, position = entry
        for found, header in self.headers(position):
            if header.next_offset > offset:
                break
            position, end = found + header.size, header.next_offset
        return position, end

    def _matches(self, offset: int, position: int) -> bool:
        """Whether the batch of an index entry is where that says; if not, believe the log."""
        try:
            header = read_header(self.file.read_at(position, HEADER_SIZE)) if position else None
        except (BatchTooShort, CorruptBatch):
            return False
        return header is None or header.base_offset == offset

    def locate_timestamp(self, timestamp: int, log_start: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record from `log_start` on not before `timestamp`."""
        if self.max_timestamp < timestamp:
            return None
        for position, header in self.headers(self._timed(self.time_index.lookup(timestamp)) or 0):
            if header.max_timestamp >= timestamp:
                for record in decode(self.file.read_at(position, header.size)):
                    if record.timestamp >= timestamp and record.offset >= log_start:
                        return record.offset, record.timestamp
        return None

    def _last_indexed(self) -> int | None:
        """The position of the last entry of the offset index; None if it is not true."""
        count = self.offset_index.count
        entry = self.offset_index.entry(count - 1) if count else (self.base_offset, 0)
        return entry[1] if self._matches(*entry) else None

    def _timed(self, entry: tuple[int, int] | None) -> int | None:
        """The position of the batch that an entry of the time index speaks of; None without one.

        An entry that says something else than the batch is not believed.
        """
        found = self.locate(entry[1]) if entry else None
        true = found and entry and (found[1].max_timestamp, found[1].base_offset) == entry
        return found[0] if found and true else None

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) of each batch from the one at `position` on, without reading more.

        Reads ahead in steps that grow, as a lookup needs little and a scan everything.
        Raises CorruptBatch for a header that is impossible there.
        """
        step, due = _WALK_BYTES, self.base_offset
        farthest = self.base_offset + MAX_RELATIVE
        while position < self.size:
            window = self.file.read_at(position, min(step, self.size - position))
            used = 0
            for at, header in iter_headers(window):
                if not due <= header.base_offset <= farthest - header.last_offset_delta:
                    wanted = f"{due} or more, in reach of the segment's {self.base_offset}"
                    raise corrupt(position + at, "base offset", wanted, header.base_offset)
                yield position + at, header
                used, due = at + header.size, header.next_offset
            if used == 0:  # larger than the window: the header is enough
                header = read_header(window)
                yield position, header
                used, due = header.size, header.next_offset
            position += used
            step = min(step * 4, _SCAN_BYTES)

    def slice(self, position: int, end: int) -> FileSlice:
        """The bytes from `position` to `end`, to be read or sent."""
        return FileSlice(self.file, position, end - position)

    def sync(self) -> None:
        """Make the batches durable. (Not the indexes: they can be rebuilt.)"""
        self.file.sync()

    def sync_indexes(self) -> None:
        self.offset_index.sync()
        self.time_index.sync()

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut the segment at a batch's `position`; the records from `next_offset` on are gone."""
        self.file.truncate(position)
        self._first_timestamp = self._first_timestamp if position else None
        self.forget_from(position, next_offset)

    def load_max_timestamp(self) -> None:
        """Find the largest timestamp again: the time index has it up to its last entry."""
        last = self.time_index.last()
        start = 0
        if last and self._timed(last) is not None:
            self.max_timestamp, self.max_timestamp_offset = last
            start = self._last_indexed() or 0
        for _, header in self.headers(start):
            self._note_timestamp(header)

    def _note_timestamp(self, header: BatchHeader) -> None:
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.base_offset

    def finish(self) -> None:
        """The segment gets no more batches: give the time index its last word.

        Without timestamps there was nothing to say so far; one entry is written all the same, so
        that an empty time index means a lost one.
        """
        offset = self.max_timestamp_offset
        if self.time_index.count == 0 and self.max_timestamp <= 0:
            offset = self.next_offset - 1
        self.time_index.append(self.max_timestamp, offset)

    def forget_from(self, position: int, offset: int) -> None:
        """Let the segment end at `position` and `offset`, for now; the file stays as it is."""
        self.size = position
        self.next_offset = offset
        self._recent.clear()
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self.max_timestamp, self.max_timestamp_offset = -1, self.base_offset
        self.load_max_timestamp()

    def recover_from(self, position: int, offset: int) -> None:
        """After a crash: trust nothing from `position` and `offset` on, above all no index."""
        self.offset_index.recover(offset)
        self.time_index.recover(offset)
        self.forget_from(position, offset)

    def load_sealed(self) -> bool:
        """Take over a finished segment as it is; False if its indexes cannot be right."""
        self.size = self.file.size()
        last = self.time_index.last()
        if last:
            self.max_timestamp, self.max_timestamp_offset = last
        indexed = self._last_indexed()
        if indexed is None:
            return False
        batches = 0
        try:
            for _, header in self.headers(indexed):
                self._note_timestamp(header)  # the last entry of the time index may be lost
                self.next_offset = header.next_offset
                batches += 1
            if last and self._timed(last) is None and last[0] > 0:  # else see `finish`
                return False
        except (BatchTooShort, CorruptBatch):
            return False
        # `finish` leaves no time index empty, unless there is only one batch, without a timestamp.
        return indexed < max(self.size, 1) and (last is not None or (not indexed and batches < 2))

    def refresh(self, size: int, next_offset: int) -> None:
        """Another process has appended: take over the published end."""
        self.size = size
        self.next_offset = next_offset
        self._recent.clear()
        self.offset_index.refresh()
        self.time_index.refresh()

    def close(self, *, trim: bool = False) -> None:
        """Unmap the indexes. trim: also cut their files to size (nobody else may use them)."""
        for index in (self.offset_index, self.time_index):
            if trim:
                index.trim()
                index.sync()
            index.close()

    def delete(self) -> None:
        """Remove the files' names; slices already given out can still be read."""
        self.close()
        for suffix in SUFFIXES:
            if self._disk.exists(self._path(suffix)):
                self._disk.unlink(self._path(suffix))
