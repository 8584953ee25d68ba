"""Committed offsets as a log: every commit is a record, the latest one for a key counts.

Phase 1 kept a file a partition and group, and replaced it with each commit: create, write, sync,
rename, sync the folder. A log takes one write and one sync for any number of partitions. What it
costs is reading: whoever opens it reads it from the start. So now and then it is *compacted*: what
is still valid is written once more at its end, and everything before that is cut off.

>>> import tempfile
>>> offsets = CommittedOffsets(tempfile.mkdtemp())
>>> offsets.commit("billing", [("flights", 0, OffsetToCommit(offset=8))])
>>> offsets.of("billing")["flights", 0].offset
8
>>> offsets.close()

Every process has one of these over the same log; each catches up before it answers. Source: Kafka's
`GroupMetadataManager`, and its topic of this name.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from craft2.clock import Clock, SystemClock
from craft2.disk import Disk, RealDisk
from craft2.record_batch import encode_values
from phase1_file_queue.log_config import LogConfig, LogError, OffsetOutOfRange
from phase1_file_queue.partition_log import PartitionLog
from phase2_groups.group_messages import OffsetToCommit, TopicPartition
from phase2_groups.group_state import Group
from phase2_groups.offset_records import group_key, group_value, offset_key, offset_value
from phase2_groups.offsets_table import OffsetsTable

OFFSETS_TOPIC = "__consumer_offsets"
_BATCH = 1_000  # records written at once
_LOG = LogConfig(access="shared", segment_bytes=16 * 1024**2)


class CommittedOffsets:
    """See the module. Threads may share one object.

    compact_after: records appended since the last compaction before there is another, if they are
    also more than four times what is valid.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        compact_after: int = 10_000,
    ) -> None:
        disk = disk or RealDisk()
        self._root = os.fspath(root)
        folder = os.path.join(self._root, f"{OFFSETS_TOPIC}-0")
        self._log = PartitionLog(folder, _LOG, disk=disk, clock=clock)
        # Held while one appends; by the one who compacts, alone: what it writes again must still
        # be the latest.
        self._appending = disk.lock(os.path.join(folder, ".compacting"))
        self._clock = clock or SystemClock()
        self._mutex = threading.Lock()
        self._compact_after = compact_after
        self._next = 0  # the offset up to which the log has been read
        self._table = OffsetsTable()

    def commit(self, group: str, offsets: Iterable[tuple[str, int, OffsetToCommit]]) -> None:
        """Append the group's new offsets; when this returns they are on disk.

        Raises LogError if the log's folder is gone, DiskError.
        """
        now = self._clock.now_ms()
        keys, values = [], []
        for topic, partition, offset in offsets:
            keys.append(offset_key(group, topic, partition))
            values.append(offset_value(offset, now))
        self._append(keys, values)

    def save_group(self, group: Group) -> None:
        """Append the group as it is: its generation, its members and their partitions."""
        now = self._clock.now_ms()
        self._append([group_key(group.group_id)], [group_value(group, now)])

    def of(self, group: str) -> dict[TopicPartition, OffsetToCommit]:
        """The group's committed offsets."""
        with self._mutex:
            self._catch_up()
            return dict(self._table.offsets.get(group, {}))

    def generation(self, group: str) -> int:
        """The latest generation that got an assignment; 0 if none did."""
        with self._mutex:
            self._catch_up()
            return self._table.generations.get(group, 0)

    def groups(self) -> list[str]:
        """The groups that have committed, or have had members."""
        with self._mutex:
            self._catch_up()
            return self._table.groups()

    def close(self) -> None:
        self._log.close()
        self._appending.close()

    def _append(self, keys: list[bytes], values: list[bytes]) -> None:
        if not keys:
            return
        with self._mutex:
            try:
                self._appending.acquire(shared=True)
            except FileNotFoundError:
                raise LogError(
                    f"the folder of {OFFSETS_TOPIC} below {self._root!r} was removed while in use",
                    "end the processes that use it, then start them again: offsets begin anew",
                ) from None
            try:
                stamps = self._clock.now_ms()
                self._log.append_durably(encode_values(values, keys=keys, timestamps=stamps))
            finally:
                self._appending.release()
            self._catch_up()
            grown = self._log.end_offset - self._log.log_start
            if grown > max(self._compact_after, 4 * len(self._table.latest)):
                self._compact()

    def _catch_up(self) -> None:
        """Read what was appended since the last time, by whomever."""
        while True:
            start = self._log.log_start
            if self._next < start:  # compacted meanwhile: what is valid lies behind the new start
                self._next, self._table = start, OffsetsTable()
            try:
                for record in self._log.records(self._next):
                    assert record.key is not None
                    self._table.take(record.key, record.value)
                    self._next = record.offset + 1
                return
            except OffsetOutOfRange:
                continue

    def _compact(self) -> None:
        """Write what is valid once more, then cut off everything before it.

        A crash in between leaves both, which says the same twice.
        """
        if not self._appending.acquire(wait=False):
            return  # somebody appends, or compacts
        try:
            self._catch_up()
            keys, first = list(self._table.latest), self._log.end_offset
            for start in range(0, len(keys), _BATCH):
                some = keys[start : start + _BATCH]
                values = [self._table.latest[key] for key in some]
                stamps = self._clock.now_ms()
                self._log.append_durably(encode_values(values, keys=some, timestamps=stamps))
            self._log.advance_start(first)
            self._next = first
        finally:
            self._appending.release()
