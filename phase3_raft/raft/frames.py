"""Frames: how messages are told apart on a connection, and who may speak there.

    4 bytes   length of the body, big-endian
    4 bytes   CRC-32C of the body
    body

A connection is for one direction. Who has opened it begins with a `Hello`: which cluster, who
speaks, to whom. The answer is a `Reply`; after it come messages (`messages.encode_message`), all
from that sender and to that receiver. Anything else closes the connection: what was said before
stands, and nothing of what did not fit has any effect.

>>> reader = FrameReader(1_000)
>>> both = frame(b"first") + frame(b"second")
>>> reader.feed(both[:10]), reader.feed(both[10:])
([], [b'first', b'second'])
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

import msgspec
from crc32c import crc32c

from phase3_raft.raft.messages import AnyMessage, BadMessage, ServerId, decode_message

VERSION = 2
MAX_HELLO_BYTES = 1_024
MAX_FRAME_BYTES = 256 * 1024**2  # a snapshot is one frame: see MAX_SNAPSHOT_BYTES

_HEADER = struct.Struct(">II")
Greeting = TypeVar("Greeting", "Hello", "Reply")


class BadFrame(BadMessage):
    """Bytes that are no frame: too long, or damaged."""


class Stranger(BadMessage):
    """Somebody who has no business here."""


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first frame of a connection."""

    version: int
    cluster: str
    sender: ServerId
    to: ServerId


class Reply(msgspec.Struct, frozen=True, array_like=True):
    """The answer to it. refused: why; empty if welcome."""

    refused: str = ""


def frame(body: bytes) -> bytes:
    """The body with its header."""
    return _HEADER.pack(len(body), crc32c(body)) + body


def greeting(what: Hello | Reply) -> bytes:
    """As a frame."""
    return frame(msgspec.msgpack.encode(what))


def decode_greeting(body: bytes, kind: type[Greeting]) -> Greeting:
    """The opposite. Raises BadMessage."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(
            f"{len(body)} bytes are no {kind.__name__}: {error}",
            "let only servers of this cluster connect to this port",
        ) from error


class FrameReader:
    """Takes bytes as they come, gives whole bodies back.

    max_bytes: of a body; may be changed between two calls.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete now, up to what is no frame: the next call is about that.

        Raises BadFrame, if that comes first; the connection is of no use then.
        """
        held = self._bytes
        held += data
        bodies: list[bytes] = []
        at = 0
        while len(held) >= at + 8:
            try:
                body = self._body(at)
            except BadFrame:
                if not bodies:
                    raise
                break
            if body is None:
                break
            bodies.append(body)
            at += 8 + len(body)
        del held[:at]
        return bodies

    def _body(self, at: int) -> bytes | None:
        """The body of the frame that begins there; None if it is not complete. Raises BadFrame."""
        held = self._bytes
        size, checksum = _HEADER.unpack_from(held, at)
        if size > self.max_bytes:
            raise BadFrame(
                f"a frame of {size} bytes, where {self.max_bytes} are allowed",
                "let only servers of this cluster connect to this port",
            )
        if len(held) < at + 8 + size:
            return None
        body = bytes(memoryview(held)[at + 8 : at + 8 + size])
        if crc32c(body) != checksum:
            raise BadFrame(
                f"the checksum of a frame of {size} bytes is wrong",
                "look at the network between the two servers, and at their memory",
            )
        return body

    @property
    def pending(self) -> int:
        """Bytes of a frame that has begun, and not ended."""
        return len(self._bytes)


def check_hello(
    hello: Hello, cluster: str, me: ServerId, known: Callable[[ServerId], bool]
) -> None:
    """Whether to talk to them. Raises Stranger."""
    wrong = ""
    if hello.version != VERSION:
        wrong = f"it speaks version {hello.version}, and this server {VERSION}"
    elif hello.cluster != cluster:
        wrong = f"it belongs to cluster {hello.cluster!r}, and this server to {cluster!r}"
    elif hello.to != me:
        wrong = f"it looks for server {hello.to}, and this is server {me}"
    elif hello.sender == me or not known(hello.sender):
        wrong = "that is nobody's number but mine" if hello.sender == me else "nobody knows it here"
    if wrong:
        raise Stranger(
            f"server {hello.sender} is refused: {wrong}", "compare its --peers with those here"
        )


def decode_from(body: bytes, sender: ServerId, to: ServerId) -> AnyMessage:
    """A message on a connection of theirs. Raises BadMessage."""
    message = decode_message(body)
    if (message.sender, message.to) != (sender, to):
        raise Stranger(
            f"a message from {message.sender} to {message.to} on the connection from {sender} "
            f"to {to}",
            "let each server speak for itself",
        )
    return message
