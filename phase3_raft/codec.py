"""The types that Kafka's messages are made of, as bytes: how each is read and written.

There are two generations of strings, bytes and arrays. The older says its length in two or four
bytes; the *compact* one of flexible versions (KIP-482) as a varint, one too large, so that 0 can
stand for "none":

>>> out = bytearray()
>>> write_string(out, "flights"), write_compact_string(out, "flights"), out
(None, None, bytearray(b'\\x00\\x07flights\\x08flights'))
>>> read_string(bytes(out), 0), read_compact_string(bytes(out), 9)
(('flights', 9), ('flights', 17))

A reader believes no length before it has looked how much there is: a request of twenty bytes that
claims two thousand million strings is refused, and no memory is taken for them.

>>> read_compact_string(b"\\xff\\xff\\xff\\xff\\x0fno", 0)  # doctest: +ELLIPSIS
Traceback (most recent call last):
    ...
phase3_raft.codec.BadMessage: 4294967294 bytes at byte 5, but the message ends after 2 ...

Source: kafka.apache.org/protocol#protocol_types.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from uuid import UUID

from craft2.errors import Craft2Error

Read: TypeAlias = Callable[[bytes, int], tuple[Any, int]]  # (data, position) -> (value, its end)
Write: TypeAlias = Callable[[bytearray, Any], None]

MOST_VALUES = 200_000  # of a list: more would hold up all others while they are read
_NO_UUID = bytes(16)
_FIX = "see whether the sender speaks this version of the message"


class BadMessage(Craft2Error):
    """Bytes that are not the message they are said to be."""


def number(code: str) -> tuple[Read, Write]:
    """How a number or a truth value is read and written; `code` is that of `struct`."""
    form = struct.Struct(f">{code}")
    size, unpack, pack = form.size, form.unpack_from, form.pack

    def read(data: bytes, at: int) -> tuple[Any, int]:
        try:
            return unpack(data, at)[0], at + size
        except struct.error:
            raise _too_short(data, at, size) from None

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return read, write


def numbers(codes: str) -> Callable[[bytes, int], tuple[tuple[Any, ...], int]]:
    """How several numbers that follow one another are read at once: a third of the time
    (`make bench ARGS=broker-requests`)."""
    form = struct.Struct(f">{codes}")
    size, unpack = form.size, form.unpack_from

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...], int]:
        try:
            return unpack(data, at), at + size
        except struct.error:
            raise _too_short(data, at, size) from None

    return read


read_int16, write_int16 = number("h")
read_int32, write_int32 = number("i")


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number without a sign, seven bits a byte, the lowest first. Raises BadMessage."""
    if at < len(data) and data[at] < 0x80:  # as nearly always
        return data[at], at + 1
    value = shift = 0
    for end in range(at, min(at + 5, len(data))):
        byte = data[end]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, end + 1
        shift += 7
    raise BadMessage(f"a number of variable length at byte {at} that does not end", _FIX)


def write_varint(out: bytearray, value: int) -> None:
    """The same."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# Lengths: -1 is "none".


def read_compact_length(data: bytes, at: int) -> tuple[int, int]:
    """As flexible versions have it."""
    value, at = read_varint(data, at)
    return value - 1, at


def write_compact_length(out: bytearray, length: int) -> None:
    """As flexible versions have it."""
    write_varint(out, length + 1)


def read_count(data: bytes, at: int, *, compact: bool) -> tuple[int, int]:
    """How many values a list has, which cannot be more than bytes are left. Raises BadMessage."""
    count, at = (read_compact_length if compact else read_int32)(data, at)
    if not 0 <= count <= min(len(data) - at, MOST_VALUES):
        most = f"where {MOST_VALUES} are the most"
        raise BadMessage(f"{count} values in a list, before byte {at} of {len(data)}, {most}", _FIX)
    return count, at


def pieces(read_length: Read, write_length: Write) -> tuple[Read, Write, Read, Write]:
    """How bytes, and strings, with such a length are read and written; each may be None."""

    def read_piece(data: bytes, at: int) -> tuple[bytes | None, int]:
        length, at = read_length(data, at)
        if length < 0:
            return None, at
        end = at + length
        if end > len(data):
            raise _too_short(data, at, length)
        return data[at:end], end

    def write_piece(out: bytearray, value: bytes | None) -> None:
        write_length(out, -1 if value is None else len(value))
        out += value or b""

    def read_text(data: bytes, at: int) -> tuple[str | None, int]:
        piece, end = read_piece(data, at)
        try:
            return None if piece is None else piece.decode(), end
        except UnicodeDecodeError:
            problem = f"a string at byte {at} that is no UTF-8: {piece!r:.80}"
            raise BadMessage(problem, _FIX) from None

    def write_text(out: bytearray, value: str | None) -> None:
        write_piece(out, None if value is None else value.encode())

    return read_piece, write_piece, read_text, write_text


read_string, write_string = pieces(read_int16, write_int16)[2:]
read_bytes, write_bytes = pieces(read_int32, write_int32)[:2]
read_compact_bytes, write_compact_bytes, read_compact_string, write_compact_string = pieces(
    read_compact_length, write_compact_length
)


def array(read_one: Read, write_one: Write, *, compact: bool) -> tuple[Read, Write]:
    """How a tuple of such values, or None, is read and written."""
    read_length: Read = read_compact_length if compact else read_int32
    write_length: Write = write_compact_length if compact else write_int32

    def read(data: bytes, at: int) -> tuple[tuple[Any, ...] | None, int]:
        count, at = read_length(data, at)
        if count < 0:
            return None, at
        if count > len(data) - at:  # each takes a byte at least
            raise _too_short(data, at, count)
        if count > MOST_VALUES:
            problem = f"{count} values in a list, before byte {at}: {MOST_VALUES} are the most"
            raise BadMessage(problem, "ask for less at once")
        values = []
        for _ in range(count):
            value, at = read_one(data, at)
            if value is None:
                raise BadMessage(f"a value that is null in a list, before byte {at}", _FIX)
            values.append(value)
        return tuple(values), at

    def write(out: bytearray, values: Iterable[Any] | None) -> None:
        if values is None:
            write_length(out, -1)
            return
        values = tuple(values)
        write_length(out, len(values))
        for value in values:
            write_one(out, value)

    return read, write


def read_uuid(data: bytes, at: int) -> tuple[UUID | None, int]:
    """A UUID; all zeros stand for None."""
    end = at + 16
    if end > len(data):
        raise _too_short(data, at, 16)
    piece = data[at:end]
    return (None if piece == _NO_UUID else UUID(bytes=piece)), end


def write_uuid(out: bytearray, value: UUID | None) -> None:
    """The same."""
    out += _NO_UUID if value is None else value.bytes


def skip_tagged_fields(data: bytes, at: int) -> int:
    """Where the tagged fields at `at` end. Raises BadMessage.

    >>> skip_tagged_fields(b"\\0body", 0), skip_tagged_fields(b"\\1\\5\\2ab-", 0)
    (1, 5)
    """
    if data[at : at + 1] == b"\0":  # none, as nearly always
        return at + 1
    return read_tagged_fields(data, at, {})[1]


def read_tagged_fields(
    data: bytes, at: int, known: dict[int, tuple[str, Read]]
) -> tuple[dict[str, Any], int]:
    """The values of the tagged fields that are `known` by tag; others are passed over."""
    values: dict[str, Any] = {}
    count, at = read_varint(data, at)
    for _ in range(count):
        tag, at = read_varint(data, at)
        size, at = read_varint(data, at)
        if at + size > len(data):
            raise _too_short(data, at, size)
        if tag in known:
            name, read = known[tag]
            values[name], _ = read(data[: at + size], at)
        at += size
    return values, at


def _too_short(data: bytes, at: int, wanted: int) -> BadMessage:
    there = max(0, len(data) - at)
    return BadMessage(
        f"{wanted} bytes at byte {at}, but the message ends after {there} more",
        _FIX,
    )
