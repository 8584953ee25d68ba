"""Encode a whole list of values into one record batch, column by column.

Python takes about 2 µs to encode one record by itself, and a log that takes 3 million messages a
second has 0.3 µs for each. So this module does to a thousand records at once, in C, what
craft2.records does to one: `map` looks the bytes of small numbers up in a table, `zip` and one
`join` put the pieces in order. The bytes are the same (a test compares them).

`craft2.apps.bench.codec` (encode: plain values, keys and timestamps) is the measurement.

>>> encode_values([b"departed", b"landed"], keys=[b"UA", b"OO"], timestamps=[5, 9])[-11:]
b'\\x04OO\\x0clanded\\x00'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import repeat
from operator import add
from typing import Any, Unpack

from craft2.batch_header import NO_TIMESTAMP
from craft2.batch_seal import BatchFields, InvalidRecord, seal
from craft2.records import Record, encode_record
from craft2.varint import SMALL, encode

_ATTRIBUTES = b"\0"
_NULL_KEY = b"\x01"
_NO_HEADERS = b"\0"
_MANY = 8  # records from which on columns are faster
# Tables kept from batch to batch: so many entries at most in each, and so many tables.
_TABLE_SIZE = 4096
_TABLES = 8
_FEW = 6  # timestamps in a batch: a producer's batch spans a few milliseconds


def encode_values(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int] | int | None = None,
    **fields: Unpack[BatchFields],
) -> bytes:
    """One batch of `values`, without headers, their offsets counted from the base offset on.

    `keys` and `timestamps` (ms since 1970; one for all, or -1 if None) are as long as `values`.
    Equal to `encode` of the same records. Raises InvalidRecord as that does.
    """
    count = len(values)
    if not count:
        raise InvalidRecord("a batch of no records", "encode at least one")
    base_timestamp = newest = NO_TIMESTAMP
    deltas: list[int] | None = None
    if isinstance(timestamps, int):
        base_timestamp = newest = timestamps
    elif timestamps is not None:
        _same_length("timestamps", len(timestamps), count)
        base_timestamp, newest = timestamps[0], max(timestamps)
        deltas = [timestamp - base_timestamp for timestamp in timestamps]
    if keys is not None:
        _same_length("keys", len(keys), count)
    records = None
    if count >= _MANY:
        with suppress(TypeError):  # a null somewhere, or a wrong type
            records = _encode_columns(values, keys, deltas)
    if records is None:
        records = _encode_each(values, keys, deltas, fields.get("base_offset", 0))
    return seal(records, count, count - 1, base_timestamp, newest, **fields)


def _same_length(name: str, got: int, count: int) -> None:
    if got != count:
        raise InvalidRecord(f"{got} {name} for {count} values", "give one for each value")


def _encode_columns(
    values: Sequence[bytes | None], keys: Sequence[bytes | None] | None, deltas: list[int] | None
) -> bytes:
    """The records' bytes. Raises TypeError if a key or value is null or not bytes.

    Each record is cut into its opening (see _Openings), its head, its value length and its value.
    """
    if type(values[0]) is not bytes or (keys is not None and type(keys[0]) is not bytes):
        raise TypeError("an array of numbers, say, has a len() that does not count bytes")
    small = SMALL.__getitem__
    count = len(values)
    sizes = list(map(len, values))  # type: ignore[arg-type]
    same_size = len(set(sizes)) == 1
    if same_size and keys is None and (deltas is None or len(set(deltas)) <= _FEW):
        return _encode_plain(values, sizes[0], deltas)

    # The head, joined to one piece a record: timestamp delta, offset delta, key length, key.
    columns: list[Iterable[bytes]] = [repeat(b"\0") if deltas is None else map(small, deltas)]
    if keys is None:
        columns.append(_offsets(_NULL_KEY, count))
    elif len(key_sizes := set(map(len, keys))) == 1:  # type: ignore[arg-type]
        columns += [_offsets(encode(key_sizes.pop()), count), keys]  # type: ignore[list-item]
    else:
        columns += [_offsets(b"", count), map(small, map(len, keys)), keys]  # type: ignore[arg-type, list-item]
    heads = list(map(b"".join, zip(*columns, strict=False)))

    value_length = encode(sizes[0])
    parts = [value_length] * (4 * count + 1)
    if same_size:
        openings = map(_openings(len(value_length) + sizes[0]).__getitem__, map(len, heads))
    else:
        lengths = list(map(small, sizes))
        parts[2::4] = lengths
        rest = map(add, map(len, lengths), sizes)
        openings = map(_openings(0).__getitem__, map(add, map(len, heads), rest))
    parts[0:-1:4] = openings
    parts[1::4] = heads
    parts[3::4] = values  # type: ignore[assignment]
    return _join(parts)


def _encode_plain(values: Sequence[bytes | None], size: int, deltas: list[int] | None) -> bytes:
    """Values of one size without keys, with few timestamps: what stands between them is the same in
    every batch."""
    count = len(values)
    between = {delta: _separators((size, delta), count) for delta in set(deltas or [0])}
    parts: list[bytes] = [b""] * (2 * count + 1)
    if deltas is None or len(between) == 1:
        [parts[0:-1:2]] = between.values()
    else:
        parts[0:-1:2] = [between[delta][place] for place, delta in enumerate(deltas)]
    parts[1::2] = values  # type: ignore[assignment]
    return _join(parts)


def _join(parts: list[bytes]) -> bytes:
    """Each opening begins with the end of the record before: move the first one's to the end."""
    parts[-1] = _NO_HEADERS
    parts[0] = parts[0][len(_NO_HEADERS) :]
    return b"".join(parts)


class _Openings(dict[int, bytes]):
    """Body length -> the opening of a record; `rest` bytes of its body are not counted.

    The opening is the record before's header count (0), and this one's length and attributes.
    """

    def __init__(self, rest: int) -> None:
        self.rest = rest + len(_ATTRIBUTES) + len(_NO_HEADERS)

    def __missing__(self, length: int) -> bytes:
        opening = _NO_HEADERS + encode(length + self.rest) + _ATTRIBUTES
        if length < _TABLE_SIZE:
            self[length] = opening
        return opening


@lru_cache(_TABLES)
def _openings(rest: int) -> _Openings:
    return _Openings(rest)


def _kept(table: Callable[[Any, int], list[bytes]]) -> Callable[[Any, int], list[bytes]]:
    """Keep the last few results of table(..., count), in a few sizes of which any count is a part.

    Large ones are not kept.
    """
    kept = lru_cache(_TABLES)(table)

    def lookup(what: Any, count: int) -> list[bytes]:
        if count > _TABLE_SIZE:
            return table(what, count)
        return kept(what, 1 << (count - 1).bit_length())[:count]

    return lookup


@_kept
def _offsets(key_length: bytes, count: int) -> list[bytes]:
    """Offset delta and key length (if the same in all) of each of `count` records."""
    return [encode(delta) + key_length for delta in range(count)]


@_kept
def _separators(size_and_delta: tuple[int, int], count: int) -> list[bytes]:
    """The opening, head and value length of each of `count` records without key, whose values have
    this size and whose timestamps this delta."""
    value_size, timestamp_delta = size_and_delta
    value_length = encode(value_size)
    openings = _openings(len(value_length) + value_size)
    heads = [encode(timestamp_delta) + encode(delta) + _NULL_KEY for delta in range(count)]
    return [openings[len(head)] + head + value_length for head in heads]


def _encode_each(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None,
    deltas: list[int] | None,
    base_offset: int,
) -> bytes:
    """The same, record by record: for nulls, and to say which record has a wrong type."""
    parts = []
    for index, value in enumerate(values):
        delta = deltas[index] if deltas else 0
        record = Record(base_offset + index, 0, keys[index] if keys else None, value)
        parts.append(encode_record(record, index, delta))
    return b"".join(parts)
