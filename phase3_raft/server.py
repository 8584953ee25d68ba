"""The listener: accepts connections, and answers each one's requests, one after the other.

A connection is one task. It takes a request, waits for its reply, writes it, takes the next: so
replies are in order, and a client that asks faster than it reads is slowed down by its own socket,
not by the broker's memory. Some replies come later, when others have done their part: the next
requests are taken meanwhile, and their replies wait for their turn.

Whatever goes wrong on a connection closes that connection, and one on which nothing was asked for
ten minutes is closed too, as Kafka does: many a client is gone without having said so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from craft2.clock import Clock
from craft2.disk import DiskError, FileSlice
from craft2.net import Address, Listener, Net, Reader, Writer
from craft2.tasks import Tasks
from phase3_raft.codec import BadMessage
from phase3_raft.connection import Frames
from phase3_raft.dispatch import Dispatch, Piece, Reply

_READ_BYTES = 256 * 1024
_WRITE_BYTES = 1024 * 1024  # of a file at a time, then the client has to take them
_UNDERWAY = 1_000  # requests of one connection whose replies come later, then it has to wait
_TURN = 64  # requests of one connection, then it is others' turn: heartbeats must not starve
_REPLIES_BYTES = 64 * 1024  # of replies together, then too
_UNFINISHED_BYTES = 256 * 1024**2  # of requests that have only come in part, all together


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


class _Underway:
    """Requests whose replies come later, the oldest first: each is sent when it is there, and all
    before it are. Replies of this kind are bytes alone."""

    def __init__(self, outbox: _Outbox, writer: Writer, none_left: Callable[[], object]) -> None:
        self._outbox, self._writer, self._none_left = outbox, writer, none_left
        self._tasks: deque[asyncio.Task[Reply]] = deque()
        self._next_done = asyncio.Event()
        self._error: BaseException | None = None

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: asyncio.Task[Reply]) -> None:
        self._tasks.append(task)
        task.add_done_callback(self._send)

    def _send(self, _: asyncio.Task[Reply]) -> None:
        while self._tasks and self._tasks[0].done():
            task = self._tasks.popleft()
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                self._error = self._error or error
                self._outbox.send()
                self._writer.close()  # nothing more is read, and `fewer_than` says why
            elif self._error is None:
                for piece in task.result() or ():
                    assert isinstance(piece, bytes)
                    self._outbox.add(piece)
            self._next_done.set()
        if not self._tasks:
            self._none_left()

    async def fewer_than(self, count: int) -> None:
        """Wait for it. Raises what went wrong with one of them."""
        while len(self._tasks) >= count and self._error is None:
            self._next_done.clear()
            await self._next_done.wait()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Nobody waits for them any more."""
        for task in list(self._tasks):
            task.cancel()


class _Connection:
    """One connection. answering: a request has come whose reply is due soon."""

    __slots__ = ("answering", "heard_at", "underway", "writer")

    def __init__(self, writer: Writer, underway: _Underway, now: float) -> None:
        self.writer, self.underway, self.heard_at = writer, underway, now
        self.answering = False

    @property
    def is_due(self) -> bool:
        """Whether a reply is."""
        return self.answering or len(self.underway) > 0


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
                while any(one.is_due for one in self._connections):
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
        underway = _Underway(outbox, writer, self._one_less)
        connection = _Connection(writer, underway, self._clock.monotonic())
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
                        break
                    connection.answering = not self._dispatch.waits(frame)
                    reply = await self._dispatch.begin(frame, host)
                    if isinstance(reply, asyncio.Task):
                        underway.add(reply)
                        await underway.fewer_than(_UNDERWAY)
                    elif reply is not None:
                        await underway.fewer_than(1)
                        await _write(outbox, reply)
                    connection.answering = False
                    if number % _TURN == 0:
                        await asyncio.sleep(0)
                await outbox.drain()
                if self._ending is not None:
                    break
                connection.heard_at = self._clock.monotonic()
            await underway.fewer_than(1)
            await outbox.drain()
        except (BadMessage, DiskError) as error:
            self._trouble(f"connection of {host} closed: {error}")
            with suppress(BadMessage, DiskError, OSError):  # what was asked before it is answered
                await underway.fewer_than(1)
                await outbox.drain()
        except OSError:
            pass  # they have hung up
        finally:
            del self._connections[connection]
            underway.cancel()
            self._unfinished -= held
            writer.close()
            self._one_less()

    def _one_less(self) -> None:
        """A connection has no replies that are due, or is no more: `drain` may go on."""
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
            if outbox.size > _REPLIES_BYTES:
                await outbox.drain()
    if outbox.size > _REPLIES_BYTES:
        await outbox.drain()


def _host(writer: Writer) -> str:
    """Where they are, as far as the network knows."""
    info = getattr(writer, "get_extra_info", None)
    name = info("peername") if info is not None else None
    return f"/{name[0]}" if name else "/127.0.0.1"
