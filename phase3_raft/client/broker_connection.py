"""A connection to a broker, from the client's side: a request as fields, its reply as a message.

    connection = await BrokerConnection.open(net, address)
    reply = await connection.ask("metadata", 9, {"topics": None, ...})

Requests may be sent before the replies to former ones have come; a broker answers in order, so the
next reply is the oldest request's, and its correlation id has to say so.

Source: kafka.apache.org/protocol#protocol_messages; Kafka's `NetworkClient`.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any, NamedTuple

from kio.schema.index import api_key_map

from craft2.net import Address, Net, Reader, Writer
from phase3_raft import codec, schemas
from phase3_raft.codec import BadMessage
from phase3_raft.connection import Frames
from phase3_raft.schemas import Fields, Message

_MAX_REPLY_BYTES = 256 * 1024**2
API_KEYS = {name: key for key, name in api_key_map.items()}
_API_VERSIONS = API_KEYS["api_versions"]  # its reply has the old head, whatever the version


class _Asked(NamedTuple):
    name: str | None  # None: the reply is wanted as it comes
    version: int
    correlation_id: int
    reply: asyncio.Future[Any]


class BrokerConnection:
    """See the module. Invariant: `_asked` are the requests without a reply, the oldest first."""

    def __init__(self, reader: Reader, writer: Writer, client_id: str) -> None:
        self._writer = writer
        self._client_id = client_id.encode()
        self._asked: deque[_Asked] = deque()
        self._next_id = 0
        self._frames = Frames(_MAX_REPLY_BYTES)
        self._is_open = True
        reader.deliver(self)

    @classmethod
    async def open(cls, net: Net, address: Address, client_id: str = "craft2") -> BrokerConnection:
        """Connect. Raises OSError."""
        return cls(*await net.connect(address), client_id)

    async def ask(self, name: str, version: int, fields: Fields) -> Message:
        """The reply to a request, of `kio`'s name, with the request's fields.

        Raises OSError if the connection breaks first, BadMessage for a reply that makes no sense.
        """
        body = schemas.encode(name, version, fields, "request")
        return await self._wait(name, version, self._frame(name, version, body))

    async def exchange(
        self, name: str, version: int, body: bytes, *, limit_s: float
    ) -> tuple[bytes, int]:
        """The reply to a request that is bytes already, and where its body begins. A broker that
        does not answer within `limit_s` is hung up on. Raises OSError, BadMessage."""
        late = TimeoutError(f"no reply to {name} within {limit_s:g} s")
        timer = asyncio.get_running_loop().call_later(limit_s, self._end, late)
        try:
            frame: bytes = await self._wait(None, version, self._frame(name, version, body))
        finally:
            timer.cancel()
        return frame, _body_at(name, version, frame)

    async def _wait(self, name: str | None, version: int, frame: bytes) -> Any:
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(name, version, self._next_id, reply))
        self._writer.write(frame)
        try:
            if self._writer.is_full:
                await self._writer.drain()
            return await reply
        finally:
            if not reply.cancel() and not reply.cancelled():
                reply.exception()  # seen, if `drain` has failed before

    async def tell(self, name: str, version: int, fields: Fields) -> None:
        """Send a request that has no reply (produce with acks=0). Raises OSError."""
        self._writer.write(
            self._frame(name, version, schemas.encode(name, version, fields, "request"))
        )
        await self._writer.drain()

    def _frame(self, name: str, version: int, body: bytes) -> bytes:
        if not self.is_open:
            raise ConnectionResetError("the connection is closed")
        self._next_id += 1
        head = struct.pack(">hhih", API_KEYS[name], version, self._next_id, len(self._client_id))
        flexible = schemas.is_flexible(name, version)
        size = len(head) + len(self._client_id) + flexible + len(body)
        return struct.pack(">i", size) + head + self._client_id + b"\0" * flexible + body

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent; false from when the broker has hung up."""
        return self._is_open

    # What the network says: this is a `Receiver`.

    def received(self, data: bytes) -> None:
        try:
            for frame in self._frames.feed(data):
                self._take(frame)
        except BadMessage as error:
            self._end(error)

    def finished(self) -> None:
        self._end(ConnectionResetError("the broker has hung up"))

    def lost(self) -> None:
        self._end(ConnectionResetError("the connection is closed"))

    def _end(self, error: Exception) -> None:
        self._is_open = False
        self._writer.close()
        for asked in self._asked:
            if not asked.reply.done():
                asked.reply.set_exception(error)
        self._asked.clear()

    def _take(self, frame: bytes) -> None:
        correlation_id, at = codec.read_int32(frame, 0)
        if not self._asked or self._asked[0].correlation_id != correlation_id:
            raise BadMessage(f"a reply to request {correlation_id}, which was not next", "")
        asked = self._asked.popleft()
        if asked.name is None:
            if not asked.reply.done():
                asked.reply.set_result(frame)
            return
        name, version = asked.name, asked.version
        at = _body_at(name, version, frame)
        message = schemas.decode(name, version, frame, at, latest=version, kind="response")
        if not asked.reply.done():
            asked.reply.set_result(message)

    def close(self) -> None:
        """Hang up; requests without a reply fail."""
        self._end(ConnectionResetError("the connection is closed"))


def _body_at(name: str, version: int, frame: bytes) -> int:
    """Where the body of a reply begins. Raises BadMessage."""
    if schemas.is_flexible(name, version) and API_KEYS[name] != _API_VERSIONS:
        return codec.skip_tagged_fields(frame, 4)
    return 4
