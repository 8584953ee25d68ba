"""DeleteTopics (key 20), versions 1-6: topics are no more, by name, or by id from version 6 on."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata.topic_changes import existing
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each topic succeeds or fails for itself."""
    if asked.version < 6:
        wanted = [(name, None) for name in request.topic_names]
    else:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    return {"throttle_time": 0, "responses": [await _delete(broker, *one) for one in wanted]}


async def _delete(broker: Broker, name: str | None, topic_id: UUID | None) -> Fields:
    error, message = ErrorCode.NONE, None
    if name is None and topic_id is not None:
        found = [one for one in broker.image.topics.values() if one.topic_id == topic_id.hex]
        name = found[0].name if found else None
        error = ErrorCode.NONE if found else ErrorCode.UNKNOWN_TOPIC_ID
    if name is not None:
        try:
            topic_id = UUID(existing(broker.image, name).topic_id)
            await broker.topics.delete(name)
        except Refused as refused:
            error, message = refused.code, str(refused)
        except DiskError as failed:
            error, message = ErrorCode.KAFKA_STORAGE_ERROR, str(failed)
    return {"name": name, "topic_id": topic_id, "error_code": error, "error_message": message}
