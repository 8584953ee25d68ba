"""What a cluster says of itself, by Metadata and DescribeCluster: any Kafka cluster does."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from craft2.net import RealNet, parse_address
from phase3_raft.client.broker_connection import BrokerConnection

TIMEOUT_S = 10.0


@dataclass(frozen=True)
class BrokerStatus:
    """leads, replicas: how many partitions."""

    id: int
    address: str
    rack: str | None
    leads: int
    replicas: int


@dataclass(frozen=True)
class PartitionStatus:
    """leader: -1 if there is none."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]


@dataclass(frozen=True)
class ClusterStatus:
    """See the module."""

    cluster: str
    controller: int
    brokers: list[BrokerStatus]
    partitions: list[PartitionStatus]


def read_status(bootstrap: str) -> ClusterStatus:
    """Ask one of the brokers, `host:port,host:port`. Raises NetError, OSError."""
    return asyncio.run(_read(bootstrap))


async def _read(bootstrap: str) -> ClusterStatus:
    reply = await _ask_first(bootstrap)
    partitions = [
        PartitionStatus(
            topic.name,
            one.partition_index,
            one.leader_id,
            list(one.replica_nodes),
            list(one.isr_nodes),
        )
        for topic in sorted(reply.topics, key=lambda topic: topic.name)
        for one in sorted(topic.partitions, key=lambda one: one.partition_index)
    ]
    brokers = [
        BrokerStatus(
            one.node_id,
            f"{one.host}:{one.port}",
            one.rack,
            sum(part.leader == one.node_id for part in partitions),
            sum(one.node_id in part.replicas for part in partitions),
        )
        for one in sorted(reply.brokers, key=lambda one: one.node_id)
    ]
    return ClusterStatus(reply.cluster_id or "", reply.controller_id, brokers, partitions)


async def _ask_first(bootstrap: str) -> Any:
    """The reply of the first that answers."""
    fields = {
        "topics": None,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    error: OSError = ConnectionError(f"nobody to ask in {bootstrap!r}")
    for text in bootstrap.split(","):
        address = parse_address(text.strip())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                connection = await BrokerConnection.open(RealNet(), address)
                try:
                    return await connection.ask("metadata", 9, fields)
                finally:
                    await connection.close()
        except OSError as why:
            error = why
    raise ConnectionError(f"no broker answers at {bootstrap}: {error}") from error
