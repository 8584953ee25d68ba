"""Kafka's record batch, format 2: the one unit that is sent, stored and fetched.

A producer encodes a batch once; a broker stores those bytes and hands them out again without
taking them apart. That is why Kafka is fast, and why the rest of this project passes bytes around.

>>> batch = encode([Record(0, 1_700_000_000_000, b"UA", b"departed"),
...                 Record(1, 1_700_000_000_250, b"OO", None)])
>>> stored = stamp(batch, base_offset=40, leader_epoch=2)
>>> read_header(stored).next_offset
42
>>> decode(stored)[1]
Record(offset=41, timestamp=1700000000250, key=b'OO', value=None, headers=())

This module is the door to the others, one idea each:

- craft2.batch_header: the 61 bytes in front, drawn; reading, checking and stamping them
- craft2.batch_seal:   writing them
- craft2.records:      the records behind them, drawn; the clear way to encode and decode them
- craft2.record_columns, craft2.record_arrow: whole lists and Arrow arrays at once
- craft2.message_set:  the formats before this one, 0 and 1, read only

Source: kafka.apache.org/documentation/#recordbatch; KIP-98.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Unpack

from craft2 import message_set
from craft2.batch_header import (
    APPEND_TIME_BIT,
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_PRODUCER,
    NO_TIMESTAMP,
    BatchHeader,
    BatchTooShort,
    Buffer,
    CorruptBatch,
    corrupt,
    iter_headers,
    read_header,
    stamp,
    stamp_append_time,
    stamp_into,
    too_short,
    verify,
)
from craft2.batch_seal import BatchFields, InvalidRecord, seal
from craft2.codecs import DEFAULT_LIMIT
from craft2.record_arrow import decode_arrow, encode_arrow
from craft2.record_columns import encode_values
from craft2.record_scan import OddRecordsError, check_deltas, hop, scan
from craft2.records import Headers, Record, decode_records, encode_record, unpack
from craft2.varint import VarintError

if TYPE_CHECKING:
    from craft2.record_scan import Ints

__all__ = [
    "CONTROL_ABORT",
    "CONTROL_COMMIT",
    "CREATE_TIME",
    "HEADER_SIZE",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "NO_PRODUCER",
    "NO_TIMESTAMP",
    "BatchFields",
    "BatchHeader",
    "BatchTooShort",
    "Buffer",
    "CorruptBatch",
    "InvalidRecord",
    "Record",
    "decode",
    "decode_all",
    "decode_arrow",
    "decode_control_key",
    "encode",
    "encode_arrow",
    "encode_control_key",
    "encode_values",
    "iter_headers",
    "read_header",
    "stamp",
    "stamp_append_time",
    "stamp_into",
    "verify",
]

SCAN_FROM = 64  # records in a batch from which on the scan is faster
CONTROL_ABORT = 0
CONTROL_COMMIT = 1
_CONTROL_KEY = Struct(">hh")


def encode(records: Sequence[Record], **fields: Unpack[BatchFields]) -> bytes:
    """One batch of `records`; `fields` are those of BatchFields (base_offset, codec, ...).

    Offsets must grow from base_offset (0 unless given) on, with gaps at will. The first record's
    timestamp is the base of the others, as in Kafka's own producer.

    Raises InvalidRecord naming the record and what about it cannot be encoded.
    """
    if not records:
        raise InvalidRecord("a batch of no records", "encode at least one")
    base_offset = fields.get("base_offset", 0)
    base_timestamp = records[0].timestamp
    parts = []
    last_delta = -1
    for record in records:
        delta = record.offset - base_offset
        if not last_delta < delta < 2**31:
            raise InvalidRecord(
                f"record {record.offset} cannot follow {base_offset + last_delta}",
                "sort records by offset, none twice, from base_offset on",
            )
        if not -(2**63) <= record.timestamp - base_timestamp < 2**63:
            raise InvalidRecord(
                f"record {record.offset}: timestamp {record.timestamp} is too far from the "
                f"first, {base_timestamp}",
                "give timestamps in ms since 1970",
            )
        last_delta = delta
        parts.append(encode_record(record, delta, record.timestamp - base_timestamp))
    newest = max(record.timestamp for record in records)
    return seal(b"".join(parts), len(records), last_delta, base_timestamp, newest, **fields)


def decode(
    buffer: Buffer, position: int = 0, *, check_crc: bool = True, limit: int = DEFAULT_LIMIT
) -> list[Record]:
    """The records of the batch at `position` (of any format), whatever follows it.

    Those of a control batch too; see `decode_control_key`. Raises BatchTooShort if the buffer
    ends inside the batch; CorruptBatch if a byte is not as it must be, or if the records
    unpack to more than `limit` bytes.
    """
    header = verify(buffer, position) if check_crc else read_header(buffer, position)
    if position + header.size > len(buffer):
        raise too_short(position, len(buffer) - position, header.size)
    if header.magic < 2:
        return message_set.decode(buffer, position, header, limit)
    data = unpack(buffer, position, header, limit)
    if header.count >= SCAN_FROM:
        try:
            return _decode_by_columns(data, header)
        except (IndexError, VarintError, CorruptBatch, OddRecordsError):
            pass  # the clear way either knows better or says what is wrong
    return decode_records(data, header, position)


def _decode_by_columns(data: bytes, header: BatchHeader) -> list[Record]:
    """`decode_records`, by one scan over all records. Raises as record_scan does if it cannot."""
    import numpy as np

    starts = np.fromiter(hop(data, 0, header.count), np.int64, header.count + 1)
    columns = scan(data, starts[:-1], starts[1:])
    deltas = columns.offset_deltas, columns.timestamp_deltas
    check_deltas(*deltas, header.base_timestamp, header.last_offset_delta)
    if starts[-1] != len(data):
        raise OddRecordsError
    timestamps: Iterable[int] = (columns.timestamp_deltas + header.base_timestamp).tolist()
    if header.attributes & APPEND_TIME_BIT:
        timestamps = repeat(header.max_timestamp)
    headers: Iterable[Headers] = repeat(())
    if columns.headers:
        headers = map(columns.headers.get, range(header.count), repeat(()))
    rows = zip(
        (columns.offset_deltas + header.base_offset).tolist(),
        timestamps,
        _cut(data, columns.key_starts, columns.key_sizes),
        _cut(data, columns.value_starts, columns.value_sizes),
        headers,
        strict=False,
    )
    return list(map(tuple.__new__, repeat(Record), rows))


def _cut(data: bytes, starts: Ints, sizes: Ints) -> Iterable[bytes | None]:
    """The bytes at each start, or None where the size is -1."""
    if sizes.max() < 0:
        return repeat(None)
    bounds = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
    if sizes.min() >= 0:
        return [data[start:end] for start, end in bounds]
    return [data[start:end] if start <= end else None for start, end in bounds]


def decode_all(
    buffer: Buffer, position: int = 0, *, check_crc: bool = True, limit: int = DEFAULT_LIMIT
) -> list[Record]:
    """The records of all whole batches from `position` on, as a consumer sees them.

    A partial last batch and control batches are left out. Raises CorruptBatch as `decode` does.
    """
    records: list[Record] = []
    for start, header in iter_headers(buffer, position):
        if not header.is_control:
            records += decode(buffer, start, check_crc=check_crc, limit=limit)
    return records


def encode_control_key(kind: int) -> bytes:
    """The key of a control record: CONTROL_ABORT or CONTROL_COMMIT, in version 0 (KIP-98)."""
    return _CONTROL_KEY.pack(0, kind)


def decode_control_key(key: bytes | None) -> int:
    """What a control record says, by its key: CONTROL_ABORT, CONTROL_COMMIT, or a later kind.

    Later versions may add bytes behind these four. Raises CorruptBatch if they are not there.
    """
    if key is None or len(key) < _CONTROL_KEY.size:
        raise corrupt(0, "control record key", "4 bytes or more", key)
    version, kind = _CONTROL_KEY.unpack_from(key)
    if version < 0 or kind < 0:
        raise corrupt(0, "control record key", "version and type of 0 or more", key)
    return int(kind)
