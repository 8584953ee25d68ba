"""CreatePartitions (key 37), versions 0-3: topics grow. Keys move: see notebook 01."""

from __future__ import annotations

from functools import partial
from typing import Any

from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata.controller import Decide
from phase3_raft.metadata.topic_changes import grow
from phase3_raft.refused import each_once, error_fields
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each topic succeeds or fails for itself."""
    decisions = each_once((topic.name, _growth(topic)) for topic in request.topics)
    refused = await broker.controller.change_each(
        list(decisions.values()), only_check=request.validate_only
    )
    return {
        "throttle_time": 0,
        "results": [
            {"name": name, **error_fields(error)}
            for name, error in zip(decisions, refused, strict=True)
        ],
    }


def _growth(topic: Any) -> Decide:
    given = topic.assignments
    assignment = None if given is None else [one.broker_ids for one in given]
    return partial(grow, name=topic.name, partitions=topic.count, assignment=assignment)
