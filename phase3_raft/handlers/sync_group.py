"""SyncGroup (key 14), versions 0-5: the leader says who gets what, each gets its own."""

from __future__ import annotations

from typing import Any

from phase2_groups.group_messages import Sync
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply, when the leader's assignment is there and stored."""
    sync = Sync(
        token=broker.groups.new_token(),
        member_id=request.member_id,
        generation=request.generation_id,
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple((one.member_id, one.assignment) for one in request.assignments),
    )
    reply = await broker.groups.ask(request.group_id, sync)
    return {
        "throttle_time": 0,
        "error_code": reply.error,
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol,
        "assignment": reply.assignment,
    }
