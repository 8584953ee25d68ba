"""What members of a group say, in Kafka's protocol: phase 2's requests as fields, and back.

>>> name, fields = to_wire("g", Heartbeat(token="1", member_id="m", generation=3))
>>> name, fields["group_id"], fields["generation_id"]
('heartbeat', 'g', 3)

Source: kafka.apache.org/protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit).
"""

from __future__ import annotations

from typing import Any

from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import (
    Commit,
    Heartbeat,
    Join,
    Leave,
    Reply,
    Sync,
)
from phase3_raft.schemas import Fields, Message

GroupRequest = Join | Sync | Heartbeat | Leave | Commit


def to_wire(group_id: str, request: GroupRequest) -> tuple[str, Fields]:
    """The request's name and fields, for any version."""
    name, fields = _fields(request)
    return name, {"group_id": group_id, **fields}


def _fields(request: GroupRequest) -> tuple[str, dict[str, Any]]:
    match request:
        case Join():
            return "join_group", {
                "session_timeout": request.session_timeout_ms,
                "rebalance_timeout": request.rebalance_timeout_ms,
                "member_id": request.member_id,
                "group_instance_id": request.group_instance_id,
                "protocol_type": request.protocol_type,
                "protocols": [{"name": name, "metadata": said} for name, said in request.protocols],
            }
        case Sync():
            return "sync_group", {
                **_member(request),
                "generation_id": request.generation,
                "protocol_type": request.protocol_type,
                "protocol_name": request.protocol,
                "assignments": [
                    {"member_id": member, "assignment": assignment}
                    for member, assignment in request.assignments
                ],
            }
        case Heartbeat():
            return "heartbeat", {**_member(request), "generation_id": request.generation}
        case Leave():
            return "leave_group", {
                "member_id": request.members[0].member_id,
                "members": [
                    {"member_id": one.member_id, "group_instance_id": one.group_instance_id}
                    for one in request.members
                ],
            }
        case Commit():
            return "offset_commit", {
                **_member(request),
                "generation_id_or_member_epoch": request.generation,
                "retention_time": -1,
                "topics": _offsets(request),
            }


def _member(request: Sync | Heartbeat | Commit) -> dict[str, Any]:
    return {
        "member_id": request.member_id,
        "group_instance_id": request.group_instance_id,
    }


def _offsets(commit: Commit) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, number, offset in commit.offsets:
        topics.setdefault(topic, []).append(
            {
                "partition_index": number,
                "committed_offset": offset.offset,
                "committed_leader_epoch": offset.leader_epoch,
                "committed_metadata": offset.metadata,
            }
        )
    return [{"name": name, "partitions": some} for name, some in topics.items()]


def to_reply(request: GroupRequest, message: Message) -> Reply:
    """The reply as phase 2's clients know it."""
    if isinstance(request, Commit):
        partitions = tuple(
            (topic.name, one.partition_index, ErrorCode(one.error_code))
            for topic in message.topics
            for one in topic.partitions
        )
        return Reply(token=request.token, partitions=partitions)
    error = ErrorCode(message.error_code)
    match request:
        case Join():
            return Reply(
                token=request.token,
                error=error,
                member_id=message.member_id,
                generation=message.generation_id,
                leader=message.leader,
                protocol_type=getattr(message, "protocol_type", None),
                protocol=message.protocol_name,
                members=tuple(
                    (one.member_id, getattr(one, "group_instance_id", None), one.metadata)
                    for one in message.members
                ),
            )
        case Sync():
            return Reply(token=request.token, error=error, assignment=message.assignment)
        case _:
            return Reply(token=request.token, error=error)
