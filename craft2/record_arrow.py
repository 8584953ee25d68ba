"""Record batches to and from Arrow, for analysis: columns in, columns out, no object per record.

`decode_arrow` is what the Spark source reads with. Fields are found by craft2.record_scan; a key
or value column is then gathered by Arrow from the batch's own bytes.

pyarrow and numpy are imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Unpack

from craft2 import message_set
from craft2.batch_header import (
    APPEND_TIME_BIT,
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    CorruptBatch,
    iter_headers,
    verify,
)
from craft2.batch_seal import BatchFields, InvalidRecord
from craft2.codecs import DEFAULT_LIMIT
from craft2.record_columns import encode_values
from craft2.record_scan import OddRecordsError, check_deltas, hop, scan
from craft2.records import Record, decode_records, unpack
from craft2.varint import VarintError

if TYPE_CHECKING:
    import pyarrow as pa

    from craft2.record_scan import Columns, Ints

COLUMNS = ("offset", "timestamp", "key", "value", "headers")
# Records are scanned together until their bytes come to this: small batches share the cost of a
# scan, and positions stay far below the 2 GiB an Arrow binary array can address.
_GROUP_SIZE = 8 << 20
_MOST_BYTES = 2**31


def schema(columns: Sequence[str] = COLUMNS) -> pa.Schema:
    """The Arrow schema of `decode_arrow`: offset, timestamp (ms, UTC), key, value, headers."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", "UTC"),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(header),
    }
    for name in columns:
        if name not in types:
            raise InvalidRecord(f"column {name!r} does not exist", f"use {', '.join(COLUMNS)}")
    return pa.schema([(name, types[name]) for name in columns])


def decode_arrow(
    buffer: Buffer,
    position: int = 0,
    *,
    columns: Sequence[str] = COLUMNS,
    check_crc: bool = True,
    limit: int = DEFAULT_LIMIT,
) -> pa.Table:
    """All records of the whole batches from `position` on, as a table with those `columns`.

    As `decode_all`: a partial last batch and control batches are left out; raises CorruptBatch,
    also if a batch unpacks to more than `limit` bytes.
    """
    import pyarrow as pa

    wanted = schema(columns)
    tables = [_group_table(group, wanted) for group in _groups(buffer, position, check_crc, limit)]
    return pa.Table.from_batches(tables, wanted)


class _Group:
    """Batches whose records are scanned together: where their bytes are, and their headers."""

    def __init__(self) -> None:
        self.parts: list[tuple[bytes, int, int]] = []  # bytes, and from where to where in there
        self.size = 0
        self.headers: list[BatchHeader] = []
        self.positions: list[int] = []

    def add(self, data: bytes, start: int, end: int, header: BatchHeader, position: int) -> None:
        self.parts.append((data, start, end))
        self.size += end - start
        self.headers.append(header)
        self.positions.append(position)

    def joined(self) -> tuple[bytes, list[tuple[int, int]]]:
        """All bytes, and from where to where each batch's records are in there.

        What came uncompressed stays where it is: copying it took a fifth of `decode_arrow`
        (`make bench ARGS=poll`).
        """
        data = self.parts[0][0]
        if all(part is data for part, _, _ in self.parts):
            return data, [(start, end) for _, start, end in self.parts]
        ends = list(accumulate(end - start for _, start, end in self.parts))
        return b"".join(part[start:end] for part, start, end in self.parts), list(
            zip([0, *ends], ends, strict=False)
        )


def _groups(
    buffer: Buffer, position: int, check_crc: bool, limit: int
) -> Iterator[_Group | list[Record]]:
    """The batches in groups; a message of an old format comes as its records."""
    group = _Group()
    for start, header in iter_headers(buffer, position):
        if check_crc:
            verify(buffer, start)
        if header.is_control:
            continue
        if header.magic < 2:
            if group.headers:
                yield group
                group = _Group()
            yield message_set.decode(buffer, start, header, limit)
            continue
        if not header.count:  # a compacted batch: no records, no bytes
            decode_records(unpack(buffer, start, header, limit), header, start)
        elif header.codec == "none" and type(buffer) is bytes and len(buffer) < _MOST_BYTES:
            group.add(buffer, start + HEADER_SIZE, start + header.size, header, start)
        else:
            data = unpack(buffer, start, header, limit)
            group.add(data, 0, len(data), header, start)
        if group.size >= _GROUP_SIZE:
            yield group
            group = _Group()
    if group.headers:
        yield group


def _group_table(group: _Group | list[Record], wanted: pa.Schema) -> pa.RecordBatch:
    if isinstance(group, list):
        return _from_records(group, wanted)
    try:
        return _from_scan(group, wanted)
    except (IndexError, VarintError, CorruptBatch, OddRecordsError):
        # The clear way either knows better or says what is wrong, and where.
        records: list[Record] = []
        parts = zip(group.parts, group.headers, group.positions, strict=True)
        for (data, start, end), header, position in parts:
            records += decode_records(data[start:end], header, position)
        return _from_records(records, wanted)


def _from_records(records: list[Record], wanted: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = []
    for field in wanted:
        cells: list[Any] = [getattr(record, field.name) for record in records]
        if field.name == "headers":
            cells = [[{"key": k, "value": v} for k, v in headers] for headers in cells]
        arrays.append(pa.array(cells, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _from_scan(group: _Group, wanted: pa.Schema) -> pa.RecordBatch:
    """The group's records by one scan. Raises as record_scan does if something is odd."""
    import numpy as np
    import pyarrow as pa

    data, places = group.joined()
    starts, ends = _record_bounds(data, places, group.headers)
    found = scan(data, starts, ends)
    counts = [header.count for header in group.headers]
    first = 0
    for header in group.headers:
        one = slice(first, first := first + header.count)
        deltas = found.offset_deltas[one], found.timestamp_deltas[one]
        check_deltas(*deltas, header.base_timestamp, header.last_offset_delta)

    def spread(values: list[int]) -> Ints:
        return np.repeat(np.array(values, np.int64), counts)

    def column(field: pa.Field) -> pa.Array:
        if field.name == "offset":
            base = spread([header.base_offset for header in group.headers])
            return pa.array(base + found.offset_deltas)
        if field.name == "timestamp":
            own = spread([not header.attributes & APPEND_TIME_BIT for header in group.headers])
            base = spread(
                [
                    header.max_timestamp
                    if header.attributes & APPEND_TIME_BIT
                    else header.base_timestamp
                    for header in group.headers
                ]
            )
            return pa.array(base + own * found.timestamp_deltas).cast(field.type)
        if field.name == "key":
            return _gather(data, found.key_starts, found.key_sizes)
        if field.name == "value":
            return _gather(data, found.value_starts, found.value_sizes)
        return _headers_column(found, len(starts), field.type)

    return pa.RecordBatch.from_arrays([column(field) for field in wanted], schema=wanted)


def _record_bounds(
    data: bytes, places: list[tuple[int, int]], headers: list[BatchHeader]
) -> tuple[Ints, Ints]:
    """Where each record begins and ends in `data`; places: where each batch does."""
    import numpy as np

    bounds: list[int] = []
    firsts, lasts = [], []  # where in there a batch begins and ends; else a record does both
    for (start, end), header in zip(places, headers, strict=True):
        firsts.append(len(bounds))
        bounds += hop(data, start, header.count)
        lasts.append(len(bounds) - 1)
        if bounds[-1] != end:
            raise OddRecordsError
    both = np.array(bounds, np.int64)
    return np.delete(both, lasts), np.delete(both, firsts)


def _gather(data: bytes, starts: Ints, sizes: Ints) -> pa.Array:
    """The pieces of `data` at `starts`, null where the size is -1, as one binary array.

    Laid out in one array the pieces and what lies between them take turns, without copying
    anything; every second element of that is what we want, and Arrow copies those together.
    """
    import numpy as np
    import pyarrow as pa

    count = len(starts)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = starts + np.maximum(sizes, 0)
    turns = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    null = sizes < 0
    return turns.take(pa.array(np.arange(0, 2 * count, 2), mask=null if null.any() else None))


def _headers_column(found: Columns, count: int, kind: pa.DataType) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    bounds = np.zeros(count + 1, np.int32)
    for index, headers in found.headers.items():
        bounds[index + 1] = len(headers)
    if found.headers:
        np.cumsum(bounds, out=bounds)
    pairs = [pair for index in sorted(found.headers) for pair in found.headers[index]]
    names = pa.array([name for name, _ in pairs], pa.string())
    values = pa.array([value for _, value in pairs], pa.binary())
    items = pa.StructArray.from_arrays([names, values], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(pa.array(bounds), items, type=kind)


def encode_arrow(
    values: pa.Array | pa.ChunkedArray,
    keys: pa.Array | pa.ChunkedArray | None = None,
    timestamps: pa.Array | pa.ChunkedArray | int | None = None,
    **fields: Unpack[BatchFields],
) -> bytes:
    """One batch of `values` (binary or string), byte for byte that of `encode_values`.

    `keys` as `values`; `timestamps` an Arrow timestamp or integer (ms since 1970) array without
    nulls, or one for all, or None for -1. Raises InvalidRecord if types or lengths do not fit.
    """
    return encode_values(
        _binary("values", values),
        keys=None if keys is None else _binary("keys", keys),
        timestamps=timestamps
        if timestamps is None or isinstance(timestamps, int)
        else _milliseconds(timestamps),
        **fields,
    )


def _binary(name: str, column: Any) -> list[bytes | None]:
    import pyarrow as pa

    try:
        cells: list[bytes | None] = column.cast(pa.binary()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, AttributeError):
        kind = getattr(column, "type", type(column).__name__)
        raise InvalidRecord(
            f"{name} are {kind}", "pass an Arrow array of binary or string"
        ) from None
    return cells


def _milliseconds(column: Any) -> list[int]:
    import pyarrow as pa

    if column.null_count:
        raise InvalidRecord(f"{column.null_count} timestamps are null", "fill them, with -1: none")
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    numbers: list[int] = column.cast(pa.int64()).to_pylist()
    return numbers
