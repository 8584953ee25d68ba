"""CreatePartitions (key 37), versions 0-3: topics grow. Keys move: see notebook 01."""

from __future__ import annotations

from functools import partial
from typing import Any

from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata.controller import Decide
from phase3_raft.metadata.topic_changes import grow
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each topic succeeds or fails for itself."""
    refused = await broker.controller.change_each(
        [_growth(topic) for topic in request.topics], only_check=request.validate_only
    )
    return {
        "throttle_time": 0,
        "results": [
            {
                "name": topic.name,
                "error_code": error.code if error is not None else ErrorCode.NONE,
                "error_message": str(error) if error is not None else None,
            }
            for topic, error in zip(request.topics, refused, strict=True)
        ],
    }


def _growth(topic: Any) -> Decide:
    assignment = [one.broker_ids for one in topic.assignments or ()]
    return partial(grow, name=topic.name, partitions=topic.count, assignment=assignment or None)
