"""OffsetFetch (key 9), versions 1-8: where groups go on. Version 8 asks for many groups (KIP-709).

An offset of -1: the group has committed nothing for this partition.
"""

from __future__ import annotations

from typing import Any

from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import OffsetToCommit
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields

_NOTHING = OffsetToCommit(offset=-1)


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    if asked.version < 8:
        return {"throttle_time": 0, **await _of_group(broker, request.group_id, request.topics)}
    groups = [
        {"group_id": one.group_id, **await _of_group(broker, one.group_id, one.topics)}
        for one in request.groups
    ]
    return {"throttle_time": 0, "groups": groups}


async def _of_group(broker: Broker, group_id: str, topics: Any) -> Fields:
    """topics: None asks for all that the group has committed for."""
    found = await broker.groups.committed(group_id)
    error = found if isinstance(found, ErrorCode) else ErrorCode.NONE
    known = {} if isinstance(found, ErrorCode) else found
    wanted: dict[str, list[int]] = {}
    if topics is None:
        for topic, number in sorted(known):
            wanted.setdefault(topic, []).append(number)
    else:
        for one in topics:
            wanted.setdefault(one.name, []).extend(one.partition_indexes)
    return {
        "error_code": error,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    _partition(number, known.get((topic, number), _NOTHING), error)
                    for number in numbers
                ],
            }
            for topic, numbers in wanted.items()
        ],
    }


def _partition(number: int, offset: OffsetToCommit, error: ErrorCode) -> Fields:
    return {
        "partition_index": number,
        "committed_offset": offset.offset,
        "committed_leader_epoch": offset.leader_epoch,
        "metadata": offset.metadata,
        "error_code": error,
    }
