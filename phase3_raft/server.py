"""The listener: accepts connections, and answers each one's requests, one after the other.

Nothing here waits that need not: what comes in on a connection is taken apart, its requests are
begun and their replies written in one go, within the event loop's call. What this makes possible
elsewhere, such as the reply to a consumer that waited for just these records, follows within the
same call (`promises`). Only where a client has to wait for room is there a task.

A connection's next request is begun when the one before is answered. So replies are in order, and a
client that asks faster than it reads is slowed down by its own socket, not by the broker's memory.
Some replies come later, when others have done their part: the next requests are begun meanwhile,
and their replies wait for their turn.

Whatever goes wrong on a connection closes that connection, and one on which nothing was asked for
ten minutes is closed too, as Kafka does: many a client is gone without having said so.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from craft2.clock import Clock
from craft2.disk import DiskError, FileSlice
from craft2.net import Address, Listener, Net, Reader, Writer
from craft2.tasks import Tasks
from phase3_raft.codec import BadMessage
from phase3_raft.connection import Frames
from phase3_raft.dispatch import Dispatch, Pending, Piece, Reply

_WRITE_BYTES = 1024 * 1024  # of a file at a time, then the client has to take them
_UNDERWAY = 1_000  # requests of one connection whose replies come later, then it has to wait
_AT_ONCE = 8  # requests of one connection, then it waits for its turn
_TURN = 64  # requests of all that wait for their turn, then the event loop goes on: who has just
# come, and brokers with their heartbeats, must not wait for what others have sent in advance
_REPLIES_BYTES = 64 * 1024  # of replies together, then the client has to take them, too
_HELD_BYTES = 256 * 1024**2  # of requests that have come in part, or wait, all together
_LARGE_BYTES = 1024**2  # held for one connection; the others are hung up on last, if it is too much


class _Connection:
    """One connection: a `Receiver` of what a client sends.

    Invariants: `_begun` are the replies that are not written yet, in the order of their requests.
    While there is `_work`, which writes what is large, nothing else is written. `_waiting_bytes` is
    the length of all in `_to_begin`, and `held` was told to the server. `_held_since` is when it
    last held nothing, or became less: since then it got no further with any request.
    """

    def __init__(self, server: Server, reader: Reader, writer: Writer) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._host = _host(writer)
        self._frames = Frames(server.max_request_bytes)
        self._to_begin: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._begun: deque[Reply | Pending] = deque()
        self._out: list[bytes] = []  # these leave together, with one system call
        self._out_bytes = 0
        self._work: asyncio.Task[None] | None = None
        self._gives_way = False  # to other connections, until it is its turn
        self._goes_on = False  # afterwards
        self._asks_no_more = self._is_over = False
        self.held = 0  # bytes of requests that have only come in part, or wait for others
        self.heard_at = self._held_since = server.clock.monotonic()

    # What the network says.

    def received(self, data: bytes) -> None:
        self.heard_at = self._server.clock.monotonic()
        if self._asks_no_more or self._server.is_ending:
            return
        try:
            frames = self._frames.feed(data)
            self._to_begin.extend(frames)
            self._waiting_bytes += sum(map(len, frames))
            self._frames.check()
        except BadMessage as error:
            self._refuse(error)
        if self._server.is_busy and self._to_begin:
            self._give_way()
        else:
            self._go_on()
        if self._to_begin:
            self._reader.pause()
        self._hold()
        self._server.afterwards.run()

    def finished(self) -> None:
        self._asks_no_more = True
        self._go_on()

    def lost(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        for reply in self._begun:
            if isinstance(reply, Pending):
                reply.promise.cancel()
        self._begun.clear()
        self._drop_waiting()
        if self._work is not None:
            self._work.cancel()
        self._server.gone(self)

    # What is done about it.

    def _hold(self) -> None:
        """Tell the server how much is held: if that is too much it hangs up on somebody."""
        held = self._frames.unfinished + self._waiting_bytes
        if held == self.held or self._is_over:
            return
        before, self.held = self.held, held
        if held < before or not before:
            self._held_since = self._server.clock.monotonic()
        self._server.holds(held - before)

    def burden(self, now: float) -> tuple[bool, float, int]:
        """What is held for it, to be compared: much of it or not, the bytes by the seconds that it
        got no further, the bytes. Who asks for little, or goes on fast, is no burden."""
        return self.held > _LARGE_BYTES, self.held * (now - self._held_since), self.held

    def let_go(self, error: BadMessage) -> None:
        """Hang up; what was asked before is answered, and what is held is not kept until then."""
        self._refuse(error)
        self._drop_waiting()
        self._frames = Frames(self._server.max_request_bytes)
        self._hold()
        self._go_on()

    def _drop_waiting(self) -> None:
        self._to_begin.clear()
        self._waiting_bytes = 0

    @property
    def is_due(self) -> bool:
        """Whether a reply is, and soon."""
        waits = all(isinstance(one, Pending) and one.waits for one in self._begun)
        return self._work is not None or not waits

    def _go_on_afterwards(self) -> None:
        """A reply is there."""
        if not self._goes_on:
            self._goes_on = True
            self._server.afterwards.call(self._go_on)

    def _go_on(self, most: int = _AT_ONCE) -> None:
        """Write the replies that are there, begin the requests that may be begun: `most` of them,
        then others are to have their turn."""
        self._goes_on = False
        if self._is_over or self._work is not None:
            return
        try:
            self._take_turn(most)
            self._send()
        except (BadMessage, DiskError) as error:
            self._server.trouble(f"connection of {self._host} closed: {error}")
            self.close()
        except (OSError, asyncio.CancelledError):  # they have hung up, or we do
            self.close()
        except Exception as error:
            self._server.trouble(f"connection of {self._host} closed, a defect: {error!r}")
            self.close()
        if self._is_over:
            return
        if self._work is None and self._writer.is_full:
            self._begin_work(self._writer.drain())
        if not self._to_begin:
            self._reader.resume()
            if self.held:
                self._hold()
            if self._asks_no_more and not self.is_due:
                self.close()
        if self._server.is_ending:
            self._server.settled()

    def _take_turn(self, most: int) -> None:
        begun = 0
        while self._work is None and not self._writer.is_full:
            if self._begun:
                first = self._begun[0]
                if not isinstance(first, Pending):
                    self._begun.popleft()
                    self._write(first)
                    continue
                if first.promise.is_kept:
                    self._begun.popleft()
                    self._write(first.take())
                    continue
            if not self._may_begin():
                break
            if begun == most:
                self._give_way()
                break
            self._begin_next()
            begun += 1

    def _give_way(self) -> None:
        if not self._gives_way:
            self._gives_way = True
            self._server.wants_turn(self)

    def turn(self, most: int) -> None:
        """It is its turn: it may begin so many requests."""
        self._gives_way = False
        self._go_on(most=most)

    def _may_begin(self) -> bool:
        if not self._to_begin or self._gives_way or self._server.is_ending:
            return False
        if not self._begun:
            return True
        last = self._begun[-1]
        return isinstance(last, Pending) and not last.holds and len(self._begun) < _UNDERWAY

    def _begin_next(self) -> None:
        frame = self._to_begin.popleft()
        self._waiting_bytes -= len(frame)
        try:
            reply = self._server.dispatch.begin(frame, self._host)
        except (BadMessage, DiskError) as error:
            self._refuse(error)
            self._drop_waiting()
            return
        if isinstance(reply, Pending):
            reply.promise.when_kept(self._go_on_afterwards)
        self._begun.append(reply)

    def _refuse(self, error: BadMessage | DiskError) -> None:
        """Take no more from this client; what it has asked before is answered."""
        self._server.trouble(f"connection of {self._host} closed: {error}")
        self._asks_no_more = True

    # Writing.

    def _write(self, reply: Reply) -> None:
        pieces = reply or []
        for number, piece in enumerate(pieces):
            if self._out_bytes > _REPLIES_BYTES:
                self._send()
            if isinstance(piece, FileSlice):
                if piece.size > _REPLIES_BYTES or self._writer.is_full:
                    self._send()
                    self._begin_work(self._write_large(pieces[number:]))
                    return
                piece = _read(piece, 0, piece.size)
            self._out.append(piece)
            self._out_bytes += len(piece)

    def _send(self) -> None:
        if self._out:
            data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
            self._out.clear()
            self._out_bytes = 0
            self._writer.write(data)

    async def _write_large(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if not isinstance(piece, FileSlice):
                self._writer.write(piece)
                continue
            for start in range(0, piece.size, _WRITE_BYTES):
                self._writer.write(_read(piece, start, min(_WRITE_BYTES, piece.size - start)))
                await self._writer.drain()

    def _begin_work(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = self._server.tasks.spawn(work)
        self._work.add_done_callback(self._worked)

    def _worked(self, work: asyncio.Task[None]) -> None:
        self._work = None
        error = None if work.cancelled() else work.exception()
        if work.cancelled() or isinstance(error, OSError):
            self.close()
        elif error is not None:
            self._server.trouble(f"connection of {self._host} closed: {error}")
            self.close()
        else:
            self._go_on()

    def close(self) -> None:
        """Hang up, once what was written is on its way."""
        self._send()
        self._writer.close()
        self.lost()


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
        self.dispatch, self.tasks, self.clock, self.trouble = dispatch, tasks, clock, trouble
        self.afterwards = dispatch.afterwards
        self.max_request_bytes = max_request_bytes
        self._net, self._max_connections, self._idle_s = net, max_connections, idle_s
        self._listener: Listener | None = None
        self._connections: dict[_Connection, None] = {}
        self._ending: asyncio.Event | None = None
        self._held, self._most_held = 0, max(_HELD_BYTES, 2 * max_request_bytes)
        self._turns: deque[_Connection] = deque()  # who waits for a turn, each of them once

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    async def open(self, address: Address) -> Address:
        """Listen; returns where. Raises NetError."""
        self._listener = await self._net.listen(
            address,
            self._serve,
            max_connections=self._max_connections,
            full=lambda refused: self.trouble(
                f"{self._max_connections} connections are all there may be; {refused} refused"
            ),
        )
        self.tasks.spawn(self._close_idle())
        return self._listener.address

    def _serve(self, reader: Reader, writer: Writer) -> None:
        connection = _Connection(self, reader, writer)
        self._connections[connection] = None
        reader.deliver(connection)

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
            self.trouble(f"replies that took longer than {limit_s:g} s were not waited for")

    def close(self) -> None:
        """Hang up on everybody."""
        self._stop_accepting()
        for connection in list(self._connections):
            connection.close()

    def _stop_accepting(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(self._idle_s / 4)
            silent_since = self.clock.monotonic() - self._idle_s
            for connection in list(self._connections):
                if connection.heard_at < silent_since:
                    connection.close()

    # For its connections.

    @property
    def is_ending(self) -> bool:
        """Whether no more requests are begun."""
        return self._ending is not None

    @property
    def is_busy(self) -> bool:
        """Whether some wait for their turn: then whoever comes waits, too."""
        return bool(self._turns)

    def wants_turn(self, connection: _Connection) -> None:
        """It has sent more than may be begun at once."""
        if not self._turns:
            asyncio.get_running_loop().call_soon(self._give_turns)
        self._turns.append(connection)

    def _give_turns(self) -> None:
        """A turn each, for as many as there is room; all that is read meanwhile comes behind."""
        count = min(len(self._turns), _TURN)
        share = _TURN // count
        for _ in range(count):
            self._turns[0].turn(share)  # it is one of those that wait, until it has had its turn
            self._turns.popleft()
        self.afterwards.run()
        if self._turns:
            asyncio.get_running_loop().call_soon(self._give_turns)

    def settled(self) -> None:
        """A connection may have no replies that are due any more: `drain` looks again."""
        if self._ending is not None:
            self._ending.set()

    def holds(self, more: int) -> None:
        """One of them holds so many bytes more of requests that have come in part, or wait.

        If that is too much together, those are hung up on that are the greatest burden. Were it
        whoever comes next, a few that never finish would keep all others out.
        """
        self._held += more
        while more > 0 and self._held > self._most_held:
            now = self.clock.monotonic()
            one = max(self._connections, key=lambda each: each.burden(now))
            one.let_go(
                BadMessage(
                    f"it holds {one.held} of {self._held} bytes of requests that have only come in "
                    "part, or wait for others",
                    "send requests whole, or smaller ones, or fewer at once",
                )
            )

    def gone(self, connection: _Connection) -> None:
        """It is no more."""
        self._held -= connection.held
        del self._connections[connection]
        self.settled()


def _read(piece: FileSlice, start: int, size: int) -> bytes:
    data = piece.file.read_at(piece.position + start, size)
    if len(data) != size:
        raise DiskError("a segment was cut while it was sent", "ask again")
    return data


def _host(writer: Writer) -> str:
    """Where they are, as far as the network knows."""
    info = getattr(writer, "get_extra_info", None)
    name = info("peername") if info is not None else None
    return f"/{name[0]}" if name else "/127.0.0.1"
