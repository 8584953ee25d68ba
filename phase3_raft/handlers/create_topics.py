"""CreateTopics (key 19), versions 2-7. Each topic succeeds or fails for itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from phase2_groups.error_codes import ErrorCode
from phase3_raft import topics
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.handlers.describe_configs import DEFAULT, SET
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import Record
from phase3_raft.refused import Refused, each_once, error_fields
from phase3_raft.schemas import Fields
from phase3_raft.topic_config import SETTINGS, BadConfig, TopicConfig


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply. For a request that is only to be checked, it says what would be made."""
    made: dict[str, Sequence[Record]] = {}
    decisions = each_once(
        (topic.name, partial(_create, broker, topic, made)) for topic in request.topics
    )
    refused = await broker.controller.change_each(
        list(decisions.values()), only_check=request.validate_only
    )
    return {
        "throttle_time": 0,
        "topics": [
            _made(name, made[name]) if error is None else _failed(name, error)
            for name, error in zip(decisions, refused, strict=True)
        ],
    }


def _create(
    broker: Broker, topic: Any, made: dict[str, Sequence[Record]], image: Image
) -> Sequence[Record]:
    """made: gets the records of the topic. Raises Refused."""
    partitions, replicas = topic.num_partitions, topic.replication_factor
    if topic.assignments and (partitions, replicas) != (topics.DEFAULT, topics.DEFAULT):
        raise Refused.because(
            ErrorCode.INVALID_REQUEST,
            f"{partitions} partitions and {replicas} replicas beside an assignment",
            f"give {topics.DEFAULT} for both, or no assignment",
        )
    create = broker.topics.creation(
        topic.name, partitions, replicas, _config(topic), _assignment(topic)
    )
    records = made[topic.name] = create(image)
    return records


def _config(topic: Any) -> dict[str, str]:
    """Raises BadConfig."""
    for one in topic.configs:
        if one.value is None:
            raise BadConfig(f"{one.name} without a value", "give one, or leave it out")
    return {one.name: one.value for one in topic.configs}


def _assignment(topic: Any) -> list[Sequence[int]] | None:
    numbers = {one.partition_index: one.broker_ids for one in topic.assignments}
    return [numbers.get(number, ()) for number in range(len(topic.assignments))] or None


def _made(name: str, records: Sequence[Record]) -> Fields:
    image = Image()
    for record in records:
        image.apply(record)
    topic = image.topics[name]
    settings = TopicConfig(topic.config)
    return {
        "name": name,
        "topic_id": UUID(topic.topic_id),
        **error_fields(None),
        "num_partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas),
        "configs": [
            {
                "name": key,
                "value": settings[key],
                "read_only": False,
                "config_source": SET if key in topic.config else DEFAULT,
                "is_sensitive": False,
            }
            for key in sorted(SETTINGS)
        ],
    }


def _failed(name: str, error: Refused) -> Fields:
    return {
        "name": name,
        "topic_id": None,
        **error_fields(error),
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }
