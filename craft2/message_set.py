"""Kafka's message formats 0 and 1, the ones before record batches: read, never written.

A log that has lived since before Kafka 0.11 (2017) still holds them. There is no batch: each
message carries everything itself.

    byte  field         type    what it is for
    ----  ------------  ------  -----------------------------------------------------
       0  offset        int64
       8  length        int32   bytes that follow this field
      12  crc           uint32  CRC-32 (zlib's) of everything from byte 16 to the end
      16  magic         int8    0 or 1
      17  attributes    int8    bits 0-2 codec, bit 3 timestamp type (format 1)
      18  timestamp     int64   in format 1 only
      18  key length    int32   -1: null      (from byte 26 on in format 1)
          key           bytes
          value length  int32   -1: null
          value         bytes

To compress several messages, a producer put them, one after the other, into the value of one
outer message. The outer one's offset is that of the last message inside. In format 0 the broker
had to rewrite the inner offsets, and so to compress again; format 1 counts them from 0, and
format 2, whose header says once what all records share, followed from there.

Source: kafka.apache.org/documentation/#messageset; KIP-31, KIP-32.
"""

from __future__ import annotations

from craft2.batch_header import (
    APPEND_TIME_BIT,
    MAX_INT64,
    BatchHeader,
    BatchTooShort,
    Buffer,
    CorruptBatch,
    corrupt,
    verify,
)
from craft2.codecs import CodecError, decompress
from craft2.records import Record

_FIELDS_POSITION = (18, 26)  # of the key length, by format


def decode(buffer: Buffer, position: int, header: BatchHeader, limit: int) -> list[Record]:
    """The message of `header`, wholly at `position`; or the messages compressed inside it.

    Raises CorruptBatch, also if they unpack to more than `limit` bytes.
    """
    key, value = _read_fields(buffer, position, header)
    if header.codec == "none":
        return [Record(header.base_offset, header.base_timestamp, key, value)]
    field = f"{header.codec} messages"
    if value is None:
        raise corrupt(position, field, "a value", "null")
    try:
        inner = decompress(header.codec, value, limit)
    except CodecError as error:
        raise corrupt(position, field, "data that unpacks", error.problem) from None
    try:
        return _decode_inner(inner, header)
    except (BatchTooShort, CorruptBatch) as error:
        raise corrupt(position, field, "whole messages", error.problem) from None


def _decode_inner(inner: bytes, outer: BatchHeader) -> list[Record]:
    records = []
    position = 0
    while position < len(inner):
        header = verify(inner, position)
        if header.magic != outer.magic or header.codec != "none":
            raise corrupt(
                position, "inner message", f"plain format {outer.magic}", header.attributes
            )
        key, value = _read_fields(inner, position, header)
        timestamp = header.base_timestamp
        if outer.magic == 1 and outer.attributes & APPEND_TIME_BIT:
            timestamp = outer.base_timestamp
        records.append(Record(header.base_offset, timestamp, key, value))
        position += header.size
    if not records:
        raise corrupt(0, "inner messages", "at least one", 0)
    if outer.magic == 0:
        return records
    first = outer.base_offset - records[-1].offset
    if first < 0 or first + max(record.offset for record in records) > MAX_INT64:
        raise corrupt(0, "inner offset", f"at most {outer.base_offset}", records[-1].offset)
    return [record._replace(offset=first + record.offset) for record in records]


def _read_fields(
    buffer: Buffer, position: int, header: BatchHeader
) -> tuple[bytes | None, bytes | None]:
    end = position + header.size
    key, position = _read_bytes(buffer, position + _FIELDS_POSITION[header.magic], end, "key")
    value, position = _read_bytes(buffer, position, end, "value")
    if position != end:
        raise corrupt(position, "message", "its end, by its length", f"{end - position} more bytes")
    return key, value


def _read_bytes(buffer: Buffer, position: int, end: int, field: str) -> tuple[bytes | None, int]:
    start = position + 4
    if start > end:
        raise corrupt(position, f"{field} length", "4 bytes", max(end - position, 0))
    size = int.from_bytes(buffer[position:start], "big", signed=True)
    if not -1 <= size <= end - start:
        raise corrupt(position, f"{field} length", f"-1 to {end - start}, what is left", size)
    if size < 0:
        return None, start
    return bytes(buffer[start : start + size]), start + size
