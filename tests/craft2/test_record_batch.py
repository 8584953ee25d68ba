"""Headers, stamping, and record by record: held to two other implementations, byte for byte."""

from __future__ import annotations

import doctest
import importlib
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import LEADER_EPOCHS, build, read, record_lists, unhurried

from craft2 import record_batch as rb
from craft2.codecs import CODEC_NAMES
from craft2.record_batch import BatchTooShort, CorruptBatch, InvalidRecord, Record

libraries = st.sampled_from(["aiokafka", "kafka-python"])
# kafka-python has only the one codec installed; aiokafka has them all.
codecs = st.sampled_from([("aiokafka", name) for name in CODEC_NAMES] + [("kafka-python", "gzip")])
producers = st.fixed_dictionaries(
    {},
    optional={
        "producer_id": st.integers(0, 2**63 - 1),
        "producer_epoch": st.integers(0, 2**15 - 1),
        "base_sequence": st.integers(0, 2**31 - 1),
        "transactional": st.booleans(),
    },
)
BATCH = rb.encode([Record(0, 1_000, b"k", b"v" * 40), Record(1, 1_002, None, None)])


@unhurried
@given(libraries, record_lists(), producers)
def test_bytes_equal_those_of_other_implementations(
    library: str, records: list[Record], producer: dict[str, Any]
) -> None:
    ours = rb.encode(records, leader_epoch=LEADER_EPOCHS[library], **producer)
    assert ours == build(library, records, **producer)


@unhurried
@given(libraries, record_lists(), producers)
def test_other_implementations_read_what_we_write(
    library: str, records: list[Record], producer: dict[str, Any]
) -> None:
    assert read(library, rb.encode(records, **producer)) == records


@unhurried
@given(codecs, record_lists())
def test_compressed_batches_are_read_by_each_other(
    codec: tuple[str, str], records: list[Record]
) -> None:
    library, name = codec
    assert rb.decode(build(library, records, name)) == records
    ours = rb.encode(records, codec=name)
    assert rb.read_header(ours).codec == name
    assert read(library, ours) == records


@unhurried
@given(record_lists(), st.integers(0, 2**62), st.sampled_from(CODEC_NAMES))
def test_round_trip(records: list[Record], base_offset: int, codec: str) -> None:
    moved = [record._replace(offset=base_offset + 3 * record.offset) for record in records]
    batch = rb.encode(moved, base_offset=base_offset, codec=codec)
    assert rb.decode(batch) == moved
    assert rb.verify(batch).next_offset == moved[-1].offset + 1


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_header_fields(make: Any) -> None:
    batch = rb.encode(
        [Record(0, 70, None, b"a"), Record(1, 50, None, b"b"), Record(4, 60, None, b"c")],
        codec="zstd",
        leader_epoch=9,
        producer_id=77,
        producer_epoch=3,
        base_sequence=12,
        transactional=True,
        control=True,
    )
    header = rb.read_header(make(b"junk" + batch), 4)
    assert header == rb.verify(make(b"junk" + batch), 4)
    assert header.size == len(batch) == header.length + rb.LOG_OVERHEAD
    assert (header.base_offset, header.last_offset, header.next_offset) == (0, 4, 5)
    assert (header.leader_epoch, header.magic, header.count) == (9, 2, 3)
    assert (header.base_timestamp, header.max_timestamp) == (70, 70)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 12)
    assert (header.codec, header.timestamp_type) == ("zstd", "CreateTime")
    assert header.is_transactional
    assert header.is_control


def test_plain_flags() -> None:
    header = rb.read_header(BATCH)
    assert not header.is_transactional
    assert not header.is_control
    assert header.codec == "none"


def test_stamping_changes_two_fields_and_leaves_the_crc_valid() -> None:
    stamped = rb.stamp(BATCH, 41, 6)
    before, after = rb.verify(BATCH), rb.verify(stamped)
    assert after == before._replace(base_offset=41, leader_epoch=6)
    assert [record.offset for record in rb.decode(stamped)] == [41, 42]
    assert rb.verify(BATCH) == before, "stamp copies"

    two = bytearray(BATCH + BATCH)
    rb.stamp_into(two, len(BATCH), 41, 6)
    assert two == BATCH + stamped


def test_append_time_replaces_the_timestamps_of_all_records() -> None:
    buffer = bytearray(BATCH + BATCH)
    rb.stamp_append_time(buffer, len(BATCH), 5_000)
    assert buffer[: len(BATCH)] == BATCH
    header = rb.verify(buffer, len(BATCH))
    assert header.timestamp_type == rb.LOG_APPEND_TIME
    assert header.max_timestamp == 5_000
    assert [record.timestamp for record in rb.decode(buffer, len(BATCH))] == [5_000, 5_000]
    for library in LEADER_EPOCHS:
        assert read(library, buffer[len(BATCH) :]) == rb.decode(buffer, len(BATCH))
    with pytest.raises(BatchTooShort):
        rb.stamp_append_time(buffer[:-1], len(BATCH), 5_000)


@pytest.mark.parametrize("position", range(rb.HEADER_SIZE))
def test_verify_notices_a_flipped_bit_wherever_the_crc_reaches(position: int) -> None:
    damaged = bytearray(BATCH)
    damaged[position] ^= 0x10
    if position < 8 or 12 <= position < 16:  # what the broker stamps; a huge offset is refused
        if position:
            rb.verify(damaged)
    else:
        with pytest.raises((CorruptBatch, BatchTooShort)):
            rb.verify(damaged)


def test_a_crc_error_tells_both() -> None:
    damaged = bytearray(BATCH)
    damaged[-20] ^= 1  # in the value
    with pytest.raises(CorruptBatch) as caught:
        rb.verify(damaged)
    stored = rb.read_header(BATCH).crc
    assert f"crc: expected {stored:#010x} as stored, got 0x" in str(caught.value)
    assert (caught.value.field, caught.value.position) == ("crc", 0)
    assert rb.decode(damaged, check_crc=False)


@pytest.mark.parametrize(
    ("position", "value", "field", "problem"),
    [
        (16, 3, "magic", "expected 0, 1 or 2, got 3"),
        (16, 255, "magic", "got 255"),
        (10, 0, "length", ""),
        (0, 0x80, "base offset", "expected 0 or more, got -"),
        (23, 0x80, "last offset delta", "expected 0 to 2147483647, got -"),
        (57, 0x80, "count", "expected 0 to last offset delta + 1 = 2, got -"),
        (60, 3, "count", "expected 0 to last offset delta + 1 = 2, got 3"),
        (22, 5, "codec", "expected 0 to 4, got 5"),
        (22, 7, "codec", "expected 0 to 4, got 7"),
    ],
)
def test_impossible_headers_are_named(position: int, value: int, field: str, problem: str) -> None:
    damaged = bytearray(b"...." + BATCH)
    damaged[4 + position] = value
    if field == "length":
        damaged[4 + 8 : 4 + 12] = (48).to_bytes(4, "big")
        problem = "expected at least 49, got 48"
    with pytest.raises(CorruptBatch, match=f"{field}: .*") as caught:
        rb.read_header(damaged, 4)
    assert problem in str(caught.value)
    assert caught.value.field == field
    assert 4 <= caught.value.position < 4 + rb.HEADER_SIZE


def test_offsets_end_where_64_bits_end() -> None:
    last = 2**63 - 3
    assert rb.read_header(rb.stamp(BATCH, last, 0)).next_offset == 2**63 - 1
    with pytest.raises(CorruptBatch, match="last offset delta: expected 0 to 0, got 1"):
        rb.read_header(rb.stamp(BATCH, last + 1, 0))
    with pytest.raises(CorruptBatch, match="base offset: expected 0 or more, got 9223372036854"):
        rb.read_header(rb.stamp(BATCH, 2**63 - 1, 0))


def test_errors_survive_pickling() -> None:
    with pytest.raises(BatchTooShort) as caught:
        rb.verify(BATCH[:-1])
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.needed) == (str(caught.value), len(BATCH))


def test_iter_headers_walks_whole_batches_and_stops_at_a_partial_one() -> None:
    buffer = b".." + BATCH + rb.stamp(BATCH, 2, 0) + BATCH[:-1]
    found = list(rb.iter_headers(buffer, 2))
    assert [(position, header.base_offset) for position, header in found] == [
        (2, 0),
        (2 + len(BATCH), 2),
    ]
    assert list(rb.iter_headers(b"")) == []
    assert [record.offset for record in rb.decode_all(buffer, 2)] == [0, 1, 2, 3]


def test_decode_all_leaves_control_records_out() -> None:
    key = rb.encode_control_key(rb.CONTROL_COMMIT)
    marker = rb.encode([Record(0, 0, key, b"")], control=True, transactional=True, producer_id=1)
    assert rb.decode_all(BATCH + marker) == rb.decode(BATCH)
    assert rb.decode_control_key(rb.decode(marker)[0].key) == rb.CONTROL_COMMIT


def test_control_keys() -> None:
    assert rb.encode_control_key(rb.CONTROL_ABORT) == b"\0\0\0\0"
    assert rb.encode_control_key(rb.CONTROL_COMMIT) == b"\0\0\0\1"
    assert rb.decode_control_key(b"\0\1\0\1later fields") == rb.CONTROL_COMMIT
    for key in (None, b"", b"\0\0\0", b"\0\0\xff\xff"):
        with pytest.raises(CorruptBatch, match="control record key"):
            rb.decode_control_key(key)


@pytest.mark.parametrize(
    ("records", "fields", "problem"),
    [
        ([], {}, "a batch of no records"),
        ([Record(0, 0, "UA", b"")], {}, "record 0: the key is 'UA'. Fix: encode it first"),
        ([Record(3, 0, None, 7)], {}, "record 3: the value is 7"),
        ([Record(0, 0, None, b"", ((b"h", b""),))], {}, "header's name is b'h'"),
        ([Record(0, 0, None, b"", (("\ud800", b""),))], {}, "is no valid text"),
        ([Record(0, 0, None, b"", (("h", "v"),))], {}, "the header 'h' is 'v'"),
        ([Record(5, 0, None, b""), Record(5, 0, None, b"")], {}, "record 5 cannot follow 5"),
        ([Record(5, 0, None, b"")], {"base_offset": 6}, "record 5 cannot follow 5"),
        ([Record(2**31, 0, None, b"")], {}, "cannot follow -1"),
        ([Record(0, 2**63, None, b"")], {}, "base timestamp 9223372036854775808 is no 64-bit"),
        ([Record(0, -1, None, b""), Record(1, 2**63 - 1, None, b"")], {}, "too far from the first"),
        ([Record(-1, 0, None, b"")], {"base_offset": -1}, "base offset -1 is out of range"),
        ([Record(0, 0, None, b"")], {"producer_epoch": 2**15}, "producer epoch 32768 is no 16-bit"),
        ([Record(0, 0, None, b"")], {"timestamp_type": "now"}, "timestamp type 'now' does not"),
    ],
)
def test_what_cannot_be_encoded_is_named(records: Any, fields: Any, problem: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        rb.encode(records, **fields)
    assert problem in str(caught.value)


@pytest.mark.parametrize("name", ["codecs", "record_batch", "record_columns", "records", "varint"])
def test_the_examples_in_the_docstrings_hold(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"craft2.{name}"))
    assert tried
    assert not failed
