"""JoinGroup (key 11), versions 0-7: become a member of a group, or take part in its next round.

The reply comes when all members have joined, or the time for that is over. From version 4 on a
newcomer is first told its member id, with MEMBER_ID_REQUIRED, and joins again with that (KIP-394).
"""

from __future__ import annotations

from typing import Any

from phase2_groups.group_messages import Join
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    session_ms = request.session_timeout
    join = Join(
        token=broker.groups.new_token(),
        member_id=request.member_id,
        new_member_id=f"{asked.client_id}-{broker.new_id()}",
        group_instance_id=request.group_instance_id,
        client_id=asked.client_id,
        client_host=asked.host,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=session_ms if asked.version == 0 else request.rebalance_timeout,
        protocol_type=request.protocol_type,
        protocols=tuple((one.name, one.metadata) for one in request.protocols),
        require_known_member_id=asked.version >= 4,
    )
    reply = await broker.groups.ask(request.group_id, join)
    nothing = None if asked.version >= 7 else ""
    return {
        "throttle_time": 0,
        "error_code": reply.error,
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": nothing if reply.protocol is None else reply.protocol,
        "leader": reply.leader,
        "member_id": reply.member_id or request.member_id,
        "members": [
            {"member_id": member, "group_instance_id": instance, "metadata": subscription}
            for member, instance, subscription in reply.members
        ],
    }
