"""AlterPartitionReassignments (key 45), version 0: partitions move to other brokers, or do not.

The new replicas follow first; when they are in sync, those that are not wanted any more go. No
replicas named: the move is called off (KIP-455).
"""

from __future__ import annotations

from typing import Any

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata.broker_changes import move
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import PartitionRecord
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each partition succeeds or fails for itself."""
    outcomes: list[ErrorCode] = []

    def decide(image: Image) -> list[PartitionRecord]:
        outcomes.clear()
        changed: list[PartitionRecord] = []
        for topic in request.topics:
            for one in topic.partitions:
                new = move(image, topic.name, one.partition_index, one.replicas)
                if isinstance(new, PartitionRecord):
                    changed.append(new)
                    outcomes.append(ErrorCode.NONE)
                else:
                    outcomes.append(new)
        return changed

    error, message = ErrorCode.NONE, None
    try:
        await broker.controller.change(decide)
    except Refused as refused:
        error, message = refused.code, str(refused)
    except DiskError as failed:
        error, message = ErrorCode.KAFKA_STORAGE_ERROR, str(failed)
    left = iter(outcomes)
    return {
        "throttle_time": 0,
        "error_code": error,
        "error_message": message,
        "responses": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": one.partition_index,
                        "error_code": error or next(left),
                        "error_message": None,
                    }
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }
