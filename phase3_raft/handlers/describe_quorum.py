"""DescribeQuorum (key 55), versions 0-2: who votes on the metadata, who only learns (KIP-595, 853).

A broker that joins asks for it too: it says where the voters are. Left out: when each was last
heard of.
"""

from __future__ import annotations

from typing import Any

from craft2.net import Address, parse_address
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.metadata.quorum import Quorum
from phase3_raft.schemas import Fields

TOPIC = "__cluster_metadata"


def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply: the controller knows how far each of the others is."""
    quorum = broker.metadata
    assert isinstance(quorum, Quorum)
    here = broker.controller.is_here
    if here:
        partition = _partition(quorum)
    else:
        partition = {**_NOTHING, "error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}
    known = any(
        topic.topic_name == TOPIC and any(one.partition_index == 0 for one in topic.partitions)
        for topic in request.topics
    )
    if not known:
        partition = {**_NOTHING, "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    addresses = dict(quorum.config.voters)
    for one in broker.image.brokers.values():
        if one.raft:
            addresses[one.id] = parse_address(one.raft)
    return {
        "error_code": 0,
        "error_message": None,
        "topics": [{"topic_name": TOPIC, "partitions": [partition]}],
        "nodes": [_node(number, address) for number, address in sorted(addresses.items())],
    }


_NOTHING: Fields = {
    "partition_index": 0,
    "error_message": None,
    "leader_id": -1,
    "leader_epoch": -1,
    "high_watermark": -1,
    "current_voters": (),
    "observers": (),
}


def _partition(quorum: Quorum) -> Fields:
    status = quorum.node.status()

    def replica(number: int) -> Fields:
        end = status.last_index - status.lag.get(number, 0)
        return {"replica_id": number, "replica_directory_id": None, "log_end_offset": end}

    return {
        **_NOTHING,
        "error_code": 0,
        "leader_id": status.id,
        "leader_epoch": status.term,
        "high_watermark": status.committed,
        "current_voters": [replica(number) for number in status.voters],
        "observers": [replica(number) for number in status.learners],
    }


def _node(number: int, address: Address) -> Fields:
    listener = {"name": "RAFT", "host": address.host, "port": address.port}
    return {"node_id": number, "listeners": [listener]}
