"""A partition as a broker serves it: phase 1's log, and who waits for what happens to it.

Producers append, consumers read up to the *high watermark*: what is before it is on all replicas in
sync, and does not go away when the leader does. With one replica that is all there is.

Two kinds of requests wait. A consumer that has read everything: `watch` calls it back when there is
more. A producer to a topic with `flush.messages=1`: appending does not sync, `flushed` does, once
for all who wait by then, so a hundred connections share a sync.

Source: Kafka's `Partition`, `UnifiedLog`, `DelayedFetch`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from craft2.clock import Clock
from craft2.disk import Disk, DiskError, FileSlice
from phase1_file_queue.log_config import LogError
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.producer_state import AppendResult
from phase2_groups.error_codes import ErrorCode
from phase2_groups.producer_sequences import ProducerSequences
from phase3_raft.metadata.records import PartitionRecord
from phase3_raft.topic_config import TopicConfig


class Partition:
    """See the module. record: what the cluster's metadata says of it."""

    def __init__(
        self, path: str, record: PartitionRecord, config: TopicConfig, disk: Disk, clock: Clock
    ) -> None:
        """Raises CorruptLog, LogInUse, DiskError."""
        self.record = record
        self.config = config
        self._clock = clock
        self.log = PartitionLog(
            path, config.log_config(), disk=disk, clock=clock, producer_state=ProducerSequences()
        )
        self._watchers: dict[Callable[[], object], None] = {}
        self._flushing: asyncio.Future[None] | None = None
        self._unflushed = 0  # records since the last sync
        self.deleted = False

    @property
    def high_watermark(self) -> int:
        """Consumers see what is before this offset."""
        return self.log.end_offset

    def check_epoch(self, epoch: int) -> ErrorCode:
        """Whether a client that says `epoch` (-1: it does not say) speaks of the same leader."""
        ours = self.record.leader_epoch
        if epoch < 0 or epoch == ours:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < ours else ErrorCode.UNKNOWN_LEADER_EPOCH

    # Producers.

    def append(self, batch: bytes) -> tuple[AppendResult, int]:
        """Append a producer's batch; returns where, and the append time (-1: the producer's holds).

        Raises LogError (BadBatch, RecordTooLarge, SequenceError), CorruptBatch, DiskError.
        """
        now = self._clock.now_ms() if self.config.broker_stamps else -1
        result = self.log.append_as_leader(batch, self.record.leader_epoch, now)
        if not result.duplicate:
            self._unflushed += result.last_offset - result.first_offset + 1
            self._tell_watchers()
        return result, now

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

    # Consumers.

    def read(self, offset: int, max_bytes: int) -> FileSlice:
        """Whole batches up to the high watermark. Raises OffsetOutOfRange, CorruptLog."""
        return self.log.read(offset, max_bytes, self.high_watermark)

    def watch(self, watcher: Callable[[], object]) -> None:
        """Call back after each append, until `unwatch`."""
        self._watchers[watcher] = None

    def unwatch(self, watcher: Callable[[], object]) -> None:
        """No more."""
        self._watchers.pop(watcher, None)

    def _tell_watchers(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    # Its life.

    def configure(self, config: TopicConfig) -> None:
        """Other settings, from now on."""
        self.config = config
        self.log.reconfigure(config.log_config())

    def close(self, *, deleted: bool = False) -> None:
        """Sync and close the log; whoever watches is called once more."""
        self.deleted = deleted
        self.log.close()
        self._tell_watchers()
