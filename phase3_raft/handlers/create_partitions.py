"""CreatePartitions (key 37), versions 0-3: topics grow. Keys move: see notebook 01."""

from __future__ import annotations

from typing import Any

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each topic succeeds or fails for itself."""
    results = [await _grow(broker, topic, only=request.validate_only) for topic in request.topics]
    return {"throttle_time": 0, "results": results}


async def _grow(broker: Broker, topic: Any, *, only: bool) -> Fields:
    error, message = ErrorCode.NONE, None
    try:
        assignment = topic.assignments and [one.broker_ids for one in topic.assignments]
        await broker.topics.grow(topic.name, topic.count, assignment or None, only_check=only)
    except Refused as refused:
        error, message = refused.code, str(refused)
    except DiskError as failed:
        error, message = ErrorCode.KAFKA_STORAGE_ERROR, str(failed)
    return {"name": topic.name, "error_code": error, "error_message": message}
