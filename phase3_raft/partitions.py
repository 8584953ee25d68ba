"""The partitions that a broker has: those that the metadata give it, as logs in its directory.

A partition is opened when it is used for the first time; in a cluster as soon as it is known, one
after the other. One that cannot be opened, on a full disk or a broken one, is tried again; until
then others lead it. When the metadata change, those that are open change with them, and the files
of topics that are no more go.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Container, Mapping, Sequence

from msgspec.structs import replace

from craft2.clock import Clock
from craft2.disk import Disk, DiskError
from phase1_file_queue.log_config import LogError
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import TopicPartition
from phase2_groups.topics import PARTITION_FOLDER, partition_count, partition_path
from phase3_raft import partition_files
from phase3_raft.groups.coordinator import OFFSETS_TOPIC
from phase3_raft.metadata.broker_changes import NOBODY
from phase3_raft.metadata.image import Image, TopicImage
from phase3_raft.metadata.metadata_log import METADATA_TOPIC
from phase3_raft.metadata.records import (
    BrokerId,
    ConfigRecord,
    PartitionRecord,
    Record,
    RemovedTopicsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from phase3_raft.partition import Partition
from phase3_raft.topic_config import TopicConfig


class Partitions:
    """See the module. me: this broker. defaults: settings of topics that have none of their own.
    trouble: told what went wrong, in a line.

    may_lead: False until the cluster knows that this broker has started again. Before that, the
    metadata may say that it leads, as it did when it died: in an epoch in which the others have
    records that its own log has lost.
    """

    def __init__(
        self,
        me: BrokerId,
        data_dir: str,
        image: Callable[[], Image],
        disk: Disk,
        clock: Clock,
        *,
        defaults: Mapping[str, str],
        max_lag_ms: int,
        trouble: Callable[[str], object],
    ) -> None:
        self._me, self._data_dir, self._image = me, data_dir, image
        self._disk, self._clock, self._max_lag_ms = disk, clock, max_lag_ms
        self._defaults, self._trouble = defaults, trouble
        self._open: dict[TopicPartition, Partition] = {}
        self._shut: dict[TopicPartition, str] = {}  # those that cannot be opened, and why
        self._gone: dict[str, Partition | None] = {}  # folders to be removed, and what is open
        self._has_gone = asyncio.Event()
        self.may_lead = True
        self.isr_changes: Callable[[], object] = lambda: None  # told when some ISR is to change

    def led(self, topic: str, number: int) -> Partition | ErrorCode:
        """A partition that this broker leads."""
        if not self.may_lead:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        found = self._open.get((topic, number))
        if found is None:
            record = self._image().partition(topic, number)
            if record is None:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if record.leader != self._me:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            return self.replica(record)
        return found if found.leads else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def replica(self, record: PartitionRecord) -> Partition | ErrorCode:
        """A partition of which this broker is a replica, opened if it is not."""
        key = record.topic, record.partition
        found = self._open.get(key)
        if found is not None:
            return found
        about = self._image().topics[record.topic]
        path = partition_path(self._data_dir, *key)
        if path in self._gone:
            self._tidy(path)
        try:
            partition_files.claim(self._disk, path, about.topic_id, self._image().removed)
            found = Partition(
                path,
                self._as_known(record),
                self._config(about),
                self._disk,
                self._clock,
                me=self._me,
                max_lag_ms=self._max_lag_ms,
            )
        except (LogError, DiskError) as error:
            if self._shut.get(key) != str(error):
                self._trouble(f"{key[0]}-{key[1]} cannot be opened: {error}")
                self._shut[key] = str(error)
                self._isr_changes()
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._shut.pop(key, None) is not None:
            self._trouble(f"{key[0]}-{key[1]} is open now")
        found.caught_up = found.failed = self._isr_changes
        found.trouble = self._trouble
        self._open[key] = found
        return found

    def is_open(self, topic: str, number: int) -> bool:
        """Whether it is."""
        return (topic, number) in self._open

    def shut(self) -> list[PartitionRecord]:
        """Those of this broker that it cannot open, as the metadata know them."""
        found = [self._image().partition(*key) for key in self._shut]
        return [one for one in found if one is not None and self._me in one.replicas]

    def _isr_changes(self) -> None:
        self.isr_changes()

    def _config(self, topic: TopicImage) -> TopicConfig:
        """Its settings, with this broker's defaults."""
        return TopicConfig({**self._defaults, **topic.config})

    def all(self) -> list[tuple[TopicPartition, Partition]]:
        """Those that are open, by topic and number."""
        return sorted(self._open.items())

    # What the metadata say.

    def let_lead(self) -> None:
        """The cluster knows that this broker has started: what it says of its leading holds."""
        if not self.may_lead:
            self.may_lead = True
            for key, partition in self._open.items():
                record = self._image().partition(*key)
                if record is not None and record.leader == self._me:
                    partition.become(record)

    def _as_known(self, record: PartitionRecord) -> PartitionRecord:
        """Who led in a former life knows nothing of who is in sync by now: were it to lead, even
        for itself alone, its high watermark would be a guess."""
        former = record.leader == self._me and not self.may_lead
        return replace(record, leader=NOBODY) if former else record

    def changed(self, records: Sequence[Record]) -> None:
        """They say something new: partitions that are open follow."""
        removed = {one.name for one in records if isinstance(one, RemoveTopicRecord)}
        if removed:  # first: what comes after may be a younger topic of that name
            self._forget(removed)
        for record in records:
            match record:
                case ConfigRecord(kind="topic"):
                    self._configure(record.resource)
                case TopicRecord():  # in a snapshot: without the settings that it has no more
                    self._configure(record.name)
                case PartitionRecord():
                    self._move(record)
                case RemovedTopicsRecord() if record.topic_ids:
                    self._forget_folders(record.topic_ids)

    def _configure(self, topic: str) -> None:
        about = self._image().topics.get(topic)
        for key, partition in self._open.items():
            if key[0] == topic and about is not None:
                partition.configure(self._config(about))

    def _move(self, record: PartitionRecord) -> None:
        key = record.topic, record.partition
        found = self._open.get(key)
        if found is not None:
            found.become(self._as_known(record))
        if self._me not in record.replicas and (found is not None or key in self._shut):
            self._to_remove(*key)

    def _forget(self, topics: Container[str]) -> None:
        for _, topic, number in self._folders():
            if topic in topics:
                self._to_remove(topic, number)

    def _forget_folders(self, topic_ids: Container[str]) -> None:
        """What lies here of topics that were removed while this broker did not hear of it."""
        for folder, topic, number in self._folders():
            try:
                owner = partition_files.owner(self._disk, folder)
            except (LogError, DiskError) as error:
                self._trouble(f"{folder!r} is left alone: {error}")
                continue
            if owner in topic_ids:
                self._to_remove(topic, number)

    def _to_remove(self, topic: str, number: int) -> None:
        self._shut.pop((topic, number), None)
        partition = self._open.pop((topic, number), None)
        if partition is not None:
            partition.forget()
        self._gone[partition_path(self._data_dir, topic, number)] = partition
        self._has_gone.set()

    async def tidy(self) -> None:
        """Close and remove what is not needed any more, for ever: a folder, and others have their
        turn. A topic may have a thousand."""
        while True:
            await self._has_gone.wait()
            self._has_gone.clear()
            while self._gone:
                self._tidy(next(iter(self._gone)))
                await asyncio.sleep(0)

    def tidy_all(self) -> None:
        """The same, all of it, now."""
        for folder in list(self._gone):
            self._tidy(folder)

    def _tidy(self, folder: str) -> None:
        partition = self._gone.pop(folder)
        if partition is not None:
            try:
                partition.close()
            except (LogError, DiskError) as error:
                self._trouble(f"{folder!r}, which is not needed any more: {error}")
        name = PARTITION_FOLDER.fullmatch(os.path.basename(folder))
        assert name is not None
        record = self._image().partition(name[1], int(name[2]))
        if record is not None and self._me in record.replicas:
            # The topic was made again, or the partition came back. What is there may be the new
            # one's; if it is not, `claim` removes it.
            return
        if self._disk.exists(folder):
            self._remove(folder)

    def _remove(self, folder: str) -> None:
        try:
            partition_files.remove(self._disk, folder)
        except (OSError, DiskError) as error:
            self._trouble(f"{folder!r}, which is not needed any more, is still there: {error}")

    def _folders(self) -> list[tuple[str, str, int]]:
        """The folders that may be a partition's: path, topic, number."""
        names = self._disk.listdir(self._data_dir)
        found = [(name, PARTITION_FOLDER.fullmatch(name)) for name in names]
        return [
            (os.path.join(self._data_dir, name), match[1], int(match[2]))
            for name, match in found
            if match and match[1] != METADATA_TOPIC
        ]

    def strangers(self) -> dict[str, int]:
        """Topics that phase 2 made in this directory, with their numbers of partitions; what a
        deletion has left behind goes."""
        new = set()
        image = self._image()
        for folder, topic, _ in self._folders():
            if topic in image.topics:
                continue
            owner = partition_files.owner(self._disk, folder)
            if owner in image.removed or not self._disk.listdir(folder):
                self._remove(folder)
            elif owner is not None:
                self._trouble(f"{folder!r} is left alone: no topic here has the id {owner}")
            elif not topic.startswith("__"):
                new.add(topic)
        counts = {
            topic: partition_count(self._data_dir, topic, disk=self._disk) for topic in sorted(new)
        }
        return {topic: count for topic, count in counts.items() if count}

    # Their life.

    async def apply_retention(self) -> None:
        """Delete the segments that are too old, or too much, of all partitions that are led here.

        Followers learn where the log begins: a clock that is wrong there does no harm.
        """
        for record in list(self._image().partitions()):
            key = record.topic, record.partition
            if self._me != record.leader or record.topic == OFFSETS_TOPIC:
                continue  # that one is compacted instead
            path = partition_path(self._data_dir, *key)
            partition = self.replica(record) if self._disk.exists(path) else None
            if isinstance(partition, Partition):
                await self._retain(partition)
            await asyncio.sleep(0)  # others have their turn

    async def _retain(self, partition: Partition) -> None:
        try:
            while partition.leads and not partition.deleted and partition.apply_retention():
                await asyncio.sleep(0)
        except (LogError, DiskError) as error:
            self._trouble(f"retention of {partition.name}: {error}")

    def close(self) -> None:
        """Close every log, and remove what is to go."""
        self.tidy_all()
        for partition in self._open.values():
            partition.close()
        self._open.clear()
