"""The 61 bytes at the head of a Kafka record batch: read, checked and stamped.

    byte  field                type    what it is for
    ----  -------------------  ------  --------------------------------------------------------
       0  base offset          int64   offset of the first record; the broker writes it
       8  length               int32   bytes that follow this field (whole batch: + 12)
      12  leader epoch         int32   which leader appended it; the broker writes it
      16  magic                int8    2, the version of this layout
      17  crc                  uint32  CRC32C of everything from byte 21 to the end
      21  attributes           int16   bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control
      23  last offset delta    int32   offset of the last record - base offset
      27  base timestamp       int64   timestamp of the first record, ms since 1970
      35  max timestamp        int64   the largest timestamp inside
      43  producer id          int64   -1, or the idempotent producer that sent it
      51  producer epoch       int16   -1, or the life of that producer (an older life is fenced)
      53  base sequence        int32   -1, or the producer's own number for the first record
      57  count                int32   how many records follow
      61  records                      see craft2.record_batch

Why the CRC starts at byte 21 and not at byte 0: the producer computes it, and the broker then
fills in the two fields it alone knows, base offset and leader epoch, at the moment of appending.
Both lie before byte 21, so a broker stores a batch of any size by changing 12 bytes, and the
producer's CRC still guards the records when a consumer reads them years later. (Length and magic
are not covered either: without the right values of those two one cannot find the CRC at all.)

Byte 16 is the magic in every format Kafka ever had, so one look at it tells the layout. The old
formats 0 and 1 (craft2.message_set) have one record where this one has a batch; `read_header`
shows such a record as a batch of one.

Source: kafka.apache.org/documentation/#recordbatch; KIP-98.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from mmap import mmap
from struct import Struct
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from craft2.codecs import CODEC_NAMES
from craft2.errors import Craft2Error

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap

HEADER_SIZE = 61
LOG_OVERHEAD = 12  # base offset and length: what precedes the bytes that `length` counts
MAGIC_POSITION = 16
CRC_POSITION = 17
CRC_START = 21  # attributes: the first byte the CRC covers
NO_TIMESTAMP = -1
NO_PRODUCER = -1
CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"

CODEC_MASK = 0b111
APPEND_TIME_BIT = 1 << 3
TRANSACTIONAL_BIT = 1 << 4
CONTROL_BIT = 1 << 5

MAX_INT64 = 2**63 - 1

HEADER = Struct(">qiibIhiqqqhii")
_STAMP_OFFSET = Struct(">q")
_STAMP_EPOCH = Struct(">i")
CRC = Struct(">I")
_ATTRIBUTES = Struct(">h")
# Formats 0 and 1 begin alike: offset, length, CRC-32 of what follows it, magic, attributes.
_OLD_HEADER = Struct(">qiIbb")
_OLD_TIMESTAMP = Struct(">q")
_OLD_MIN_LENGTH = (14, 22)  # crc, magic, attributes, (timestamp), key length, value length


class BatchTooShort(Craft2Error):
    """The buffer ends before the batch does: a torn tail, or more is still to come.

    `needed` is how many bytes, counted from the batch's first, must be there to get further.
    """

    needed: int = 0


class CorruptBatch(Craft2Error):
    """Bytes that no writer of the format produces. `position` in the buffer, `field` by name."""

    position: int = 0
    field: str = ""


class BatchHeader(NamedTuple):
    """The fields above, in that order. A format 0 or 1 record is shown as a batch of one.

    Invariant: base_offset >= 0, last_offset_delta >= 0, count >= 0, the codec is a known one.
    """

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the last record (of a compacted batch: of the last one it once had)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    def numbered(self, base_offset: int, leader_epoch: int) -> BatchHeader:
        """The header after `stamp_into`: the two fields that the log fills in are set."""
        return tuple.__new__(BatchHeader, (base_offset, self.length, leader_epoch, *self[3:]))

    @property
    def codec(self) -> str:
        """One of none, gzip, snappy, lz4, zstd."""
        return CODEC_NAMES[self.attributes & CODEC_MASK]

    @property
    def timestamp_type(self) -> str:
        """CreateTime (each record's own) or LogAppendTime (max_timestamp holds for all)."""
        return LOG_APPEND_TIME if self.attributes & APPEND_TIME_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Whether the records are markers for the clients themselves, not for applications."""
        return bool(self.attributes & CONTROL_BIT)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`. Looks at no record and computes no CRC.

    Raises BatchTooShort if the buffer ends inside the header, CorruptBatch if a field holds a
    value no writer produces.
    """
    if len(buffer) - position < HEADER_SIZE or buffer[position + MAGIC_POSITION] != 2:
        return _read_old_header(buffer, position)
    header = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
    if (
        header.length < HEADER_SIZE - LOG_OVERHEAD
        or header.base_offset < 0
        or header.last_offset_delta < 0
        or header.base_offset > MAX_INT64 - 1 - header.last_offset_delta
        or not 0 <= header.count <= header.last_offset_delta + 1
        or header.attributes & CODEC_MASK >= len(CODEC_NAMES)
    ):
        raise _impossible(header, position)
    return header


def verify(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch at `position`, once the whole batch is there and its CRC matches.

    Raises BatchTooShort if the buffer ends inside the batch, CorruptBatch as `read_header` does
    or if the CRC differs.
    """
    header = read_header(buffer, position)
    end = position + header.size
    if end > len(buffer):
        raise too_short(position, len(buffer) - position, header.size)
    with memoryview(buffer) as view:
        if header.magic == 2:
            got = crc32c(view[position + CRC_START : end])
        else:
            got = zlib.crc32(view[position + MAGIC_POSITION : end])
    if got != header.crc:
        raise corrupt(position, "crc", f"{header.crc:#010x} as stored", f"{got:#010x}")
    return header


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch from `position` on; stops at a partial last one.

    A fetch returns as many bytes as asked for, so its last batch is often cut: that is no error.
    CRCs are not checked. Raises CorruptBatch at an impossible header.
    """
    end = len(buffer)
    while position < end:
        try:
            header = read_header(buffer, position)
        except BatchTooShort:
            return
        if position + header.size > end:
            return
        yield position, header
        position += header.size


def stamp(batch: bytes | bytearray | memoryview, base_offset: int, leader_epoch: int) -> bytearray:
    """A copy of `batch` with base offset and leader epoch set.

    The CRC needs no change: it starts behind both fields (see above).
    """
    copy = bytearray(batch)
    stamp_into(copy, 0, base_offset, leader_epoch)
    return copy


def stamp_into(
    buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Set base offset and leader epoch of the format 2 batch at `position`, in place."""
    _STAMP_OFFSET.pack_into(buffer, position, base_offset)
    _STAMP_EPOCH.pack_into(buffer, position + LOG_OVERHEAD, leader_epoch)


def stamp_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Give the format 2 batch at `position` the broker's own time, in place (LogAppendTime).

    The records keep the producer's timestamps; readers take max timestamp instead. Both fields
    lie under the CRC, so this costs a pass over the whole batch.
    """
    header = read_header(buffer, position)
    end = position + header.size
    if end > len(buffer):
        raise too_short(position, len(buffer) - position, header.size)
    _ATTRIBUTES.pack_into(buffer, position + CRC_START, header.attributes | APPEND_TIME_BIT)
    _STAMP_OFFSET.pack_into(buffer, position + 35, timestamp_ms)
    with memoryview(buffer) as view:
        crc = crc32c(view[position + CRC_START : end])
    CRC.pack_into(buffer, position + CRC_POSITION, crc)


def too_short(position: int, got: int, needed: int) -> BatchTooShort:
    """The BatchTooShort for a batch at `position` of which only `got` bytes are there."""
    error = BatchTooShort(
        f"record batch at byte {position}: {got} bytes are there, {needed} are needed",
        "wait for the rest, or cut the file here if it ended in a crash",
    )
    error.needed = needed
    return error


def corrupt(position: int, field: str, expected: str, got: object) -> CorruptBatch:
    """The CorruptBatch that names where, which field, what was expected and what was there."""
    error = CorruptBatch(
        f"record batch, byte {position}, {field}: expected {expected}, got {got}",
        "read it from another replica, or inspect the file around this byte",
    )
    error.position = position
    error.field = field
    return error


def _impossible(header: BatchHeader, position: int) -> CorruptBatch:
    """Says which field of `header` made read_header refuse it."""
    if header.length < HEADER_SIZE - LOG_OVERHEAD:
        return corrupt(
            position + 8, "length", f"at least {HEADER_SIZE - LOG_OVERHEAD}", header.length
        )
    if not 0 <= header.base_offset < MAX_INT64:
        return corrupt(position, "base offset", "0 or more", header.base_offset)
    if header.attributes & CODEC_MASK >= len(CODEC_NAMES):
        codec = header.attributes & CODEC_MASK
        return corrupt(position + 21, "codec", f"0 to {len(CODEC_NAMES) - 1}", codec)
    room = MAX_INT64 - 1 - header.base_offset
    if not 0 <= header.last_offset_delta <= room:
        delta = header.last_offset_delta
        return corrupt(position + 23, "last offset delta", f"0 to {min(room, 2**31 - 1)}", delta)
    most = header.last_offset_delta + 1
    return corrupt(position + 57, "count", f"0 to last offset delta + 1 = {most}", header.count)


def _read_old_header(buffer: Buffer, position: int) -> BatchHeader:
    """The header of a format 0 or 1 record; or the reason why there is none."""
    got = len(buffer) - position
    if got <= MAGIC_POSITION:
        raise too_short(position, max(got, 0), MAGIC_POSITION + 1)
    magic = buffer[position + MAGIC_POSITION]
    if magic == 2:
        raise too_short(position, got, HEADER_SIZE)
    if magic > 2:
        raise corrupt(position + MAGIC_POSITION, "magic", "0, 1 or 2", magic)
    if got < LOG_OVERHEAD + _OLD_MIN_LENGTH[magic]:
        raise too_short(position, got, LOG_OVERHEAD + _OLD_MIN_LENGTH[magic])
    offset, length, crc, magic, attributes = _OLD_HEADER.unpack_from(buffer, position)
    timestamp = NO_TIMESTAMP
    if magic == 1:
        (timestamp,) = _OLD_TIMESTAMP.unpack_from(buffer, position + _OLD_HEADER.size)
    header = BatchHeader(
        offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, 1
    )
    if length < _OLD_MIN_LENGTH[magic]:
        raise corrupt(position + 8, "length", f"at least {_OLD_MIN_LENGTH[magic]}", length)
    if not 0 <= offset < MAX_INT64 or attributes & CODEC_MASK >= len(CODEC_NAMES):
        raise _impossible(header, position)
    return header
