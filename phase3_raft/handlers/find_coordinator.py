"""FindCoordinator (key 10), versions 0-4: which broker coordinates a group.

Version 4 asks for many at once (KIP-699). Left out: coordinators of transactions.
"""

from __future__ import annotations

from typing import Any

from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields

_GROUP = 0


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    kind = request.key_type
    if asked.version < 4:
        return {"throttle_time": 0, **await _find(broker, request.key, kind)}
    keys = [{"key": key, **await _find(broker, key, kind)} for key in request.coordinator_keys]
    return {"throttle_time": 0, "coordinators": keys}


async def _find(broker: Broker, key: str, kind: int) -> Fields:
    error, message, found = ErrorCode.NONE, None, None
    if kind != _GROUP:
        error, message = ErrorCode.INVALID_REQUEST, f"key type {kind} is not served"
    elif not key:
        error, message = ErrorCode.INVALID_GROUP_ID, "a group needs a name"
    else:
        there = await broker.coordinator_of(key)
        error, found = (there, None) if isinstance(there, ErrorCode) else (ErrorCode.NONE, there)
    where = {"node_id": -1, "host": "", "port": -1}
    if found is not None:
        where = {"node_id": found.id, "host": found.host, "port": found.port}
    return {"error_code": error, "error_message": message, **where}
