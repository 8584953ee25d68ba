"""DeleteRecords (key 21), versions 0-2: a partition begins at a later offset from now on."""

from __future__ import annotations

from typing import Any

from craft2.disk import DiskError
from phase1_file_queue.log_config import LogError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.groups.coordinator import OFFSETS_TOPIC
from phase3_raft.schemas import Fields

_HIGH_WATERMARK = -1  # asked for: everything that consumers can see


def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: where each partition begins now, or why not."""
    return {
        "throttle_time": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [_delete(broker, topic.name, one) for one in topic.partitions],
            }
            for topic in request.topics
        ],
    }


def _delete(broker: Broker, topic: str, one: Any) -> Fields:
    error, start = ErrorCode.NONE, -1
    partition = broker.partition(topic, one.partition_index)
    if topic == OFFSETS_TOPIC:  # its log is compacted, and not to be cut
        partition = ErrorCode.INVALID_TOPIC_EXCEPTION
    if isinstance(partition, ErrorCode):
        error = partition
    else:
        end = partition.high_watermark
        offset = end if one.offset == _HIGH_WATERMARK else one.offset
        if not 0 <= offset <= end:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            try:
                partition.advance_start(offset)
                start = partition.log.log_start
            except (LogError, DiskError):
                error = ErrorCode.KAFKA_STORAGE_ERROR
    return {
        "partition_index": one.partition_index,
        "low_watermark": start,
        "error_code": error,
    }
