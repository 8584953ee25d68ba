"""ListOffsets (key 2), versions 1-7: the offset for a time, or where a partition begins and ends.

In place of a time: -1 the high watermark, -2 the start, -3 the record with the largest timestamp
(version 7, KIP-734). Left out: isolation (without transactions both ends are the same).
"""

from __future__ import annotations

from typing import Any

from craft2.disk import DiskError
from phase1_file_queue.log_config import LogError
from phase2_groups.error_codes import ErrorCode
from phase2_groups.transport import EARLIEST, LATEST
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields

LARGEST = -3


def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    return {
        "throttle_time": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": one.partition_index, **_find(broker, topic.name, one)}
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _find(broker: Broker, topic: str, one: Any) -> Fields:
    partition = broker.partition(topic, one.partition_index)
    if isinstance(partition, ErrorCode):
        return {"error_code": partition}
    error = partition.check_epoch(one.current_leader_epoch)
    if error:
        return {"error_code": error}
    if not partition.is_current:
        return {"error_code": ErrorCode.OFFSET_NOT_AVAILABLE}
    found: tuple[int, int] | None
    end = partition.high_watermark
    try:
        if one.timestamp in (LATEST, EARLIEST):
            found = end if one.timestamp == LATEST else partition.log.log_start, -1
            end += 1  # it is the place of a record that may come
        elif one.timestamp == LARGEST:
            found = partition.log.latest_record()
        elif one.timestamp < 0:
            return {"error_code": ErrorCode.UNSUPPORTED_VERSION}
        else:
            found = partition.log.offset_for_timestamp(one.timestamp)
    except (LogError, DiskError):
        return {"error_code": ErrorCode.KAFKA_STORAGE_ERROR}
    if found is None or found[0] >= end:  # consumers do not see it yet
        return {"error_code": 0, "offset": -1, "timestamp": -1}
    epoch = partition.record.leader_epoch
    return {"error_code": 0, "offset": found[0], "timestamp": found[1], "leader_epoch": epoch}
