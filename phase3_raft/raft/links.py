"""The connections between the servers of a cluster.

Each server opens one to every other one, on which it speaks, and accepts one from every other one,
on which it listens. Raft expects messages to get lost, so nothing is kept for somebody who cannot
be reached: what is lost is asked for again, or said again with the next heartbeat. Each has a queue
of its own with a bound, so whoever is slow, or stands still, makes nobody else wait.

Who was connected and is no more has probably died: the server is told (`lost`), and need not wait
for a timeout to begin an election.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping

from craft2.events import Emitter
from craft2.net import Address, Listener, Net, Reader, Writer
from craft2.tasks import Tasks
from phase3_raft.raft.frames import (
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
    VERSION,
    BadFrame,
    FrameReader,
    Greeting,
    Hello,
    Reply,
    Stranger,
    check_hello,
    decode_from,
    decode_greeting,
    frame,
    greeting,
)
from phase3_raft.raft.messages import AnyMessage, BadMessage, ServerId, encode_message

MAX_QUEUED = 1_000  # messages to one server
MAX_STRANGERS = 64  # connections, besides two of each server: an old one, and the one that follows
HELLO_S = 2.0  # the longest that connecting, or a greeting, may take
PAUSE_S = (0.02, 1.0)  # before one tries again: at first, at most
CALLED_S = 0.02  # the same if the other one has called
_READ_BYTES = 256 * 1024


class Links:
    """See the module.

    peers: who there is, with their addresses. received: called with messages, in order.
    lost: called with who is not connected any more. chance: 0 <= chance() < 1.
    """

    def __init__(
        self,
        cluster: str,
        me: ServerId,
        peers: Mapping[ServerId, Address],
        net: Net,
        tasks: Tasks,
        events: Emitter,
        chance: Callable[[], float],
        received: Callable[[list[AnyMessage]], object],
        lost: Callable[[ServerId], object],
    ) -> None:
        self.cluster, self.me = cluster, me
        self._net, self._tasks, self._events, self._chance = net, tasks, events, chance
        self._received, self._lost = received, lost
        self._out = {i: _Link(self, i, peers[i]) for i in sorted(peers) if i != me}
        self._in: dict[ServerId, Writer] = {}  # the latest connection of each
        self._listener: Listener | None = None
        self._closed = False

    async def open(self, address: Address) -> Address:
        """Listen, and begin to connect; returns where it listens. Raises NetError."""
        self._listener = await self._net.listen(
            address,
            lambda reader, writer: self._tasks.spawn(self._serve(reader, writer)),
            max_connections=MAX_STRANGERS + 2 * len(self._out),
            full=self._full,
        )
        for link in self._out.values():
            self._tasks.spawn(link.run())
        return self._listener.address

    def add(self, server: ServerId, address: Address) -> None:
        """Somebody new, or somebody known who is elsewhere now."""
        link = self._out.get(server)
        if link is not None:
            link.address = address
        elif server != self.me:
            self._out[server] = _Link(self, server, address)
            if self._listener is not None:
                self._tasks.spawn(self._out[server].run())

    def knows(self, server: ServerId) -> bool:
        """Whether there is an address for it."""
        return server == self.me or server in self._out

    def _full(self, refused: int) -> None:
        because = f"too many connect, or say nothing for {HELLO_S} s: {refused} were refused"
        self._events.emit("full", because=because)

    def send(self, message: AnyMessage) -> None:
        """Put a message on its way, if its receiver is connected and its queue not full."""
        link = self._out.get(message.to)
        if link is not None:
            link.send(message)

    def connected(self) -> list[ServerId]:
        """To whom this server can speak."""
        return [i for i, link in self._out.items() if link.connected]

    @property
    def dropped(self) -> int:
        """Messages that were not sent because a queue was full."""
        return sum(link.dropped for link in self._out.values())

    def close(self) -> None:
        """Hang up on everybody; nothing more is reported."""
        self._closed = True
        if self._listener is not None:
            self._listener.close()
        for writer in self._in.values():
            writer.close()

    # Connections of others, on which they speak.

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        sender: ServerId | None = None
        try:
            hello = await _greeted(reader, Hello)
            check_hello(hello, self.cluster, self.me, self._out.__contains__)
            sender = hello.sender
            writer.write(greeting(Reply()))
            if (older := self._in.get(sender)) is not None:
                older.close()
            self._in[sender] = writer
            self._out[sender].hurry()
            await self._listen(reader, sender)
        except BadMessage as error:
            self._events.emit("refused", because=str(error))
            writer.write(greeting(Reply(error.problem)))
        except (OSError, EOFError, TimeoutError):
            pass  # they will come again
        finally:
            writer.close()
            if sender is not None and self._in.get(sender) is writer:
                del self._in[sender]

    async def _listen(self, reader: Reader, sender: ServerId) -> None:
        frames = FrameReader(MAX_FRAME_BYTES)
        while data := await reader.read(_READ_BYTES):
            while bodies := frames.feed(data):
                messages: list[AnyMessage] = []
                try:
                    for body in bodies:
                        messages.append(decode_from(body, sender, self.me))
                finally:  # what came before the one that is none counts
                    if messages:
                        self._received(messages)
                data = b""  # there may be garbage behind them


async def _greeted(reader: Reader, kind: type[Greeting]) -> Greeting:
    """The one frame that a connection begins with. Raises BadMessage, EOFError, TimeoutError."""
    frames = FrameReader(MAX_HELLO_BYTES)
    bodies: list[bytes] = []
    async with asyncio.timeout(HELLO_S):
        while not bodies:
            data = await reader.read(MAX_HELLO_BYTES)
            if not data:
                raise EOFError(f"hung up without a {kind.__name__}")
            bodies = frames.feed(data)
    if len(bodies) > 1 or frames.pending:
        raise BadFrame("more than a greeting, before that was answered", "wait for the Reply")
    return decode_greeting(bodies[0], kind)


class _Link:
    """The connection on which this server speaks to another one.

    Invariant: the queue is empty unless connected.
    """

    def __init__(self, links: Links, to: ServerId, address: Address) -> None:
        self._links, self._to, self.address = links, to, address
        self._queue: deque[AnyMessage] = deque()
        self._something = asyncio.Event()  # is queued
        self._called = asyncio.Event()  # by the other one
        self.connected = False
        self.dropped = 0

    def send(self, message: AnyMessage) -> None:
        if not self.connected:
            return
        if len(self._queue) >= MAX_QUEUED:
            self.dropped += 1
            return
        self._queue.append(message)
        self._something.set()

    def hurry(self) -> None:
        """The other one has just connected to us: so it can be reached."""
        self._called.set()

    async def run(self) -> None:
        """Connect, speak, and again, for ever."""
        shortest, longest = PAUSE_S
        pause_s, said = shortest, ""
        while True:
            problem = ""
            self._called.clear()
            try:
                async with asyncio.timeout(HELLO_S):
                    reader, writer = await self._links._net.connect(self.address)
                try:
                    await self._greet(reader, writer)
                    pause_s, said = shortest, ""
                    await self._speak(reader, writer)
                finally:
                    self._hung_up()
                    writer.close()
            except BadMessage as error:
                problem = error.problem
            except (OSError, EOFError, TimeoutError) as error:
                problem = str(error) or type(error).__name__
            if problem and problem != said:
                said = problem
                self._emit("unreachable", because=problem)
            await self._pause(pause_s * (0.5 + 0.5 * self._links._chance()))
            pause_s = min(2 * pause_s, longest)

    async def _pause(self, most_s: float) -> None:
        """So long, or until the other one calls; at least a moment: two that are cut off as soon as
        they have greeted must not call each other without end."""
        await asyncio.sleep(min(most_s, CALLED_S))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(most_s):
                await self._called.wait()

    async def _greet(self, reader: Reader, writer: Writer) -> None:
        """Say who we are. Raises Stranger if we are not welcome."""
        links = self._links
        writer.write(greeting(Hello(VERSION, links.cluster, links.me, self._to)))
        reply = await _greeted(reader, Reply)
        if reply.refused:
            raise Stranger(reply.refused, "")

    async def _speak(self, reader: Reader, writer: Writer) -> None:
        """Send what is queued until the connection ends."""
        self.connected = True
        self._emit("connected")
        sending = self._links._tasks.spawn(self._send(writer))
        try:
            while await reader.read(MAX_HELLO_BYTES):
                pass  # nothing but a reason to hang up ever comes from there, and then the end
        finally:
            sending.cancel()

    async def _send(self, writer: Writer) -> None:
        with contextlib.suppress(OSError):  # `_speak` sees the end, too
            while await self._something.wait():
                self._something.clear()
                while self._queue:
                    writer.write(frame(encode_message(self._queue.popleft())))
                    await writer.drain()

    def _hung_up(self) -> None:
        if self.connected:
            self.connected = False
            self._queue.clear()
            if not self._links._closed:
                self._emit("disconnected")
                self._links._lost(self._to)

    def _emit(self, kind: str, because: str = "") -> None:
        self._links._events.emit(kind, because=because, data={"to": self._to})
