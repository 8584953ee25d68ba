"""One broker: its metadata, its partitions, its groups, and the server in front of them.

    async with Broker(BrokerConfig(data_dir="data")) as broker:
        print(broker.address)

Alone it decides everything itself. With a `quorum` in its configuration it is one of a cluster: the
metadata are committed by Raft (`metadata.quorum`), one broker decides for all (`controller`), and
partitions have replicas on others (`replication`).

Everything that touches time, files or the network is an argument, so the same broker runs in a
process, in a notebook, and in a simulation on virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from craft2.clock import Clock, SystemClock
from craft2.disk import Disk, RealDisk
from craft2.events import Emitter
from craft2.net import Address, Net, RealNet
from craft2.tasks import Tasks
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_state import GroupLimits
from phase3_raft.data_directory import directory_id
from phase3_raft.deadlines import Deadlines
from phase3_raft.fetch_sessions import FetchSessions
from phase3_raft.groups.coordinator import OFFSETS_TOPIC, Coordinator, partition_of
from phase3_raft.groups.offsets import BATCH_BYTES, COMPACT_AFTER, OffsetsPartition
from phase3_raft.known_brokers import KnownBrokers
from phase3_raft.metadata import topic_changes
from phase3_raft.metadata.controller import Controller
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.metadata_log import MetadataLog
from phase3_raft.metadata.quorum import Quorum, QuorumConfig
from phase3_raft.metadata.records import BrokerId, BrokerRecord, Record, RemoveTopicRecord
from phase3_raft.partition import Partition
from phase3_raft.partitions import Partitions
from phase3_raft.peers import Peers
from phase3_raft.promises import Afterwards
from phase3_raft.refused import Refused
from phase3_raft.replication.fetcher import PARTITION_BYTES
from phase3_raft.replication.replication import Replication
from phase3_raft.topic_config import TopicConfig
from phase3_raft.topics import Topics

DEFAULT_LIMITS = GroupLimits()
DEFAULT_ADDRESS = Address("127.0.0.1", 9092)
HAND_OVER_S, GOODBYE_S = 2.0, 0.5  # before a broker goes, at most
_LOOK_S = 1.0  # so often it is looked whether a log has stopped
ALONE = "craft2"  # the name of a cluster of one


@dataclass(frozen=True)
class BrokerConfig:
    """How a broker runs.

    listen: where it accepts connections; port 0 is any that is free. advertised: what clients are
    told to connect to; where it listens, if None. topic_defaults: settings of topics that have
    none of their own, the groups' topic as well. quorum: the cluster that it is one of; None: it is
    alone. default_replicas: of a topic for which nobody says, if there are so many brokers.
    session_ms: a broker that is not heard of for so long is fenced. max_lag_ms: a replica that has
    not had everything for so long is not in sync. leader_rebalance_s: so often the first replica of
    each partition leads again.
    """

    data_dir: str
    broker_id: int = 1
    listen: Address = DEFAULT_ADDRESS
    advertised: Address | None = None
    rack: str | None = None
    default_partitions: int = 1
    default_replicas: int = 1
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    auto_create_topics: bool = True
    offsets_partitions: int = 50
    offsets_compact_after: int = COMPACT_AFTER
    offsets_batch_bytes: int = BATCH_BYTES
    replica_partition_bytes: int = PARTITION_BYTES
    group_limits: GroupLimits = DEFAULT_LIMITS
    max_request_bytes: int = 100 * 1024**2
    max_connections: int = 10_000
    max_idle_s: float = 600.0
    retention_check_s: float = 300.0
    drain_s: float = 5.0
    quorum: QuorumConfig | None = None
    heartbeat_ms: int = 200
    session_ms: int = 2_000
    max_lag_ms: int = 10_000
    leader_rebalance_s: float = 300.0


class Broker:
    """See the module. new_id: makes the ids of topics; trouble: told what went wrong, in a line."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        net: Net | None = None,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
        trouble: Callable[[str], object] = print,
        events: Emitter | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Opens the data directory.

        Raises LogInUse, CorruptLog, DiskError, BadConfig, RaftError.
        """
        from phase3_raft.dispatch import Dispatch
        from phase3_raft.handlers import APIS, BETWEEN_BROKERS, OF_CLUSTERS
        from phase3_raft.server import Server

        TopicConfig.of(config.topic_defaults)
        self.config = config
        self.disk = disk or RealDisk()
        self.clock = clock or SystemClock()
        self.net = net or RealNet()
        self.disk.mkdir(config.data_dir)
        self._trouble = trouble
        self.new_id = new_id
        self.tasks = Tasks(lambda error: trouble(f"a task ended: {error!r}"))
        self.afterwards = Afterwards()
        self.address = config.listen
        self.metadata: MetadataLog | Quorum
        me, folder = config.broker_id, config.data_dir
        self.partitions = Partitions(
            me,
            folder,
            lambda: self.image,
            self.disk,
            self.clock,
            defaults=config.topic_defaults,
            max_lag_ms=config.max_lag_ms,
            trouble=trouble,
        )
        self.partitions.may_lead = config.quorum is None
        self.known_brokers = KnownBrokers(lambda: self.image, self.clock)
        self._listens = asyncio.Event()
        self.replication: Replication | None = None
        self.directory = ""
        if config.quorum is None:
            self.metadata = MetadataLog(folder, self.disk, self.clock, self._changed, me=me)
        else:
            self.directory = directory_id(self.disk, folder, new_id)
            self.metadata = Quorum(
                me,
                folder,
                config.quorum,
                self._changed,
                disk=self.disk,
                clock=self.clock,
                net=self.net,
                events=events,
                chance=chance,
                directory=self.directory,
            )
        self.peers = Peers(self.net, f"broker-{me}", self._address_of)
        self.controller = Controller(
            me,
            self.metadata,
            self.clock,
            session_ms=config.session_ms,
            doubt_ms=2 * config.heartbeat_ms,
            prefer_ms=round(1_000 * config.leader_rebalance_s),
            accepts=self.peers.accepts,
            trouble=trouble,
        )
        self.topics = Topics(
            self.controller,
            self.peers,
            new_id,
            default_partitions=config.default_partitions,
            default_replicas=config.default_replicas,
        )
        self.fetch_sessions = FetchSessions(
            self.partition,
            lambda broker: broker in self.image.brokers,
            lambda: int(self.clock.monotonic() * 1000),
            chance,
        )
        self.deadlines = Deadlines()
        self._producer_ids = range(0)
        apis = APIS if config.quorum is None else [*APIS, *OF_CLUSTERS, *BETWEEN_BROKERS]
        self.dispatch = Dispatch(self, apis)
        self.server = Server(
            self.net,
            self.dispatch,
            self.tasks,
            self.clock,
            max_request_bytes=config.max_request_bytes,
            max_connections=config.max_connections,
            idle_s=config.max_idle_s,
            trouble=trouble,
        )
        self._offsets: dict[int, OffsetsPartition] = {}
        self.groups = Coordinator(
            self._offsets_count,
            self._offsets_partition,
            self._need_offsets_topic,
            config.group_limits,
            self.clock,
            self.tasks,
        )
        if isinstance(self.metadata, MetadataLog):
            self._found(self.metadata)

    # What it knows.

    @property
    def image(self) -> Image:
        """The metadata as they are now."""
        return self.metadata.image

    @property
    def cluster_id(self) -> str:
        """One name for a cluster, whoever is asked."""
        return ALONE if self.config.quorum is None else self.config.quorum.cluster

    @property
    def controller_id(self) -> BrokerId:
        """Who decides; -1: nobody at the moment."""
        found = self.metadata.controller
        return -1 if found is None else found

    def _address_of(self, broker: BrokerId) -> Address | None:
        if broker == self.config.broker_id:
            return self.address
        about = self.image.brokers.get(broker)
        return None if about is None else Address(about.host, about.port)

    def _changed(self, records: Sequence[Record]) -> None:
        """The metadata say something new."""
        for record in records:
            if isinstance(record, RemoveTopicRecord):
                self.groups.forget_topic(record.name)
        for who in self.known_brokers.started_again(records):
            self.fetch_sessions.end_of(who)
            for _, partition in self.partitions.all():
                partition.started_again(who)
        self.known_brokers.changed(records)
        self.partitions.changed(records)
        for number, offsets in list(self._offsets.items()):
            if not offsets.leads:
                del self._offsets[number]
                self.groups.resign(number)
        if self.replication is not None:
            self.replication.changed()

    # For the handlers.

    def partition(self, topic: str, number: int) -> Partition | ErrorCode:
        """A partition that this broker leads."""
        return self.partitions.led(topic, number)

    async def auto_create(self, name: str) -> ErrorCode:
        """Make a topic that a client uses without having made it; NONE if it is there now."""
        if not self.config.auto_create_topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return await self.topics.need(name)

    async def new_producer_id(self) -> int:
        """An id that no producer had, of this broker or another.

        Raises Refused, OSError, BadMessage, DiskError.
        """
        if not self._producer_ids:
            self._producer_ids = await self._more_producer_ids()
        given, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return given

    async def _more_producer_ids(self) -> range:
        if self.controller.is_here:
            return await self.controller.producer_ids()
        fields = {"broker_id": self.config.broker_id, "broker_epoch": -1}
        reply = await self.peers.ask(self.controller_id, "allocate_producer_ids", 0, fields)
        if reply.error_code:
            raise Refused.because(ErrorCode(reply.error_code), "no producer ids")
        first = reply.producer_id_start
        return range(first, first + reply.producer_id_len)

    # Groups.

    async def coordinator_of(self, group_id: str) -> BrokerRecord | ErrorCode:
        """Who coordinates a group; the offsets topic is made for the first."""
        error = await self._need_offsets_topic()
        if error:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        number = partition_of(group_id, self._offsets_count())
        leader = self.image.topics[OFFSETS_TOPIC].partitions[number].leader
        if leader == self.config.broker_id:
            found = self._offsets_partition(number)
            if isinstance(found, ErrorCode):
                return found
        return self.image.brokers.get(leader, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def _need_offsets_topic(self) -> ErrorCode:
        return await self.topics.need(OFFSETS_TOPIC, self.config.offsets_partitions)

    def _offsets_count(self) -> int:
        """The partitions of the offsets topic, whoever made it; until then, as it is to be made."""
        topic = self.image.topics.get(OFFSETS_TOPIC)
        return self.config.offsets_partitions if topic is None else len(topic.partitions)

    def _offsets_partition(self, number: int) -> OffsetsPartition | ErrorCode:
        found = self._offsets.get(number)
        if found is not None:
            return found
        if OFFSETS_TOPIC not in self.image.topics:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        partition = self.partition(OFFSETS_TOPIC, number)
        if partition == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.NOT_COORDINATOR
        if isinstance(partition, ErrorCode):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if not partition.is_current:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        found = self._offsets[number] = OffsetsPartition(
            partition,
            self.clock,
            self.config.offsets_compact_after,
            self.config.offsets_batch_bytes,
        )
        self.groups.begin(found, self.image.topics)
        return found

    # Its life.

    async def open(self) -> Address:
        """Begin to serve; returns where. Raises NetError, RaftError, DiskError."""
        if isinstance(self.metadata, Quorum):
            await self.metadata.open()
        self.address = await self.server.open(self.config.listen)
        told = self.config.advertised or self.address
        me = BrokerRecord(self.config.broker_id, told.host, told.port, self.config.rack)
        if isinstance(self.metadata, Quorum):
            self._take_part(me)
        elif self.image.brokers.get(me.id) != me:
            await self.metadata.commit([me])
        self.tasks.spawn(self._keep_retention())
        self.tasks.spawn(self.partitions.tidy())
        self._listens.set()
        return self.address

    async def serves(self) -> None:
        """Wait until clients are told of this broker: in a cluster, until it is one of it."""
        await self._listens.wait()
        if self.replication is not None:
            await self.replication.unfenced.wait()

    async def failed(self) -> str:
        """Wait until this broker can be one of its cluster no more; returns why.

        Its part in the metadata is over when they cannot be written here, to a full disk or a
        broken one: it has to be started again when that is mended. So it is with a partition whose
        log has stopped: others can lead and follow, and this broker could do neither for as long
        as it ran. Alone, it does not fail so.
        """
        if not isinstance(self.metadata, Quorum):
            await asyncio.Event().wait()
            return ""
        node = self.metadata.node
        while not node.stopped.is_set():
            for _, partition in self.partitions.all():
                if partition.log.failure is not None:
                    return f"broker {self.config.broker_id} ends: {partition.log.failure}"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await node.stopped.wait()
        return f"broker {self.config.broker_id} ends: {node.failure}"

    def _take_part(self, me: BrokerRecord) -> None:
        assert isinstance(self.metadata, Quorum)
        quorum = self.metadata
        raft = str(Address(me.host, quorum.address.port)) if quorum.joins else ""
        self.replication = Replication(
            replace(me, incarnation=self.new_id(), raft=raft, directory=self.directory),
            quorum.config.cluster,
            quorum.config.seeds,
            self.controller,
            self.partitions,
            self.peers,
            self.tasks,
            self.clock,
            heartbeat_ms=self.config.heartbeat_ms,
            max_lag_ms=self.config.max_lag_ms,
            trouble=self._trouble,
            partition_bytes=self.config.replica_partition_bytes,
        )
        self.partitions.isr_changes = self.replication.isr_changes
        quorum.node.lost = lambda who: self.tasks.spawn(self.controller.hung_up(who))
        quorum.node.led_by = self.replication.led_by
        self.replication.start()

    def _found(self, metadata: MetadataLog) -> None:
        """A cluster of one; topics that phase 2 made in this directory become this broker's."""
        me, where = self.config.broker_id, self.config.advertised or self.config.listen
        if me not in self.image.brokers:
            metadata.write([BrokerRecord(me, where.host, where.port, self.config.rack)])
        for topic, partitions in self.partitions.strangers().items():
            topic_id = self.new_id()
            new = topic_changes.create(self.image, topic, topic_id, partitions, 1, {}, found=True)
            metadata.write(new)

    async def _keep_retention(self) -> None:
        while True:
            await asyncio.sleep(self.config.retention_check_s)
            await self.partitions.apply_retention()

    async def close(self) -> None:
        """Answer what was asked, hang up, and close every log."""
        if self.replication is not None:
            await self.replication.leave(min(self.config.drain_s, HAND_OVER_S))
            if isinstance(self.metadata, Quorum):
                await self.metadata.hand_over(self.controller.leaving)
        await self.server.drain(self.config.drain_s)
        if self.replication is not None:
            await self.replication.goodbye(GOODBYE_S)
        self.server.close()
        self.groups.close()
        self.deadlines.close()
        self.controller.close()
        self.tasks.cancel()
        self.peers.close()
        self.partitions.close()
        self.metadata.close()

    async def __aenter__(self) -> Broker:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
