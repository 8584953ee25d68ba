"""Damaged and partial input: an error of our own that says where, never anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import record_lists, scanning_from, unhurried
from test_record_batch_bulk import as_records

from craft2 import record_batch as rb
from craft2.batch_seal import seal
from craft2.codecs import CODEC_NAMES
from craft2.record_batch import BatchTooShort, CorruptBatch, Record

READERS: dict[str, Callable[[Any], Any]] = {
    "read_header": rb.read_header,
    "verify": rb.verify,
    "iter_headers": lambda data: list(rb.iter_headers(data)),
    "decode": rb.decode,
    "decode unchecked": lambda data: rb.decode(data, check_crc=False),
    "decode_all": rb.decode_all,
    "decode_arrow": rb.decode_arrow,
    "decode_arrow unchecked": lambda data: rb.decode_arrow(data, check_crc=False),
}
BATCH = rb.encode(
    [
        Record(0, 1_000, b"UA", b"departed", (("who", b"me"), ("empty", None))),
        Record(1, 999, None, None),
        Record(2, 2**40, b"", b"x" * 100),
    ],
    producer_id=7,
)


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytes:
    """A valid batch, of any codec, with bytes changed, inserted or cut out."""
    batch = bytearray(
        rb.encode(draw(record_lists()), codec=draw(st.sampled_from(["none", "none", *CODEC_NAMES])))
    )
    for _ in range(draw(st.integers(1, 3))):
        # Often near the front, where the first record's numbers are.
        at = min(draw(st.integers(0, 90) | st.integers(0, len(batch))), len(batch))
        cut = draw(st.integers(0, 3))
        batch[at : at + cut] = draw(st.binary(max_size=3))
    if draw(st.booleans()) and len(batch) >= 61:  # mend the length, so that the records are read
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    return bytes(batch)


def outcome(read: Callable[[Any], Any], data: Any) -> Any:
    """What reading gives, or the class of the error; any other error fails the test."""
    try:
        return read(data)
    except (CorruptBatch, BatchTooShort) as error:
        return type(error)


@unhurried
@given(st.binary(max_size=200), st.sampled_from([None, 0, 1, 2]))
def test_any_bytes_give_an_error_of_our_own_or_records(data: bytes, magic: int | None) -> None:
    if magic is not None and len(data) > 16:
        data = data[:16] + bytes([magic]) + data[17:]
    for read in READERS.values():
        outcome(read, data)


@unhurried
@given(damaged_batches())
def test_damage_gives_an_error_of_our_own_or_records(data: bytes) -> None:
    for read in READERS.values():
        outcome(read, data)


@unhurried
@given(damaged_batches())
def test_all_readers_judge_damage_alike(data: bytes) -> None:
    """Scan, record by record, and Arrow: the same records, or each an error."""
    with scanning_from(10**9):
        expected = outcome(READERS["decode unchecked"], data)
    with scanning_from(1):
        assert outcome(READERS["decode unchecked"], data) == expected
    if isinstance(expected, list) and not rb.read_header(data).is_control:
        size = rb.read_header(data).size
        assert as_records(rb.decode_arrow(data[:size], check_crc=False)) == expected


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_every_cut_is_too_short_and_says_what_is_needed(codec: str) -> None:
    batch = rb.encode(rb.decode(BATCH), codec=codec)
    for size in range(len(batch)):
        for read in (rb.verify, rb.decode):
            with pytest.raises(BatchTooShort) as caught:
                read(batch[:size])
            assert size < caught.value.needed <= len(batch)
        assert list(rb.iter_headers(batch[:size])) == []
        assert rb.decode_all(batch[:size]) == []
        assert rb.decode_arrow(batch[:size]).num_rows == 0


def test_byte_by_byte_a_reader_that_asks_for_what_is_needed_arrives() -> None:
    size = 0
    while True:
        try:
            assert rb.decode(BATCH[:size]) == rb.decode(BATCH)
            break
        except BatchTooShort as error:
            size = error.needed
    assert size == len(BATCH)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("trailing", [b"\0", b"junk" * 20, BATCH, BATCH[:-1]])
def test_trailing_data_changes_nothing(make: Any, trailing: bytes) -> None:
    data = make(BATCH + trailing)
    assert rb.verify(data) == rb.verify(BATCH)
    assert rb.decode(data) == rb.decode(BATCH)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        # The second record: 0c 00 01 02 01 01 00.
        ("0c0001020101 00", "0d0001020101 00", "record length: expected 0 to"),
        ("0c0001020101 00", "0e0001020101 00", "record length: expected to end at"),
        ("0c0001020101 00", "0c0001060101 00", "offset delta: expected 0 to 2, got 3"),
        ("0c0001020101 00", "0c0001010101 00", "offset delta: expected 0 to 2, got -1"),
        ("0c0001020101 00", "0c0001020301 00", "key length: expected -1 to"),
        ("0c0001020101 00", "0c0001020103 00", "value length: expected -1 to"),
        ("0c0001020101 00", "0c0001020101 01", "header count: expected 0 or more, got -1"),
        ("0677686f", "06ff686f", "header name: expected UTF-8, got b'\\xffho'"),
        ("0677686f", "0177686f", "header name length: expected 0 or more, got -1"),
    ],
)
def test_damage_inside_a_record_is_named(old: str, new: str, field: str) -> None:
    old_bytes, new_bytes = bytes.fromhex(old), bytes.fromhex(new)
    assert BATCH.count(old_bytes) == 1
    damaged = BATCH.replace(old_bytes, new_bytes)
    for base in (b"", b"...."):
        for count in (1, 64):
            with scanning_from(count), pytest.raises(CorruptBatch) as caught:
                rb.decode(base + damaged, len(base), check_crc=False)
            assert field in str(caught.value)
            at = len(base) + BATCH.index(old_bytes)
            assert at <= caught.value.position <= at + len(old_bytes) + 1
    with pytest.raises(CorruptBatch) as caught:
        rb.decode_arrow(damaged, check_crc=False)
    assert field in str(caught.value)


def test_a_record_longer_than_its_fields_is_refused_by_every_reader() -> None:
    padded = BATCH.replace(bytes.fromhex("0c000102010100"), bytes.fromhex("0e00010201010000"))
    padded = padded[:8] + (len(padded) - rb.LOG_OVERHEAD).to_bytes(4, "big") + padded[12:]
    for read in (rb.decode, rb.decode_all, rb.decode_arrow):
        for count in (1, 64):
            with scanning_from(count), pytest.raises(CorruptBatch, match="expected to end at"):
                read(padded, check_crc=False)


@pytest.mark.parametrize(
    ("timestamp_delta", "key_length", "accepted"),
    [
        ("00", "8180808000", True),  # -1 in five bytes: wasteful, but allowed
        ("00", "818080808000", False),
        ("00", "8180808010", False),  # a 33rd bit
        ("808080808080808000", "01", True),  # 0 in nine bytes
        ("80808080808080808000", "01", True),
        ("80808080808080808002", "01", False),  # a 65th bit
        ("8080808080808080808000", "01", False),
    ],
)
def test_long_varints_are_judged_alike_by_every_reader(
    timestamp_delta: str, key_length: str, accepted: bool
) -> None:
    body = bytes.fromhex("00" + timestamp_delta + "00" + key_length + "0100")
    batch = seal(bytes([2 * len(body)]) + body, 1, 0, 5, 5)
    for read in (rb.decode_all, lambda data: as_records(rb.decode_arrow(data))):
        for count in (1, 64):
            with scanning_from(count):
                if accepted:
                    assert read(batch) == [Record(0, 5, None, None)]
                else:
                    with pytest.raises(CorruptBatch, match="expected a varint"):
                        read(batch)


def test_a_count_that_does_not_fit_the_records_is_named() -> None:
    for count in (1, 2):
        damaged = BATCH[:57] + count.to_bytes(4, "big") + BATCH[61:]
        for read in (rb.decode, rb.decode_arrow):
            for scan_from in (1, 64):
                problem = f"records: expected the end after {count}, got"
                with scanning_from(scan_from), pytest.raises(CorruptBatch, match=problem):
                    read(damaged, check_crc=False)
    huge = BATCH[:23] + b"\x7f\xff\xff\xfe" + BATCH[27:57] + b"\x7f\xff\xff\xff" + BATCH[61:]
    with pytest.raises(CorruptBatch, match="record length: expected a varint"):
        rb.decode(huge, check_crc=False)
    with pytest.raises(CorruptBatch, match="record length: expected a varint"):
        rb.decode_arrow(huge, check_crc=False)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_unpacks_to_too_much_is_refused(codec: str) -> None:
    bomb = rb.encode_values([bytes(30_000_000)], codec=codec)
    assert len(bomb) < 2_000_000
    for read in (rb.decode, rb.decode_all, rb.decode_arrow):
        with pytest.raises(CorruptBatch, match="unpacks to more than 1000000 bytes"):
            read(bomb, limit=1_000_000)


def test_timestamps_beyond_64_bits_are_refused_by_every_reader() -> None:
    batch = rb.encode([Record(0, 2**63 - 5, None, b""), Record(1, 2**63 - 1, None, b"")])
    assert [record.timestamp for record in rb.decode(batch)] == [2**63 - 5, 2**63 - 1]
    moved = batch[:27] + (2**63 - 2).to_bytes(8, "big") + batch[35:]
    for read in (rb.decode, rb.decode_all, rb.decode_arrow):
        with scanning_from(1), pytest.raises(CorruptBatch, match="timestamp: expected a 64-bit"):
            read(moved, check_crc=False)
