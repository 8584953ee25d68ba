"""A transport without a network: topics, groups and offsets are files under one folder.

    ROOT/flights-0/               a partition: phase 1's log, open by many processes at once
    ROOT/__consumer_offsets-0/    committed offsets, a log too
    ROOT/__groups/billing/        a group's state and its lock
    ROOT/__producer_id            the last number given to a producer

>>> import tempfile
>>> from craft2.record_batch import decode_all, encode_values
>>> root = tempfile.mkdtemp()
>>> create_topic(root, "flights", 1)
>>> with FileTransport(root) as files:
...     _ = files.produce({("flights", 0): encode_values([b"UA 1545"])}, acks=1, timeout_ms=1000)
...     found = files.fetch({("flights", 0): 0}, max_wait_ms=0)
>>> [record.value for record in decode_all(found["flights", 0].data)]
[b'UA 1545']
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from craft2.clock import Clock, SystemClock
from craft2.disk import Disk, DiskError, DiskFull, RealDisk
from craft2.events import Emitter
from phase1_file_queue.log_config import (
    Access,
    BadBatch,
    LogConfig,
    LogError,
    NotALog,
    OffsetOutOfRange,
    RecordTooLarge,
)
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.publish import publish
from phase2_groups.committed_offsets import OFFSETS_TOPIC, CommittedOffsets
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_files import LOCAL_LIMITS, GroupFiles
from phase2_groups.group_messages import OffsetToCommit, Reply, Request, TopicPartition
from phase2_groups.group_state import GroupLimits
from phase2_groups.producer_sequences import ProducerSequences, SequenceError
from phase2_groups.safe_event import SafeEvent
from phase2_groups.topics import create_topic, list_topics, partition_count, partition_path
from phase2_groups.transport import EARLIEST, LATEST, Fetched, Listed, Produced, ProducerId

__all__ = ["FileTransport", "create_topic"]

_FIRST_LOOK_S, _LONGEST_S = 0.001, 0.02  # between two looks for new records


class FileTransport:
    """See the module; the methods are those of `transport.Transport`. Threads may share one.

    log_config: for logs that do not exist yet, and how long segments get.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        log_config: LogConfig | None = None,
        limits: GroupLimits = LOCAL_LIMITS,
        events: Emitter | None = None,
    ) -> None:
        self.root = os.fspath(root)
        self._disk = disk or RealDisk()
        self._clock = clock or SystemClock()
        self._log_config = log_config or LogConfig()
        self._limits = limits
        self._events = events
        self._mutex = threading.Lock()  # guards the three below
        self._logs: dict[tuple[TopicPartition, Access], PartitionLog] = {}
        self._groups: dict[str, GroupFiles] = {}
        self._offsets: CommittedOffsets | None = None
        self._counts: dict[str, int] = {}  # partitions of each topic, as they last were
        self._wake = SafeEvent()
        self._disk.mkdir(self.root)

    # Topics.

    def metadata(self, topics: Iterable[str] | None = None) -> Mapping[str, int | ErrorCode]:
        if topics is None:
            return list_topics(self.root, disk=self._disk)
        counts = {topic: self._count(topic) for topic in topics}
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {topic: count or missing for topic, count in counts.items()}

    def _count(self, topic: str) -> int:
        """How many partitions a topic has. Topics grow and rarely go: two looks at the folder are
        enough to see that a count holds, where counting anew takes one for each partition."""
        known = self._counts.get(topic, 0)
        if known:
            last, next_one = (partition_path(self.root, topic, n) for n in (known - 1, known))
            if self._disk.exists(last) and not self._disk.exists(next_one):
                return known
        self._counts[topic] = partition_count(self.root, topic, disk=self._disk)
        return self._counts[topic]

    def _log(self, partition: TopicPartition, access: Access) -> PartitionLog | None:
        """The log of a partition, opened once; None if there is none."""
        with self._mutex:
            log = self._logs.get((partition, access))
            if log is None:
                path = partition_path(self.root, *partition)
                if not self._disk.exists(path):
                    return None
                config = LogConfig(**{**vars(self._log_config), "access": access})
                try:
                    log = PartitionLog(
                        path,
                        config,
                        disk=self._disk,
                        clock=self._clock,
                        producer_state=None if access == "read" else ProducerSequences(),
                    )
                except NotALog:  # it is just being made
                    return None
                self._logs[partition, access] = log
            return log

    # Records.

    def produce(
        self, batches: Mapping[TopicPartition, bytes], acks: int, timeout_ms: int
    ) -> Mapping[TopicPartition, Produced]:
        answers = {}
        for partition, batch in batches.items():
            answers[partition] = _answer(
                lambda at=partition, batch=batch: self._append(at, batch)  # type: ignore[misc]
            )
        if acks == -1:
            for partition, answer in answers.items():
                log = self._log(partition, "shared")
                if log is not None and answer.error is ErrorCode.NONE:
                    answers[partition] = _answer(lambda log=log, ok=answer: _flush(log, ok))  # type: ignore[misc]
        return answers

    def _append(self, partition: TopicPartition, batch: bytes) -> Produced:
        if partition[0] == OFFSETS_TOPIC:  # groups write there, and nobody else
            return Produced(ErrorCode.INVALID_TOPIC_EXCEPTION)
        log = self._log(partition, "shared")
        if log is None:
            return Produced(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return Produced(ErrorCode.NONE, log.append_as_leader(batch, 0).first_offset)

    def init_producer_id(self) -> ProducerId:
        path = os.path.join(self.root, "__producer_id")
        try:
            with contextlib.closing(self._disk.lock(path + ".lock")) as lock:
                lock.acquire()
                last = int(self._disk.read(path)) if self._disk.exists(path) else -1
                publish(self._disk, path, b"%d\n" % (last + 1))
                return ProducerId(ErrorCode.NONE, last + 1, 0)
        except DiskFull:  # the next try may find room
            return ProducerId(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def fetch(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024**2,
        max_partition_bytes: int = 1024**2,
    ) -> Mapping[TopicPartition, Fetched]:
        until = self._clock.monotonic() + max_wait_ms / 1000
        pause = _FIRST_LOOK_S
        self._wake.clear()
        while True:
            found: dict[TopicPartition, Fetched] = {}
            room, size = max_bytes, 0
            for partition, offset in offsets.items():
                found[partition] = one = self._read(partition, offset, max_partition_bytes, room)
                size += len(one.data)
                room -= len(one.data)
            failed = any(one.error for one in found.values())
            left = until - self._clock.monotonic()
            if failed or size >= min_bytes or left <= 0:
                return found
            if self._clock.wait(self._wake, min(pause, left)):
                return found
            pause = min(2 * pause, _LONGEST_S)

    def _read(self, partition: TopicPartition, offset: int, most: int, room: int) -> Fetched:
        log = self._log(partition, "read")
        if log is None:
            return Fetched(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        start, end = log.bounds
        if not start <= offset <= end:
            return Fetched(ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=end, log_start=start)
        if offset == end or room <= 0:
            return Fetched(ErrorCode.NONE, high_watermark=end, log_start=start)
        try:
            data = log.read(offset, min(most, room)).read()
        except OffsetOutOfRange:  # retention was quicker
            return Fetched(ErrorCode.OFFSET_OUT_OF_RANGE, high_watermark=end, log_start=start)
        return Fetched(ErrorCode.NONE, data, end, start)

    def list_offsets(self, asked: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Listed]:
        return {partition: self._list(partition, time) for partition, time in asked.items()}

    def _list(self, partition: TopicPartition, timestamp_ms: int) -> Listed:
        log = self._log(partition, "read")
        if log is None:
            return Listed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        start, end = log.bounds
        if timestamp_ms in (EARLIEST, LATEST):
            return Listed(ErrorCode.NONE, start if timestamp_ms == EARLIEST else end)
        found = log.offset_for_timestamp(timestamp_ms)
        return Listed(ErrorCode.NONE, *(found or ()))

    # Groups.

    def ask_group(self, group_id: str, request: Request, timeout_ms: int) -> Reply | None:
        try:
            return self.group_files(group_id).ask(request, timeout_ms)
        except DiskFull:  # the next try may find room
            return Reply(token=request.token, error=ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def group_moved(self, group_id: str, generation: int) -> bool:
        try:
            glance = self.group_files(group_id).tick_if_due()
        except DiskFull:
            return False
        return glance.generation != generation or glance.state.value == "PreparingRebalance"

    def committed(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetToCommit | ErrorCode]:
        found = self._committed_offsets().of(group_id)
        return {partition: found[partition] for partition in partitions if partition in found}

    def group_files(self, group_id: str) -> GroupFiles:
        """The files of one group."""
        offsets = self._committed_offsets()
        with self._mutex:
            if group_id not in self._groups:
                self._groups[group_id] = GroupFiles(
                    self.root,
                    group_id,
                    offsets,
                    disk=self._disk,
                    clock=self._clock,
                    limits=self._limits,
                    events=self._events,
                )
            return self._groups[group_id]

    def _committed_offsets(self) -> CommittedOffsets:
        with self._mutex:
            if self._offsets is None:
                self._offsets = CommittedOffsets(self.root, disk=self._disk, clock=self._clock)
            return self._offsets

    # The end.

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        with self._mutex:
            for group in self._groups.values():
                group.close()
            if self._offsets is not None:
                self._offsets.close()
            for log in self._logs.values():
                log.close()
            self._logs.clear()

    def __enter__(self) -> FileTransport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _flush(log: PartitionLog, appended: Produced) -> Produced:
    log.flush()
    return appended


def _answer(work: Callable[[], Produced]) -> Produced:
    """What `work` returns, or the error code for what it raises."""
    try:
        return work()
    except SequenceError as error:
        return Produced(error.code, message=str(error))
    except RecordTooLarge as error:
        return Produced(ErrorCode.MESSAGE_TOO_LARGE, message=str(error))
    except BadBatch as error:
        return Produced(ErrorCode.CORRUPT_MESSAGE, message=str(error))
    except (LogError, DiskError) as error:
        return Produced(ErrorCode.KAFKA_STORAGE_ERROR, message=str(error))
