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
from phase3_raft.dispatch import Asked, Later
from phase3_raft.schemas import Fields


def handle(broker: Broker, request: Any, asked: Asked) -> Later:
    """The reply, when there is one; requests of other clients on this connection need not wait."""
    return Later(_answer(broker, request.request_data, request.client_host_address.decode()))


async def _answer(broker: Broker, frame: bytes, host: str) -> Fields:
    try:
        reply = await broker.server.dispatch.as_controller(frame, host)
    except BadMessage:  # who has passed it on finds that out as well
        return {"response_data": None, "error_code": ErrorCode.INVALID_REQUEST}
    if reply is None:
        return {"response_data": None, "error_code": ErrorCode.NOT_CONTROLLER}
    return {"response_data": reply, "error_code": ErrorCode.NONE}
