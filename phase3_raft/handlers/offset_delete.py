"""OffsetDelete (key 47), version 0: forget what a group has committed for some partitions.

A topic that a member of the group reads at present keeps its offsets (KIP-496).
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_state import State
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.groups.coordinator import subscribed
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    wanted = [
        (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
    ]
    group, read = broker.groups.describe(request.group_id), set[str]()
    if isinstance(group, ErrorCode):
        error = group
    elif group.state is State.DEAD:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    else:
        read = subscribed(group)
        free = [place for place in wanted if place[0] not in read]
        error = await broker.groups.delete_offsets(request.group_id, free)
    if error:
        return {"error_code": error, "throttle_time": 0, "topics": ()}
    return {
        "error_code": error,
        "throttle_time": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": one.partition_index,
                        "error_code": _error(broker, read, topic.name, one.partition_index),
                    }
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _error(broker: Broker, read: Container[str], topic: str, number: int) -> ErrorCode:
    if broker.image.partition(topic, number) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in read else ErrorCode.NONE
