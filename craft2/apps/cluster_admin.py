"""What an administrator asks of a cluster, any of Kafka's: how it is, and what is to become of it.

    status = read_status("127.0.0.1:19092")
    move("127.0.0.1:19092", {("flights", 0): (2, 3, 4)})

Everything is asked of the first broker that answers, which passes it on to the controller.

Source: KIP-455 (moves), KIP-460 (leaders), KIP-631 (brokers that are unregistered).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from craft2.errors import Craft2Error
from craft2.net import Address, RealNet, parse_address
from phase2_groups.error_codes import ErrorCode
from phase3_raft.client.broker_connection import BrokerConnection
from phase3_raft.schemas import Fields

TIMEOUT_S = 10.0
_TIMEOUT_MS = 10_000
_TOPIC, _BROKER = 2, 4  # kinds of resources
_SET, _DELETE = 0, 1
_METADATA = ("__cluster_metadata", 0)
TopicPartition: TypeAlias = tuple[str, int]


class AdminError(Craft2Error):
    """What was asked for was not done."""


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
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True)
class ClusterStatus:
    """See the module."""

    cluster: str
    controller: int
    brokers: list[BrokerStatus]
    partitions: list[PartitionStatus]


def read_status(bootstrap: str) -> ClusterStatus:
    """How it is. bootstrap: `host:port,host:port`. Raises AdminError, NetError."""
    fields = {
        "topics": None,
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    reply = ask(bootstrap, "metadata", 9, fields)
    partitions = [
        PartitionStatus(
            topic.name,
            one.partition_index,
            one.leader_id,
            tuple(one.replica_nodes),
            tuple(one.isr_nodes),
        )
        for topic in sorted(reply.topics, key=lambda topic: topic.name)
        for one in sorted(topic.partitions, key=lambda one: one.partition_index)
    ]
    cluster = ask(
        bootstrap, "describe_cluster", 0, {"include_cluster_authorized_operations": False}
    )
    brokers = [
        BrokerStatus(
            one.broker_id,
            f"{one.host}:{one.port}",
            one.rack,
            sum(part.leader == one.broker_id for part in partitions),
            sum(one.broker_id in part.replicas for part in partitions),
        )
        for one in sorted(cluster.brokers, key=lambda one: one.broker_id)
    ]
    return ClusterStatus(reply.cluster_id or "", reply.controller_id, brokers, partitions)


def read_cluster(bootstrap: str) -> str:
    """What it is called. Raises AdminError, NetError."""
    fields = {"include_cluster_authorized_operations": False}
    return str(ask(bootstrap, "describe_cluster", 0, fields).cluster_id)


def read_voters(bootstrap: str) -> dict[int, Address]:
    """Where the Raft servers are that vote. Raises AdminError, NetError."""
    nodes, voters = _read_quorum(bootstrap)
    return {number: where for number, where in nodes.items() if number in voters}


def read_members(bootstrap: str) -> set[int]:
    """The brokers that vote, and those that have joined and are not forgotten, whether or not they
    run. Raises AdminError, NetError."""
    return set(_read_quorum(bootstrap)[0])


def _read_quorum(bootstrap: str) -> tuple[dict[int, Address], set[int]]:
    """Where the Raft servers are, and who votes."""
    partition = {"topic_name": _METADATA[0], "partitions": [{"partition_index": _METADATA[1]}]}
    reply = ask(bootstrap, "describe_quorum", 2, {"topics": [partition]})
    found = reply.topics[0].partitions[0]
    _check(reply.error_code or found.error_code, None, "the question who votes")
    nodes = {
        node.node_id: Address(node.listeners[0].host, node.listeners[0].port)
        for node in reply.nodes
    }
    return nodes, {one.replica_id for one in found.current_voters}


# Partitions move.


def move(bootstrap: str, moves: Mapping[TopicPartition, Sequence[int] | None]) -> None:
    """Let partitions move to these brokers; None: call a move off. Raises AdminError, NetError."""
    topics: dict[str, list[Fields]] = {}
    for (topic, number), replicas in moves.items():
        topics.setdefault(topic, []).append({"partition_index": number, "replicas": replicas})
    asked = [{"name": name, "partitions": some} for name, some in topics.items()]
    fields = {"timeout": _TIMEOUT_MS, "topics": asked}
    reply = ask(bootstrap, "alter_partition_reassignments", 0, fields)
    _check(reply.error_code, reply.error_message, "the move")
    for topic in reply.responses:
        for one in topic.partitions:
            what = f"the move of {topic.name}-{one.partition_index}"
            _check(one.error_code, one.error_message, what)


def throttle(
    bootstrap: str, moves: Mapping[TopicPartition, Sequence[int]], bytes_per_s: int | None
) -> None:
    """Let what is copied for these moves take so much of each broker at most; None: no limit any
    more, also if a topic is gone by then. Raises AdminError, NetError."""
    topics: dict[str, list[str]] = {}
    for (topic, number), replicas in moves.items():
        topics.setdefault(topic, []).extend(f"{number}:{who}" for who in replicas)
    limits = [("", "follower.replication.throttled.rate", str(bytes_per_s))]
    names = [
        (topic, "follower.replication.throttled.replicas", ",".join(some))
        for topic, some in topics.items()
    ]
    operation = _DELETE if bytes_per_s is None else _SET
    resources = [
        {
            "resource_type": kind,
            "resource_name": resource,
            "configs": [
                {
                    "name": name,
                    "config_operation": operation,
                    "value": None if operation == _DELETE else value,
                }
            ],
        }
        for kind, some in ((_BROKER, limits), (_TOPIC, names))
        for resource, name, value in some
    ]
    fields = {"resources": resources, "validate_only": False}
    for one in ask(bootstrap, "incremental_alter_configs", 1, fields).responses:
        if operation == _DELETE and one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            continue
        _check(one.error_code, one.error_message, "the limit")


def moving(bootstrap: str) -> set[TopicPartition]:
    """The partitions that are on their way. Raises AdminError, NetError."""
    reply = ask(
        bootstrap, "list_partition_reassignments", 0, {"timeout": _TIMEOUT_MS, "topics": None}
    )
    _check(reply.error_code, reply.error_message, "the list of moves")
    return {(topic.name, one.partition_index) for topic in reply.topics for one in topic.partitions}


def away_from(
    status: ClusterStatus, broker: int, partitions: Iterable[PartitionStatus] | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """Moves after which this broker has none of the partitions: each goes to a broker that has few
    and, if that can be, to a rack that has none of its replicas. Where this broker was the first,
    the one is first, so that it leads, that is the first of the fewest. Raises AdminError.

    >>> brokers = [BrokerStatus(n, f"h:{n}", None, 0, load) for n, load in ((1, 3), (2, 2), (3, 0))]
    >>> parts = [PartitionStatus("t", n, 1, (1, 2), (1, 2)) for n in range(2)]
    >>> away_from(ClusterStatus("c", 1, brokers, parts), 1)
    {('t', 0): (3, 2), ('t', 1): (2, 3)}
    """
    racks = {one.id: one.rack for one in status.brokers if one.id != broker}
    load = Counter({one.id: one.replicas for one in status.brokers})
    firsts = Counter(one.replicas[0] for one in status.partitions)
    moves: dict[TopicPartition, tuple[int, ...]] = {}
    for one in status.partitions if partitions is None else partitions:
        if broker not in one.replicas:
            continue
        kept = [who for who in one.replicas if who != broker]
        taken = [racks.get(who) for who in kept]
        free = [who for who in racks if who not in kept]
        if not free:
            raise AdminError(
                f"{one.topic}-{one.partition} has {len(one.replicas)} replicas, and without broker "
                f"{broker} there are {len(racks)} brokers",
                "add a broker first",
            )
        new = min(free, key=lambda who: (taken.count(racks[who]), load[who], who))
        load[new] += 1
        replicas = [new if who == broker else who for who in one.replicas]
        if one.replicas[0] == broker:
            replicas.sort(key=lambda who: firsts[who])
            firsts[replicas[0]] += 1
        moves[one.topic, one.partition] = tuple(replicas)
    return moves


# Leaders, and brokers that go.


def elect(
    bootstrap: str, partitions: Collection[TopicPartition] | None, *, unclean: bool = False
) -> dict[TopicPartition, ErrorCode]:
    """The first replicas lead again; unclean: any that is there, whatever is lost.

    partitions: None is all. Returns what became of each that was looked at. Raises AdminError,
    NetError.
    """
    topics: dict[str, list[int]] | None = None
    if partitions is not None:
        topics = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
    named = None
    if topics is not None:
        named = [{"topic": name, "partitions": some} for name, some in topics.items()]
    fields = {"election_type": int(unclean), "topic_partitions": named, "timeout": _TIMEOUT_MS}
    reply = ask(bootstrap, "elect_leaders", 2, fields)
    _check(reply.error_code, None, "the election")
    return {
        (topic.topic, one.partition_id): ErrorCode(one.error_code)
        for topic in reply.replica_election_results
        for one in topic.partition_result
    }


def unregister(bootstrap: str, broker: int) -> None:
    """A broker that has ended does not come back. Raises AdminError, NetError."""
    reply = ask(bootstrap, "unregister_broker", 0, {"broker_id": broker})
    _check(reply.error_code, reply.error_message, f"forgetting broker {broker}")


def _check(code: int, message: str | None, what: str) -> None:
    """Raises AdminError. message: a broker's, which mostly has a fix in it."""
    if code in (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        raise AdminError(
            f"{what} was refused: no controller answers",
            "wait until one is elected; most of the voters have to run for that",
        )
    if code:
        name = ErrorCode(code).name if code in list(ErrorCode) else f"error {code}"
        problem, _, fix = (message or name).partition(" Fix: ")
        raise AdminError(
            f"{what} was refused: {problem.removesuffix('.')}", fix or "see `craft2 cluster status`"
        )


# Asking.


def ask(bootstrap: str, name: str, version: int, fields: Fields) -> Any:
    """The reply of the first broker that answers. Raises AdminError, NetError."""
    return asyncio.run(_ask_first(bootstrap, name, version, fields))


async def _ask_first(bootstrap: str, name: str, version: int, fields: Fields) -> Any:
    why = ""
    for address in [parse_address(text.strip()) for text in bootstrap.split(",")]:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                connection = await BrokerConnection.open(RealNet(), address)
                try:
                    return await connection.ask(name, version, fields)
                finally:
                    connection.close()
        except TimeoutError:
            why = f"not within {TIMEOUT_S:g} s"
        except OSError as error:
            why = str(error)
    raise AdminError(
        f"no broker answers at {bootstrap}: {why}", "give the address of one that runs"
    )
