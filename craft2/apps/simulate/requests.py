"""The fields of what simulated clients ask brokers for, and the error in a reply.

>>> fetch("t", 0, 17)["topics"][0]["partitions"][0]["fetch_offset"]
17
"""

from __future__ import annotations

from typing import Any

Fields = dict[str, Any]
ALL, LATEST = -1, -1  # acks; in place of a time

NEW_PRODUCER: Fields = {
    "transactional_id": None,
    "transaction_timeout": 1_000,
    "producer_id": -1,
    "producer_epoch": -1,
}


def create_topic(name: str, partitions: int, replicas: int, **configs: str) -> Fields:
    """CreateTopics, version 4. configs: with _ for each dot."""
    settings = [{"name": key.replace("_", "."), "value": configs[key]} for key in configs]
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": settings,
    }
    return {"topics": [topic], "timeout": 1_000, "validate_only": False}


def create_topics(names: list[str], partitions: int, replicas: int) -> Fields:
    """The same of several."""
    each = [create_topic(name, partitions, replicas) for name in names]
    return {**each[0], "topics": [topic for one in each for topic in one["topics"]]}


def create_partitions(names: list[str], partitions: int) -> Fields:
    """CreatePartitions, version 1: each has so many then."""
    topics = [{"name": name, "count": partitions, "assignments": None} for name in names]
    return {"topics": topics, "timeout": 1_000, "validate_only": False}


def set_topics(names: list[str], setting: str, value: str) -> Fields:
    """IncrementalAlterConfigs, version 1."""
    config = {"name": setting, "config_operation": 0, "value": value}
    resources = [{"resource_type": 2, "resource_name": name, "configs": [config]} for name in names]
    return {"resources": resources, "validate_only": False}


def delete_topics(names: list[str]) -> Fields:
    """DeleteTopics, version 4."""
    return {"topic_names": names, "timeout": 1_000}


def delete_records(topic: str, partition: int, offset: int) -> Fields:
    """DeleteRecords, version 2: the partition begins at this offset then."""
    one = {"partition_index": partition, "offset": offset}
    return {"topics": [{"name": topic, "partitions": [one]}], "timeout": 500}


def metadata(topic: str) -> Fields:
    """Metadata, version 8."""
    return {
        "topics": [{"topic_id": None, "name": topic}],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }


def produce(topic: str, partition: int, batch: bytes, *, timeout_ms: int = 1_000) -> Fields:
    """Produce, version 7, with acks=all."""
    data = {"name": topic, "partition_data": [{"index": partition, "records": batch}]}
    return {"transactional_id": None, "acks": ALL, "timeout": timeout_ms, "topic_data": [data]}


def fetch(topic: str, partition: int, offset: int, *, epoch: int = -1, wait_ms: int = 0) -> Fields:
    """Fetch, version 11. epoch: of the leader that is meant; -1: whichever."""
    wanted = {
        "partition": partition,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": 20_000,
    }
    return {
        "replica_id": -1,
        "max_wait": wait_ms,
        "min_bytes": 1 if wait_ms else 0,
        "max_bytes": 30_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def latest_offset(topic: str, partition: int, *, epoch: int) -> Fields:
    """ListOffsets, version 5: where a consumer would find nothing more."""
    one = {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": LATEST}
    topics = [{"name": topic, "partitions": [one]}]
    return {"replica_id": -1, "isolation_level": 0, "topics": topics}


def commit(group: str, topic: str, partition: int, offset: int) -> Fields:
    """OffsetCommit, version 7, of a group without members."""
    one = {
        "partition_index": partition,
        "committed_offset": offset,
        "committed_leader_epoch": -1,
        "committed_metadata": None,
    }
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [one]}],
    }


def committed(group: str, topic: str, partition: int) -> Fields:
    """OffsetFetch, version 7."""
    asked = {"name": topic, "partition_indexes": [partition]}
    return {"group_id": group, "topics": [asked], "require_stable": False}


def coordinator(group: str) -> Fields:
    """FindCoordinator, version 2."""
    return {"key": group, "key_type": 0}


def elect_preferred() -> Fields:
    """ElectLeaders, version 1: the first replica of each partition leads again."""
    return {"election_type": 0, "topic_partitions": None, "timeout": 1_000}


def error_in(reply: Any) -> int:
    """The error of a reply about at most one partition; 0: none."""
    error = getattr(reply, "error_code", 0)
    topics = getattr(reply, "responses", None) or getattr(reply, "topics", None)
    if error or not topics:
        return int(error)
    [topic] = topics
    [partition] = getattr(topic, "partition_responses", None) or topic.partitions
    return int(partition.error_code)
