"""A partition as a broker has it: phase 1's log, its role, and who waits for what happens to it.

The leader appends what producers send, and consumers read up to the *high watermark*: what is
before it is on all replicas in sync (`replication.replicas`), and does not go away when the leader
does. With one replica that is all there is. Followers append what the leader has
(`replication.fetcher`).

Three kinds of requests wait. A reader that has everything: `watch` calls it back when there is
more, and `watch_log` a follower. A producer with acks=all: `when_replicated`. A producer to a topic
with `flush.messages=1`: appending does not sync, `flushed` does, once for all who wait by then, so
a hundred connections share a sync.

Source: Kafka's `Partition`, `UnifiedLog`, `DelayedFetch`.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from craft2.batch_header import iter_headers
from craft2.clock import Clock
from craft2.disk import Disk, DiskError, FileSlice
from phase1_file_queue.append_checks import NewBatches
from phase1_file_queue.log_config import LogError
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.producer_state import AppendResult
from phase2_groups.error_codes import ErrorCode
from phase2_groups.producer_sequences import OutOfOrderSequence, ProducerSequences
from phase3_raft.metadata.records import BrokerId, PartitionRecord
from phase3_raft.replication.replicas import UNKNOWN, Replicas
from phase3_raft.topic_config import TopicConfig

_SEGMENTS = 8  # deleted at once


class InvalidTimestamp(LogError):
    """A record that is later than the broker's clock allows."""


class NotLeader(LogError):
    """An append that only the leader may make: one epoch would have two records at one offset."""


class Partition:
    """See the module. record: what the cluster's metadata say of it. me: this broker."""

    def __init__(
        self,
        path: str,
        record: PartitionRecord,
        config: TopicConfig,
        disk: Disk,
        clock: Clock,
        *,
        me: BrokerId,
        max_lag_ms: int = 10_000,
    ) -> None:
        """Raises CorruptLog, LogInUse, DiskError."""
        self.record = record
        self.config = config
        self._clock = clock
        self.log = PartitionLog(
            path, config.log_config(), disk=disk, clock=clock, producer_state=ProducerSequences()
        )
        self.replicas = Replicas(me, max_lag_ms, self.log.log_start)
        self._watchers: dict[Callable[[], object], None] = {}
        self._copiers: dict[Callable[[bool], object], None] = {}
        # Who waits for replicas, and up to where: in the order of the offsets.
        self._waiting: OrderedDict[Callable[[ErrorCode], object], int] = OrderedDict()
        self.caught_up: Callable[[], object] = lambda: None  # told when a follower has
        self.failed: Callable[[], object] = lambda: None  # told when this leader cannot write
        self.writes = True  # as far as its last append could tell
        self.trouble: Callable[[str], object] = lambda words: None  # told what went wrong
        self._seen = self.log.log_start  # the high watermark that watchers were told of
        self._flushing: asyncio.Future[None] | None = None
        self._unflushed = 0  # records since the last sync
        self._unwritten: dict[int, DiskError] = {}  # producer -> why its last batch is not here
        self.deleted = False
        self._begin(record)

    # Its role.

    @property
    def name(self) -> str:
        """As people write it."""
        return f"{self.record.topic}-{self.record.partition}"

    @property
    def leads(self) -> bool:
        """Whether this broker leads it."""
        return self.record.leader == self.replicas.me

    def become(self, record: PartitionRecord) -> None:
        """What the metadata say now."""
        self.replicas.high_watermark(self.log.end_offset)  # from here on it may not fall
        before, self.record = self.record, record
        if (record.leader_epoch, record.leader) != (before.leader_epoch, before.leader):
            self._begin(record)
            self._refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.leads:
            self._is_alone = record.replicas == (self.replicas.me,)
            self.replicas.changed(record.isr, record.replicas, self._now_ms())
            self._advanced()
        self._tell_all()  # also a new replica that has fetched before we knew of it

    def _begin(self, record: PartitionRecord) -> None:
        self._is_alone, self.writes = record.replicas == (self.replicas.me,), True
        if self.leads:
            end = self.log.end_offset
            self.replicas.lead(record.isr, record.replicas, end, self._now_ms())
            self._seen = min(self._seen, self.high_watermark)  # the log may have been cut since
            self._advanced()
        else:
            self.replicas.follow()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    @property
    def high_watermark(self) -> int:
        """Consumers see what is before this offset."""
        if self._is_alone:  # then nobody has to be counted
            return self.log.end_offset
        return self.replicas.high_watermark(self.log.end_offset)

    @property
    def is_current(self) -> bool:
        """Whether the high watermark has come to where this leader began: before that, an older
        leader may have told consumers of a higher one (KIP-207)."""
        return self.high_watermark >= self.replicas.begin

    def check_epoch(self, epoch: int) -> ErrorCode:
        """Whether a client that says `epoch` (-1: it does not say) speaks of the same leader."""
        ours = self.record.leader_epoch
        if epoch < 0 or epoch == ours:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < ours else ErrorCode.UNKNOWN_LEADER_EPOCH

    # Producers.

    def append(self, batch: bytes) -> tuple[AppendResult, int]:
        """Append a producer's batch; returns where, and the append time (-1: the producer's holds).

        Raises what `check` and `append_checked` do.
        """
        wanted = self.check(batch)
        return self.append_checked(wanted), wanted.append_time_ms

    def check(self, batch: bytes) -> NewBatches:
        """A producer's batch, if this leader may append it, whatever the log holds.

        Raises NotLeader, BadBatch, RecordTooLarge, CorruptBatch, BatchTooShort.
        """
        self._check_leads()
        now = self._clock.now_ms() if self.config.broker_stamps else -1
        return self.log.check(batch, self.record.leader_epoch, now)

    def append_checked(self, wanted: NewBatches) -> AppendResult:
        """Append it, in the same epoch. Raises SequenceError, LogError, DiskError."""
        producer_id = wanted.batches[0][1].producer_id
        try:
            result = self.log.append_checked(wanted)
        except DiskError as error:
            self._unwritten[producer_id] = error
            self.trouble(f"{self.name}: a batch was not written: {error}")
            self.writes = False
            self.failed()
            raise
        except OutOfOrderSequence:
            why = self._unwritten.get(producer_id)
            if why is None:
                raise
            # It was sent before its producer knew that the one before was refused, and comes again
            # after that. Were it told that it is out of order, it would begin a new epoch.
            raise DiskError(f"the batch before was not written: {why.problem}", why.fix) from why
        self.writes = True
        if self._unwritten:
            self._unwritten.pop(producer_id, None)
        if not result.duplicate:
            self._unflushed += result.last_offset - result.first_offset + 1
            self._tell_copiers(more=True)
            self._advanced()
        return result

    def check_timestamp(self, latest: int) -> None:
        """Whether a producer's records may be as late as that. Raises InvalidTimestamp.

        One that is years ahead would keep its segment for years.
        """
        now, ahead = self._clock.now_ms(), "message.timestamp.after.max.ms"
        if latest > now + self.config.number(ahead) and not self.config.broker_stamps:
            raise InvalidTimestamp(
                f"a record of {latest} ms, and the broker's clock says {now} ms",
                f"set the producer's clock, or the topic's {ahead}",
            )

    def _check_leads(self) -> None:
        record = self.record
        if record.leader != self.replicas.me:
            what = f"{self.name} is led by broker {record.leader}"
            raise NotLeader(f"{what} in epoch {record.leader_epoch}", "send to that one")

    def when_replicated(self, offset: int, epoch: int, tell: Callable[[ErrorCode], object]) -> None:
        """Call back, once, when all replicas in sync have what was appended before `offset`; or
        with why that is not known: this broker leads no more, or too few are in sync.

        epoch: the leader epoch in which it was appended. Whoever leads again in a later one may
        have had to cut it off in between.
        """
        if self.deleted or not self.leads or self.record.leader_epoch != epoch:
            tell(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.high_watermark < offset:
            self._waiting[tell] = offset
        else:
            tell(self._enough)

    async def replicated(self, offset: int, epoch: int) -> ErrorCode:
        """The same, for who waits."""
        told: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def tell(error: ErrorCode) -> None:
            if not told.done():
                told.set_result(error)

        self.when_replicated(offset, epoch, tell)
        try:
            return await told
        finally:
            if told.cancelled():
                self.wait_no_more(tell)

    def wait_no_more(self, tell: Callable[[ErrorCode], object]) -> None:
        """Do not call this back."""
        self._waiting.pop(tell, None)

    @property
    def _enough(self) -> ErrorCode:
        enough = self.has_enough_replicas
        return ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    @property
    def has_enough_replicas(self) -> bool:
        """Whether as many are in sync as `min.insync.replicas` asks for."""
        return len(self.record.isr) >= self.config.number("min.insync.replicas")

    def _advanced(self) -> None:
        """The high watermark may have: whoever waits for that is told."""
        watermark = self.high_watermark
        if watermark <= self._seen:
            return
        self._seen = watermark
        while self._waiting and next(iter(self._waiting.values())) <= watermark:
            tell, _ = self._waiting.popitem(last=False)
            tell(self._enough)
        for watcher in list(self._watchers):
            watcher()
        self._tell_copiers(more=False)

    def _refuse(self, why: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, OrderedDict()
        for tell in waiting:
            tell(why)

    @property
    def must_flush(self) -> bool:
        """Whether so much was appended that `flush.messages` asks for a sync."""
        return self._unflushed >= self.config.number("flush.messages")

    async def flushed(self) -> None:
        """Wait until everything appended so far is on disk. Raises DiskError, LogError."""
        if self._flushing is None:
            loop = asyncio.get_running_loop()
            self._flushing = loop.create_future()
            loop.call_soon(self._flush)  # those who append before that share it
        await asyncio.shield(self._flushing)

    def _flush(self) -> None:
        future, self._flushing, self._unflushed = self._flushing, None, 0
        assert future is not None
        try:
            self.log.flush()
        except (DiskError, LogError) as error:
            future.set_exception(error)
            future.exception()  # perhaps nobody waits any more
        else:
            future.set_result(None)

    # Followers.

    def fetched(self, follower: BrokerId, offset: int, begin: int = UNKNOWN) -> None:
        """A follower whose log begins at `begin` asks for what is from `offset` on."""
        end = self.log.end_offset
        if self.replicas.begins(follower, begin):
            for watcher in list(self._watchers):
                watcher()
        self.replicas.fetched(follower, offset, end=end, now_ms=self._now_ms())
        self._advanced()
        if follower not in self.record.isr and offset >= self.high_watermark:
            self.caught_up()

    def started_again(self, follower: BrokerId) -> None:
        """What a follower had in its last life does not count."""
        self.replicas.started_again(follower)

    def had_all(self, follower: BrokerId, at_ms: int) -> None:
        """A follower had all that there was when it last asked; since a moment there is more."""
        self.replicas.had_all(follower, at_ms)

    def append_as_follower(self, batches: bytes) -> None:
        """Append what the leader sent; its last batch may be cut (KIP-74), and comes again.

        Its first one may begin before our log does: who deletes records may do so within a batch,
        and it comes whole. Raises LogError, CorruptBatch, DiskError.
        """
        headers = [header for _, header in iter_headers(batches)]
        whole = sum(header.size for header in headers)
        start, end = self.log.bounds
        if headers and start == end and headers[0].base_offset < start < headers[0].next_offset:
            self.reset_to(headers[0].base_offset)
        result = self.log.append_as_follower(batches[:whole])
        self._unflushed += result.last_offset - result.first_offset + 1

    def follow_to(self, high_watermark: int, log_start: int) -> None:
        """The leader says how far it is, and where its log begins. Raises LogError, DiskError."""
        start, end = self.log.bounds
        self.replicas.learn_high_watermark(high_watermark, end)
        if start < log_start <= end:
            self.log.advance_start(log_start)

    def truncate_to(self, offset: int) -> bool:
        """Cut what the leader does not have; whether there was any. Raises LogError, DiskError."""
        end = self.log.end_offset
        self.log.truncate_to(max(offset, self.log.log_start))
        self.replicas.cut(self.log.end_offset)
        return self.log.end_offset < end

    def reset_to(self, offset: int) -> None:
        """Begin anew at an offset: the leader has nothing before it, or less than we have."""
        self.log.reset_to(offset)
        self.replicas.cut(offset)

    # Readers.

    def read(self, offset: int, max_bytes: int, *, follower: bool = False) -> FileSlice:
        """Whole batches: up to the high watermark, or all for a follower.

        Raises OffsetOutOfRange, CorruptLog.
        """
        upto = None if follower else self.high_watermark
        if upto is not None and offset >= upto:
            offset = upto = max(upto, self.log.log_start)
        return self.log.read(offset, max_bytes, upto)

    def watch(self, watcher: Callable[[], object]) -> None:
        """Call back when there is more for consumers to read, until `unwatch`."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Callable[[], object]) -> None:
        """No more."""
        self._watchers.pop(watcher, None)

    def watch_log(self, copier: Callable[[bool], object]) -> None:
        """The same for a follower: `copier(True)` when there is more to copy, or the partition has
        changed; `copier(False)` when the high watermark has, which can wait for the next reply."""
        self._copiers[copier] = None

    def unwatch_log(self, copier: Callable[[bool], object]) -> None:
        """No more."""
        self._copiers.pop(copier, None)

    def _tell_copiers(self, *, more: bool) -> None:
        for copier in list(self._copiers):
            copier(more)

    def _tell_all(self) -> None:
        for watcher in list(self._watchers):
            watcher()
        self._tell_copiers(more=True)

    # Its beginning.

    def advance_start(self, offset: int) -> None:
        """Delete what is before an offset, or keep what is before the log's start deleted.

        Raises OffsetOutOfRange, LogError, DiskError.
        """
        self.log.advance_start(max(offset, self.log.log_start))
        self._tell_all()

    def apply_retention(self) -> bool:
        """Delete segments that are too old, or too much, of what all replicas in sync have: a few
        at once, since each takes its time; whether there may be more. Raises LogError, DiskError.
        """
        gone = self.log.apply_retention(most=_SEGMENTS, before=self.high_watermark)
        if gone:
            self._tell_all()
        return len(gone) == _SEGMENTS

    # Its life.

    def configure(self, config: TopicConfig) -> None:
        """Other settings, from now on."""
        self.config = config
        self.log.reconfigure(config.log_config())

    def forget(self) -> None:
        """It is no more, or not here: whoever waits is told. Its log is still to be closed."""
        self.deleted = True
        self._refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._tell_all()

    def close(self) -> None:
        """Sync and close the log; whoever watches is called once more."""
        self.log.close()
        self._refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._tell_all()
