"""DescribeGroups (key 15), versions 0-5: who is in a group, and who has what.

A group that does not exist is described as Dead. Left out: authorised operations.
"""

from __future__ import annotations

from typing import Any

from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_state import Group
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields


def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    groups = []
    for name in request.groups:
        elsewhere = broker.groups.is_elsewhere(name)
        error = ErrorCode.NOT_COORDINATOR if elsewhere else ErrorCode.NONE
        groups.append({"error_code": error, **_describe(broker.groups.describe(name))})
    return {"throttle_time": 0, "groups": groups}


def _describe(group: Group) -> Fields:
    return {
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type or "",
        "protocol_data": group.protocol or "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.group_instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.subscription(group.protocol),
                "member_assignment": member.assignment,
            }
            for member in group.members.values()
        ],
    }
