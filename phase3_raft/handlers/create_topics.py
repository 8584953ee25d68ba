"""CreateTopics (key 19), versions 2-7. Each topic succeeds or fails for itself.

Left out: a client's own choice of replicas on a broker that has no others (its partitions count).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.handlers.describe_configs import DEFAULT, SET
from phase3_raft.metadata.controller import Decide
from phase3_raft.refused import Refused, each_once
from phase3_raft.schemas import Fields
from phase3_raft.topic_config import SETTINGS, TopicConfig


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    decisions = each_once((topic.name, _creation(broker, topic)) for topic in request.topics)
    refused = await broker.controller.change_each(
        list(decisions.values()), only_check=request.validate_only
    )
    topics = {topic.name: topic for topic in request.topics}
    return {
        "throttle_time": 0,
        "topics": [
            _made(broker, topics[name]) if error is None else _failed(name, error)
            for name, error in zip(decisions, refused, strict=True)
        ],
    }


def _creation(broker: Broker, topic: Any) -> Decide:
    assignment = None
    if topic.assignments:
        numbers = {one.partition_index: one.broker_ids for one in topic.assignments}
        assignment = [numbers.get(number, ()) for number in range(len(topic.assignments))]
    return broker.topics.creation(
        topic.name, topic.num_partitions, topic.replication_factor, _config(topic), assignment
    )


def _config(topic: Any) -> dict[str, str]:
    return {one.name: one.value for one in topic.configs if one.value is not None}


def _made(broker: Broker, topic: Any) -> Fields:
    partitions, replicas = topic.num_partitions, topic.replication_factor
    made = broker.image.topics.get(topic.name)
    if made is not None:
        partitions, replicas = len(made.partitions), len(made.partitions[0].replicas)
    config = _config(topic)
    settings = TopicConfig(config)
    return {
        "name": topic.name,
        "topic_id": UUID(made.topic_id) if made is not None else None,
        "error_code": 0,
        "error_message": None,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": [
            {
                "name": name,
                "value": settings[name],
                "read_only": False,
                "config_source": SET if name in config else DEFAULT,
                "is_sensitive": False,
            }
            for name in sorted(SETTINGS)
        ],
    }


def _failed(name: str, error: Refused) -> Fields:
    return {
        "name": name,
        "topic_id": None,
        "error_code": error.code,
        "error_message": str(error),
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }
