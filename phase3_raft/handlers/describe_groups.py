"""DescribeGroups (key 15), versions 0-5: who is in a group, and who has what.

A group that does not exist is described as Dead; one of which this broker cannot say whether it
does, with an error. Left out: authorised operations.
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
    groups = [_describe(name, broker.groups.describe(name)) for name in request.groups]
    return {"throttle_time": 0, "groups": groups}


def _describe(name: str, group: Group | ErrorCode) -> Fields:
    if isinstance(group, ErrorCode):
        return {
            "error_code": group,
            "group_id": name,
            "group_state": "",
            "protocol_type": "",
            "protocol_data": "",
            "members": (),
        }
    return {
        "error_code": ErrorCode.NONE,
        "group_id": name,
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
