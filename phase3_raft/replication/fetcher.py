"""A follower's part of replication: fetch from each leader what it has, append it, fetch again.

One task for each broker that leads something of ours, with a connection of its own; one request
names all partitions. The next request says what has been appended, so it is the acknowledgement as
well.

Source: Kafka's `ReplicaFetcherThread`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from craft2.disk import DiskError
from craft2.record_batch import BatchTooShort, CorruptBatch
from craft2.tasks import Tasks
from phase1_file_queue.log_config import LogError
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import TopicPartition
from phase3_raft.codec import BadMessage
from phase3_raft.metadata.records import BrokerId
from phase3_raft.partition import Partition
from phase3_raft.peers import Peers
from phase3_raft.replication.throttle import Throttle, is_throttled
from phase3_raft.replication.truncation import truncate_at
from phase3_raft.schemas import Fields

VERSION = 12
LANE = "replication"
WAIT_MS = 500  # the leader waits so long for something to send
MAX_BYTES = 10 * 1024**2  # of one reply
PARTITION_BYTES = 1024**2
PAUSE_S = 0.05  # before a leader that did not answer, or a partition with an error, is asked again


class Fetcher:
    """Follows one broker. rate: bytes a second for throttled replicas, if they are limited."""

    def __init__(
        self,
        me: BrokerId,
        leader: BrokerId,
        peers: Peers,
        trouble: Callable[[str], object],
        throttle: Throttle,
        rate: Callable[[], int | None],
    ) -> None:
        self.leader = leader
        self._throttle, self._rate = throttle, rate
        self._me, self._peers, self._trouble = me, peers, trouble
        self._partitions: dict[TopicPartition, Partition] = {}
        self._paused: dict[TopicPartition, float] = {}  # until when, by the loop's clock

    async def set(self, partitions: dict[TopicPartition, Partition]) -> None:
        """Which partitions there are to follow."""
        if partitions == self._partitions:
            return
        grown = partitions.keys() - self._partitions.keys()
        self._partitions = partitions
        self._paused.clear()
        if grown:
            await self._peers.hang_up(self.leader, LANE)  # it may be waiting, and without these

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                busy = await self._round()
            except (OSError, BadMessage):
                busy = False
            if not busy:
                await asyncio.sleep(PAUSE_S)

    async def _round(self) -> bool:
        """One request; whether it did something."""
        now = asyncio.get_running_loop().time()
        rate = self._rate()
        held_back = rate is not None and self._throttle.is_in_debt(now)
        wanted = {
            key: one
            for key, one in self._partitions.items()
            if not (one.leads or one.deleted or self._paused.get(key, 0.0) > now)
            and not (held_back and is_throttled(one, self._me))
        }
        if not wanted:
            return False
        reply = await self._peers.ask(self.leader, "fetch", VERSION, self._request(wanted), LANE)
        for topic in reply.responses:
            for found in topic.partitions:
                key = topic.topic, found.partition_index
                partition = wanted.get(key)
                if partition is not None and self._partitions.get(key) is partition:
                    if rate is not None and found.records and is_throttled(partition, self._me):
                        self._throttle.fetched(len(found.records), rate, now)
                    await self._take(key, partition, found)
        return True

    def _request(self, wanted: dict[TopicPartition, Partition]) -> Fields:
        topics: dict[str, list[Fields]] = {}
        for (topic, number), partition in wanted.items():
            log = partition.log
            end = log.end_offset
            topics.setdefault(topic, []).append(
                {
                    "partition": number,
                    "current_leader_epoch": partition.record.leader_epoch,
                    "fetch_offset": end,
                    "last_fetched_epoch": log.latest_epoch,
                    "log_start_offset": log.log_start,
                    "partition_max_bytes": PARTITION_BYTES,
                }
            )
        return {
            "replica_id": self._me,
            "max_wait": WAIT_MS,
            "min_bytes": 1,
            "max_bytes": MAX_BYTES,
            "isolation_level": 0,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [{"topic": name, "partitions": some} for name, some in topics.items()],
            "forgotten_topics_data": [],
            "rack_id": "",
        }

    async def _take(self, key: TopicPartition, partition: Partition, found: Any) -> None:
        """What the leader says of one partition."""
        if partition.leads or partition.deleted:
            return
        try:
            diverging = found.diverging_epoch
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                partition.reset_to(max(0, found.log_start_offset))
            elif found.error_code:
                self._pause(key)
            elif diverging.epoch >= 0 or diverging.end_offset >= 0:
                there = diverging.epoch, diverging.end_offset
                partition.truncate_to(truncate_at(there, partition.log.epoch_end_offset))
            else:
                if found.records:
                    partition.append_as_follower(found.records)
                    if partition.must_flush:
                        await partition.flushed()
                partition.follow_to(found.high_watermark, found.log_start_offset)
        except (LogError, CorruptBatch, BatchTooShort, DiskError) as error:
            self._trouble(f"{key[0]}-{key[1]} cannot follow broker {self.leader}: {error}")
            self._pause(key, 1.0)

    def _pause(self, key: TopicPartition, for_s: float = PAUSE_S) -> None:
        self._paused[key] = asyncio.get_running_loop().time() + for_s


class Fetchers:
    """The fetchers of a broker, one for each leader that it follows, with one throttle."""

    def __init__(
        self,
        me: BrokerId,
        peers: Peers,
        tasks: Tasks,
        trouble: Callable[[str], object],
        rate: Callable[[], int | None],
    ) -> None:
        self._me, self._peers, self._tasks, self._trouble = me, peers, tasks, trouble
        self._throttle, self._rate = Throttle(), rate
        self._by_leader: dict[BrokerId, Fetcher] = {}

    async def follow(self, partitions: dict[TopicPartition, Partition]) -> None:
        """Follow the leaders of these partitions, and nobody else."""
        wanted: dict[BrokerId, dict[TopicPartition, Partition]] = {}
        for key, partition in partitions.items():
            if partition.record.leader >= 0:
                wanted.setdefault(partition.record.leader, {})[key] = partition
        for leader in wanted:
            if leader not in self._by_leader:
                fetcher = Fetcher(
                    self._me, leader, self._peers, self._trouble, self._throttle, self._rate
                )
                self._by_leader[leader] = fetcher
                self._tasks.spawn(fetcher.run())
        for leader, fetcher in self._by_leader.items():
            await fetcher.set(wanted.get(leader, {}))
