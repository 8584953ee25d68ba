"""One mapped page that tells every process how far the log goes.

Appending to a file and telling others about it are two steps, and a process can die between them.
So readers never look at a file's size: they read up to the end *published* here.

    byte   0   slot A: sequence, where the log ends, checksum
         128   slot B: the same
         256   dirty: 1 while an append is under way
         257   serving: 1 while the log is open and was found, or made, whole
         258   sync failed: 1 after a sync failed, until what it left unwritten is written again
         264   flushed: everything before this offset is on disk; and its complement

Slots are written in turn, so one of them is always whole; the whole one with the larger sequence
number counts. Only who holds the append lock writes slots and the dirty flag. A new holder that
finds the flag set knows that its predecessor died in the middle, and cuts the log back to the
published end: nobody has seen, nor been promised, what lies behind it.

A power cut may leave any mixture of old and new bytes here. Whoever opens the log first after one
therefore believes the log's own checksums, not this page, with one exception: an old `flushed` is
still true, since it only grows (before it shrinks, in `truncate_to`, the page is synced).
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from craft2.disk import Disk

PAGE_SIZE = 4096
_SLOT = Struct("<9q")
_CRC = Struct("<I")
_SLOTS = (0, 128)
_DIRTY = 256
_SERVING = 257
_SYNC_FAILED = 258
_TRIES = 1000  # a slot is caught half written for microseconds only
_FLUSHED = Struct("<QQ")
_FLUSHED_AT = 264
_MASK64 = 2**64 - 1


class Published(NamedTuple):
    """Where the log starts and ends, as all processes see it."""

    log_start: int  # the first offset that can be read
    segment_base: int  # the active segment, by its base offset
    position: int  # where the next batch goes in that segment's file, in bytes
    end_offset: int  # the next offset to be written
    max_timestamp: int  # the largest in the active segment, -1 if none
    max_timestamp_offset: int  # the base offset of the batch that has it
    epoch: int  # the latest leader epoch, -1 if none
    cuts: int = 0  # how often the log was cut back: what a reader has open may be gone


def _sequence(slot: bytes) -> int:
    return int.from_bytes(slot[:8], "little", signed=True)


class ControlPage:
    """See the module. Holds no lock itself."""

    def __init__(self, disk: Disk, path: str) -> None:
        file = disk.open(path, "create")
        size = file.size()
        if size < PAGE_SIZE:  # written, not a hole: a store must never find no space
            file.write_at(size, bytes(PAGE_SIZE - size))  # and the rest stays: `flushed` is true
        self._map = file.map(PAGE_SIZE)
        file.close()
        self._view = self._map.view
        self._seen: tuple[bytes, Published | None] = (b"", None)  # both slots, and what they say
        found = self._newest(bytes(self._view[:_DIRTY]))
        self._sequence = found[0] if found else 0

    def publish(self, state: Published) -> None:
        """Tell everybody; the caller holds the append lock."""
        self._sequence += 1
        start = _SLOTS[self._sequence & 1]
        _SLOT.pack_into(self._view, start, self._sequence, *state)
        _CRC.pack_into(
            self._view, start + _SLOT.size, crc32c(self._view[start : start + _SLOT.size])
        )
        self._seen = bytes(self._view[:_DIRTY]), state

    def read(self) -> Published | None:
        """The published state; None on a page never written, or damaged by a power cut."""
        for _ in range(_TRIES):  # a slow reader may meet the writer in both slots
            page = bytes(self._view[:_DIRTY])
            seen, state = self._seen
            if page == seen:
                return state
            found = self._newest(page)
            if found is not None and found[0] >= self._sequence:  # never back to an older state
                self._sequence = found[0]
                state = Published(*found[1:])
                self._seen = page, state
                return state
            if found is None and not any(page):
                return None
        return None

    def _newest(self, page: bytes) -> tuple[int, ...] | None:
        slots = [page[start : start + _SLOT.size + _CRC.size] for start in _SLOTS]
        for slot in sorted(slots, key=_sequence, reverse=True):
            if _CRC.unpack_from(slot, _SLOT.size)[0] == crc32c(slot[: _SLOT.size]) and any(slot):
                return _SLOT.unpack_from(slot)
        return None

    @property
    def dirty(self) -> bool:
        return self._view[_DIRTY] != 0

    @dirty.setter
    def dirty(self, value: bool) -> None:
        self._view[_DIRTY] = value

    @property
    def serving(self) -> bool:
        """Whether who comes now may believe this page; else the log needs `recovery` first."""
        return self._view[_SERVING] != 0

    @serving.setter
    def serving(self, value: bool) -> None:
        self._view[_SERVING] = value

    @property
    def sync_failed(self) -> bool:
        """Whether the page cache may show records that the disk never got (craft2.disk, fact 4)."""
        return self._view[_SYNC_FAILED] != 0

    @sync_failed.setter
    def sync_failed(self, value: bool) -> None:
        self._view[_SYNC_FAILED] = value

    @property
    def flushed(self) -> int:
        """Every record before this offset is durable; 0 when nothing is known."""
        value, complement = _FLUSHED.unpack_from(self._view, _FLUSHED_AT)
        return int(value) if value ^ complement == _MASK64 else 0

    @flushed.setter
    def flushed(self, offset: int) -> None:
        _FLUSHED.pack_into(self._view, _FLUSHED_AT, offset, offset ^ _MASK64)

    def sync(self) -> None:
        """Make the page durable, before `flushed` may shrink."""
        self._map.flush()

    def close(self) -> None:
        self._map.close()
