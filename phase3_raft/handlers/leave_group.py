"""LeaveGroup (key 13), versions 0-4: members go now, not after a timeout; from 3 on many."""

from __future__ import annotations

from typing import Any

from phase2_groups.group_messages import Leave, Leaver
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    if asked.version < 3:
        leavers = [Leaver(member_id=request.member_id)]
    else:
        leavers = [
            Leaver(member_id=one.member_id, group_instance_id=one.group_instance_id)
            for one in request.members
        ]
    leave = Leave(token=broker.groups.new_token(), members=tuple(leavers))
    reply = await broker.groups.ask(request.group_id, leave)
    error = reply.error
    if asked.version < 3 and reply.left:
        error = reply.left[0][2]
    return {
        "throttle_time": 0,
        "error_code": error,
        "members": [
            {"member_id": member, "group_instance_id": instance, "error_code": code}
            for member, instance, code in reply.left
        ],
    }
