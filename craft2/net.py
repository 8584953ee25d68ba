"""The network, as an argument: everything that listens or connects does it through a `Net`.

`RealNet` is TCP, by asyncio. A simulated network gives the same two objects for a
connection, so what is written against them runs on virtual time unmodified.

>>> import asyncio
>>> async def echo(reader: Reader, writer: Writer) -> None:
...     writer.write(await reader.read(100))
...     writer.close()
>>> async def main() -> bytes:
...     tasks = []  # whoever listens keeps its tasks: the event loop does not
...     serve = lambda *ends: tasks.append(asyncio.ensure_future(echo(*ends)))
...     listener = await RealNet().listen(Address("127.0.0.1", 0), serve)
...     reader, writer = await RealNet().connect(listener.address)
...     writer.write(b"hello")
...     answer = await reader.read(100)
...     writer.close()
...     listener.close()
...     return answer
>>> asyncio.run(main())
b'hello'
"""

from __future__ import annotations

import asyncio
import errno
import re
import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol, cast

from craft2.errors import Craft2Error

BACKLOG = 4_096  # connections that may wait to be accepted
ACCEPTED_AT_ONCE = 16  # of them, before anything else is done
MAX_CONNECTIONS = 1_000  # that one listener holds
FULL_S = 10.0  # it says no more often that it is full
BUFFER_BYTES = 256 * 1024  # what a reader holds before the sender has to wait
UNACKNOWLEDGED_MS = 3_000  # see `_Opened`


class NetError(Craft2Error):
    """An address that cannot be had, or is none."""


class Address(NamedTuple):
    """Where somebody listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """`host:port` as an Address. Raises NetError.

    >>> parse_address("127.0.0.1:9092")
    Address(host='127.0.0.1', port=9092)
    """
    host, _, port = text.rpartition(":")
    if not is_host(host) or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise NetError(f"the address {text!r}", "give host:port, such as 127.0.0.1:9092")
    return Address(host, int(port))


def is_host(name: str) -> bool:
    """Whether it could be a host's name or address: whether anybody has it is another question."""
    try:
        return bool(name.encode("idna")) and "\0" not in name
    except UnicodeError:
        return False


def free_ports(count: int) -> list[int]:
    """Ports of this machine that are free, all different, and nobody else's for a minute.

    A port that was free a moment ago may be given to the next program that asks for any. One that
    has had a connection, and closed it first, is remembered by the kernel (TIME_WAIT, RFC 9293):
    who asks for any port is not given it, who names it can listen there.
    """
    with ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        for server in servers:
            with socket.create_connection(server.getsockname()):
                server.accept()[0].close()
        return [each.getsockname()[1] for each in servers]


class Receiver(Protocol):
    """Who is given what comes in on a connection, as it comes."""

    def received(self, data: bytes) -> None: ...

    def finished(self) -> None:
        """The other end sends no more; it may still read."""

    def lost(self) -> None:
        """The connection is no more: closed here or there, or broken. This is the last call."""


class Reader(Protocol):
    """What the other end sends: for whoever waits, or given to a receiver at once.

    Waiting is easier to write. A receiver is called in the middle of the event loop: that saves a
    future and a task's turn for each piece (`make bench ARGS=cluster-latency`).
    """

    async def read(self, n: int = -1) -> bytes:
        """Up to `n` bytes, as soon as there are some; none at the end. Raises OSError."""

    def deliver(self, receiver: Receiver) -> None:
        """From now on give all to this one, and nothing to `read`."""

    def pause(self) -> None:
        """Deliver no more for a while: then the other end has to wait, too."""

    def resume(self) -> None:
        """Go on."""


class Writer(Protocol):
    """What the other end is sent."""

    def write(self, data: bytes) -> None:
        """Send it, some time; if the connection is broken, the next `drain` says so."""

    @property
    def is_full(self) -> bool:
        """Whether so much is waiting to be sent that `drain` would wait."""

    async def drain(self) -> None:
        """Wait until not too much is waiting to be sent. Raises OSError."""

    def close(self) -> None:
        """Close both directions, once what was written is on its way."""


Serve = Callable[[Reader, Writer], object]  # called, not awaited, for each new connection
Full = Callable[[int], object]  # called with how many connections were refused by now


class Listener(Protocol):
    """A place where connections come in."""

    address: Address  # the port is the one that was got, if 0 was asked for

    def close(self) -> None: ...


class Net(Protocol):
    """What the packages may ask of a network."""

    async def listen(
        self,
        address: Address,
        serve: Serve,
        *,
        max_connections: int = MAX_CONNECTIONS,
        full: Full | None = None,
    ) -> Listener:
        """Accept connections; port 0 is any that is free. Raises NetError.

        max_connections: one more is hung up on at once. Each needs an open file, of which a process
        has so many (`raise_file_limit`): with a bound each, no listener takes another one's.
        full: told that it happens, every `FULL_S` at most.
        """

    async def connect(self, address: Address) -> tuple[Reader, Writer]:
        """Raises OSError if nobody listens there."""


class _RealListener:
    """Invariant: open is how many connections were given to `serve` and are not closed."""

    def __init__(self, serve: Serve, max_connections: int, full: Full | None) -> None:
        self.serve, self.open, self._refused = serve, 0, 0
        self._max, self._full = max_connections, full
        self._silent_until = 0.0

    def begin(self, server: asyncio.Server) -> None:
        self._server = server
        host, port, *_ = server.sockets[0].getsockname()
        self.address = Address(host, port)

    def has_room(self) -> bool:
        """Whether one more may come; if not, it is counted."""
        if self.open < self._max:
            return True
        self._refused += 1
        now = asyncio.get_running_loop().time()
        if self._full is not None and now >= self._silent_until:
            self._silent_until = now + FULL_S
            self._full(self._refused)
        return False

    def close(self) -> None:
        self._server.close()


class _Connection(asyncio.Protocol):
    """One end of a connection, its Reader and its Writer.

    Invariants: nothing is held for `read` once there is a receiver; who waits for room is in
    `_rooms`, who waits for data is `_news`.
    """

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self.is_full = False
        self._held = bytearray()
        self._receiver: Receiver | None = None
        self._has_ended = self._is_lost = self._is_paused = False
        self._error: Exception | None = None
        self._news: asyncio.Future[None] | None = None
        self._rooms: list[asyncio.Future[None]] = []

    # What the event loop says.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.received(data)
            return
        self._held += data
        if len(self._held) > BUFFER_BYTES:
            self.pause()
        self._tell_reader()

    def eof_received(self) -> bool:
        self._has_ended = True
        if self._receiver is not None:
            self._receiver.finished()
        self._tell_reader()
        return True  # our direction stays open

    def connection_lost(self, exc: Exception | None) -> None:
        self._has_ended = self._is_lost = True
        self._error = exc
        if self._receiver is not None:
            self._receiver.lost()
        self._tell_reader()
        self.resume_writing()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        rooms, self._rooms = self._rooms, []
        for room in rooms:
            if not room.done():
                room.set_result(None)

    # A Reader.

    async def read(self, n: int = -1) -> bytes:
        while not self._held:
            if self._error is not None:
                raise self._error
            if self._has_ended:
                return b""
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        data = bytes(self._held if n < 0 else self._held[:n])
        del self._held[: len(data)]
        if len(self._held) <= BUFFER_BYTES:
            self.resume()
        return data

    def _tell_reader(self) -> None:
        news, self._news = self._news, None
        if news is not None and not news.done():
            news.set_result(None)

    def deliver(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._held:
            held, self._held = bytes(self._held), bytearray()
            receiver.received(held)
        if self._has_ended and not self._is_lost:
            receiver.finished()
        if self._is_lost:
            receiver.lost()

    def pause(self) -> None:
        if not (self._is_paused or self._transport.is_closing()):
            self._is_paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._is_paused and not self._transport.is_closing():
            self._is_paused = False
            self._transport.resume_reading()

    # A Writer.

    def write(self, data: bytes) -> None:
        if not self._transport.is_closing():  # or uvloop would raise what nobody expects
            self._transport.write(data)

    async def drain(self) -> None:
        if self._transport.is_closing():
            await asyncio.sleep(0)  # so that we have heard why
        if self.is_full and not self._is_lost:
            self._rooms.append(asyncio.get_running_loop().create_future())
            await self._rooms[-1]
        if self._is_lost:
            raise self._error or ConnectionResetError("the connection is closed")

    def close(self) -> None:
        self._transport.close()

    def get_extra_info(self, name: str) -> Any:
        """See `asyncio.BaseTransport`."""
        return self._transport.get_extra_info(name)


class _Accepted(_Connection):
    """One that has come in, and is counted."""

    def __init__(self, listener: _RealListener) -> None:
        super().__init__()
        self._listener, self._counted = listener, False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._listener.has_room():
            transport.close()
            return
        self._listener.open += 1
        self._counted = True
        self._listener.serve(self, self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.open -= self._counted
        super().connection_lost(exc)


class _Opened(_Connection):
    """One that we have opened: given up when what was sent is not acknowledged for some seconds.

    Otherwise, after a time in which nothing got through, the system waits as long again before it
    tries once more. Linux only: see TCP_USER_TIMEOUT in tcp(7). Who opened one to us may be slow to
    read, which the system would take for the same.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        option = getattr(socket, "TCP_USER_TIMEOUT", None)
        connection = transport.get_extra_info("socket")
        if option is not None and connection is not None:
            connection.setsockopt(socket.IPPROTO_TCP, option, UNACKNOWLEDGED_MS)


class RealNet:
    """TCP."""

    async def listen(
        self,
        address: Address,
        serve: Serve,
        *,
        max_connections: int = MAX_CONNECTIONS,
        full: Full | None = None,
    ) -> Listener:
        listener = _RealListener(serve, max_connections, full)
        try:
            # asyncio accepts as many at once as may wait. So that is few for it, or in a burst all
            # files would be gone before the first one is counted; for the system it is many.
            server = await asyncio.get_running_loop().create_server(
                lambda: _Accepted(listener), *address, backlog=ACCEPTED_AT_ONCE
            )
            for one in server.sockets:
                with socket.fromfd(one.fileno(), one.family, one.type) as same:
                    same.listen(BACKLOG)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            raise NetError(
                f"cannot listen at {address}: {error.strerror or error}",
                "choose a free port of this machine, or end the program that has it"
                if in_use
                else "give an address of this machine, and a port that you may use",
            ) from error
        listener.begin(server)
        return listener

    async def connect(self, address: Address) -> tuple[Reader, Writer]:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(_Opened, *address)
        except (ValueError, OverflowError) as error:  # it can be nobody's name, or no port
            raise OSError(f"{address} is no address: {error}") from error
        return connection, connection


def raise_file_limit() -> int:
    """Let this process have as many open files as it may, where usually 1,024 are allowed at first;
    returns how many. Each connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else hard  # macOS allows no endless ones
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted
