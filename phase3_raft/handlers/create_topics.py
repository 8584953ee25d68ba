"""CreateTopics (key 19), versions 2-7. Each topic succeeds or fails for itself.

Left out: a client's own choice of replicas on a broker that has no others (its partitions count).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.handlers.describe_configs import DEFAULT, SET
from phase3_raft.refused import Refused
from phase3_raft.schemas import Fields
from phase3_raft.topic_config import SETTINGS, BadConfig, TopicConfig


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    names = [topic.name for topic in request.topics]
    return {
        "throttle_time": 0,
        "topics": [
            await _create(broker, topic, request, twice=names.count(topic.name) > 1)
            for topic in request.topics
        ],
    }


async def _create(broker: Broker, topic: Any, request: Any, *, twice: bool) -> Fields:
    partitions, replicas, assignment = topic.num_partitions, topic.replication_factor, None
    if topic.assignments:
        numbers = {one.partition_index: one.broker_ids for one in topic.assignments}
        assignment = [numbers.get(number, ()) for number in range(len(topic.assignments))]
    config = {one.name: one.value for one in topic.configs if one.value is not None}
    try:
        if twice:
            raise Refused.because(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named twice")
        await broker.topics.create(
            topic.name,
            partitions,
            replicas,
            config,
            assignment,
            only_check=request.validate_only,
        )
    except Refused as error:
        return _failed(topic.name, error.code, str(error))
    except BadConfig as error:
        return _failed(topic.name, ErrorCode.INVALID_CONFIG, str(error))
    except DiskError as error:
        return _failed(topic.name, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    made = broker.image.topics.get(topic.name)
    if made is not None:
        partitions, replicas = len(made.partitions), len(made.partitions[0].replicas)
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


def _failed(name: str, code: ErrorCode, message: str) -> Fields:
    return {
        "name": name,
        "topic_id": None,
        "error_code": code,
        "error_message": message,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }
