"""A partition log as one process knows it: its segments, its files, and how they change.

`partition_log` decides who may change it and when; here is *how*, and above all in which order, so
that a crash after any step leaves a log that opens with a prefix of what it was. Growing goes like
this: (new segment) -> batches -> index entries -> leader epoch -> published end. Cutting is in
`log_cutting`.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from dataclasses import replace

from craft2.disk import Buffer, Disk, File
from craft2.events import Emitter
from craft2.record_batch import BatchHeader
from phase1_file_queue.control_page import ControlPage, Published
from phase1_file_queue.leader_epochs import LeaderEpochs
from phase1_file_queue.log_batches import Piece
from phase1_file_queue.log_config import CorruptLog, LogConfig, OffsetOutOfRange
from phase1_file_queue.log_files import CONTROL, EPOCHS, Checkpoint, segment_bases
from phase1_file_queue.offset_index import MAX_RELATIVE
from phase1_file_queue.producer_state import (
    ProducerState,
    restore_snapshot,
    save_snapshot,
)
from phase1_file_queue.recovery import RecoveryReport
from phase1_file_queue.segment import SUFFIXES, Segment, segment_path

CHECKPOINT_BYTES = 64 * 1024**2  # a recovery point at least every so many flushed bytes
_REWRITE_BYTES = 1024**2


class LogState:
    """See the module. Not thread-safe; the caller holds the locks that its change needs.

    Invariant: segments are ascending and without a hole, and the last one is the active one.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        producers: ProducerState | None,
        events: Emitter | None,
    ) -> None:
        self.disk = disk
        self._events = events
        self.directory = directory
        self.config = config
        self.producers = producers
        self.users = disk.lock(os.path.join(directory, ".users"))  # everybody, shared
        self.writers = disk.lock(os.path.join(directory, ".writers"))  # who may append
        self.append_lock = disk.lock(os.path.join(directory, ".append"))  # who is appending now
        self.control = ControlPage(disk, os.path.join(directory, CONTROL))
        self.checkpoint = Checkpoint()
        self.report = RecoveryReport(clean=True)
        self.epochs = LeaderEpochs()
        self.epochs_changed = False
        self.segments: list[Segment] = []
        self.log_start = 0
        self.cuts = 0  # how often the end was cut off, ever; published, so that readers notice
        self.published: Published | None = None  # as last published, or read, by this process
        self._names_synced = -1  # segments up to this base offset have durable names
        # Invariant: the producer state was told of every batch before this offset, of a log that
        # had been cut as often as this.
        self._told = (0, 0)

    def tell(self, kind: str, offset: int, because: str) -> None:
        """Report an event of this log: topic and partition are in its directory's name."""
        if self._events is not None:
            topic, _, number = os.path.basename(self.directory).rpartition("-")
            partition = int(number) if number.isdecimal() else None
            self._events.emit(
                kind, topic=topic or None, partition=partition, offset=offset, because=because
            )

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset

    def new_segment(self, base_offset: int) -> Segment:
        """Make an empty segment the active one."""
        segment = Segment(
            self.disk, self.directory, base_offset, self.config, grows=True, create=True
        )
        self.segments.append(segment)
        return segment

    def publish(self) -> None:
        """Tell the other processes where the log starts and ends now."""
        active = self.active
        self.published = Published(
            self.log_start,
            active.base_offset,
            active.size,
            active.next_offset,
            active.max_timestamp,
            active.max_timestamp_offset,
            self.epochs.latest,
            self.cuts,
        )
        self.control.publish(self.published)

    # Growing.

    def append(self, data: Buffer, batches: list[tuple[int, BatchHeader]]) -> None:
        """Append whole batches with final offsets, and publish the new end.

        batches: (position within data, header). Raises DiskError: see `restore_end`.
        """
        if self.checkpoint.clean:  # before the first byte: from now on a crash needs recovery
            self.save_checkpoint(clean=False)
        self.control.dirty = True
        reason = self._reason_to_roll(len(data), batches)
        if reason:
            self.active.finish()
            if self.producers is not None:
                save_snapshot(self.disk, self.directory, self.end_offset, self.producers)
            self.new_segment(self.end_offset)
            self.tell("roll", self.end_offset, reason)
        self.active.append(data, batches)
        if batches[-1][1].leader_epoch > self.epochs.latest:  # they never shrink within an append
            for _, header in batches:
                if self.epochs.assign(header.leader_epoch, header.base_offset):
                    self.epochs_changed = True
        self.save_epochs()  # before anybody can see the records; once per leader
        if self.producers is not None:
            for _, header in batches:
                self.producers.update(header)
            self._told = (self.end_offset, self.cuts)
        self.publish()
        self.control.dirty = False

    def restore_end(self) -> None:
        """Go back to the published end: an append failed, or died, or a cut is to be made.

        What is not published was promised to nobody.
        """
        assert self.published is not None
        base, position, end = self.published[1:4]
        for segment in self.segments:
            if segment.base_offset >= base:
                segment.close()
        self.segments = [segment for segment in self.segments if segment.base_offset < base]
        for unpublished in reversed(segment_bases(self.disk, self.directory)):
            if unpublished > base:
                self._names_synced = -1
                for suffix in SUFFIXES:
                    path = segment_path(self.directory, unpublished, suffix)
                    if self.disk.exists(path):
                        self.disk.unlink(path)
        self.segments.append(Segment(self.disk, self.directory, base, self.config, grows=True))
        self.active.truncate(position, end)
        if end < self.epochs.end:
            self.epochs.truncate(end)
            self.epochs_changed = True
            self.save_epochs()
        self.replay_producers(end)
        self.control.dirty = False

    def _reason_to_roll(self, size: int, batches: list[tuple[int, BatchHeader]]) -> str:
        """Why the active segment is finished before these batches; "" if it is not."""
        active, last = self.active, batches[-1][1]
        if not active.size:
            return ""
        if active.size + size > self.config.segment_bytes:
            return f"{active.size} bytes and {size} more are over {self.config.segment_bytes}"
        if active.indexes_full:
            return f"an index has no room left in its {self.config.max_index_bytes} bytes"
        if last.last_offset - active.base_offset > MAX_RELATIVE:
            return f"offset {last.last_offset} is too far from {active.base_offset} for the index"
        first = active.first_timestamp
        if first is not None and last.max_timestamp - first > self.config.segment_ms:
            return f"its first record is {last.max_timestamp - first} ms older than the new one"
        return ""

    # Reading.

    def piece(self, offset: int, end: int, max_bytes: int) -> Piece:
        """Batches from the one with `offset`, none with `end` or later; see PartitionLog.read."""
        number = bisect_right(self.segments, offset, key=lambda s: s.base_offset) - 1
        for segment in self.segments[max(number, 0) :] if offset < end else []:
            found = segment.locate(offset)
            if found is None:
                continue
            position, header = found
            alone = self.config.access == "exclusive"  # else somebody may be cutting it
            if alone and position + header.size > segment.size:
                raise CorruptLog(
                    f"the batch at byte {position} of {segment.file.path!r} says that it has "
                    f"{header.size} bytes, and the segment ends at {segment.size}",
                    "restore the file from a copy or a replica; craft2 inspect shows the place",
                )
            limit = segment.size
            if end < segment.next_offset:
                bound = segment.locate(end)
                limit = bound[0] if bound else limit
            stop = min(limit, position + max(max_bytes, header.size))
            part = segment.slice(position, max(stop, position))
            return Piece(part, segment.next_offset, segment.size)
        size = self.active.size
        return Piece(self.active.slice(size, size), self.end_offset, size)

    def check_offset(self, offset: int) -> None:
        """Raises OffsetOutOfRange for an offset that is not from the log's start to its end."""
        if not self.log_start <= offset <= self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset}: the log {self.directory!r} holds {self.log_start} to "
                f"{self.end_offset}",
                "start again at the log's start, or at its end",
            )

    # Making durable.

    def unflushed(self) -> list[Segment]:
        """The segments that hold something not yet known to be durable."""
        flushed = self.control.flushed
        return [segment for segment in self.segments if segment.next_offset > flushed]

    def sync(self, segments: list[Segment]) -> None:
        """Sync the batches of `segments`, and all segments' names. Raises DiskError."""
        for segment in segments:
            segment.sync()
        newest = segments[-1].base_offset if segments else -1
        if newest > self._names_synced:
            self.disk.sync_dir(self.directory)
            self._names_synced = newest

    def checkpoint_is_due(self, segment: Segment, position: int) -> bool:
        """Whether a crash would now have too much to check: a new segment, or enough bytes."""
        last = self.checkpoint
        return segment.base_offset != last.segment or position - last.position >= CHECKPOINT_BYTES

    def move_recovery_point(self, offset: int, segment: Segment, position: int) -> None:
        """Everything before `offset` is synced: note that; the indexes become durable with it."""
        for each in self.segments:
            if each.next_offset > self.checkpoint.recovery_point:
                each.sync_indexes()
        self.save_epochs()
        self.save_checkpoint(recovery_point=offset, at=(segment.base_offset, position))

    def save_epochs(self) -> None:
        if self.epochs_changed:
            self.epochs.save(self.disk, os.path.join(self.directory, EPOCHS))
            self.epochs_changed = False

    def save_checkpoint(
        self,
        *,
        log_start: int | None = None,
        recovery_point: int | None = None,
        at: tuple[int, int] | None = None,
        clean: bool = False,
    ) -> None:
        """Change some fields of the checkpoint, durably; others may have written it meanwhile."""
        now = Checkpoint.load(self.disk, self.directory) or self.checkpoint
        segment, position = at or (now.segment, now.position)
        self.checkpoint = replace(
            now,
            log_start=now.log_start if log_start is None else log_start,
            recovery_point=now.recovery_point if recovery_point is None else recovery_point,
            segment=segment,
            position=position,
            clean=clean,
        )
        self.checkpoint.save(self.disk, self.directory)

    def replay_producers(self, upto: int) -> None:
        """Rebuild the producer state as it is before `upto`: a snapshot, then what follows it."""
        if self.producers is None:
            return
        start = restore_snapshot(self.disk, self.directory, upto, self.producers)
        self._tell_producers(start, upto)

    def follow_producers(self) -> None:
        """Tell the producer state what other processes appended since it was last told."""
        if self.producers is None or self._told == (self.end_offset, self.cuts):
            return
        told, cuts = self._told
        if cuts == self.cuts:
            self._tell_producers(told, self.end_offset)
        else:  # something it was told of may be gone
            self.replay_producers(self.end_offset)

    def _tell_producers(self, start: int, upto: int) -> None:
        assert self.producers is not None
        for segment in self.segments:
            found = segment.locate(start) if segment.next_offset > start else None
            for _, header in segment.headers(found[0]) if found else ():
                if start <= header.base_offset < upto:
                    self.producers.update(header)
        self._told = (upto, self.cuts)

    # Leaving.

    def rewrite_unflushed(self) -> None:
        """A sync failed before: write again what may be in the page cache only, and sync that.

        A failed sync may leave pages that look written and never will be. Bytes that are written
        anew are on their way to the disk again, and the next sync tells the truth about them.
        """
        flushed = self.control.flushed
        for segment in self.unflushed():
            found = segment.locate(max(flushed, segment.base_offset))
            position = found[0] if found else segment.size
            while position < segment.size:
                data = segment.file.read_at(position, min(_REWRITE_BYTES, segment.size - position))
                self._writable(segment).write_at(position, data)
                position += len(data)
        self._names_synced = -1
        self.sync(self.unflushed() or [self.active])
        self.control.flushed = self.end_offset
        self.control.sync_failed = False

    def _writable(self, segment: Segment) -> File:
        return self.disk.open(segment_path(self.directory, segment.base_offset), "write")

    def leave_clean(self) -> None:
        """Nobody else is here and all is synced: leave so that opening need not check anything."""
        self.follow_producers()
        for segment in self.segments:
            segment.close(trim=True)
        now = Checkpoint.load(self.disk, self.directory)
        if now is None or not now.clean:
            self.save_epochs()
            if self.producers is not None:
                save_snapshot(self.disk, self.directory, self.end_offset, self.producers)
            at = (self.active.base_offset, self.active.size)
            self.save_checkpoint(
                log_start=self.log_start, recovery_point=self.end_offset, at=at, clean=True
            )
        self.control.serving = False

    def release(self) -> None:
        """Give back locks, mapped memory and files; a file that is being read closes after that."""
        for segment in self.segments:
            segment.close()
        self.segments.clear()
        self.control.close()
        for lock in (self.append_lock, self.writers, self.users):
            lock.close()
