"""CreatePartitions (key 37), versions 0-3: topics grow. Keys move: see notebook 01.

Left out: a client's own choice of replicas on a broker that has no others (their number counts).
"""

from __future__ import annotations

from typing import Any

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker, Refused
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields


def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each topic succeeds or fails for itself."""
    results = [_grow(broker, topic, only=request.validate_only) for topic in request.topics]
    return {"throttle_time": 0, "results": results}


def _grow(broker: Broker, topic: Any, *, only: bool) -> Fields:
    error, message = ErrorCode.NONE, None
    try:
        broker.grow_topic(topic.name, topic.count, only_check=only)
    except Refused as refused:
        error, message = refused.code, str(refused)
    except DiskError as failed:
        error, message = ErrorCode.KAFKA_STORAGE_ERROR, str(failed)
    return {"name": topic.name, "error_code": error, "error_message": message}
