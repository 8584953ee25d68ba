"""By columns and from or to Arrow: the same bytes and the same records as one by one."""

from __future__ import annotations

import subprocess
import sys
from array import array
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import (
    no_headers,
    nullable,
    record_lists,
    scanning_from,
    small_bytes,
    timestamps,
    unhurried,
)

from craft2 import record_batch as rb
from craft2.codecs import CODEC_NAMES
from craft2.record_arrow import COLUMNS, schema
from craft2.record_batch import InvalidRecord, Record

columns = st.one_of(
    st.lists(small_bytes, min_size=1, max_size=8),
    st.lists(nullable, min_size=1, max_size=8),
    st.builds(lambda size, count: [b"v" * size] * count, st.integers(0, 99), st.integers(1, 8)),
)


@st.composite
def column_sets(draw: st.DrawFn) -> tuple[list[Any], list[Any] | None, list[int] | int | None]:
    """values, keys, timestamps: each of the kinds that take a path of their own."""
    times = draw(st.sampled_from([1, 1, 9, 40, 1100]))
    values = draw(columns)
    keys = draw(st.none() | columns)
    if keys is not None:
        values, keys = values[: len(keys)], keys[: len(values)]
    count = len(values)
    stamps = draw(st.none() | timestamps | st.lists(timestamps, min_size=count, max_size=count))
    if isinstance(stamps, list):
        stamps = stamps * times
    return values * times, keys and keys * times, stamps


def rows(values: Any, keys: Any, stamps: Any, base_offset: int = 0) -> list[Record]:
    count = len(values)
    if not isinstance(stamps, list):
        stamps = [-1 if stamps is None else stamps] * count
    keys = keys or [None] * count
    return [
        Record(base_offset + index, *cells)
        for index, cells in enumerate(zip(stamps, keys, values, strict=True))
    ]


@unhurried
@given(column_sets(), st.sampled_from(CODEC_NAMES))
def test_columns_give_the_bytes_of_record_by_record(cells: Any, codec: str) -> None:
    values, keys, stamps = cells
    bulk = rb.encode_values(values, keys=keys, timestamps=stamps, codec=codec, producer_id=5)
    assert bulk == rb.encode(rows(*cells), codec=codec, producer_id=5)


@unhurried
@given(column_sets())
def test_arrow_columns_give_the_same_bytes(cells: Any) -> None:
    values, keys, stamps = cells
    expected = rb.encode_values(values, keys=keys, timestamps=stamps)
    arrow = pa.array(values, pa.binary())
    arrow_keys = None if keys is None else pa.array(keys, pa.large_binary())
    arrow_stamps = pa.array(stamps, pa.timestamp("ms")) if isinstance(stamps, list) else stamps
    assert rb.encode_arrow(arrow, arrow_keys, arrow_stamps) == expected
    chunks = pa.chunked_array([arrow[:1], arrow[1:]])
    assert rb.encode_arrow(chunks, arrow_keys, arrow_stamps) == expected


def test_arrow_strings_and_other_time_units() -> None:
    values = pa.array(["grüße", None])
    seconds = pa.array([1, 2], pa.timestamp("s", "UTC"))
    expected = rb.encode_values(["grüße".encode(), None], timestamps=[1000, 2000])
    assert rb.encode_arrow(values, timestamps=seconds) == expected
    assert rb.encode_arrow(values, timestamps=pa.array([1000, 2000])) == expected


def test_a_base_offset_and_many_values() -> None:
    values = [b"v"] * 10_000
    for keys in (None, [b"k"] * 10_000, [None] * 10_000):
        bulk = rb.encode_values(values, keys=keys, base_offset=70)
        assert bulk == rb.encode(rows(values, keys, None, 70), base_offset=70)


@pytest.mark.parametrize(
    ("values", "columns", "problem"),
    [
        ([], {}, "a batch of no records"),
        ([b"a"], {"keys": []}, "0 keys for 1 values"),
        ([b"a"], {"timestamps": [1, 2]}, "2 timestamps for 1 values"),
        ([b"a", "b"], {}, "record 1: the value is 'b'"),
        (["a", "b"], {}, "record 0: the value is 'a'"),
        ([b"a"], {"keys": [3]}, "record 0: the key is 3"),
        ([b"a"], {"timestamps": [2**63]}, "base timestamp 9223372036854775808 is no 64-bit"),
    ],
)
def test_what_cannot_be_encoded_is_named(values: Any, columns: Any, problem: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        rb.encode_values(values, **columns)
    assert problem in str(caught.value)


def test_other_views_of_bytes_are_taken_and_arrays_of_numbers_refused() -> None:
    numbers = array("i", [1, 2])
    views = [memoryview(numbers), bytearray(b"ab")]
    assert rb.encode_values(views, keys=views) == rb.encode_values(
        [numbers.tobytes(), b"ab"], keys=[numbers.tobytes(), b"ab"]
    )
    with pytest.raises(InvalidRecord, match=r"record 0: the value is array\('i', \[1, 2\]\)"):
        rb.encode_values([numbers] * 3)


def test_what_arrow_cannot_give_is_named() -> None:
    with pytest.raises(InvalidRecord, match="values are int64"):
        rb.encode_arrow(pa.array([1]))
    with pytest.raises(InvalidRecord, match="values are list"):
        rb.encode_arrow([b"a"])
    with pytest.raises(InvalidRecord, match="1 timestamps are null"):
        rb.encode_arrow(pa.array([b"a"]), timestamps=pa.array([None], pa.int64()))
    with pytest.raises(InvalidRecord, match="column 'topic' does not exist"):
        schema(["topic"])


@unhurried
@given(record_lists() | record_lists(no_headers), st.sampled_from(CODEC_NAMES))
def test_the_scan_finds_what_reading_one_by_one_finds(records: list[Record], codec: str) -> None:
    batch = rb.encode(records, codec=codec)
    with scanning_from(1):
        scanned = rb.decode(batch)
    with scanning_from(10**9):
        assert scanned == rb.decode(batch) == records
    assert all(type(record) is Record for record in scanned)


def as_records(table: pa.Table) -> list[Record]:
    cells = table.drop_columns("timestamp").to_pydict()  # datetime ends with the year 9999
    return [
        Record(offset, stamp, key, value, tuple((h["key"], h["value"]) for h in headers))
        for offset, stamp, key, value, headers in zip(
            cells["offset"],
            table["timestamp"].cast(pa.int64()).to_pylist(),
            cells["key"],
            cells["value"],
            cells["headers"],
            strict=True,
        )
    ]


@unhurried
@given(st.lists(st.tuples(record_lists(), st.sampled_from(CODEC_NAMES)), max_size=4), st.booleans())
def test_arrow_columns_hold_what_objects_hold(batches: Any, append_time: bool) -> None:
    buffer = bytearray()
    for records, codec in batches:
        batch = rb.stamp(rb.encode(records, codec=codec), len(buffer), 0)
        if append_time and len(buffer) % 2:
            rb.stamp_append_time(batch, 0, 123_456)
        buffer += batch
    table = rb.decode_arrow(bytes(buffer) + buffer[:60])
    table.validate(full=True)
    assert table.schema == schema()
    assert as_records(table) == rb.decode_all(buffer)


def test_arrow_columns_can_be_chosen() -> None:
    batch = rb.encode_values([b"a", None], keys=[None, b"k"], timestamps=[5, 4])
    table = rb.decode_arrow(b"..." + batch, 3, columns=("value", "offset"))
    assert table.to_pydict() == {"value": [b"a", None], "offset": [0, 1]}
    assert rb.decode_arrow(b"").num_rows == 0
    assert rb.decode_arrow(b"").column_names == list(COLUMNS)


def test_arrow_leaves_control_records_out() -> None:
    batch = rb.encode_values([b"a"])
    marker = rb.encode([Record(0, 0, rb.encode_control_key(0), b"")], control=True)
    assert rb.decode_arrow(batch + marker + batch)["value"].to_pylist() == [b"a", b"a"]


def test_arrow_notices_a_wrong_crc() -> None:
    batch = bytearray(rb.encode_values([b"a"] * 3))
    batch[-2] ^= 1
    with pytest.raises(rb.CorruptBatch, match="crc"):
        rb.decode_arrow(batch)
    assert rb.decode_arrow(batch, check_crc=False).num_rows == 3


def test_tables_kept_between_batches_stay_small() -> None:
    from craft2 import record_columns

    for size in range(300):
        rb.encode_values([b"v" * size] * 9, keys=[b"k" * size] * 9, timestamps=[size] * 9)
    assert record_columns._openings.cache_info().currsize <= record_columns._TABLES
    rb.encode_values([b"v"] * 10, keys=[b"k" * 99_999, b"l"] * 5)
    assert 0 < max(record_columns._openings(2)) < record_columns._TABLE_SIZE


def test_neither_arrow_nor_numpy_nor_pandas_is_imported_until_asked() -> None:
    program = (
        "import sys\n"
        "from craft2 import record_batch as rb\n"
        "batch = rb.encode_values([b'v'] * 9, keys=[b'k'] * 9, codec='zstd')\n"
        "rb.verify(batch); rb.decode(batch)\n"
        "print([name for name in ('pyarrow', 'numpy', 'pandas') if name in sys.modules])\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
