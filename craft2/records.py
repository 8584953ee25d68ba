"""The records inside a record batch, one by one.

Behind its header (craft2.batch_header) a batch is its records, one after the other, compressed
together if there is a codec. One record:

    field             type     what it is for
    ----------------  -------  ---------------------------------------------------------------
    length            varint   bytes of the record after this field
    attributes        int8     unused, 0
    timestamp delta   varlong  ms after the batch's base timestamp; may be negative
    offset delta      varint   offset after the batch's base offset
    key length        varint   -1: null, no key
    key               bytes
    value length      varint   -1: null, a tombstone: "this key is deleted"
    value             bytes
    headers           varint   how many; then, for each:
      name length     varint
      name            UTF-8
      value length    varint   -1: null
      value           bytes

Offsets and timestamps are differences, so that they take one or two bytes each, and so that the
broker can renumber a whole batch by changing its base offset alone.

>>> encode_record(Record(7, 1_000, b"UA", None), offset_delta=7, timestamp_delta=0).hex(" ")
'10 00 00 0e 04 55 41 01 00'

Source: kafka.apache.org/documentation/#record; KIP-98; KIP-82 (headers).
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from craft2 import varint
from craft2.batch_header import (
    APPEND_TIME_BIT,
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    CorruptBatch,
    corrupt,
)
from craft2.batch_seal import InvalidRecord
from craft2.codecs import CodecError, decompress

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1


class Record(NamedTuple):
    """One message, as an application sees it."""

    offset: int
    timestamp: int  # ms since 1970, -1: none
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Where(NamedTuple):
    """Where `data` begins in the caller's buffer, and a word if it is not a part of it."""

    base: int
    note: str

    def corrupt(self, p: int, field: str, expected: str, got: object) -> CorruptBatch:
        return corrupt(self.base + p, field + self.note, expected, got)


UNPACKED = Where(0, " (unpacked)")


def encode_record(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    """`record` as the bytes of the table above, its length first.

    Raises InvalidRecord if key, value or a header has the wrong type.
    """
    parts = [
        b"\0",
        varint.SMALL[timestamp_delta],
        varint.SMALL[offset_delta],
        _encode_bytes(record, "key", record.key),
        _encode_bytes(record, "value", record.value),
        varint.SMALL[len(record.headers)],
    ]
    for name, value in record.headers:
        if not isinstance(name, str):
            raise InvalidRecord(
                f"record {record.offset}: a header's name is {name!r}", "header names are str"
            )
        try:
            parts.append(_encode_bytes(record, "header name", name.encode()))
        except UnicodeEncodeError:
            raise InvalidRecord(
                f"record {record.offset}: header name {name!r} is no valid text",
                "leave lone surrogates out",
            ) from None
        parts.append(_encode_bytes(record, f"header {name!r}", value))
    body = b"".join(parts)
    return varint.SMALL[len(body)] + body


def _encode_bytes(record: Record, field: str, data: bytes | None) -> bytes:
    if data is None:
        return b"\x01"  # length -1
    if type(data) is not bytes:
        if not isinstance(data, bytes | bytearray | memoryview):
            fix = "encode it first: .encode()" if isinstance(data, str) else "pass bytes or None"
            raise InvalidRecord(f"record {record.offset}: the {field} is {data!r}", fix)
        data = bytes(data)
    return varint.SMALL[len(data)] + data


def unpack(buffer: Buffer, position: int, header: BatchHeader, limit: int) -> bytes:
    """The records' bytes of the whole format 2 batch at `position`, decompressed.

    Raises CorruptBatch if they do not decompress, or to more than `limit` bytes.
    """
    with memoryview(buffer) as view:
        packed = view[position + HEADER_SIZE : position + header.size]
        try:
            return decompress(header.codec, packed, limit)
        except CodecError as error:
            raise corrupt(
                position + HEADER_SIZE, "records", f"{header.codec} data", error.problem
            ) from None
        finally:
            packed.release()


def decode_records(data: bytes, header: BatchHeader, position: int) -> list[Record]:
    """The records in `data`, the decompressed bytes behind `header` of the batch at `position`.

    Raises CorruptBatch naming byte and field.
    """
    plain = header.codec == "none"
    where = Where(position + HEADER_SIZE, "") if plain else UNPACKED
    records = []
    p = 0
    for _ in range(header.count):
        record, p = _read_record(data, p, header, where)
        records.append(record)
    if p != len(data):
        raise where.corrupt(p, "records", f"the end after {header.count}", f"{len(data) - p} bytes")
    return records


def _read_record(data: bytes, p: int, header: BatchHeader, where: Where) -> tuple[Record, int]:
    """The record at `p` and the position after it: the table above, field by field."""
    field = "record length"
    try:
        length, p = varint.decode(data, p)
        end = p + length
        if length < 0 or end > len(data):
            raise where.corrupt(p, field, f"0 to {len(data) - p}, what is left", length)
        p += 1  # attributes
        field = "timestamp delta"
        delta, p = varint.decode(data, p, 64)
        timestamp = header.base_timestamp + delta
        field = "offset delta"
        delta, p = varint.decode(data, p)
        if not 0 <= delta <= header.last_offset_delta:
            raise where.corrupt(p, field, f"0 to {header.last_offset_delta}", delta)
        field = "key length"
        size, p = varint.decode(data, p)
        key, p = _read_bytes(data, p, size, where, field)
        field = "value length"
        size, p = varint.decode(data, p)
        value, p = _read_bytes(data, p, size, where, field)
    except varint.VarintError as error:
        raise where.corrupt(p, field, "a varint", error.problem) from None
    headers, p = read_headers(data, p, where)
    if p != end:
        raise where.corrupt(p, "record length", f"to end at {where.base + end}", where.base + p)
    if not MIN_INT64 <= timestamp <= MAX_INT64:
        raise where.corrupt(p, "timestamp", "a 64-bit integer", timestamp)
    if header.attributes & APPEND_TIME_BIT:
        timestamp = header.max_timestamp
    return Record(header.base_offset + delta, timestamp, key, value, headers), p


def _read_bytes(
    data: bytes, p: int, size: int, where: Where, field: str
) -> tuple[bytes | None, int]:
    if size == -1:
        return None, p
    end = p + size
    if size < 0 or end > len(data):
        raise where.corrupt(p, field, f"-1 to {len(data) - p}, what is left", size)
    return data[p:end], end


def read_headers(data: bytes, p: int, where: Where = UNPACKED) -> tuple[Headers, int]:
    """The headers whose count is at `p`, and the position after them. Raises CorruptBatch."""
    field = "header count"
    headers = []
    try:
        count, p = varint.decode(data, p)
        if count < 0:
            raise where.corrupt(p, field, "0 or more", count)
        for _ in range(count):
            field = "header name length"
            size, p = varint.decode(data, p)
            raw, p = _read_bytes(data, p, size, where, field)
            if raw is None:
                raise where.corrupt(p, field, "0 or more", size)
            try:
                name = raw.decode()
            except UnicodeDecodeError:
                raise where.corrupt(p - size, "header name", "UTF-8", raw) from None
            field = "header value length"
            size, p = varint.decode(data, p)
            value, p = _read_bytes(data, p, size, where, field)
            headers.append((name, value))
    except varint.VarintError as error:
        raise where.corrupt(p, field, "a varint", error.problem) from None
    return tuple(headers), p
