"""Heartbeat (key 12), versions 0-4: a member is alive, and learns whether there is a rebalance."""

from __future__ import annotations

from typing import Any

from phase2_groups.group_messages import Heartbeat
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    heartbeat = Heartbeat(
        token=broker.groups.new_token(),
        member_id=request.member_id,
        generation=request.generation_id,
        group_instance_id=request.group_instance_id,
    )
    reply = await broker.groups.ask(request.group_id, heartbeat)
    return {"throttle_time": 0, "error_code": reply.error}
