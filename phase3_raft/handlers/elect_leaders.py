"""ElectLeaders (key 43), versions 0-2: the preferred replica leads again, or any that is there.

After a failure others lead what the first replica led. It may lead again as soon as it is in sync
(type 0, preferred). If no replica in sync is left, somebody may decide that a loss is better than
waiting (type 1, unclean). No partitions named: all that need it.
"""

from __future__ import annotations

from typing import Any

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import TopicPartition
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata import broker_changes
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import PartitionRecord
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields

_PREFERRED, _UNCLEAN = 0, 1


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each partition succeeds or fails for itself."""
    unclean = asked.version >= 1 and request.election_type == _UNCLEAN
    outcomes: dict[TopicPartition, ErrorCode] = {}

    def decide(image: Image) -> list[PartitionRecord]:
        outcomes.clear()
        changed: list[PartitionRecord] = []
        named = request.topic_partitions
        if named is None:
            wanted = [(one.topic, one.partition) for one in image.partitions()]
        else:
            wanted = [(topic.topic, number) for topic in named for number in topic.partitions]
        for key in wanted:
            new = broker_changes.elect(image, *key, unclean=unclean)
            if isinstance(new, PartitionRecord):
                changed.append(new)
                outcomes[key] = ErrorCode.NONE
            elif named is not None or new is not ErrorCode.ELECTION_NOT_NEEDED:
                outcomes[key] = new
        return changed

    error = ErrorCode.NONE
    try:
        if asked.version >= 1 and request.election_type not in (_PREFERRED, _UNCLEAN):
            words = f"election type {request.election_type}"
            raise Refused.because(ErrorCode.INVALID_REQUEST, words, "give 0 (preferred) or 1")
        await broker.controller.change(decide)
    except Refused as refused:
        error = refused.code
    except DiskError:
        error = ErrorCode.KAFKA_STORAGE_ERROR
    topics: dict[str, list[Fields]] = {}
    for (topic, number), outcome in outcomes.items():
        one = {"partition_id": number, "error_code": error or outcome, "error_message": None}
        topics.setdefault(topic, []).append(one)
    return {
        "throttle_time": 0,
        "error_code": error,
        "replica_election_results": [
            {"topic": name, "partition_result": some} for name, some in topics.items()
        ],
    }
