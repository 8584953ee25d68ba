"""CreateTopics (key 19), versions 2-7. Each topic succeeds or fails for itself.

Left out: a client's own choice of replicas on a broker that has no others (its partitions count).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from craft2.disk import DiskError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker, Refused
from phase3_raft.dispatch import Asked
from phase3_raft.handlers.describe_configs import DEFAULT, SET
from phase3_raft.schemas import Fields
from phase3_raft.topic_config import SETTINGS, BadConfig, TopicConfig


def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    names = [topic.name for topic in request.topics]
    return {
        "throttle_time": 0,
        "topics": [
            _create(broker, topic, twice=names.count(topic.name) > 1, only=request.validate_only)
            for topic in request.topics
        ],
    }


def _create(broker: Broker, topic: Any, *, twice: bool, only: bool) -> Fields:
    partitions, replicas = topic.num_partitions, topic.replication_factor
    if topic.assignments:
        partitions, replicas = len(topic.assignments), len(topic.assignments[0].broker_ids)
    partitions = broker.config.default_partitions if partitions == -1 else partitions
    config = {one.name: one.value for one in topic.configs if one.value is not None}
    try:
        if twice:
            raise Refused.because(ErrorCode.INVALID_REQUEST, f"topic {topic.name!r} is named twice")
        if replicas not in (-1, 1):
            raise Refused.because(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {replicas} is larger than the number of brokers, 1",
                "use 1",
            )
        if only:
            broker.check_new_topic(topic.name, partitions, config)
        else:
            broker.create_topic(topic.name, partitions, config)
    except Refused as error:
        return _failed(topic.name, error.code, str(error))
    except BadConfig as error:
        return _failed(topic.name, ErrorCode.INVALID_CONFIG, str(error))
    except DiskError as error:
        return _failed(topic.name, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    made = broker.image.topics.get(topic.name)
    settings = TopicConfig(config)
    return {
        "name": topic.name,
        "topic_id": UUID(made.topic_id) if made is not None else None,
        "error_code": 0,
        "error_message": None,
        "num_partitions": partitions,
        "replication_factor": 1,
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
