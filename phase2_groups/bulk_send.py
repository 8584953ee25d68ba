"""Many records at once: cut into batches by columns, nothing done record by record.

`Producer.send` puts records into batches one at a time; who has a whole list, or a table, need not.
The list is dealt out to partitions, cut where a batch is full, and each piece is encoded as a
column (`craft2.record_columns`). Such batches are as large as a request may be: nobody has to wait
for them to fill.

>>> columns = checked([b"a", b"b", b"departed" * 10], None, 7)
>>> [len(piece.values) for piece in cut(columns, max_bytes=180)]
[2, 1]
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence, Sized
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from craft2.batch_header import HEADER_SIZE
from phase1_file_queue.partitioner import MASK32, SEED, M, R
from phase2_groups.accumulator import RECORD_OVERHEAD
from phase2_groups.producer_config import BadRecord, RecordTooLarge
from phase2_groups.record_checks import check_timestamps

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

_MOST_RECORDS = 4096  # in a batch: up to here record_columns keeps its tables (three times faster)
_PORTION = 100_000  # records of a table that are Python objects at a time


class Columns(NamedTuple):
    """Records, column by column: each as long as the values, or None, or one time for all."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    timestamps: Sequence[int] | int


def checked(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    timestamps: Sequence[int] | int,
) -> Columns:
    """The columns, if they are what a batch can hold; raises BadRecord."""
    for name, column in (("values", values), ("keys", keys), ("timestamps", timestamps)):
        one_or_none = name != "values" and (column is None or isinstance(column, int))
        if not one_or_none and (isinstance(column, str | bytes) or not isinstance(column, Sized)):
            raise BadRecord(f"{name} is {column!r:.60}", "give a list, with one for each record")
    for name, column in (("key", keys), ("timestamp", timestamps)):
        if column is not None and not isinstance(column, int) and len(column) != len(values):
            raise BadRecord(f"{len(column)} {name}s for {len(values)} values", "give one for each")
    for name, column in (("value", values), ("key", keys or ())):
        for kind in set(map(type, column)) - {bytes, type(None)}:
            raise BadRecord(f"a {name} is of type {kind.__name__}", "give bytes: str.encode()")
    check_timestamps({timestamps} if isinstance(timestamps, int) else timestamps)
    return Columns(values, keys, timestamps)


def cut(columns: Columns, max_bytes: int) -> Iterator[Columns]:
    """The columns in pieces whose batches have at most `max_bytes` before compression.

    Raises RecordTooLarge, before the first piece.
    """
    sizes = _sizes(columns.values)
    if columns.keys is not None:
        sizes = list(map(add, sizes, _sizes(columns.keys)))
    ends = list(accumulate(map(RECORD_OVERHEAD.__add__, sizes)))
    most = max_bytes - HEADER_SIZE
    largest = max(sizes, default=0) + RECORD_OVERHEAD
    if largest > most:
        raise RecordTooLarge(
            f"a record needs {largest + HEADER_SIZE} bytes, and a batch may have {max_bytes}",
            "send it in parts, or raise max_request_size, buffer_memory and the topic's "
            "max_message_bytes",
        )
    return _cut(columns, ends, most)


def _cut(columns: Columns, ends: list[int], most: int) -> Iterator[Columns]:
    values, keys, times = columns
    start = before = 0
    while start < len(values):
        end = min(bisect_right(ends, before + most), start + _MOST_RECORDS)
        yield Columns(
            values[start:end],
            None if keys is None else keys[start:end],
            times if isinstance(times, int) else times[start:end],
        )
        start, before = end, ends[end - 1]


def _sizes(column: Sequence[bytes | None]) -> list[int]:
    try:
        return list(map(len, column))  # type: ignore[arg-type]
    except TypeError:  # a null
        return [len(cell or b"") for cell in column]


def deal(columns: Columns, num_partitions: int) -> Iterator[tuple[int | None, Columns]]:
    """The records of each partition in their order; those without a key under None."""
    import numpy as np

    values, keys, times = columns
    assert keys is not None
    partitions = _partitions(keys, num_partitions)
    order = np.argsort(partitions, kind="stable")
    numbers, firsts = np.unique(partitions[order], return_index=True)
    for number, places in zip(numbers.tolist(), np.split(order, firsts[1:]), strict=True):
        rows = places.tolist()
        yield (
            None if number < 0 else number,
            Columns(
                list(map(values.__getitem__, rows)),
                None if number < 0 else list(map(keys.__getitem__, rows)),
                times if isinstance(times, int) else list(map(times.__getitem__, rows)),
            ),
        )


def _partitions(keys: Sequence[bytes | None], num_partitions: int) -> Numbers:
    """The partition of each key, as `partition_for` says, and -1 for None.

    Keys come again: each is hashed once, together with all others of its size.
    """
    import numpy as np

    found: dict[bytes | None, int] = {None: -1}
    by_size: dict[int, list[bytes]] = {}
    for key in dict.fromkeys(keys):
        if key is not None:
            by_size.setdefault(len(key), []).append(key)
    for size, same in by_size.items():
        hashes = murmur2_many(b"".join(same), size, len(same)) & 0x7FFFFFFF
        found.update(zip(same, (hashes % num_partitions).tolist(), strict=True))
    return np.fromiter(map(found.__getitem__, keys), np.int64, len(keys))


def murmur2_many(keys: bytes, size: int, count: int) -> Numbers:
    """`partitioner.murmur2` of `count` keys of `size` bytes each, end to end in `keys`.

    >>> murmur2_many(b"UAOO", 2, 2).tolist()[0] & 0x7FFFFFFF
    1523087098
    """
    import numpy as np

    table = np.frombuffer(keys, np.uint8).reshape(count, size)
    whole = size & ~3
    words: Any = np.ascontiguousarray(table[:, :whole]).view("<u4").astype(np.uint64)
    hashes: Any = np.full(count, SEED ^ size, np.uint64)
    for column in words.T:
        k = column * M & MASK32
        k = (k ^ (k >> R)) * M & MASK32
        hashes = (hashes * M & MASK32) ^ k
    if whole != size:
        rest = np.zeros((count, 4), np.uint8)
        rest[:, : size - whole] = table[:, whole:]
        hashes = (hashes ^ rest.view("<u4")[:, 0].astype(np.uint64)) * M & MASK32
    hashes = (hashes ^ (hashes >> 13)) * M & MASK32
    numbers: Numbers = (hashes ^ (hashes >> 15)).astype(np.int64)
    return numbers


def portions(
    values: pa.Array | pa.ChunkedArray,
    keys: pa.Array | pa.ChunkedArray | None,
    timestamps: pa.Array | pa.ChunkedArray | int | None,
) -> Iterator[tuple[list[Any], list[Any] | None, list[Any] | int | None]]:
    """Arrow columns as lists, so many rows at a time. Raises BadRecord for a wrong type."""
    import pyarrow as pa

    def part(name: str, column: Any, kind: pa.DataType, start: int) -> Any:
        if column is None or (name == "timestamps" and isinstance(column, int)):
            return column
        if not isinstance(column, pa.Array | pa.ChunkedArray):
            raise BadRecord(f"{name} is {column!r:.60}", "give a column of Arrow, or use send_many")
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
        try:
            return column.slice(start, _PORTION).cast(kind).to_pylist()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise BadRecord(f"a column is {column.type}, and {kind} is needed", "cast it") from None

    rows = len(values) if isinstance(values, Sized) else 1  # `part` says what is wrong with it
    for start in range(0, rows, _PORTION):
        yield (
            part("values", values, pa.binary(), start),
            part("keys", keys, pa.binary(), start),
            part("timestamps", timestamps, pa.int64(), start),
        )
