"""ListGroups (key 16), versions 0-4: all groups of this broker, or those in some states.

While it still reads what groups it has, it says so, with those that it knows.
"""

from __future__ import annotations

from typing import Any

from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields


def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    wanted = {state.lower() for state in request.states_filter}
    known, error = broker.groups.groups()
    groups = [
        {
            "group_id": name,
            "protocol_type": group.protocol_type or "",
            "group_state": group.state.value,
        }
        for name, group in known.items()
        if not wanted or group.state.value.lower() in wanted
    ]
    return {"throttle_time": 0, "error_code": error, "groups": groups}
