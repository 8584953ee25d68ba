"""Metadata (key 3), versions 0-11: the brokers, and who leads which partition.

Clients ask for the topics they use, or for all, and again when something has moved. A topic that
is not there is created with the broker's defaults if the client and the broker allow it. Left out:
topic ids as a question (10 and later may ask by id: such a topic is unknown), and authorised
operations.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from phase2_groups.error_codes import ErrorCode
from phase2_groups.topics import TopicError, check_topic
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata.image import TopicImage
from phase3_raft.schemas import Fields

NO_OPERATIONS = -(2**31)  # "not asked for"


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    wanted = request.topics
    if wanted is None or (asked.version == 0 and not wanted):
        topics = [_known(topic) for topic in broker.image.topics.values()]
    else:
        create = asked.version < 4 or request.allow_auto_topic_creation
        names = dict.fromkeys(topic.name for topic in wanted)  # each is answered once
        topics = [await _topic(broker, name, create=create) for name in names]
    return {
        "throttle_time": 0,
        "brokers": [
            {"node_id": one.id, "host": one.host, "port": one.port, "rack": one.rack}
            for one in broker.known_brokers.named()
        ],
        "cluster_id": broker.cluster_id,
        "controller_id": broker.controller_id,
        "topics": topics,
        "cluster_authorized_operations": NO_OPERATIONS,
    }


async def _topic(broker: Broker, name: str | None, *, create: bool) -> Fields:
    if name is None:
        return _missing("", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    found = broker.image.topics.get(name)
    if found is not None:
        return _known(found)
    try:
        check_topic(name)
    except TopicError:
        return _missing(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
    error = await broker.auto_create(name) if create else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _missing(name, error) if error else _known(broker.image.topics[name])


def _missing(name: str, error: ErrorCode) -> Fields:
    return {
        "error_code": error,
        "name": name,
        "topic_id": None,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": NO_OPERATIONS,
    }


def _known(topic: TopicImage) -> Fields:
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": UUID(topic.topic_id),
        "is_internal": topic.name.startswith("__"),
        "partitions": [
            {
                "error_code": 0 if one.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
                "partition_index": one.partition,
                "leader_id": one.leader,
                "leader_epoch": one.leader_epoch,
                "replica_nodes": one.replicas,
                "isr_nodes": one.isr,
                "offline_replicas": (),
            }
            for one in topic.partitions.values()
        ],
        "topic_authorized_operations": NO_OPERATIONS,
    }
