"""The transport of `Producer` and `Consumer` over Kafka's protocol: to our broker, or to Apache's.

    with Producer(config, transport=NetworkTransport("localhost:9092")) as producer: ...

The classes above are those of phase 2, which know nothing of sockets: they block, from any of their
threads. All connections live in one event loop, in a thread of this object; a method puts its
question there and waits. Errors of the network become Kafka's codes for each partition
(NETWORK_EXCEPTION, REQUEST_TIMED_OUT), and what is known of the cluster is forgotten where an
answer shows that it is old: the clients above ask again, as they do with files.

Source: Kafka's `NetworkClient`, `Sender`, `Fetcher`, `ConsumerCoordinator`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from craft2.net import Address, Net, RealNet, parse_address
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import (
    Commit,
    Heartbeat,
    Join,
    Leave,
    OffsetToCommit,
    Reply,
    Request,
    Sync,
    TopicPartition,
)
from phase2_groups.transport import Fetched, Listed, Produced, ProducerId
from phase3_raft.client.cluster import Cluster
from phase3_raft.client.group_requests import GroupRequest, to_reply, to_wire
from phase3_raft.codec import BadMessage

Answer = TypeVar("Answer")
Found = TypeVar("Found", Produced, Fetched, Listed)
_FETCHING, _WAITING = "fetch", "join"  # lanes: see `cluster`
_SLACK_S = 10.0  # a broker may be that much later than it was told to be
_STALE = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
)
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class NetworkTransport:
    """See the module; the methods are those of `phase2_groups.transport.Transport`.

    bootstrap_servers: `host:port`, several with commas between them.
    """

    def __init__(
        self, bootstrap_servers: str, *, client_id: str = "craft2", net: Net | None = None
    ) -> None:
        addresses = [parse_address(one.strip()) for one in bootstrap_servers.split(",")]
        self._loop = asyncio.new_event_loop()
        self._cluster = Cluster(net or RealNet(), addresses, client_id)
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()

    def _wait(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    # Topics.

    def metadata(self, topics: Iterable[str] | None = None) -> Mapping[str, int | ErrorCode]:
        return self._wait(self._metadata(None if topics is None else list(topics)))

    async def _metadata(self, topics: list[str] | None) -> Mapping[str, int | ErrorCode]:
        try:
            await asyncio.wait_for(self._cluster.refresh(topics), _SLACK_S)
        except (OSError, BadMessage, TimeoutError):
            return dict.fromkeys(topics or (), ErrorCode.NETWORK_EXCEPTION)
        counts = self._cluster.counts
        if topics is None:
            return {name: count for name, count in counts.items() if not name.startswith("__")}
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {name: counts.get(name, missing) for name in topics}

    # Records.

    def produce(
        self, batches: Mapping[TopicPartition, bytes], acks: int, timeout_ms: int
    ) -> Mapping[TopicPartition, Produced]:
        return self._wait(self._produce(batches, acks, timeout_ms))

    async def _produce(
        self, batches: Mapping[TopicPartition, bytes], acks: int, timeout_ms: int
    ) -> dict[TopicPartition, Produced]:
        async def ask(
            address: Address, some: list[TopicPartition]
        ) -> dict[TopicPartition, Produced]:
            data = _by_topic(
                some,
                "name",
                "partition_data",
                lambda one: {"index": one[1], "records": batches[one]},
            )
            fields = {
                "transactional_id": None,
                "acks": acks,
                "timeout": timeout_ms,
                "topic_data": data,
            }
            if acks == 0:
                await self._cluster.tell(address, "produce", fields)
                return {one: Produced(ErrorCode.NONE) for one in some}
            reply = await self._cluster.ask(address, "produce", fields)
            return {
                (topic.name, one.index): Produced(
                    _code(one.error_code),
                    one.base_offset,
                    one.log_append_time,
                    getattr(one, "log_start_offset", -1),
                    getattr(one, "error_message", None) or "",
                )
                for topic in reply.responses
                for one in topic.partition_responses
            }

        return await self._ask_leaders(list(batches), ask, Produced, timeout_ms)

    def init_producer_id(self) -> ProducerId:
        return self._wait(self._init_producer_id())

    async def _init_producer_id(self) -> ProducerId:
        fields = {
            "transactional_id": None,
            "transaction_timeout": 60_000,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        try:
            reply = await asyncio.wait_for(
                self._cluster.ask_anybody("init_producer_id", fields), _SLACK_S
            )
        except (OSError, BadMessage, TimeoutError):
            return ProducerId(ErrorCode.NETWORK_EXCEPTION)
        return ProducerId(_code(reply.error_code), reply.producer_id, reply.producer_epoch)

    def fetch(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024**2,
        max_partition_bytes: int = 1024**2,
    ) -> Mapping[TopicPartition, Fetched]:
        limits = {"max_wait": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes}
        return self._wait(self._fetch(offsets, limits, max_partition_bytes))

    async def _fetch(
        self, offsets: Mapping[TopicPartition, int], limits: Mapping[str, int], most: int
    ) -> dict[TopicPartition, Fetched]:
        async def ask(
            address: Address, some: list[TopicPartition]
        ) -> dict[TopicPartition, Fetched]:
            topics = _by_topic(
                some,
                "topic",
                "partitions",
                lambda one: {
                    "partition": one[1],
                    "current_leader_epoch": -1,
                    "fetch_offset": offsets[one],
                    "log_start_offset": -1,
                    "partition_max_bytes": most,
                },
            )
            fields = {
                **limits,
                "replica_id": -1,
                "isolation_level": 0,
                "session_id": 0,
                "session_epoch": -1,
                "topics": topics,
                "forgotten_topics_data": [],
                "rack_id": "",
            }
            reply = await self._cluster.ask(address, "fetch", fields, _FETCHING)
            return {
                (topic.topic, one.partition_index): Fetched(
                    _code(one.error_code),
                    one.records or b"",
                    one.high_watermark,
                    getattr(one, "log_start_offset", -1),
                )
                for topic in reply.responses
                for one in topic.partitions
            }

        return await self._ask_leaders(list(offsets), ask, Fetched, limits["max_wait"])

    def list_offsets(self, asked: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Listed]:
        return self._wait(self._list_offsets(asked))

    async def _list_offsets(
        self, asked: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Listed]:
        async def ask(address: Address, some: list[TopicPartition]) -> dict[TopicPartition, Listed]:
            topics = _by_topic(
                some,
                "name",
                "partitions",
                lambda one: {
                    "partition_index": one[1],
                    "current_leader_epoch": -1,
                    "timestamp": asked[one],
                },
            )
            fields = {"replica_id": -1, "isolation_level": 0, "topics": topics}
            reply = await self._cluster.ask(address, "list_offsets", fields)
            return {
                (topic.name, one.partition_index): Listed(
                    _code(one.error_code), one.offset, one.timestamp
                )
                for topic in reply.topics
                for one in topic.partitions
            }

        return await self._ask_leaders(list(asked), ask, Listed, 0)

    async def _ask_leaders(
        self,
        wanted: list[TopicPartition],
        ask: Callable[[Address, list[TopicPartition]], Awaitable[dict[TopicPartition, Found]]],
        failed: Callable[[ErrorCode], Found],
        timeout_ms: int,
    ) -> dict[TopicPartition, Found]:
        """Put a question to each leader for its partitions, to all at once."""
        answers: dict[TopicPartition, Found] = {}
        by_leader: dict[Address, list[TopicPartition]] = {}
        for partition in wanted:
            try:
                leader = await asyncio.wait_for(self._cluster.leader(partition), _SLACK_S)
            except (OSError, BadMessage, TimeoutError):
                leader = ErrorCode.NETWORK_EXCEPTION
            if isinstance(leader, ErrorCode):
                answers[partition] = failed(leader)
            else:
                by_leader.setdefault(leader, []).append(partition)

        async def ask_one(address: Address, some: list[TopicPartition]) -> None:
            error = ErrorCode.UNKNOWN_SERVER_ERROR  # for what is missing in the reply
            try:
                limit_s = timeout_ms / 1000 + _SLACK_S
                answers.update(await asyncio.wait_for(ask(address, some), limit_s))
            except (OSError, BadMessage):
                error = ErrorCode.NETWORK_EXCEPTION
            except TimeoutError:
                error = ErrorCode.REQUEST_TIMED_OUT
            for partition in some:
                answer = answers.setdefault(partition, failed(error))
                if answer.error in _STALE:
                    self._cluster.forget_leader(partition)

        await asyncio.gather(*(ask_one(*item) for item in by_leader.items()))
        return answers

    # Groups.

    def ask_group(self, group_id: str, request: Request, timeout_ms: int) -> Reply | None:
        if not isinstance(request, GroupRequest):
            raise TypeError(f"{request!r} is no request to a coordinator")
        return self._wait(self._ask_group(group_id, request, timeout_ms))

    async def _ask_group(
        self, group_id: str, request: Join | Sync | Heartbeat | Leave | Commit, timeout_ms: int
    ) -> Reply | None:
        name, fields = to_wire(group_id, request)
        lane = _WAITING + group_id if isinstance(request, Join | Sync) else ""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                coordinator = await self._cluster.coordinator(group_id)
                if isinstance(coordinator, ErrorCode):
                    return Reply(token=request.token, error=coordinator)
                reply = to_reply(request, await self._cluster.ask(coordinator, name, fields, lane))
        except TimeoutError:
            if lane:  # its reply would be in the way of the next one's
                await self._cluster.hang_up(lane)
            return None
        except (OSError, BadMessage):
            self._cluster.forget_coordinator(group_id)
            return Reply(token=request.token, error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if reply.error in _MOVED:
            self._cluster.forget_coordinator(group_id)
        return reply

    def group_moved(self, group_id: str, generation: int) -> bool:
        return False

    def committed(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetToCommit | ErrorCode]:
        return self._wait(self._committed(group_id, partitions))

    async def _committed(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetToCommit | ErrorCode]:
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        fields = {
            "group_id": group_id,
            "topics": [{"name": name, "partition_indexes": some} for name, some in topics.items()],
            "require_stable": False,
        }
        try:
            async with asyncio.timeout(_SLACK_S):
                coordinator = await self._cluster.coordinator(group_id)
                if isinstance(coordinator, ErrorCode):
                    return dict.fromkeys(partitions, coordinator)
                reply = await self._cluster.ask(coordinator, "offset_fetch", fields)
        except (OSError, BadMessage, TimeoutError):
            self._cluster.forget_coordinator(group_id)
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        failed = _code(getattr(reply, "error_code", 0))
        if failed:
            self._cluster.forget_coordinator(group_id)
            return dict.fromkeys(partitions, failed)
        found: dict[TopicPartition, OffsetToCommit | ErrorCode] = {}
        for topic in reply.topics:
            for one in topic.partitions:
                place = topic.name, one.partition_index
                if one.error_code:
                    found[place] = _code(one.error_code)
                elif one.committed_offset >= 0:
                    epoch = getattr(one, "committed_leader_epoch", -1)
                    found[place] = OffsetToCommit(
                        offset=one.committed_offset,
                        leader_epoch=epoch,
                        metadata=one.metadata or "",
                    )
        return found

    # Its life.

    def wake(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cluster.hang_up(_FETCHING), self._loop)

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._wait(self._cluster.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> NetworkTransport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _by_topic(
    partitions: list[TopicPartition], name: str, inside: str, fields_of: Any
) -> list[dict[str, Any]]:
    """Partitions as requests have them: topics, and in each its partitions."""
    topics: dict[str, list[Any]] = {}
    for partition in partitions:
        topics.setdefault(partition[0], []).append(fields_of(partition))
    return [{name: topic, inside: some} for topic, some in topics.items()]


def _code(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
