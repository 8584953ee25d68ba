"""Close a record batch: compress its records, write its header, compute its CRC.

Every encoder (record by record, by columns, from Arrow) ends here, so the header is written in
one place. The layout is drawn in craft2.batch_header.
"""

from __future__ import annotations

import struct
from typing import TypedDict, Unpack

from crc32c import crc32c

from craft2.batch_header import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    CRC,
    CRC_POSITION,
    CRC_START,
    CREATE_TIME,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAX_INT64,
    NO_PRODUCER,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from craft2.codecs import codec_id, compress
from craft2.errors import Craft2Error


class InvalidRecord(Craft2Error):
    """Something a batch cannot hold: a wrong type, a number out of range, too many bytes."""


class BatchFields(TypedDict, total=False):
    """What the caller may say about a whole batch. The defaults are those of a plain producer."""

    base_offset: int  # 0; the broker stamps the real one
    leader_epoch: int  # -1; the broker stamps the real one
    codec: str  # "none", "gzip", "snappy", "lz4" or "zstd"
    level: int | None  # None: the codec's usual level
    timestamp_type: str  # CREATE_TIME, or LOG_APPEND_TIME: readers see max_timestamp everywhere
    producer_id: int  # -1: not idempotent
    producer_epoch: int  # -1
    base_sequence: int  # -1
    transactional: bool
    control: bool


def seal(
    records: bytes,
    count: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    **fields: Unpack[BatchFields],
) -> bytes:
    """The whole batch: `records` (`count` encoded ones) compressed, behind a header with its CRC.

    Raises InvalidRecord for a field out of range, CodecError for a codec or level there is not.
    """
    attributes = _attributes(fields) if fields else 0
    base_offset = fields.get("base_offset", 0)
    if not 0 <= base_offset < MAX_INT64 - last_offset_delta:
        raise InvalidRecord(f"base offset {base_offset} is out of range", "use 0 or more")
    if fields:
        records = compress(fields.get("codec", "none"), records, fields.get("level"))
    header = (
        base_offset,
        HEADER_SIZE - LOG_OVERHEAD + len(records),
        fields.get("leader_epoch", -1),
        2,
        0,  # the CRC, which is not known yet
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        fields.get("producer_id", NO_PRODUCER),
        fields.get("producer_epoch", -1),
        fields.get("base_sequence", -1),
        count,
    )
    try:
        packed = HEADER.pack(*header)
    except struct.error:
        raise _out_of_range(BatchHeader(*header)) from None
    crc = CRC.pack(crc32c(records, crc32c(packed[CRC_START:])))
    return b"".join((packed[:CRC_POSITION], crc, packed[CRC_START:], records))


def _attributes(fields: BatchFields) -> int:
    attributes = codec_id(fields.get("codec", "none"))
    timestamp_type = fields.get("timestamp_type", CREATE_TIME)
    if timestamp_type not in (CREATE_TIME, LOG_APPEND_TIME):
        raise InvalidRecord(
            f"timestamp type {timestamp_type!r} does not exist",
            f"use {CREATE_TIME} or {LOG_APPEND_TIME}",
        )
    if timestamp_type == LOG_APPEND_TIME:
        attributes |= APPEND_TIME_BIT
    if fields.get("transactional"):
        attributes |= TRANSACTIONAL_BIT
    if fields.get("control"):
        attributes |= CONTROL_BIT
    return attributes


def _out_of_range(header: BatchHeader) -> InvalidRecord:
    """Says which field of `header` did not fit into its bytes."""
    for name, kind in zip(header._fields, HEADER.format[1:], strict=True):
        value = getattr(header, name)
        try:
            struct.pack(f">{kind}", value)
        except struct.error:
            bits = 8 * struct.calcsize(f">{kind}")
            return InvalidRecord(
                f"{name.replace('_', ' ')} {value!r} is no {bits}-bit integer",
                "split the batch" if name == "length" else "pass one that is",
            )
    raise AssertionError(f"every field fits: {header}")
