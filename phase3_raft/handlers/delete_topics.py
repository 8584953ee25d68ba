"""DeleteTopics (key 20), versions 1-6: topics are no more, by name, or by id from version 6 on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata import topic_changes
from phase3_raft.metadata.image import Image, TopicImage
from phase3_raft.metadata.records import Record
from phase3_raft.refused import Refused, error_fields
from phase3_raft.schemas import Fields

_Named: TypeAlias = tuple[str | None, UUID | None]


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: each topic succeeds or fails for itself, and is told of once.

    Which topic has a name or an id is found when it is decided: until then one may be deleted by
    somebody else, and a younger one have its name.
    """
    if asked.version >= 6:
        topics: list[_Named] = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        topics = [(name, None) for name in request.topic_names]
    times: Counter[str | UUID | None] = Counter(
        part for named in topics for part in named if part is not None
    )
    found: dict[_Named, _Named] = {}
    each = list(dict.fromkeys(topics))
    refused = await broker.controller.change_each(
        [partial(_delete, named, times, found) for named in each]
    )
    told = {found.get(named, named): error for named, error in zip(each, refused, strict=True)}
    return {
        "throttle_time": 0,
        "responses": [
            {"name": name, "topic_id": topic_id, **error_fields(error)}
            for (name, topic_id), error in told.items()
        ],
    }


def _delete(
    named: _Named, times: Counter[str | UUID | None], found: dict[_Named, _Named], image: Image
) -> Sequence[Record]:
    """times: how often the request has a name, or an id. found: gets the topic's name and id."""
    name, topic_id = named
    if (name is None) == (topic_id is None):
        raise Refused.because(
            ErrorCode.INVALID_REQUEST,
            f"a topic of name {name!r} and id {topic_id}",
            "give its name or its id",
        )
    topic = image.topics.get(name) if name is not None else _of_id(image, topic_id)
    if topic is not None:
        name, topic_id = found[named] = topic.name, UUID(topic.topic_id)
    if times[name] + times[topic_id] > 1:
        raise Refused.because(
            ErrorCode.INVALID_REQUEST, f"topic {name or topic_id} is named twice", "name it once"
        )
    if name is None:
        raise Refused.because(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic of id {topic_id}")
    return topic_changes.delete(image, name)


def _of_id(image: Image, topic_id: UUID | None) -> TopicImage | None:
    wanted = None if topic_id is None else topic_id.hex
    return next((one for one in image.topics.values() if one.topic_id == wanted), None)
