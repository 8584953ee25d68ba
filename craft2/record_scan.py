"""Find every field of many records at once, with numpy.

A varint does not say where it ends until it is read, so Python must hop from record to record;
but it hops over whole records, and numpy then reads one field of all records in one go. A batch
of a thousand becomes a few short arrays: where keys and values begin, and how long they are.

craft2.record_batch makes objects from them, craft2.record_arrow Arrow arrays. The benchmark that
pays for it is `craft2.apps.bench.codec`: decoding to objects is about four times as fast as in
craft2.records, which remains what explains an error and what serves small batches.

numpy is imported on first use.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from craft2.records import Headers, read_headers
from craft2.varint import decode

if TYPE_CHECKING:
    import numpy as np

    Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

# By the first byte of a record's length: how far it is to the next record if that byte is the last
# one, or if the next byte, 64 times, is added.
_STEP = [1 + (byte >> 1) if byte < 128 else 2 + (byte >> 1) - 64 for byte in range(256)]
SAFE_TIMESTAMP = 2**62  # two of at most this size add up within 64 bits


class OddRecordsError(Exception):
    """Something is not as it must be; craft2.records will say what."""


class Columns(NamedTuple):
    """Fields of n records, each an int64 array of n; positions are in the scanned data."""

    timestamp_deltas: Ints
    offset_deltas: Ints
    key_starts: Ints
    key_sizes: Ints  # -1: null
    value_starts: Ints
    value_sizes: Ints  # -1: null
    headers: dict[int, Headers]  # of those records that have any, by index


def hop(data: bytes, position: int, count: int) -> list[int]:
    """Where each of `count` records begins, and last where they end.

    Raises IndexError or VarintError if the data ends before.
    """
    starts, step = [position], _STEP  # a local name and a table: a fifth less time than without
    for _ in repeat(None, count):
        byte = data[position]
        if byte < 128:
            position += step[byte]
        else:
            high = data[position + 1]
            if high < 128:
                position += step[byte] + (high << 6)
            else:
                length, position = decode(data, position)
                position += max(length, 0)
        starts.append(position)
    return starts


def scan(data: bytes, starts: Ints, ends: Ints) -> Columns:
    """The fields of the records that begin and end there.

    Raises OddRecordsError if any record does not fill its bytes exactly, CorruptBatch if its
    headers are damaged.
    """
    import numpy as np

    raw = np.frombuffer(data, np.uint8)
    lengths, at = _varints(raw, starts)
    timestamp_deltas, at = _varints(raw, at + 1, max_bytes=9)  # 1: attributes
    offset_deltas, at = _varints(raw, at)
    key_sizes, key_starts = _varints(raw, at)
    value_sizes, value_starts = _varints(raw, key_starts + np.maximum(key_sizes, 0))
    at = value_starts + np.maximum(value_sizes, 0)
    headers: dict[int, Headers] = {}
    for index in np.flatnonzero(raw.take(at, mode="clip")).tolist():
        first = int(at[index])
        headers[index], size = read_headers(data[first : ends[index]], 0)
        at[index] = first + size - 1
    # Every step above went forward or not at all, so if the last one arrives at the record's
    # end, no step has left the record.
    if (
        (at + 1 != ends).any()
        or ends.max() > len(data)
        or lengths.min() < 0
        or key_sizes.min() < -1
        or value_sizes.min() < -1
    ):
        raise OddRecordsError
    return Columns(
        timestamp_deltas, offset_deltas, key_starts, key_sizes, value_starts, value_sizes, headers
    )


def check_deltas(
    offset_deltas: Ints, timestamp_deltas: Ints, base_timestamp: int, last_offset_delta: int
) -> None:
    """Raise OddRecordsError if an offset leaves the batch, or a timestamp 64 bits."""
    if (
        offset_deltas.min() < 0
        or offset_deltas.max() > last_offset_delta
        or abs(base_timestamp) > SAFE_TIMESTAMP
        or timestamp_deltas.max() > SAFE_TIMESTAMP
        or timestamp_deltas.min() < -SAFE_TIMESTAMP
    ):
        raise OddRecordsError


def _varints(
    raw: np.ndarray[Any, np.dtype[np.uint8]], at: Ints, max_bytes: int = 5
) -> tuple[Ints, Ints]:
    """(numbers, positions after them) of the varints at positions `at`.

    Raises OddRecordsError if one is longer than `max_bytes`. (5 bytes can hold 35 bits where 32
    are allowed; no length or offset that large gets past the checks of `scan`.)
    """
    import numpy as np

    byte = raw.take(at, mode="clip").astype(np.int64)
    numbers = byte & 0x7F
    at = at + 1
    more = np.flatnonzero(byte > 0x7F)
    size = 1
    while more.size:
        if size == max_bytes:
            raise OddRecordsError
        byte = raw.take(at[more], mode="clip").astype(np.int64)
        numbers[more] |= (byte & 0x7F) << 7 * size
        at[more] += 1
        more = more[byte > 0x7F]
        size += 1
    return (numbers >> 1) ^ -(numbers & 1), at
