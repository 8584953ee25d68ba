"""What a person, a test or a notebook says to a running server: a line of JSON, answered by one.

    {"id": 1, "op": "append", "value": 7}     {"id": 1, "result": 1}
    {"id": 2, "op": "list"}                   {"id": 2, "result": [7]}
    {"id": 3, "op": "status"}                 {"id": 3, "result": {"role": "leader", ...}}
    {"id": 4, "op": "append", "value": 8}     {"id": 4, "error": "NotLeader", "leader": 2, ...}

Operations: append, write (with `value`), list, read (both linearizable), status, members (with
`voters`, and `learners` if there are any), transfer (with `to`). Answers come when they are there,
in any order: that is what `id` is for. A line that is no request is answered with `BadRequest`.

Nobody can fill the server's memory: of a connection so many requests are under way at a time, and
who does not read answers is not read from either. Who asks nothing for long is hung up on.

It is for looking at Raft, not for use: brokers have Kafka's protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from craft2.errors import Craft2Error
from craft2.events import Emitter
from craft2.net import Address, Listener, Net, Reader, Writer
from craft2.tasks import Tasks
from phase3_raft.raft.driver import RaftNode
from phase3_raft.raft.list_machine import ListMachine, Value, command
from phase3_raft.raft.messages import Members, RaftError, ServerId
from phase3_raft.raft.state import NotLeader

MAX_LINE_BYTES = 64 * 1024
MAX_CLIENTS = 1_000  # connections at a time
MAX_UNDER_WAY = 100  # requests of one connection that are not answered yet
IDLE_S = 600.0  # as Kafka's connections.max.idle.ms


OPERATIONS = "append, write, list, read, status, members or transfer"


class BadRequest(RaftError):
    """A line that asks for nothing that this server knows."""


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """See the module."""

    op: str
    id: int | str | None = None
    value: Value | None = None
    voters: tuple[ServerId, ...] = ()
    learners: tuple[ServerId, ...] = ()
    to: ServerId = 0


class Answer(msgspec.Struct, omit_defaults=True):
    """See the module; `result` or `error` is there."""

    id: int | str | None
    result: Any = None
    error: str = ""
    because: str = ""
    leader: ServerId | None = None


class Service:
    """Answers requests on a listener of its own.

    max_clients: connections at a time; events are told when there are more. idle_s: how long a
        connection may ask nothing.
    """

    def __init__(
        self,
        node: RaftNode,
        machine: ListMachine,
        net: Net,
        *,
        max_clients: int = MAX_CLIENTS,
        idle_s: float = IDLE_S,
        events: Emitter | None = None,
    ) -> None:
        self._node, self._machine, self._net = node, machine, net
        self._max_clients, self._idle_s, self._events = max_clients, idle_s, events
        self._tasks = Tasks()
        self._listener: Listener | None = None

    async def open(self, address: Address) -> Address:
        """Listen; returns where. Raises NetError."""
        self._listener = await self._net.listen(
            address,
            lambda reader, writer: self._tasks.spawn(self._serve(reader, writer)),
            max_connections=self._max_clients,
            full=self._full,
        )
        return self._listener.address

    def _full(self, refused: int) -> None:
        if self._events is not None:
            because = f"{self._max_clients} clients are connected, and {refused} were refused"
            self._events.emit("full", because=because)

    def close(self) -> None:
        """Hang up on everybody."""
        if self._listener is not None:
            self._listener.close()
        self._tasks.cancel()

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        held, room = b"", asyncio.Semaphore(MAX_UNDER_WAY)
        try:
            while data := await self._read(reader):
                *lines, held = (held + data).split(b"\n")
                for line in lines:
                    await room.acquire()
                    await writer.drain()  # the answers before it
                    self._handle(line, writer, room)
                if len(held) > MAX_LINE_BYTES:
                    error = BadRequest(f"a line of more than {MAX_LINE_BYTES} bytes", "end it")
                    _say(writer, _refusal(None, error))
                    return
        except OSError:
            pass  # they do not want to know any more, or have asked nothing for long
        finally:
            writer.close()

    async def _read(self, reader: Reader) -> bytes:
        """What they say. Raises OSError; TimeoutError is one."""
        async with asyncio.timeout(self._idle_s):
            return await reader.read(MAX_LINE_BYTES)

    def _handle(self, line: bytes, writer: Writer, room: asyncio.Semaphore) -> None:
        """Answer one line, now or later; then there is room for another one."""
        identity = None
        try:
            try:
                request = msgspec.json.decode(line, type=Request)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                identity = _identity(line)
                raise BadRequest(
                    f"{line[:80]!r} is no request: {error}",
                    f'give an object with "op", one of {OPERATIONS}',
                ) from error
            identity = request.id
            future, result = self._begin(request)
        except Craft2Error as error:
            room.release()
            _say(writer, _refusal(identity, error))
            return

        def answer(done: asyncio.Future[Any]) -> None:
            room.release()
            error = done.exception()
            if error is None:
                _say(writer, Answer(identity, result(done.result())))
            else:
                _say(writer, _refusal(identity, error))

        future.add_done_callback(answer)

    def _begin(self, request: Request) -> tuple[asyncio.Future[Any], Callable[[Any], Any]]:
        """What to wait for, and what its outcome means. Raises Craft2Error."""
        node, machine = self._node, self._machine
        match request.op:
            case "append" | "write":
                if request.value is None:
                    raise BadRequest(f"{request.op} without a value", 'give "value"')
                return node.propose(command(request.op, request.value)), lambda result: result
            case "list":
                return node.read(), lambda _: machine.values
            case "read":
                return node.read(), lambda _: machine.register
            case "members":
                members = Members(request.voters, request.learners)
                return node.change_members(members), lambda _: "changed"
            case "transfer":
                node.transfer(request.to)
            case "status":
                pass
            case _:
                raise BadRequest(
                    f"the operation {request.op!r}",
                    f"use {OPERATIONS}",
                )
        now: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        now.set_result(None)
        return now, lambda _: node.status()


class _Identified(msgspec.Struct):
    """What can be read of a request in which something else is wrong."""

    id: int | str | None = None


def _identity(line: bytes) -> int | str | None:
    try:
        return msgspec.json.decode(line, type=_Identified).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _refusal(identity: int | str | None, error: BaseException) -> Answer:
    leader = error.leader if isinstance(error, NotLeader) else None
    return Answer(identity, error=type(error).__name__, because=str(error), leader=leader)


def _say(writer: Writer, answer: Answer) -> None:
    writer.write(msgspec.json.encode(answer) + b"\n")
