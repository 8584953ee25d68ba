"""A record batch taken apart for reading: every byte with the name of the field it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from craft2 import varint
from craft2.apps.ingestion.flights import FlightEvent, batch_of
from craft2.batch_header import HEADER, HEADER_SIZE, BatchHeader
from craft2.record_batch import read_header

_TYPES = {"b": 1, "h": 2, "i": 4, "I": 4, "q": 8}  # struct's letters and their sizes in bytes
_SHOWN = 12  # bytes of a long field that are printed


class Piece(NamedTuple):
    """A field of a batch: `raw` are its bytes, `value` what they mean."""

    position: int
    raw: bytes
    name: str
    value: object


def pieces(batch: bytes) -> list[Piece]:
    """The fields of one batch, first to last; those of a compressed batch's records are one piece.

    Their `raw` bytes, joined, are the batch. Raises CorruptBatch, VarintError.
    """
    header = read_header(batch)
    found: list[Piece] = []
    position = 0
    for name, letter, value in zip(BatchHeader._fields, HEADER.format[1:], header, strict=True):
        size = _TYPES[letter]
        raw = batch[position : position + size]
        found.append(Piece(position, raw, name.replace("_", " "), value))
        position += size
    if header.codec != "none":
        what = f"{header.count} records, {header.codec}"
        return [*found, Piece(HEADER_SIZE, batch[HEADER_SIZE : header.size], "records", what)]
    while position < header.size:
        record = _record(batch, position)
        found += record
        position = record[-1].position + len(record[-1].raw)
    return found


def _record(batch: bytes, position: int) -> list[Piece]:
    """The fields of the record at `position`, in the order of the table in craft2.records."""
    found: list[Piece] = []

    def take(name: str, size: int, value: object) -> None:
        nonlocal position
        found.append(Piece(position, batch[position : position + size], name, value))
        position += size

    def number(name: str) -> int:
        value, after = varint.decode(batch, position, 64)
        take(name, after - position, value)
        return value

    def sized(name: str, length_name: str) -> None:
        size = number(length_name)
        if size > 0:
            take(name, size, batch[position : position + size])

    number("record length")
    take("attributes", 1, 0)
    number("timestamp delta")
    number("offset delta")
    sized("key", "key length")
    sized("value", "value length")
    for _ in range(number("headers")):
        sized("header name", "name length")
        sized("header value", "value length")
    return found


def print_pieces(found: Iterable[Piece]) -> None:
    """One line a field: where it is, its first bytes in hexadecimal, its name, its value."""
    for position, raw, name, value in found:
        hexadecimal = raw[:_SHOWN].hex(" ") + (" ..." if len(raw) > _SHOWN else "")
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        text = text if len(text) <= 28 else f"{text[:25]}..."
        print(f"{position:>4}  {hexadecimal:<40}{name:<20}{text}")


def bytes_per_flight(
    events: Sequence[FlightEvent], sizes: Iterable[int], codecs: Iterable[str]
) -> dict[str, dict[int, float]]:
    """For each codec and batch size: stored bytes per flight, over all whole batches of `events`.

    The values alone, without any batch around them, come under the name "the values alone".
    """
    found: dict[str, dict[int, float]] = {}
    alone = sum(len(event.value) for event in events) / len(events)
    found["the values alone"] = dict.fromkeys(sizes, alone)
    for codec in codecs:
        found[codec] = {}
        for size in found["the values alone"]:
            starts = range(0, len(events) - size + 1, size)
            stored = sum(
                len(batch_of(events[start : start + size], codec=codec)) for start in starts
            )
            found[codec][size] = stored / (len(starts) * size)
    return found
