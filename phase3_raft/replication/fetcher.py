"""A follower's part of replication: fetch from each leader what it has, append it, fetch again.

One task for each broker that leads something of ours, with a connection and a fetch session of its
own (`fetch_sessions`): a request says only what is new, which is mostly what was just appended. So
the next request is the acknowledgement as well.

Source: Kafka's `ReplicaFetcherThread`, `FetchSessionHandler`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from craft2.disk import DiskError
from craft2.record_batch import BatchTooShort, CorruptBatch
from craft2.tasks import Tasks
from phase1_file_queue.log_config import LogError
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import TopicPartition
from phase3_raft.codec import BadMessage
from phase3_raft.fetch_messages import (
    FIRST_EPOCH,
    FOLLOWERS_VERSION,
    NO_SESSION,
    Fetched,
    FetchPartition,
    FetchRequest,
    next_epoch,
    read_reply,
    write_request,
)
from phase3_raft.metadata.records import BrokerId
from phase3_raft.partition import Partition
from phase3_raft.peers import Peers
from phase3_raft.replication.throttle import Throttle, is_throttled
from phase3_raft.replication.truncation import truncate_at

LANE = "replication"
WAIT_MS = 500  # the leader waits so long for something to send
MAX_BYTES = 10 * 1024**2  # of one reply
PARTITION_BYTES = 1024**2
PAUSE_S = 0.05  # before a leader that did not answer, or a partition with an error, is asked again


class Fetcher:
    """Follows one broker. rate: bytes a second for throttled replicas, if they are limited.
    partition_bytes: so many of one partition in a reply, but for a batch that is larger.

    Invariant: partitions that are not in `_due` are in the session as they are, or are not fetched
    and not in it.
    """

    def __init__(
        self,
        me: BrokerId,
        leader: BrokerId,
        peers: Peers,
        trouble: Callable[[str], object],
        throttle: Throttle,
        rate: Callable[[], int | None],
        partition_bytes: int = PARTITION_BYTES,
    ) -> None:
        self.leader = leader
        self._partition_bytes = partition_bytes
        self._throttle, self._rate = throttle, rate
        self._me, self._peers, self._trouble = me, peers, trouble
        self._partitions: dict[TopicPartition, Partition] = {}
        self._paused: dict[TopicPartition, float] = {}  # until when, by the loop's clock
        self._session, self._epoch = NO_SESSION, FIRST_EPOCH
        self._told: dict[TopicPartition, FetchPartition] = {}  # the partitions of the session
        self._due: dict[TopicPartition, None] = {}
        self._was_limited = False

    def set(self, partitions: dict[TopicPartition, Partition]) -> None:
        """Which partitions there are to follow; something may have changed about them."""
        before, self._partitions = self._partitions, partitions
        if partitions != before:
            self._paused.clear()
        for key in {**before, **partitions}:
            self._due[key] = None
            if key in before and before[key] is not partitions.get(key, before[key]):
                self._told.pop(key, None)  # a topic of this name was deleted, and made again
        if partitions.keys() - before.keys():
            self._peers.hang_up(self.leader, LANE)  # it may be waiting, and without these

    async def run(self) -> None:
        """For ever."""
        while True:
            try:
                busy = await self._round()
            except (OSError, BadMessage):
                self._begin_anew()
                busy = False
            if not busy:
                await asyncio.sleep(PAUSE_S)

    def _begin_anew(self) -> None:
        """The leader may not know what was said: the next request is a session's first."""
        self._epoch = FIRST_EPOCH
        self._told.clear()
        self._due = dict.fromkeys(self._partitions)

    async def _round(self) -> bool:
        """One request; whether it did something."""
        now = asyncio.get_running_loop().time()
        for key in [key for key, until in self._paused.items() if until <= now]:
            del self._paused[key]
            self._due[key] = None
        rate = self._rate()
        if rate is not None or self._was_limited:
            self._due = dict.fromkeys(self._partitions)
        self._was_limited = rate is not None
        named, forgotten = self._news(held_back=rate is not None and self._throttle.is_in_debt(now))
        if not self._told:
            self._begin_anew()
            return False
        session = self._session, self._epoch
        request = FetchRequest(self._me, WAIT_MS, 1, MAX_BYTES, *session, named, forgotten)
        asked, body = self._partitions, write_request(request)
        reply = read_reply(
            *await self._peers.exchange(self.leader, "fetch", FOLLOWERS_VERSION, body, LANE)
        )
        if reply.error:  # the leader does not know this session, or not so
            self._begin_anew()
            return True
        self._session, self._epoch = reply.session_id, next_epoch(self._epoch)
        if self._session == NO_SESSION:  # it has no room for one
            self._begin_anew()
        for found in reply.partitions:
            key = found.topic, found.number
            partition = self._partitions.get(key)
            if partition is not None and partition is asked.get(key):
                if rate is not None and found.records and is_throttled(partition, self._me):
                    self._throttle.fetched(len(found.records), rate, now)
                self._due[key] = None
                await self._take(key, partition, found)
        return True

    def _news(self, *, held_back: bool) -> tuple[list[FetchPartition], list[TopicPartition]]:
        """What the leader has to be told, and what is not fetched any more, or for a while."""
        named, forgotten = [], []
        for key in self._due:
            one = self._partitions.get(key)
            if (
                one is None
                or one.leads
                or one.deleted
                or key in self._paused
                or (held_back and is_throttled(one, self._me))
            ):
                if self._told.pop(key, None) is not None:
                    forgotten.append(key)
                continue
            log = one.log
            (start, end), epoch = log.bounds, one.record.leader_epoch
            most = self._partition_bytes
            last_epoch = log.latest_epoch if start < end else -1  # or it has no last record
            told = FetchPartition(*key, end, most, epoch, last_epoch, start)
            if self._told.get(key) != told:
                self._told[key] = told
                named.append(told)
        self._due.clear()
        return named, forgotten

    async def _take(self, key: TopicPartition, partition: Partition, found: Fetched) -> None:
        """What the leader says of one partition."""
        if partition.leads or partition.deleted:
            return
        try:
            if found.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                partition.reset_to(max(0, found.log_start))
            elif found.error:
                self._pause(key)
            elif found.diverging is not None:
                cut = truncate_at(found.diverging, partition.log.epoch_end_offset)
                if cut < found.log_start:  # it has deleted all that they could have in common
                    partition.reset_to(found.log_start)
                elif not partition.truncate_to(cut):
                    self._pause(key)  # or the same is asked again and again
            else:
                if found.records:
                    partition.append_as_follower(found.records)
                    if partition.must_flush:
                        await partition.flushed()
                partition.follow_to(found.high_watermark, found.log_start)
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
        partition_bytes: int = PARTITION_BYTES,
    ) -> None:
        self._partition_bytes = partition_bytes
        self._me, self._peers, self._tasks, self._trouble = me, peers, tasks, trouble
        self._throttle, self._rate = Throttle(), rate
        self._by_leader: dict[BrokerId, Fetcher] = {}

    def follow(self, partitions: dict[TopicPartition, Partition]) -> None:
        """Follow the leaders of these partitions, and nobody else."""
        wanted: dict[BrokerId, dict[TopicPartition, Partition]] = {}
        for key, partition in partitions.items():
            if partition.record.leader >= 0:
                wanted.setdefault(partition.record.leader, {})[key] = partition
        for leader in wanted:
            if leader not in self._by_leader:
                fetcher = Fetcher(
                    self._me,
                    leader,
                    self._peers,
                    self._trouble,
                    self._throttle,
                    self._rate,
                    self._partition_bytes,
                )
                self._by_leader[leader] = fetcher
                self._tasks.spawn(fetcher.run())
        for leader, fetcher in self._by_leader.items():
            fetcher.set(wanted.get(leader, {}))
