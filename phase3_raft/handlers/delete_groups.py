"""DeleteGroups (key 42), versions 0-2: forget groups that nobody is in, with their commits."""

from __future__ import annotations

from typing import Any

from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    results = []
    for name in request.groups_names:
        results.append({"group_id": name, "error_code": await broker.groups.delete(name)})
    return {"throttle_time": 0, "results": results}
