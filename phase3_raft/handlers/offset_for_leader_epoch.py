"""OffsetForLeaderEpoch (key 23), versions 2-4: where an epoch's records end.

A consumer that finds a new leader asks where the epoch ended in which it read its last record. If
that is before its position, what it has read was cut off (KIP-320).
"""

from __future__ import annotations

from typing import Any

from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields


def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: the largest epoch up to the one asked for, and where its records end."""
    return {
        "throttle_time": 0,
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    {"partition": one.partition, **_find(broker, topic.topic, one)}
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _find(broker: Broker, topic: str, one: Any) -> Fields:
    partition = broker.partition(topic, one.partition)
    if isinstance(partition, ErrorCode):
        return {"error_code": partition}
    error = partition.check_epoch(one.current_leader_epoch)
    if error:
        return {"error_code": error}
    epoch, end = partition.log.epoch_end_offset(one.leader_epoch)
    if epoch < one.leader_epoch and end == partition.log.end_offset:
        epoch = end = -1  # nothing is known of an epoch so late
    return {"error_code": error, "leader_epoch": epoch, "end_offset": end}
