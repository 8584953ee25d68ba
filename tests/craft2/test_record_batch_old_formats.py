"""Formats 0 and 1, which are read and never written: held to two other implementations."""

from __future__ import annotations

import zlib
from contextlib import suppress
from typing import Any

import aiokafka.record.legacy_records as aiokafka_records
import kafka.record.legacy_records as kafka_records
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import nullable, unhurried

from craft2 import record_batch as rb
from craft2.codecs import CODEC_IDS, compress
from craft2.record_batch import BatchTooShort, CorruptBatch, Record

BUILDERS = {
    "aiokafka": aiokafka_records.LegacyRecordBatchBuilder,
    "kafka-python": kafka_records.LegacyRecordBatchBuilder,
}
# kafka-python has only gzip installed. lz4 in format 0 is the one we refuse.
KINDS = [
    (library, magic, codec)
    for library in BUILDERS
    for magic in (0, 1)
    for codec in ("none", "gzip", "snappy", "lz4")
    if (library == "aiokafka" or codec in ("none", "gzip")) and (magic, codec) != (0, "lz4")
]
rows = st.lists(st.tuples(st.integers(0, 2**42), nullable, nullable), min_size=1, max_size=5)


def build(library: str, magic: int, codec: str, cells: Any) -> bytes:
    """Messages with offsets from 0; if compressed, with the outer offset a broker would set."""
    builder = BUILDERS[library](magic, CODEC_IDS[codec], 1 << 20)
    for offset, (timestamp, key, value) in enumerate(cells):
        builder.append(offset, timestamp=timestamp, key=key, value=value)
    built = bytes(builder.build())
    return built if codec == "none" else (len(cells) - 1).to_bytes(8, "big") + built[8:]


def expected(magic: int, cells: Any) -> list[Record]:
    return [
        Record(offset, timestamp if magic else -1, key, value)
        for offset, (timestamp, key, value) in enumerate(cells)
    ]


@unhurried
@given(st.sampled_from(KINDS), rows)
def test_messages_of_other_implementations_are_read(kind: Any, cells: Any) -> None:
    data = build(*kind, cells)
    assert rb.decode_all(data) == expected(kind[1], cells)
    for position, header in rb.iter_headers(data):
        assert header == rb.verify(data, position)
        assert header.magic == kind[1]
        assert header.codec == kind[2]
    assert header.next_offset == len(cells)
    table = rb.decode_arrow(data)
    assert table["value"].to_pylist() == [value for _, _, value in cells]


def test_old_and_new_formats_may_follow_each_other() -> None:
    old = build("kafka-python", 0, "none", [(0, b"k", b"old"), (0, None, None)])
    new = rb.encode_values([b"new"], base_offset=2)
    old_gzip = build("kafka-python", 1, "gzip", [(5, b"k", b"gzip")])
    records = rb.decode_all(new + old + new + old_gzip)
    assert [record.value for record in records] == [b"new", b"old", None, b"new", b"gzip"]
    table = rb.decode_arrow(new + old + new + old_gzip)
    assert table["value"].to_pylist() == [record.value for record in records]


def test_offsets_inside_a_compressed_format_1_message_count_from_its_own() -> None:
    data = build("aiokafka", 1, "gzip", [(5, None, b"a"), (6, None, b"b"), (7, None, b"c")])
    moved = (100).to_bytes(8, "big") + data[8:]
    assert [record.offset for record in rb.decode(moved)] == [98, 99, 100]
    unstamped = bytes(8) + data[8:]
    with pytest.raises(CorruptBatch, match="inner offset: expected at most 0, got 2"):
        rb.decode(unstamped)


@pytest.mark.parametrize("kind", KINDS)
def test_every_cut_is_too_short(kind: Any) -> None:
    data = build(*kind, [(5, b"key", b"value" * 20)])
    for size in range(len(data)):
        with pytest.raises(BatchTooShort) as caught:
            rb.decode(data[:size])
        assert size < caught.value.needed <= len(data)
        assert rb.decode_all(data[:size]) == []
    for trailing in (b"\0", b"junk" * 20, data):
        assert rb.decode(data + trailing) == rb.decode(data)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_behind_the_crc_is_noticed(kind: Any) -> None:
    data = build(*kind, [(5, b"key", b"value" * 20)])
    for position in range(12, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        with pytest.raises((CorruptBatch, BatchTooShort)):
            rb.decode(damaged)


@unhurried
@given(st.sampled_from(KINDS), rows, st.data())
def test_damage_is_an_error_of_our_own_or_harmless(kind: Any, cells: Any, draw: Any) -> None:
    data = bytearray(build(*kind, cells))
    at = draw.draw(st.integers(0, len(data) - 1))
    data[at : at + draw.draw(st.integers(0, 2))] = draw.draw(st.binary(max_size=2))
    for read in (rb.decode, rb.decode_all, rb.decode_arrow):
        with suppress(CorruptBatch, BatchTooShort):
            read(bytes(data), check_crc=False)


def message(codec: str, value: bytes) -> bytes:
    """One format 0 message without key, its offset 0."""
    body = bytes([0, CODEC_IDS[codec]]) + b"\xff" * 4 + len(value).to_bytes(4, "big") + value
    crc = zlib.crc32(body).to_bytes(4, "big")
    return bytes(8) + (len(body) + 4).to_bytes(4, "big") + crc + body


def test_lz4_in_format_0_is_refused_in_words() -> None:
    frame = bytearray(compress("lz4", message("none", b"value")))
    frame[6] ^= 0xFF  # the header checksum that clients of the time computed over other bytes
    with pytest.raises(CorruptBatch, match="lz4 messages: expected data that unpacks"):
        rb.decode(message("lz4", bytes(frame)))


def test_only_plain_messages_of_the_same_format_may_be_inside_another() -> None:
    plain = message("none", b"value")
    packed = message("gzip", compress("gzip", plain))
    assert rb.decode(packed) == [Record(0, -1, None, b"value")]
    other = build("aiokafka", 1, "none", [(5, None, b"value")])
    for inner in (packed, plain + packed, other, rb.encode_values([b"value"])):
        with pytest.raises(CorruptBatch, match="inner message: expected plain format 0"):
            rb.decode(message("gzip", compress("gzip", inner)))
    for inner in (b"", plain[:-1], plain + b"."):
        with pytest.raises(CorruptBatch, match="gzip messages: expected whole messages"):
            rb.decode(message("gzip", compress("gzip", inner)))


def test_lengths_that_leave_the_message_are_named() -> None:
    data = build("aiokafka", 0, "none", [(5, b"key", b"value")])
    for position, size, field in (
        (18, 99, "key length: expected -1 to"),
        (18, -2, "key length: expected -1 to"),
        (18, 0, "value length: expected -1 to"),
        (25, 4, "message: expected its end"),
    ):
        damaged = data[:position] + size.to_bytes(4, "big", signed=True) + data[position + 4 :]
        with pytest.raises(CorruptBatch) as caught:
            rb.decode(damaged, check_crc=False)
        assert field in str(caught.value)
