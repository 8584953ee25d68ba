"""OffsetCommit (key 8), versions 2-8: a group has handled everything before these offsets.

Answered when it is in `__consumer_offsets`. Left out: a retention time of its own (up to 4).
"""

from __future__ import annotations

from typing import Any

from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import Commit, OffsetToCommit
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields

MAX_METADATA_BYTES = 4096


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each partition has its own error."""
    errors: dict[tuple[str, int], ErrorCode] = {}
    offsets: list[tuple[str, int, OffsetToCommit]] = []
    for topic in request.topics:
        for one in topic.partitions:
            place = topic.name, one.partition_index
            note = one.committed_metadata or ""
            if broker.image.partition(*place) is None:
                errors[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(note.encode()) > MAX_METADATA_BYTES:
                errors[place] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offset = OffsetToCommit(
                    offset=one.committed_offset,
                    leader_epoch=one.committed_leader_epoch,
                    metadata=note,
                )
                offsets.append((*place, offset))
    if offsets or not errors:
        commit = Commit(
            token=broker.groups.new_token(),
            member_id=request.member_id,
            generation=request.generation_id_or_member_epoch,
            group_instance_id=request.group_instance_id,
            offsets=tuple(offsets),
        )
        reply = await broker.groups.ask(request.group_id, commit)
        errors |= {(topic, number): reply.error for topic, number, _ in offsets}
        errors |= {(topic, number): error for topic, number, error in reply.partitions}
    return {
        "throttle_time": 0,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": one.partition_index,
                        "error_code": errors[topic.name, one.partition_index],
                    }
                    for one in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }
