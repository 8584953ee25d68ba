"""Which handler answers which request: the table of the APIs, by key and version.

A reply is a list of pieces, bytes or slices of files, so that records go from a segment to a socket
without being put together first. One that has to wait for others, as that of a producer for the
replicas, may come `Later`: meanwhile the same client's next requests are begun.

The one API that is different is ApiVersions, since it is asked before a client knows anything: the
head of its reply never has tagged fields, and a version that we do not know is answered in the
oldest one, with an error and the versions that we do know (KIP-511).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from craft2.disk import FileSlice
from craft2.tasks import Tasks
from phase2_groups.error_codes import ErrorCode
from phase3_raft import schemas
from phase3_raft.codec import BadMessage, skip_tagged_fields
from phase3_raft.connection import Header, read_header, reply_head
from phase3_raft.metrics import Meter
from phase3_raft.promises import Promise

if TYPE_CHECKING:
    from phase3_raft.broker import Broker

API_VERSIONS = 18
BEGIN_S = 5.0  # a client waits so long for a broker that has just begun
DECIDE_S, PAUSE_S = 5.0, 0.05  # a client waits so long for a controller; it is looked for so often
MOST_BYTES = 1024**2  # of a request that carries no data: to read one takes time, and others wait
Piece: TypeAlias = bytes | FileSlice
Body: TypeAlias = "schemas.Fields | list[Piece] | None"
Coming: TypeAlias = "Promise[Body] | Coroutine[Any, Any, Body]"
Reply: TypeAlias = "list[Piece] | None"  # with its head; None: there is none


class _NoAnswer(Exception):
    """The controller was asked, and what it has done is not known."""


class NotServed(BadMessage):
    """A version of an API that there is, and that is not served."""


class Later(NamedTuple):
    """A body that comes later. What the request changes here has been changed: the requests that
    follow it on its connection need not wait."""

    body: Coming


class Asked(NamedTuple):
    """Who asks, and how."""

    version: int
    client_id: str
    host: str


class Api(NamedTuple):
    """An API that is served: versions `first` to `last`.

    name: as `kio` calls it. handle: called with the broker, the request and who asks; returns the
    reply's fields, or its body in pieces, or None for no reply; or an awaitable of that, for
    which the next requests wait, or which comes `Later`.
    """

    key: int
    name: str
    first: int
    last: int
    handle: Callable[[Broker, Any, Asked], Body | Later | Coming]
    advertised_first: int | None = None  # if not `first`
    read: Callable[[int, bytes, int], Any] | None = None  # version, frame, start; else `schemas`
    waits: bool = False  # the reply may come much later, and a client can do without it
    at_once: bool = False  # also by a broker that does not know yet what there is
    decides: bool = False  # only the controller can answer it: other brokers pass it on
    most_bytes: int | None = MOST_BYTES  # of a request; None: as many as the server reads


class Pending:
    """A reply that is not there yet. holds: the next requests of its connection have to wait for
    it. waits: it may be a long time coming, and the client can do without it."""

    __slots__ = ("_finish", "holds", "promise", "waits")

    def __init__(
        self,
        promise: Promise[Any],
        finish: Callable[[Promise[Any]], Reply],
        *,
        holds: bool,
        waits: bool,
    ) -> None:
        self.promise, self._finish = promise, finish
        self.holds, self.waits = holds, waits

    def take(self) -> Reply:
        """The reply, once, when the promise is kept. Raises what went wrong."""
        return self._finish(self.promise)


class Dispatch:
    """See the module."""

    def __init__(self, broker: Broker, apis: list[Api]) -> None:
        self._broker = broker
        self._apis = {api.key: api for api in apis}
        self._begins = broker.config.quorum is not None
        self._now = broker.clock.monotonic
        self._tasks = Tasks()
        self.afterwards = broker.afterwards
        self.meters = {api.name: Meter() for api in apis}

    async def answer(self, frame: bytes, host: str) -> Reply:
        """The reply to a request, with its head; None: there is none. Raises BadMessage."""
        reply = self.begin(frame, host)
        if isinstance(reply, Pending):
            await reply.promise.wait()
            return reply.take()
        return reply

    def begin(self, frame: bytes, host: str) -> Reply | Pending:
        """The same, now if it is there now."""
        header = read_header(frame)
        api = self._apis.get(header.api_key)
        if api is None or not api.first <= header.version <= api.last:
            if header.api_key != API_VERSIONS:
                raise BadMessage(
                    f"API {header.api_key}, version {header.version}, is not served",
                    "ask ApiVersions which are",
                )
            return self._unknown_version(header.correlation_id)
        began, received = self._now(), len(frame)
        if api.most_bytes is not None and received > api.most_bytes:
            raise BadMessage(
                f"a request of {received} bytes for {api.name}",
                f"ask for less at once: {api.most_bytes} bytes are the most",
            )
        try:
            if api.decides or (self._begins and not api.at_once):
                promise = self._promise(self._slowly(api, header, frame, host))
                finish = partial(self._finish, api, None, began, received)
                return Pending(promise, finish, holds=True, waits=api.waits)
            body = self._body(api, header, frame, host)
            holds = not isinstance(body, Later)
            if isinstance(body, Later):
                body = body.body
            if isinstance(body, Promise | Coroutine):
                promise = body if isinstance(body, Promise) else self._promise(body)
                finish = partial(self._finish, api, header, began, received)
                return Pending(promise, finish, holds=holds, waits=api.waits)
            reply = self._whole(api, header, body)
        except Exception:
            self.meters[api.name].failed += 1
            raise
        self._observe(api, began, received, reply)
        return reply

    def _promise(self, work: Coroutine[Any, Any, Any]) -> Promise[Any]:
        """What a task will return."""

        def ended(task: asyncio.Task[Any]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            if error is not None:
                promise.fail(error)
            else:
                promise.keep(task.result())
            self.afterwards.run()

        task = self._tasks.spawn(work)
        task.add_done_callback(ended)
        promise: Promise[Any] = Promise(task.cancel)
        return promise

    def _finish(
        self,
        api: Api,
        header: Header | None,
        began: float,
        received: int,
        promise: Promise[Any],
    ) -> Reply:
        """The reply that was pending: a body, or, without a header, a reply with its head."""
        try:
            result = promise.result()
            reply: Reply = result if header is None else self._whole(api, header, result)
        except Exception:
            self.meters[api.name].failed += 1
            raise
        self._observe(api, began, received, reply)
        return reply

    def _observe(self, api: Api, began: float, received: int, reply: Reply) -> None:
        sent = sum(map(len, reply)) if reply is not None else 0
        self.meters[api.name].observe(self._now() - began, received=received, sent=sent)

    async def _slowly(self, api: Api, header: Header, frame: bytes, host: str) -> Reply:
        if self._begins and not api.at_once:
            await self._begun()
        decide = self._decided if api.decides else self._reply
        return await decide(api, header, frame, host)

    async def _begun(self) -> None:
        """Wait until this broker is one of its cluster, so long at most; then raises
        ConnectionAbortedError.

        Before that its image of the metadata may be empty: a client that asked for its topic would
        be told that there is none, and believe it.
        """
        try:
            async with asyncio.timeout(BEGIN_S):
                await self._broker.serves()
        except TimeoutError as error:
            raise ConnectionAbortedError("not one of the cluster yet") from error
        self._begins = False

    async def _decided(self, api: Api, header: Header, frame: bytes, host: str) -> Reply:
        """The controller's reply. While there is none, or another one is elected, the client waits
        for it, so long at most: it needs to know nothing of controllers (KIP-590)."""
        broker, in_doubt = self._broker, False
        until, known = self._now() + DECIDE_S, broker.controller_id
        while True:
            reply: Reply = None
            try:
                if broker.controller.is_here:
                    reply = await self._reply(api, header, frame, host)
                else:
                    reply = await self._passed_on(frame, host)
            except _NoAnswer:
                in_doubt = True
            if reply is not None and not self._is_refused(api, header, reply):
                return reply
            if broker.controller_id not in (known, -1):  # another one, which has its time, too
                until, known = self._now() + DECIDE_S, broker.controller_id
            elif self._now() > until:
                reply = reply or await self._reply(api, header, frame, host)
                return self._timed_out(api, header, reply) if in_doubt and reply else reply
            await asyncio.sleep(PAUSE_S)

    async def _passed_on(self, frame: bytes, host: str) -> Reply:
        """The reply of the controller, which is elsewhere; None: it was not asked, or is not the
        controller. Raises _NoAnswer: it was asked, and by now it is not the controller, or is
        gone."""
        broker, asked = self._broker, self._broker.controller_id
        if asked < 0:
            return None
        relay = asyncio.ensure_future(broker.peers.pass_on(asked, frame, host))
        try:
            while not relay.done():
                await asyncio.wait([relay], timeout=DECIDE_S)
                if not relay.done() and broker.controller_id != asked:
                    raise _NoAnswer
            reply = relay.result()
        except ConnectionRefusedError:
            return None
        except OSError as error:
            raise _NoAnswer from error
        finally:
            relay.cancel()
        return None if reply is None else [len(reply).to_bytes(4), reply]

    async def as_controller(self, frame: bytes, host: str) -> bytes | None:
        """The reply to a request that another broker has passed on, without its length; None: this
        broker is not the controller, and nothing has happened. Raises BadMessage, NotServed."""
        header = read_header(frame)
        api = self._apis.get(header.api_key)
        if api is None or not api.decides:
            raise BadMessage(f"API {header.api_key} is passed on", "ask the broker itself")
        if not api.first <= header.version <= api.last:
            raise NotServed(
                f"version {header.version} of {api.name} is passed on",
                f"ask for one from {api.first} to {api.last}",
            )
        if self._begins and not api.at_once:
            await self._begun()
        if not self._broker.controller.is_here:
            return None
        reply = await self._reply(api, header, frame, host) or []
        return b"".join(piece for piece in reply if isinstance(piece, bytes))[4:]

    def _message(self, api: Api, header: Header, reply: list[Piece]) -> schemas.Message:
        data = b"".join(piece for piece in reply if isinstance(piece, bytes))
        at = 9 if schemas.is_flexible(api.name, header.version) else 8
        return schemas.decode(
            api.name, header.version, data, at, latest=header.version, kind="response"
        )

    def _is_refused(self, api: Api, header: Header, reply: list[Piece]) -> bool:
        """Whether whoever was asked says in all places that it is not the controller: then nothing
        has happened, and the question can be asked again."""
        return set(_errors(self._message(api, header, reply))) == {ErrorCode.NOT_CONTROLLER}

    def _timed_out(self, api: Api, header: Header, reply: list[Piece]) -> Reply:
        """This reply, but where it says that nobody was asked, it may have happened all the
        same."""
        return self._whole(api, header, _in_doubt(self._message(api, header, reply)))

    async def _reply(self, api: Api, header: Header, frame: bytes, host: str) -> Reply:
        body = self._body(api, header, frame, host)
        if isinstance(body, Later):
            body = body.body
        if isinstance(body, Promise):
            body = await body.wait()
        return self._whole(api, header, await body if isinstance(body, Coroutine) else body)

    def _body(self, api: Api, header: Header, frame: bytes, host: str) -> Body | Later | Coming:
        flexible = schemas.is_flexible(api.name, header.version)
        start = skip_tagged_fields(frame, header.end) if flexible else header.end
        if api.read is not None:
            request = api.read(header.version, frame, start)
        else:
            request = schemas.decode(api.name, header.version, frame, start, latest=api.last)
        return api.handle(
            self._broker, request, Asked(header.version, header.client_id or "", host)
        )

    def _whole(self, api: Api, header: Header, body: Body) -> Reply:
        """A body with its head before it."""
        if body is None:
            return None
        if not isinstance(body, list):
            body = [schemas.encode(api.name, header.version, body)]
        flexible = schemas.is_flexible(api.name, header.version) and api.key != API_VERSIONS
        return [reply_head(header.correlation_id, sum(map(len, body)), flexible=flexible), *body]

    def _unknown_version(self, correlation_id: int) -> list[Piece]:
        api = self._apis[API_VERSIONS]
        versions = {"api_key": API_VERSIONS, "min_version": api.first, "max_version": api.last}
        body = schemas.encode(
            api.name, 0, {"error_code": ErrorCode.UNSUPPORTED_VERSION, "api_keys": [versions]}
        )
        return [reply_head(correlation_id, len(body), flexible=False), body]


def _errors(message: Any) -> Iterator[int]:
    """Every error code in a reply."""
    for name, value in vars(message).items():
        if name == "error_code":
            yield value
        elif isinstance(value, tuple):
            for one in value:
                if isinstance(one, SimpleNamespace):
                    yield from _errors(one)


def _in_doubt(message: Any) -> schemas.Fields:
    """The fields of a reply, with another error in place of NOT_CONTROLLER."""
    fields = dict(vars(message))
    for name, value in fields.items():
        if isinstance(value, tuple):
            fields[name] = [
                _in_doubt(one) if isinstance(one, SimpleNamespace) else one for one in value
            ]
    if fields.get("error_code") == ErrorCode.NOT_CONTROLLER:
        fields["error_code"] = ErrorCode.REQUEST_TIMED_OUT
        if "error_message" in fields:
            fields["error_message"] = "the controller does not answer: it may be done, or not"
    return fields
