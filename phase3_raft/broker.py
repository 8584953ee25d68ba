"""One broker: its metadata, its partitions, its groups, and the server in front of them.

    async with Broker(BrokerConfig(data_dir="data")) as broker:
        print(broker.address)

Everything that touches time, files or the network is an argument, so the same broker runs in a
process, in a notebook, and in a simulation on virtual time.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from craft2.clock import Clock, SystemClock
from craft2.disk import Disk, DiskError, RealDisk
from craft2.errors import Craft2Error
from craft2.net import Address, Net, RealNet
from craft2.tasks import Tasks
from phase1_file_queue.log_config import LogError
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_state import GroupLimits
from phase2_groups.topics import (
    MAX_PARTITIONS,
    PARTITION_FOLDER,
    TopicError,
    check_topic,
    partition_count,
    partition_path,
)
from phase3_raft import partition_files
from phase3_raft.groups.coordinator import OFFSETS_TOPIC, Coordinator, partition_of
from phase3_raft.groups.offsets import OffsetsPartition
from phase3_raft.metadata.image import Image, TopicImage
from phase3_raft.metadata.metadata_log import METADATA_TOPIC, MetadataLog
from phase3_raft.metadata.records import (
    BrokerRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from phase3_raft.partition import Partition
from phase3_raft.topic_config import TopicConfig, setting

DEFAULT_LIMITS = GroupLimits()
DEFAULT_ADDRESS = Address("127.0.0.1", 9092)
_PRODUCER_IDS = 1_000  # taken from the metadata at a time


class Refused(Craft2Error):
    """What a client asked for cannot be done; `code` is what it is told."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR

    @classmethod
    def because(cls, code: ErrorCode, problem: str, fix: str = "") -> Refused:
        """With this code."""
        error = cls(problem, fix)
        error.code = code
        return error


@dataclass(frozen=True)
class BrokerConfig:
    """How a broker runs.

    listen: where it accepts connections; port 0 is any that is free. advertised: what clients are
    told to connect to; where it listens, if None. topic_defaults: settings of topics that have
    none of their own, the groups' topic as well.
    """

    data_dir: str
    broker_id: int = 1
    listen: Address = DEFAULT_ADDRESS
    advertised: Address | None = None
    rack: str | None = None
    default_partitions: int = 1
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    auto_create_topics: bool = True
    offsets_partitions: int = 50
    group_limits: GroupLimits = DEFAULT_LIMITS
    max_request_bytes: int = 100 * 1024**2
    max_connections: int = 10_000
    max_idle_s: float = 600.0
    retention_check_s: float = 300.0
    drain_s: float = 5.0


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
    ) -> None:
        """Opens the data directory. Raises LogInUse, CorruptLog, DiskError, BadConfig."""
        from phase3_raft.dispatch import Dispatch
        from phase3_raft.handlers import APIS
        from phase3_raft.server import Server

        TopicConfig.of(config.topic_defaults)
        self.config = config
        self.disk = disk or RealDisk()
        self.clock = clock or SystemClock()
        self.new_id = new_id
        self.disk.mkdir(config.data_dir)
        self.metadata = MetadataLog(config.data_dir, self.disk, self.clock, self._changed)
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._producer_ids = range(0)
        self._trouble = trouble
        self.tasks = Tasks(lambda error: trouble(f"a task ended: {error!r}"))
        self.dispatch = Dispatch(self, APIS)
        self.server = Server(
            net or RealNet(),
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
            config.offsets_partitions,
            self._offsets_partition,
            config.group_limits,
            self.clock,
            self.tasks,
        )
        self.address = config.listen
        self._adopt()

    @property
    def image(self) -> Image:
        """The metadata as they are now."""
        return self.metadata.image

    @property
    def cluster_id(self) -> str:
        """One name for a cluster, whoever is asked."""
        return "craft2"

    # Topics.

    def create_topic(
        self, name: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic. Raises Refused, BadConfig."""
        self.check_new_topic(name, partitions, config or {})
        records: list[Record] = [TopicRecord(name, self.new_id())]
        records += self._partition_records(name, range(partitions))
        records += [ConfigRecord("topic", name, *item) for item in (config or {}).items()]
        self.metadata.commit(records)

    def delete_topic(self, name: str) -> None:
        """A topic, its records and what groups committed for it are no more. Raises Refused."""
        self.existing_topic(name)
        if name == OFFSETS_TOPIC:
            raise Refused.because(
                ErrorCode.INVALID_REQUEST,
                f"{name} is where groups keep their offsets",
                "delete groups, not this topic",
            )
        self.metadata.commit([RemoveTopicRecord(name)])

    def grow_topic(self, name: str, partitions: int, *, only_check: bool = False) -> None:
        """Let a topic have more partitions. Raises Refused."""
        there = len(self.existing_topic(name).partitions)
        if not there < partitions <= MAX_PARTITIONS or name == OFFSETS_TOPIC:
            raise Refused.because(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name!r} has {there} partitions and cannot have {partitions}",
                f"give a number from {there + 1} to {MAX_PARTITIONS}"
                if name != OFFSETS_TOPIC
                else "groups are found by this number",
            )
        if not only_check:
            self.metadata.commit(self._partition_records(name, range(there, partitions)))

    def configure_topic(
        self, name: str, changes: Mapping[str, str | None], *, only_check: bool = False
    ) -> None:
        """Change settings of a topic; None: the default. Raises Refused, BadConfig."""
        self.existing_topic(name)
        TopicConfig.of({key: value for key, value in changes.items() if value is not None})
        for key in changes:
            setting(key)
        if not only_check:
            self.metadata.commit([ConfigRecord("topic", name, *item) for item in changes.items()])

    def topic_config(self, topic: TopicImage) -> TopicConfig:
        """Its settings, with this broker's defaults."""
        return TopicConfig({**self.config.topic_defaults, **topic.config})

    def existing_topic(self, name: str) -> TopicImage:
        """A topic. Raises Refused if there is none."""
        found = self.image.topics.get(name)
        if found is None:
            raise Refused.because(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}", "create it"
            )
        return found

    def _partition_records(self, name: str, numbers: Iterable[int]) -> list[Record]:
        me = self.config.broker_id
        return [PartitionRecord(name, number, (me,), (me,), me, 0, 0) for number in numbers]

    def _changed(self, records: Sequence[Record]) -> None:
        """The metadata say something new: partitions that are open follow."""
        for record in records:
            match record:
                case ConfigRecord(kind="topic"):
                    config = self.topic_config(self.image.topics[record.resource])
                    for (topic, _), partition in self._partitions.items():
                        if topic == record.resource:
                            partition.configure(config)
                case RemoveTopicRecord():
                    self._forget(record.name)

    def _forget(self, topic: str) -> None:
        self.groups.forget_topic(topic)
        for key in [key for key in self._partitions if key[0] == topic]:
            self._partitions.pop(key).close(deleted=True)
        for folder, name, _ in self._folders():
            if name == topic:
                self._remove(folder)

    def _remove(self, folder: str) -> None:
        try:
            partition_files.remove(self.disk, folder)
        except (OSError, DiskError) as error:
            self._trouble(f"{folder!r} of a deleted topic is still there: {error}")

    def _folders(self) -> list[tuple[str, str, int]]:
        """The folders that may be a partition's: path, topic, number."""
        names = self.disk.listdir(self.config.data_dir)
        found = [(name, PARTITION_FOLDER.fullmatch(name)) for name in names]
        return [
            (os.path.join(self.config.data_dir, name), match[1], int(match[2]))
            for name, match in found
            if match and match[1] != METADATA_TOPIC
        ]

    def check_new_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Raises Refused, BadConfig if there cannot be such a topic."""
        try:
            check_topic(name)
        except TopicError as error:
            raise Refused.because(
                ErrorCode.INVALID_TOPIC_EXCEPTION, error.problem, error.fix
            ) from None
        if name in self.image.topics:
            raise Refused.because(
                ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already", "use it"
            )
        if not 1 <= partitions <= MAX_PARTITIONS:
            raise Refused.because(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name!r} cannot have {partitions} partitions",
                f"give a number from 1 to {MAX_PARTITIONS}",
            )
        TopicConfig.of(config)

    def auto_create(self, name: str) -> ErrorCode:
        """Make a topic that a client uses without having made it; NONE if it is there now."""
        if not self.config.auto_create_topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            self.create_topic(name, self.config.default_partitions)
        except Refused as error:
            return error.code
        return ErrorCode.NONE

    def partition(self, topic: str, number: int) -> Partition | ErrorCode:
        """A partition that this broker leads, opened when it is used for the first time."""
        found = self._partitions.get((topic, number))
        if found is not None:
            return found
        record = self.image.partition(topic, number)
        if record is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        about = self.image.topics[topic]
        path = partition_path(self.config.data_dir, topic, number)
        try:
            partition_files.claim(self.disk, path, about.topic_id, self.image.removed)
            found = Partition(path, record, self.topic_config(about), self.disk, self.clock)
        except (LogError, DiskError) as error:
            self._trouble(f"{topic}-{number} cannot be opened: {error}")
            return ErrorCode.KAFKA_STORAGE_ERROR
        self._partitions[topic, number] = found
        return found

    def open_partitions(self) -> list[tuple[tuple[str, int], Partition]]:
        """Those that somebody has used, by topic and number."""
        return sorted(self._partitions.items())

    def _adopt(self) -> None:
        """Folders without a topic: those that phase 2 made become this broker's, and those that a
        deletion has left behind go."""
        new = set()
        for folder, topic, _ in self._folders():
            if topic in self.image.topics:
                continue
            owner = partition_files.owner(self.disk, folder)
            if owner in self.image.removed or not self.disk.listdir(folder):
                self._remove(folder)
            elif owner is not None:
                self._trouble(f"{folder!r} is left alone: no topic here has the id {owner}")
            elif not topic.startswith("__"):
                new.add(topic)
        for topic in sorted(new):
            partitions = partition_count(self.config.data_dir, topic, disk=self.disk)
            if partitions:
                self.create_topic(topic, partitions)

    # Producers.

    def new_producer_id(self) -> int:
        """An id that no producer had, in this life of the broker or another."""
        if not self._producer_ids:
            first = self.image.next_producer_id
            self.metadata.commit([ProducerIdsRecord(first + _PRODUCER_IDS)])
            self._producer_ids = range(first, first + _PRODUCER_IDS)
        given, self._producer_ids = self._producer_ids[0], self._producer_ids[1:]
        return given

    # Groups.

    def coordinator_is_here(self, group_id: str) -> ErrorCode:
        """NONE if this broker coordinates the group; the offsets topic is made for the first."""
        found = self._offsets_partition(partition_of(group_id, self.config.offsets_partitions))
        return found if isinstance(found, ErrorCode) else ErrorCode.NONE

    def _offsets_partition(
        self, number: int, *, create: bool = True
    ) -> OffsetsPartition | ErrorCode:
        found = self._offsets.get(number)
        if found is not None:
            return found
        if OFFSETS_TOPIC not in self.image.topics:
            if not create:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            self.create_topic(OFFSETS_TOPIC, self.config.offsets_partitions)
        partition = self.partition(OFFSETS_TOPIC, number)
        if isinstance(partition, ErrorCode):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = self._offsets[number] = OffsetsPartition(partition, self.clock)
        return found

    # Its life.

    async def open(self) -> Address:
        """Begin to serve; returns where. Raises NetError."""
        self.address = await self.server.open(self.config.listen)
        told = self.config.advertised or self.address
        me = BrokerRecord(self.config.broker_id, told.host, told.port, self.config.rack)
        if self.image.brokers.get(me.id) != me:
            self.metadata.commit([me])
        self.tasks.spawn(self._keep_retention())
        return self.address

    async def _keep_retention(self) -> None:
        while True:
            await asyncio.sleep(self.config.retention_check_s)
            await self.apply_retention()

    async def apply_retention(self) -> None:
        """Delete the segments that are too old, or too much, of all partitions."""
        for topic, number in [
            (about.name, number)
            for about in self.image.topics.values()
            for number in about.partitions
            if about.name != OFFSETS_TOPIC  # it is compacted instead
        ]:
            path = partition_path(self.config.data_dir, topic, number)
            partition = self.partition(topic, number) if self.disk.exists(path) else None
            if isinstance(partition, Partition):
                try:
                    partition.log.apply_retention()
                except (LogError, DiskError) as error:
                    self._trouble(f"retention of {topic}-{number}: {error}")
            await asyncio.sleep(0)  # others have their turn

    async def close(self) -> None:
        """Answer what was asked, hang up, and close every log."""
        await self.server.drain(self.config.drain_s)
        self.server.close()
        self.groups.close()
        self.tasks.cancel()
        for partition in self._partitions.values():
            partition.close()
        self._partitions.clear()
        self.metadata.close()

    async def __aenter__(self) -> Broker:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
