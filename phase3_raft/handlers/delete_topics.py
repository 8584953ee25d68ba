"""DeleteTopics (key 20), versions 1-6: topics are no more, by name, or by id from version 6 on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata import topic_changes
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import Record
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each topic succeeds or fails for itself."""
    image = broker.image
    if asked.version >= 6:
        named = [_found(image, topic.name, topic.topic_id) for topic in request.topics]
    else:
        named = [_found(image, name, None) for name in request.topic_names]
    refused = await broker.controller.change_each([partial(_delete, *one) for one in named])
    return {
        "throttle_time": 0,
        "responses": [
            {
                "name": name,
                "topic_id": topic_id,
                "error_code": error.code if error is not None else ErrorCode.NONE,
                "error_message": str(error) if error is not None else None,
            }
            for (name, topic_id), error in zip(named, refused, strict=True)
        ],
    }


def _found(image: Image, name: str | None, topic_id: UUID | None) -> tuple[str | None, UUID | None]:
    """A topic's name and its id, as far as there is one."""
    if name is not None:
        there = image.topics.get(name)
        return name, None if there is None else UUID(there.topic_id)
    for topic in image.topics.values():
        if topic_id is not None and topic.topic_id == topic_id.hex:
            return topic.name, topic_id
    return None, topic_id


def _delete(name: str | None, topic_id: UUID | None, image: Image) -> Sequence[Record]:
    if name is None:
        raise Refused.because(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic of id {topic_id}")
    return topic_changes.delete(image, name)
