"""One connection of Kafka's protocol, without any I/O: bytes in, requests out.

    4 bytes   size of what follows, big-endian
    2, 2, 4   API key, API version, correlation id
    2, n      client id: its length (-1: none), UTF-8
    (1)       tagged fields, in flexible versions: none
    body

TCP gives bytes as it pleases: half a request, or three and a half. `Frames` puts them together.

>>> frames = Frames(max_bytes=100)
>>> frames.feed(b"\\0\\0\\0\\5hel"), frames.feed(b"lo\\0\\0\\0\\2ok\\0")
([], [b'hello', b'ok'])

A reply has the correlation id of its request. Replies come in the order of the requests, so a
broker takes the next request of a connection when it has answered the one before, as Kafka does.

Source: kafka.apache.org/protocol#protocol_messages; Kafka's `NetworkReceive`, `RequestHeader`.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from phase3_raft.codec import BadMessage

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhih")  # API key, version, correlation id, length of the client id
_FIX = "let only programs that speak Kafka's protocol connect to this port"


class Header(NamedTuple):
    """The head of a request; the body begins at `end`."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    end: int


class Frames:
    """Puts requests together. max_bytes: of one; more is a client gone astray, or an attack.

    Invariant: `_have` is the length of all `_pieces` together, less than the frame they belong to.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._have = 0

    @property
    def unfinished(self) -> int:
        """How many bytes wait for the rest of their frame."""
        return self._have

    # EXERCISE 20.1 put requests together
    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now, each without its four bytes of size.

        data: what came, however it was cut: it may end in the middle of a size. What is left over
        waits for the next call in `self._pieces`, whose bytes are `self._have` together. A frame of
        100 MB comes in a thousand pieces: join them once, not with each call.

        `self._size_of(four_bytes)` is the size that four bytes stand for; it raises BadMessage for
        one that no frame has. Frames that were complete before such a size are not lost: they are
        returned, and the next call raises it. `self._wanted()`, when there are four bytes, is how
        many the first frame has, with its size.
        """
        # BEGIN SOLUTION
        self._pieces.append(data)
        self._have += len(data)
        if self._have < 4 or self._have < self._wanted():
            return []
        data = b"".join(self._pieces)
        frames: list[bytes] = []
        start = 0
        while len(data) - start >= 4:
            try:
                end = start + 4 + self._size_of(data[start : start + 4])
            except BadMessage:
                break  # for the next call: if it were the first one, `_wanted` would have raised
            if end > len(data):
                break
            frames.append(data[start + 4 : end])
            start = end
        self._pieces = [data[start:]]
        self._have = len(data) - start
        return frames
        # END SOLUTION

    def check(self) -> None:
        """Raises BadMessage if what is left over begins with a size that no frame has."""
        if self._have >= 4:
            self._wanted()

    def _wanted(self) -> int:
        """How many bytes the first frame has, with its size."""
        if len(self._pieces[0]) < 4:  # at most three pieces before it is long enough
            self._pieces = [b"".join(self._pieces)]
        return 4 + self._size_of(self._pieces[0][:4])

    def _size_of(self, four: bytes) -> int:
        (size,) = _SIZE.unpack(four)
        if not 0 <= size <= self._max_bytes:
            raise BadMessage(
                f"a request of {size} bytes, which begins with {four!r}",
                f"send at most {self._max_bytes} bytes, and only Kafka's protocol, to this port",
            )
        return int(size)


def read_header(frame: bytes) -> Header:
    """The part of the header that all versions have. Raises BadMessage."""
    try:
        api_key, version, correlation_id, length = _HEAD.unpack_from(frame)
    except struct.error:
        raise BadMessage(f"a request of {len(frame)} bytes has no header", _FIX) from None
    end = _HEAD.size + max(length, 0)
    if end > len(frame) or length < -1:
        raise BadMessage(f"a client id of {length} bytes in a request of {len(frame)}", _FIX)
    try:
        client_id = None if length < 0 else frame[_HEAD.size : end].decode()
    except UnicodeDecodeError:
        raise BadMessage(f"the client id {frame[_HEAD.size : end]!r} is no UTF-8", _FIX) from None
    return Header(api_key, version, correlation_id, client_id, end)


def reply_head(correlation_id: int, size: int, *, flexible: bool) -> bytes:
    """What comes before the body of a reply of `size` bytes."""
    head = struct.pack(">ii", size + 4 + flexible, correlation_id)
    return head + b"\0" if flexible else head
