"""AlterPartition (key 56), version 3: a leader asks the controller for another ISR.

Asked by brokers alone. All that are granted in one request are committed together. A leader says of
each replica in which life it had everything: one that was started again since may have lost it, and
is not taken in (KIP-903).
"""

from __future__ import annotations

from typing import Any

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata.broker_changes import change_isr
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import PartitionRecord
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    outcomes: list[PartitionRecord | ErrorCode] = []

    def decide(image: Image) -> list[PartitionRecord]:
        about = image.brokers.get(request.broker_id)
        if about is None or about.epoch != request.broker_epoch:
            raise Refused.because(ErrorCode.STALE_BROKER_EPOCH, "an earlier life of this broker")
        names = {topic.topic_id: topic.name for topic in image.topics.values()}
        for topic in request.topics:
            name = names.get(topic.topic_id.hex if topic.topic_id else "", "")
            for one in topic.partitions:
                isr = {who.broker_id: who.broker_epoch for who in one.new_isr_with_epochs}
                if any(epoch != _epoch(image, who) for who, epoch in isr.items()):
                    outcomes.append(ErrorCode.INELIGIBLE_REPLICA)
                    continue
                outcomes.append(
                    change_isr(
                        image,
                        request.broker_id,
                        name,
                        one.partition_index,
                        one.leader_epoch,
                        one.partition_epoch,
                        tuple(isr),
                        broker.controller.leaving,
                    )
                )
        return [one for one in outcomes if isinstance(one, PartitionRecord)]

    try:
        await broker.controller.change(decide)
    except Refused as error:
        return {"throttle_time": 0, "error_code": error.code, "topics": []}
    except DiskError:
        return {"throttle_time": 0, "error_code": ErrorCode.KAFKA_STORAGE_ERROR, "topics": []}
    left = iter(outcomes)
    return {
        "throttle_time": 0,
        "error_code": 0,
        "topics": [
            {
                "topic_id": topic.topic_id,
                "partitions": [
                    {"partition_index": one.partition_index, **_outcome(next(left))}
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _outcome(one: PartitionRecord | ErrorCode) -> Fields:
    if isinstance(one, ErrorCode):
        nothing = {"leader_id": -1, "leader_epoch": -1, "isr": (), "partition_epoch": -1}
        return {"error_code": one, "leader_recovery_state": 0, **nothing}
    return {
        "error_code": 0,
        "leader_id": one.leader,
        "leader_epoch": one.leader_epoch,
        "isr": one.isr,
        "leader_recovery_state": 0,
        "partition_epoch": one.partition_epoch,
    }


def _epoch(image: Image, broker: int) -> int | None:
    about = image.brokers.get(broker)
    return None if about is None else about.epoch
