"""Connections in memory, on virtual time: ordered and complete, or broken, as those of TCP are.

What is written arrives later, in the order of its writing. A line that is cut delivers nothing, and
loses nothing: what was sent waits, in that direction, until the line is mended, or until
`UNACKNOWLEDGED_MS` have passed, and then both ends find the connection reset. A machine that
crashes says nothing; whoever goes on sending to it learns that it is gone.

>>> from craft2.sim.loop import SimLoop
>>> timeline = Timeline()
>>> wires = Wires(timeline, random.Random(1))
>>> nets = [wires.machine(SimLoop(timeline, name)) for name in ("a", "b")]
>>> async def serve():
...     await nets[0].listen(Address("a", 9092), lambda reader, writer: writer.write(b"hello"))
>>> async def ask():
...     reader, _ = await nets[1].connect(Address("a", 9092))
...     return await reader.read(100)
>>> listening = nets[0].loop.create_task(serve())
>>> task = nets[1].loop.create_task(ask())
>>> timeline.run(until_ms=20)
>>> task.result()
b'hello'
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from itertools import count

from craft2.net import (
    BUFFER_BYTES,
    MAX_CONNECTIONS,
    UNACKNOWLEDGED_MS,
    Address,
    Full,
    NetError,
    Reader,
    Receiver,
    Serve,
    Writer,
)
from craft2.sim.loop import SimLoop
from craft2.sim.timeline import Timeline

CONNECT_MS = 1_000  # then who cannot reach anybody gives up


class Wires:
    """What lies between all machines. The host of an address is the name of a machine's loop.

    delay_ms: from, to, of every piece. slow: the share of pieces that take up to `slow_ms`: in a
    stream a lost packet is a late one, and what is behind it waits.
    """

    def __init__(self, timeline: Timeline, chance: random.Random) -> None:
        self.delay_ms = (1, 3)
        self.slow, self.slow_ms = 0.0, 200
        self.timeline = timeline
        self.pieces = 0
        self._chance = chance
        self._cut: set[tuple[str, str]] = set()
        self._listening: dict[Address, _SimListener] = {}
        self._connections: list[_Connection] = []

    def machine(self, loop: SimLoop) -> SimNet:
        """The network, as one machine sees it."""
        return SimNet(self, loop)

    def delay(self) -> int:
        """How long the next piece takes, in ms."""
        delay_ms = self._chance.randint(*self.delay_ms)
        if self.slow and self._chance.random() < self.slow:
            delay_ms = self._chance.randint(delay_ms, self.slow_ms)
        return delay_ms

    def carries(self, sender: str, to: str) -> bool:
        """Whether anything gets through in this direction."""
        return (sender, to) not in self._cut

    def cut(self, some: Iterable[str], others: Iterable[str], one_way: bool = False) -> None:
        """Let nothing from `some` to `others` through, nor (unless one_way) back."""
        others = list(others)
        for a in some:
            self._cut.update((a, b) for b in others)
            if not one_way:
                self._cut.update((b, a) for b in others)

    def heal(self) -> None:
        """Everybody reaches everybody; what waited goes on."""
        self._cut.clear()
        for connection in list(self._connections):
            for pipe in connection.pipes:
                pipe.go_on()

    def reset(self, name: str) -> None:
        """Both ends of whatever a machine has open find it broken; what is under way is lost."""
        for connection in list(self._connections):
            if name in (loop.name for loop in connection.loops):
                connection.reset("the connection was reset")

    def crash(self, loop: SimLoop) -> None:
        """A machine is gone: it listens no more, and what it had open is silent at its end."""
        for address in [a for a, one in self._listening.items() if one.loop is loop]:
            del self._listening[address]
        for connection in list(self._connections):
            if loop in connection.loops:
                connection.lose(loop)


class _Pipe:
    """One direction of a connection.

    Invariant: pieces arrive in the order in which they were sent.
    """

    def __init__(self, connection: _Connection, sender: SimLoop, to: SimLoop) -> None:
        self.reader = SimReader(self, to)
        self.loop = sender
        self._connection, self._wires, self._to = connection, connection.wires, to
        self._last_ms = 0  # when the latest piece arrives
        self._stalled: list[bytes | None] = []
        self._unread = 0  # bytes that were written and not read
        self._rooms: list[asyncio.Future[None]] = []

    def send(self, data: bytes | None) -> None:
        """Put a piece on its way; None is the end."""
        if self._connection.broken:
            return
        self._wires.pieces += 1
        self._unread += len(data or b"")
        self._last_ms = max(self._last_ms, self._wires.timeline.now_ms + self._wires.delay())
        self._wires.timeline.at(self._last_ms, self._arrive, data)

    def _arrive(self, data: bytes | None) -> None:
        connection = self._connection
        if connection.broken:
            return
        if self._to.dead:
            connection.reset("the other end is gone")
        elif self._stalled or not self._wires.carries(self.loop.name, self._to.name):
            if not self._stalled:
                self._wires.timeline.after(UNACKNOWLEDGED_MS, self._give_up, connection.heals)
            self._stalled.append(data)
        else:
            self.reader.feed(data)

    def _give_up(self, heals: int) -> None:
        if self._stalled and self._connection.heals == heals:
            self._connection.reset("nothing was acknowledged")

    def go_on(self) -> None:
        """The line is mended."""
        stalled, self._stalled = self._stalled, []
        self._connection.heals += 1
        for data in stalled:
            self._wires.timeline.after(self._wires.delay_ms[0], self._arrive, data)

    def was_read(self, count: int) -> None:
        self._unread -= count
        if self._rooms and self._unread <= BUFFER_BYTES:
            self._wake(None)

    @property
    def is_full(self) -> bool:
        return self._unread > BUFFER_BYTES

    async def drain(self) -> None:
        """Wait until the other end has read enough."""
        self._connection.check()
        if self.is_full:
            self._rooms.append(self.loop.create_future())
            await self._rooms[-1]
            self._connection.check()

    def _wake(self, _: object) -> None:
        rooms, self._rooms = self._rooms, []
        for room in rooms:
            if not room.done() and not self.loop.dead:
                room.set_result(None)

    def broke(self) -> None:
        self._wake(None)
        self.reader.broke()


class _Connection:
    """Two pipes, and whether they are of any use."""

    def __init__(self, wires: Wires, caller: SimLoop, called: SimLoop) -> None:
        self.wires = wires
        self.loops = (caller, called)
        self.heals = 0  # how often its line was mended: who waits to give up has to begin anew
        self.broken = ""  # why
        self.pipes = (_Pipe(self, caller, called), _Pipe(self, called, caller))
        wires._connections.append(self)

    def check(self) -> None:
        """Raises ConnectionResetError if it is broken."""
        if self.broken:
            raise ConnectionResetError(self.broken)

    def reset(self, why: str) -> None:
        """Both ends find it broken."""
        if not self.broken:
            self.broken = why
            self.wires._connections.remove(self)
            for pipe in self.pipes:
                pipe.broke()

    def lose(self, loop: SimLoop) -> None:
        """One end has crashed; its machine's system tells the other, if it can be reached."""
        other = self.loops[1] if loop is self.loops[0] else self.loops[0]
        if self.wires.carries(loop.name, other.name):
            delay_ms = self.wires.delay()
            self.wires.timeline.after(delay_ms, self.reset, "the other end has died")


class SimReader:
    """What comes in at one end. See `craft2.net.Reader`."""

    def __init__(self, pipe: _Pipe, loop: SimLoop) -> None:
        self._pipe, self._loop = pipe, loop
        self._held = bytearray()
        self._ended = self._lost = self._is_paused = False
        self._has_finished = False  # and the receiver was told
        self._news: asyncio.Future[None] | None = None
        self._receiver: Receiver | None = None

    async def read(self, n: int = -1) -> bytes:
        while not self._held:
            if self._ended:
                return b""
            self._pipe._connection.check()
            self._news = self._loop.create_future()
            await self._news
        data = bytes(self._held if n < 0 else self._held[:n])
        del self._held[: len(data)]
        self._pipe.was_read(len(data))
        return data

    def deliver(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._deliver_soon()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Tell the receiver what has come in since it was told last."""
        receiver = self._receiver
        if receiver is None:
            return
        if self._lost or self._pipe._connection.broken:
            self._receiver = None
            receiver.lost()
        elif self._held and not self._is_paused:
            data = bytes(self._held)
            self._held.clear()
            self._pipe.was_read(len(data))
            receiver.received(data)
        if self._ended and not self._held and self._receiver is not None and not self._has_finished:
            self._has_finished = True
            receiver.finished()

    def feed(self, data: bytes | None) -> None:
        if data is None:
            self._ended = True
        else:
            self._held += data
        self._wake()

    def broke(self) -> None:
        self._wake()

    def end(self) -> None:
        """Whoever reads here has hung up."""
        self._ended = self._lost = True
        self._held.clear()
        self._wake()

    def _wake(self) -> None:
        if self._receiver is not None and not self._loop.dead:
            self._deliver_soon()
        news, self._news = self._news, None
        if news is not None and not news.done() and not self._loop.dead:
            news.set_result(None)


class SimWriter:
    """What goes out at one end. See `craft2.net.Writer`."""

    def __init__(self, out: _Pipe, back: _Pipe) -> None:
        self._out, self._back = out, back
        self._closed = False

    def write(self, data: bytes) -> None:
        if data and not (self._closed or self._out.loop.dead):
            self._out.send(bytes(data))

    @property
    def is_full(self) -> bool:
        return self._out.is_full

    async def drain(self) -> None:
        await self._out.drain()

    def close(self) -> None:
        if not (self._closed or self._out.loop.dead):
            self._closed = True
            self._out.send(None)
            self._back.reader.end()


class _SimListener:
    def __init__(self, wires: Wires, loop: SimLoop, address: Address, serve: Serve) -> None:
        self.loop, self.address, self.serve = loop, address, serve
        self._wires = wires

    def close(self) -> None:
        if self._wires._listening.get(self.address) is self:
            del self._wires._listening[self.address]


class SimNet:
    """The network as one machine sees it. See `craft2.net.Net`."""

    def __init__(self, wires: Wires, loop: SimLoop) -> None:
        self.loop = loop
        self._wires = wires

    async def listen(
        self,
        address: Address,
        serve: Serve,
        *,
        max_connections: int = MAX_CONNECTIONS,  # a simulated machine has files enough
        full: Full | None = None,
    ) -> _SimListener:
        taken = self._wires._listening
        free = (port for port in count(49_152) if Address(self.loop.name, port) not in taken)
        place = Address(self.loop.name, address.port or next(free))
        if place in taken:
            raise NetError(f"cannot listen at {place}: it is in use", "choose a free port")
        taken[place] = listener = _SimListener(self._wires, self.loop, place, serve)
        return listener

    async def connect(self, address: Address) -> tuple[Reader, Writer]:
        wires, here = self._wires, self.loop
        there = address.host
        if not (wires.carries(here.name, there) and wires.carries(there, here.name)):
            await asyncio.sleep(CONNECT_MS / 1_000)
            raise TimeoutError(f"{address} does not answer")
        await asyncio.sleep((wires.delay() + wires.delay()) / 1_000)
        listener = wires._listening.get(address)
        if listener is None:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        out, back = _Connection(wires, here, listener.loop).pipes
        listener.loop.call_soon(listener.serve, out.reader, SimWriter(back, out))
        return back.reader, SimWriter(out, back)
