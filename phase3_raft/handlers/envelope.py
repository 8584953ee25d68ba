"""Envelope (key 58), version 0: a client's request, passed on to the controller by another broker.

Only the controller answers it, and who is not, or not any more, must not pass it on again: it may
have waited here while this machine stood still. Whoever sent it has long asked the next controller,
and to do it now would undo what was done since.

Source: KIP-590. Left out: principals, since there is no authorization.
"""

from __future__ import annotations

from typing import Any

from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.codec import BadMessage
from phase3_raft.dispatch import Asked, Later, NotServed
from phase3_raft.schemas import Fields


def handle(broker: Broker, request: Any, asked: Asked) -> Fields | Later:
    """The reply, when there is one; requests of other clients on this connection need not wait."""
    try:
        host = request.client_host_address.decode()
    except UnicodeDecodeError:
        return _reply(ErrorCode.INVALID_REQUEST)
    return Later(_answer(broker, request.request_data, host))


async def _answer(broker: Broker, frame: bytes, host: str) -> Fields:
    try:
        reply = await broker.server.dispatch.as_controller(frame, host)
    except NotServed:  # by this broker, which may be older than the one that has passed it on
        return _reply(ErrorCode.UNSUPPORTED_VERSION)
    except BadMessage:  # who has passed it on finds that out as well
        return _reply(ErrorCode.INVALID_REQUEST)
    return _reply(ErrorCode.NOT_CONTROLLER if reply is None else ErrorCode.NONE, reply)


def _reply(error: ErrorCode, reply: bytes | None = None) -> Fields:
    return {"response_data": reply, "error_code": error}
