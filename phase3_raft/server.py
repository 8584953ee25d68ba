"""The listener: accepts connections, and answers each one's requests, one after the other.

A connection is one task. It takes a request, waits for its reply, writes it, takes the next: so
replies are in order, and a client that asks faster than it reads is slowed down by its own socket,
not by the broker's memory. Whatever goes wrong on a connection closes that connection, and one on
which nothing was asked for ten minutes is closed too, as Kafka does: many a client is gone without
having said so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from craft2.clock import Clock
from craft2.disk import DiskError, FileSlice
from craft2.net import Address, Listener, Net, Reader, Writer
from craft2.tasks import Tasks
from phase3_raft.codec import BadMessage
from phase3_raft.connection import Frames
from phase3_raft.dispatch import Dispatch, Piece

_READ_BYTES = 256 * 1024
_WRITE_BYTES = 1024 * 1024  # of a file at a time, then the client has to take them
_TURN = 64  # requests of one connection, then it is others' turn: heartbeats must not starve
_REPLIES_BYTES = 64 * 1024  # of replies together, then too
_UNFINISHED_BYTES = 256 * 1024**2  # of requests that have only come in part, all together


class _Connection:
    """One connection. answering: a request has come whose reply is due soon."""

    __slots__ = ("answering", "heard_at", "writer")

    def __init__(self, writer: Writer, now: float) -> None:
        self.writer, self.heard_at = writer, now
        self.answering = False


class _Outbox:
    """Replies that leave together: a client that asks a hundred things at once is answered with one
    system call instead of a hundred (`make bench ARGS=broker-requests`).

    They leave when `send` is called, or as soon as the event loop does something else: no reply
    waits because the next request takes long.
    """

    __slots__ = ("_pieces", "_writer", "size")

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._pieces: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> None:
        if not self._pieces:
            asyncio.get_running_loop().call_soon(self.send)
        self._pieces.append(data)
        self.size += len(data)

    def send(self) -> None:
        if self._pieces:
            data = b"".join(self._pieces)
            self._pieces.clear()
            self.size = 0
            self._writer.write(data)

    async def drain(self) -> None:
        """Send, and wait until the client has taken most of it."""
        self.send()
        await self._writer.drain()


class Server:
    """See the module. trouble: told in one line why a connection was closed."""

    def __init__(
        self,
        net: Net,
        dispatch: Dispatch,
        tasks: Tasks,
        clock: Clock,
        *,
        max_request_bytes: int,
        max_connections: int,
        idle_s: float,
        trouble: Callable[[str], object],
    ) -> None:
        self._net, self._dispatch, self._tasks, self._clock = net, dispatch, tasks, clock
        self._max_request_bytes, self._max_connections = max_request_bytes, max_connections
        self._idle_s = idle_s
        self._trouble = trouble
        self._listener: Listener | None = None
        self._connections: dict[_Connection, None] = {}
        self._ending: asyncio.Event | None = None
        self._unfinished, self._most_unfinished = 0, max(_UNFINISHED_BYTES, 2 * max_request_bytes)

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    async def open(self, address: Address) -> Address:
        """Listen; returns where. Raises NetError."""
        self._listener = await self._net.listen(
            address,
            lambda reader, writer: self._tasks.spawn(self._serve(reader, writer)),
            max_connections=self._max_connections,
            full=lambda refused: self._trouble(
                f"{self._max_connections} connections are all there may be; {refused} refused"
            ),
        )
        self._tasks.spawn(self._close_idle())
        return self._listener.address

    async def drain(self, limit_s: float) -> None:
        """No new connections and requests; wait, so long at most, for the replies that are due.

        What waits for something else to happen, such as a consumer for records, is not waited for:
        the client asks again, here or elsewhere.
        """
        self._ending = asyncio.Event()
        self._stop_accepting()
        try:
            async with asyncio.timeout(limit_s):
                while any(one.answering for one in self._connections):
                    await self._ending.wait()
                    self._ending.clear()
        except TimeoutError:
            self._trouble(f"replies that took longer than {limit_s:g} s were not waited for")

    def close(self) -> None:
        """Hang up on everybody."""
        self._stop_accepting()
        for connection in list(self._connections):
            connection.writer.close()

    def _stop_accepting(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(self._idle_s / 4)
            silent_since = self._clock.monotonic() - self._idle_s
            for connection in list(self._connections):
                if connection.heard_at < silent_since:
                    connection.writer.close()

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        host = _host(writer)
        frames, outbox = Frames(self._max_request_bytes), _Outbox(writer)
        connection = _Connection(writer, self._clock.monotonic())
        self._connections[connection] = None
        held = 0
        try:
            while data := await reader.read(_READ_BYTES):
                complete = frames.feed(data)
                self._unfinished += frames.unfinished - held
                held = frames.unfinished
                if self._unfinished > self._most_unfinished:
                    raise BadMessage(
                        f"{self._unfinished} bytes of requests that have only come in part",
                        "send requests whole, or smaller ones",
                    )
                for number, frame in enumerate(complete, 1):
                    if self._ending is not None:
                        return
                    connection.answering = not self._dispatch.waits(frame)
                    reply = await self._dispatch.answer(frame, host)
                    if reply is not None:
                        await _write(outbox, reply)
                    connection.answering = False
                    if number % _TURN == 0:
                        await asyncio.sleep(0)
                await outbox.drain()
                if self._ending is not None:
                    return
                connection.heard_at = self._clock.monotonic()
        except (BadMessage, DiskError) as error:
            self._trouble(f"connection of {host} closed: {error}")
        except OSError:
            pass  # they have hung up
        finally:
            del self._connections[connection]
            self._unfinished -= held
            writer.close()
            if self._ending is not None:
                self._ending.set()


async def _write(outbox: _Outbox, reply: list[Piece]) -> None:
    for piece in reply:
        if not isinstance(piece, FileSlice):
            outbox.add(piece)
            continue
        for start in range(0, piece.size, _WRITE_BYTES):
            size = min(_WRITE_BYTES, piece.size - start)
            data = piece.file.read_at(piece.position + start, size)
            if len(data) != size:
                raise DiskError("a segment was cut while it was sent", "ask again")
            outbox.add(data)
            await outbox.drain()
    if outbox.size > _REPLIES_BYTES:
        await outbox.drain()


def _host(writer: Writer) -> str:
    """Where they are, as far as the network knows."""
    info = getattr(writer, "get_extra_info", None)
    name = info("peername") if info is not None else None
    return f"/{name[0]}" if name else "/127.0.0.1"
