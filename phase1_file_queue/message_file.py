"""What is inside a message file: one line a person can read, then the key, then the value.

    craft2-message crc32c=8ab32c1f timestamp=1357034400000 key=2 value=21
    UA
    {"dest":"IAH","dep":1}

`key` and `value` are lengths in bytes (`key=null`: no key), so both may hold any bytes, newlines
too. The checksum covers everything after itself: a file cut short, or with one bit changed, is
noticed, and named.

>>> data = encode_message(b"UA", b'{"dest":"IAH"}', timestamp=1357034400000)
>>> decode_message(data, "00000000.msg")
(1357034400000, b'UA', b'{"dest":"IAH"}')
"""

from __future__ import annotations

import re
from typing import NamedTuple

from crc32c import crc32c

from craft2.errors import Craft2Error

_HEADER = re.compile(
    rb"craft2-message crc32c=([0-9a-f]{8}) "
    rb"(timestamp=(-?\d{1,19}) key=(null|\d{1,10}) value=(\d{1,10})\n)"
)
_CRC_END = len(b"craft2-message crc32c=00000000 ")


class CorruptMessage(Craft2Error):
    """A message file does not hold what was written to it."""


class Message(NamedTuple):
    """A message as a consumer gets it."""

    partition: int
    offset: int
    timestamp: int  # milliseconds since 1970
    key: bytes | None
    value: bytes


def encode_message(key: bytes | None, value: bytes, timestamp: int) -> bytes:
    """The content of a message file."""
    key_length = b"null" if key is None else b"%d" % len(key)
    checked = b"timestamp=%d key=%b value=%d\n%b\n%b\n" % (
        timestamp,
        key_length,
        len(value),
        key or b"",
        value,
    )
    return b"craft2-message crc32c=%08x %b" % (crc32c(checked), checked)


def decode_message(data: bytes, path: str) -> tuple[int, bytes | None, bytes]:
    """(timestamp, key, value) of a message file's content; `path` is for the error's text.

    Raises CorruptMessage if a byte of it is not as it was written.
    """
    header = _HEADER.match(data)
    if header is None:
        raise _corrupt(path, f"it begins with {data[:40]!r}, which is no message header")
    crc, _, timestamp, key_length, value_length = header.groups()
    key_size = 0 if key_length == b"null" else int(key_length)
    start = header.end()
    expected = start + key_size + 1 + int(value_length) + 1
    if len(data) != expected:
        raise _corrupt(path, f"its header promises {expected} bytes and it has {len(data)}")
    got = crc32c(memoryview(data)[_CRC_END:])
    if got != int(crc, 16):
        raise _corrupt(path, f"its checksum is {got:08x} and its header says {crc.decode()}")
    key = None if key_length == b"null" else data[start : start + key_size]
    return int(timestamp), key, data[start + key_size + 1 : -1]


def _corrupt(path: str, what: str) -> CorruptMessage:
    return CorruptMessage(
        f"message file {path!r} is damaged: {what}",
        "restore the file from a copy, or seek the consumer past this offset",
    )
