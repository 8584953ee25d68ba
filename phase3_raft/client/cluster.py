"""What a client knows of a cluster: who leads what, who coordinates whom, what they speak.

    leader = await cluster.leader(("flights", 0))
    reply = await cluster.ask(leader, "list_offsets", fields)

A client is given a few addresses and asks one of them for the rest (Metadata). What it knows may be
old at any moment: a broker that does not lead any more says so, and then the client asks again.
Nothing is repeated here; whoever asks decides whether to ask again.

A broker answers the requests of one connection one after the other. So what may take long (a fetch
that waits for records, a join that waits for other members) goes over a connection of its own.

Source: Kafka's `Metadata`, `NetworkClient`; KIP-35 (versions).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from craft2.errors import Craft2Error
from craft2.net import Address, Net
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import TopicPartition
from phase3_raft.client.broker_connection import API_KEYS, BrokerConnection
from phase3_raft.codec import BadMessage
from phase3_raft.schemas import Fields, Message

# The versions that we speak, oldest and newest; the newest that the broker knows as well is taken.
SPOKEN = {
    "fetch": (4, 12),
    "find_coordinator": (0, 3),
    "heartbeat": (0, 4),
    "init_producer_id": (0, 4),
    "join_group": (0, 7),
    "leave_group": (0, 4),
    "list_offsets": (1, 7),
    "metadata": (4, 11),
    "offset_commit": (2, 8),
    "offset_fetch": (1, 7),
    "produce": (3, 9),
    "sync_group": (0, 5),
}
_SILENT_S = 2.0


class CannotTalk(Craft2Error):
    """A broker that has no version of a request in common with us."""


class _Talk(NamedTuple):
    """A connection, and the versions that the broker at its other end knows, by key."""

    connection: BrokerConnection
    versions: dict[int, tuple[int, int]]


class Cluster:
    """See the module. One event loop's.

    counts: partitions by topic, or why they are not known.
    """

    def __init__(self, net: Net, bootstrap: Sequence[Address], client_id: str) -> None:
        self._net, self._bootstrap, self._client_id = net, tuple(bootstrap), client_id
        self._talks: dict[tuple[Address, str], asyncio.Task[_Talk]] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._coordinators: dict[str, Address] = {}
        self._silent: set[Address] = set()  # who did not answer when last asked
        self.counts: dict[str, int | ErrorCode] = {}

    # Asking.

    async def ask(self, address: Address, name: str, fields: Fields, lane: str = "") -> Message:
        """The reply of one broker. lane: connections of different names do not wait for each other.

        Raises OSError if it cannot be reached or hangs up, BadMessage, CannotTalk.
        """
        connection, version = await self._reach(address, name, lane)
        return await connection.ask(name, version, fields)

    async def tell(self, address: Address, name: str, fields: Fields) -> None:
        """Send a request that has no reply. Raises as `ask`."""
        connection, version = await self._reach(address, name, "")
        await connection.tell(name, version, fields)

    async def ask_anybody(self, name: str, fields: Fields) -> Message:
        """The reply of the first broker that answers. Raises OSError if none does.

        One that was silent for `_SILENT_S` while there was another to ask is asked last from then
        on: it may have stopped, or be cut off, and nobody has noticed.
        """
        error: Exception = ConnectionError("no address to ask")
        known = dict.fromkeys((*self._brokers.values(), *self._bootstrap))
        addresses = sorted(known, key=self._silent.__contains__)
        for left, address in zip(reversed(range(len(addresses))), addresses, strict=True):
            try:
                async with asyncio.timeout(_SILENT_S if left else None):
                    reply = await self.ask(address, name, fields)
                self._silent.discard(address)
                return reply
            except TimeoutError as why:
                self._silent.add(address)
                error = why
            except (OSError, BadMessage) as why:
                error = why
        raise ConnectionError(f"no broker answers: {error}") from error

    async def _reach(self, address: Address, name: str, lane: str) -> tuple[BrokerConnection, int]:
        key = (address, lane)
        task = self._talks.get(key)
        if task is None or (task.done() and not _is_open(task)):
            task = asyncio.get_running_loop().create_task(self._open(address))
            self._talks[key] = task
        try:
            talk = await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # by `hang_up`, while it was connecting
                raise ConnectionAbortedError(f"the connection to {address} was given up") from None
            raise
        ours, theirs = SPOKEN[name], talk.versions.get(API_KEYS[name], (0, -1))
        version = min(ours[1], theirs[1])
        if version < max(ours[0], theirs[0]):
            raise CannotTalk(
                f"{address} speaks {name} in versions {theirs[0]} to {theirs[1]}, we in "
                f"{ours[0]} to {ours[1]}",
                "use a broker of Kafka 1.0 or newer",
            )
        return talk.connection, version

    async def _open(self, address: Address) -> _Talk:
        connection = await BrokerConnection.open(self._net, address, self._client_id)
        try:
            reply = await connection.ask("api_versions", 0, {})
        except BaseException:
            connection.close()
            raise
        known = {one.api_key: (one.min_version, one.max_version) for one in reply.api_keys}
        return _Talk(connection, known)

    async def hang_up(self, lane: str) -> None:
        """End the connections of one lane: who waits there gets an OSError."""
        for key in [key for key in self._talks if key[1] == lane]:
            task = self._talks.pop(key)
            if _is_open(task):
                task.result().connection.close()
            elif task.cancel():  # it was only just connecting
                await asyncio.gather(task, return_exceptions=True)

    # What there is.

    async def refresh(self, topics: Iterable[str] | None) -> None:
        """Ask for these topics, or for all. Raises OSError."""
        asked = None if topics is None else [{"topic_id": None, "name": name} for name in topics]
        fields = {
            "topics": asked,
            "allow_auto_topic_creation": True,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        reply = await self.ask_anybody("metadata", fields)
        self._brokers = {one.node_id: Address(one.host, one.port) for one in reply.brokers}
        if topics is None:
            self.counts.clear()
        for topic in reply.topics:
            error = ErrorCode(topic.error_code)
            self.counts[topic.name] = error or len(topic.partitions)
            for one in topic.partitions:
                self._leaders[topic.name, one.partition_index] = one.leader_id

    async def leader(self, partition: TopicPartition) -> Address | ErrorCode:
        """Who leads a partition. Raises OSError if that is not known and nobody can be asked."""
        if partition not in self._leaders:
            await self.refresh([partition[0]])
        if partition not in self._leaders:
            count = self.counts.get(partition[0])
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return count if isinstance(count, ErrorCode) else missing
        found = self._brokers.get(self._leaders[partition])
        return ErrorCode.LEADER_NOT_AVAILABLE if found is None else found

    def forget_leader(self, partition: TopicPartition) -> None:
        """It has said that it is not, or does not answer: ask again next time."""
        self._leaders.pop(partition, None)

    async def coordinator(self, group_id: str) -> Address | ErrorCode:
        """Who coordinates a group. Raises OSError."""
        found = self._coordinators.get(group_id)
        if found is None:
            reply = await self.ask_anybody("find_coordinator", {"key": group_id, "key_type": 0})
            if reply.error_code:
                return ErrorCode(reply.error_code)
            found = self._coordinators[group_id] = Address(reply.host, reply.port)
        return found

    def forget_coordinator(self, group_id: str) -> None:
        """As `forget_leader`."""
        self._coordinators.pop(group_id, None)

    async def close(self) -> None:
        """Hang up."""
        for lane in {lane for _, lane in self._talks}:
            await self.hang_up(lane)


def _is_open(task: asyncio.Task[_Talk]) -> bool:
    if not task.done() or task.cancelled() or task.exception() is not None:
        return False
    return task.result().connection.is_open
