"""ListPartitionReassignments (key 46), version 0: the partitions that are moving (KIP-455)."""

from __future__ import annotations

from typing import Any

from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields


def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: of the partitions that are named, or of all, those that move."""
    named = request.topics
    wanted = None
    if named is not None:
        wanted = {(topic.name, number) for topic in named for number in topic.partition_indexes}
    topics: dict[str, list[Fields]] = {}
    for one in broker.image.partitions():
        moves = one.adding or one.removing
        if moves and (wanted is None or (one.topic, one.partition) in wanted):
            topics.setdefault(one.topic, []).append(
                {
                    "partition_index": one.partition,
                    "replicas": one.replicas,
                    "adding_replicas": one.adding,
                    "removing_replicas": one.removing,
                }
            )
    return {
        "throttle_time": 0,
        "error_code": 0,
        "error_message": None,
        "topics": [{"name": name, "partitions": some} for name, some in topics.items()],
    }
