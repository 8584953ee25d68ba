"""A partition as a log: record batches appended to segments, read back from any offset.

    producer -> append -> [segment 0][segment 4096][active segment] -> read -> consumer
                                                                ^ end offset, published
                           ^ log start        ^ flushed: survives a power cut

The parts: `segment` (file and indexes), `log_opening` (what happens on opening, above all after a
crash), `control_page` (how processes share it), `group_commit` (how syncs are shared),
`leader_epochs` and `producer_state` (what replication and idempotence need from it).

`append_*` never syncs. `flush` does, and `append_durably` joins the two by the flush policy; so a
thread, an event loop or a simulator can decide for itself when to wait for the disk.

>>> import tempfile
>>> from craft2.record_batch import encode_values
>>> with PartitionLog(tempfile.mkdtemp() + "/flights-0") as log:
...     log.append_durably(encode_values([b"UA 1545", b"UA 1714"]), epoch=0)
...     [record.value for record in log.records(1)]
AppendResult(first_offset=0, last_offset=1, duplicate=False)
[b'UA 1714']
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TypeVar

from craft2.clock import Clock, SystemClock
from craft2.disk import Buffer, Disk, DiskError, FileSlice, RealDisk
from craft2.events import Emitter
from craft2.process import process_id
from craft2.record_batch import BatchTooShort, CorruptBatch, Record, decode, read_header
from phase1_file_queue import log_cutting
from phase1_file_queue.append_checks import Batches, NewBatches, check_new, check_replica
from phase1_file_queue.group_commit import GroupCommit, IntervalFlusher
from phase1_file_queue.log_batches import Piece, checked_batches
from phase1_file_queue.log_config import (
    BadBatch,
    CorruptLog,
    LogConfig,
    LogError,
    LogFailed,
    OffsetOutOfRange,
)
from phase1_file_queue.log_opening import open_log, reload_log
from phase1_file_queue.log_state import LogState
from phase1_file_queue.producer_state import AppendResult, ProducerState
from phase1_file_queue.stamp import stamp

_ANY_WRITER = ("exclusive", "shared")

Found = TypeVar("Found")


class PartitionLog:
    """See the module. Threads may share one object; processes each open their own (`access`).

    A child made by fork holds its parent's locks as well: the log is free when both are gone.

    Offsets: `log_start` <= any readable offset < `end_offset`; `flushed` <= `end_offset`.
    `recovery` says what opening it did.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        config: LogConfig | None = None,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        producer_state: ProducerState | None = None,
        events: Emitter | None = None,
    ) -> None:
        """Open the log, or make a new one in a missing or empty directory.

        Raises CorruptLog (damage that no crash explains), LogInUse, NotALog, DiskError.
        """
        self.directory = os.fspath(directory)
        self.config = config or LogConfig()
        self._disk = disk or RealDisk()
        self._clock = clock or SystemClock()
        self._producers = producer_state
        self._mutex = threading.RLock()  # guards everything below; held for microseconds
        self._flush_mutex = threading.Lock()  # taken before _mutex; held while the disk syncs
        self._failed: Exception | None = None
        self._process = process_id()
        self._closed = False
        self._state: LogState = open_log(
            self._disk, self.directory, self.config, self._producers, events, self._clock
        )
        self._alone = contextlib.nullcontext(self._state)
        self.recovery = self._state.report
        self._commit = GroupCommit[NewBatches, AppendResult](self._append_group, self.flush)
        self._flusher: IntervalFlusher | None = None
        if self.config.flush_policy == "interval" and self.config.access != "read":
            interval = self.config.flush_interval_ms
            self._flusher = IntervalFlusher(self.flush, interval, self._clock)

    # What it holds.

    @property
    def log_start(self) -> int:
        """The first offset that can be read."""
        return self._look().log_start

    @property
    def end_offset(self) -> int:
        """The next offset to be written."""
        return self._look().end_offset

    @property
    def bounds(self) -> tuple[int, int]:
        """(log_start, end_offset) of one moment."""
        with self._mutex:
            state = self._look()
            return state.log_start, state.end_offset

    @property
    def flushed(self) -> int:
        """Everything before this offset survives a power cut."""
        return min(self._look().control.flushed, self.end_offset)

    @property
    def size(self) -> int:
        """Bytes of all segments together."""
        with self._mutex:
            return sum(segment.size for segment in self._look().segments)

    @property
    def segment_bases(self) -> list[int]:
        """The base offsets of the segments."""
        with self._mutex:
            return [segment.base_offset for segment in self._look().segments]

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(e, end): the largest leader epoch e <= `epoch` here and its end offset, or (-1, -1)."""
        with self._mutex:
            return self._look().epochs.end_offset(epoch, self.end_offset)

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch; -1 if there never was one."""
        with self._mutex:
            return self._look().epochs.latest

    # Appending.

    def append_as_leader(self, batch: Buffer, epoch: int, append_time_ms: int = -1) -> AppendResult:
        """Give the batches the next offsets and this leader's epoch, and append them.

        batch: one or more whole record batches of format 2, one behind the other.
        epoch: the leader epoch, 0 or more, never less than the log's latest.
        append_time_ms: the time of all records, in place of their producer's; -1: theirs hold.

        Raises BadBatch, RecordTooLarge, DiskError (then nothing was appended), LogFailed.
        """
        return self.append_checked(self.check(batch, epoch, append_time_ms))

    def check(self, batch: Buffer, epoch: int, append_time_ms: int = -1) -> NewBatches:
        """What `append_as_leader` looks at before it looks at the log, for `append_checked`.

        Raises BatchTooShort, CorruptBatch, BadBatch, RecordTooLarge.
        """
        return check_new(batch, self.config.max_message_bytes, epoch, append_time_ms)

    def append_checked(self, wanted: NewBatches) -> AppendResult:
        """The rest of it. Raises LogError, DiskError (then nothing was appended)."""
        with self._mutex, self._appending() as state:
            refused = self._refused(state, wanted)
            if isinstance(refused, Exception):
                raise refused
            if refused is not None:
                return refused
            first, data = state.end_offset, bytearray(wanted.data)
            self._write(state, data, _stamped(data, 0, wanted, first))
            return AppendResult(first, state.end_offset - 1)

    def append_durably(self, batch: Buffer, epoch: int = 0) -> AppendResult:
        """`append_as_leader`, as safe as the flush policy says; threads share writes and syncs."""
        if self.config.flush_policy == "batch":
            return self._commit.submit(self.check(batch, epoch))
        result = self.append_as_leader(batch, epoch)
        if self._flusher is not None:
            self._flusher.note()
        return result

    def _append_group(
        self, group: Sequence[NewBatches]
    ) -> list[AppendResult | LogError | DiskError]:
        """Append several at once, with one write where that is possible."""
        with self._mutex, self._appending() as state:
            outcomes: list[AppendResult | LogError | DiskError] = []
            data, batches = bytearray(), Batches()
            written = 0  # outcomes up to here stand; those after it wait for the next write
            offset, latest = state.end_offset, state.epochs.latest
            room = self.config.segment_bytes - state.active.size
            for wanted in group:
                plain = wanted.epoch == latest and self._producers is None  # no state to ask
                if batches and not (plain and len(data) + len(wanted.data) <= room):
                    written = self._write_some(state, data, batches, outcomes, written)
                    data, batches = bytearray(), Batches()
                    offset, latest = state.end_offset, state.epochs.latest
                    room = self.config.segment_bytes - state.active.size
                outcome = None if plain else self._refused(state, wanted)
                if outcome is None:
                    first, start, latest = offset, len(data), wanted.epoch
                    data += wanted.data
                    batches += _stamped(data, start, wanted, first)
                    offset = batches[-1][1].next_offset
                    outcome = AppendResult(first, offset - 1)
                outcomes.append(outcome)
            if batches:
                self._write_some(state, data, batches, outcomes, written)
            return outcomes

    def _write_some(
        self,
        state: LogState,
        data: bytearray,
        batches: Batches,
        outcomes: list[AppendResult | LogError | DiskError],
        written: int,
    ) -> int:
        """Write the batches of the outcomes from `written` on, which become errors if it fails."""
        try:
            self._check_usable()
            self._write(state, data, batches)
        except (DiskError, LogFailed) as error:
            for number in range(written, len(outcomes)):
                if isinstance(outcomes[number], AppendResult):
                    outcomes[number] = error
        return len(outcomes)

    def _refused(self, state: LogState, wanted: NewBatches) -> AppendResult | LogError | None:
        """Why `wanted` is not appended: an old epoch, or it is there already."""
        try:
            state.epochs.check(wanted.epoch)
            if self._producers is not None:
                if len(wanted.batches) != 1:
                    return BadBatch(
                        f"{len(wanted.batches)} batches at once, with a producer state",
                        "append them one at a time: each may be a duplicate for itself",
                    )
                return self._producers.check(wanted.batches[0][1])
        except LogError as error:
            return error
        return None

    def append_as_follower(self, batches: Buffer) -> AppendResult:
        """Append batches as a leader numbered them: offsets and epochs stay as they are.

        Raises BadBatch if they do not continue this log; else as `append_as_leader`.
        """
        with self._mutex, self._appending() as state:
            # However large: the limit may have been another when the leader took it.
            found = check_replica(batches, state.end_offset, state.epochs.latest)
            self._write(state, batches, found)
            return AppendResult(found[0][1].base_offset, found[-1][1].last_offset)

    def _appending(self) -> contextlib.AbstractContextManager[LogState]:
        """The right to append, and an up-to-date state."""
        self._check_usable()
        if self.config.access == "read":
            raise LogError("this log was opened to read", 'open it with access="shared"')
        return self._alone if self.config.access == "exclusive" else self._among_others()

    @contextlib.contextmanager
    def _among_others(self) -> Iterator[LogState]:
        """The same of a shared log: the kernel's lock, and what others did meanwhile."""
        try:
            self._state.append_lock.acquire()
        except (FileNotFoundError, NotADirectoryError):
            raise LogError(
                f"the log's folder {self._state.directory!r} was removed while it was open",
                "close the log, and open it again once the folder is restored or made anew",
            ) from None
        try:
            reload_log(self._state, repair=True)
            self._state.follow_producers()
            yield self._state
        finally:
            self._state.append_lock.release()

    def _write(self, state: LogState, data: Buffer, batches: Batches) -> None:
        """Append, or leave the log as it was; if even that fails it must not be used any more."""
        try:
            state.append(data, batches)
        except BaseException:  # a full disk, or Ctrl-C at any point of it
            try:
                state.restore_end()
            except DiskError as error:
                self._failed = error
            raise

    # Making it durable.

    def flush(self) -> int:
        """Sync everything appended so far, by whomever; returns the offset it reaches to.

        Raises DiskError, after which the log is unusable (LogFailed): nobody knows what a failed
        sync has left behind, and the next one may report success (`craft2.disk`, fact 4).
        """
        with self._flush_mutex:
            with self._mutex:
                self._check_usable()
                state = self._look()
                segments, target, position = state.unflushed(), state.end_offset, state.active.size
            if not segments:
                return target
            try:
                state.sync(segments)
            except DiskError as error:
                self._failed = error
                state.control.sync_failed = True  # whoever opens the log next must know
                raise
            if self.config.access == "read":
                return target  # only a writer knows whether the log was cut meanwhile
            with self._mutex:
                state.control.flushed = max(target, state.control.flushed)
                due = state.checkpoint_is_due(segments[-1], position)
                if due:
                    with self._appending():
                        state.move_recovery_point(target, segments[-1], position)
            return target

    # Reading.

    def read(self, offset: int, max_bytes: int, upto: int | None = None) -> FileSlice:
        """Batches from the one that holds `offset` on, as a slice of one segment's file.

        The first batch comes whole, however large (KIP-74); the last may be cut at `max_bytes`;
        the first records may lie before `offset`. Empty if `offset` is the end.

        upto: no record at or after this offset (a batch's first), such as the high watermark.
        Raises OffsetOutOfRange, CorruptLog.
        """
        return self._piece(offset, max_bytes, upto).slice

    def _piece(self, offset: int, max_bytes: int, upto: int | None) -> Piece:
        _check_offset(offset)

        def find(state: LogState) -> Piece:
            state.check_offset(offset)
            end = state.end_offset if upto is None else min(upto, state.end_offset)
            return state.piece(offset, end, max_bytes)

        return self._find(find)

    def batches(
        self, offset: int | None = None, upto: int | None = None, max_bytes: int = 1024**2
    ) -> Iterator[bytes]:
        """Whole batches, checked, from the one with `offset` (the log's start) to the end.

        Raises OffsetOutOfRange, CorruptLog.
        """
        start = self.log_start if offset is None else offset
        return checked_batches(lambda at: self._piece(at, max_bytes, upto), self._cuts, start)

    def records(self, offset: int | None = None, upto: int | None = None) -> Iterator[Record]:
        """Records, one at a time, from exactly `offset` (the log's start) to the end."""
        offset = self.log_start if offset is None else offset
        for batch in self.batches(offset, upto):
            for record in decode(batch, check_crc=False):  # `batches` has checked it
                if record.offset >= offset and (upto is None or record.offset < upto):
                    yield record

    def _cuts(self) -> int:
        return self._look().cuts

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record not earlier than `timestamp` ms; None if none."""

        def find(state: LogState) -> tuple[int, int] | None:
            for segment in state.segments:
                found = segment.locate_timestamp(timestamp, state.log_start)
                if found is not None:
                    return found
            return None

        return self._find(find)

    def latest_record(self) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record with the largest timestamp; None if empty."""
        with self._mutex:
            latest = max(segment.max_timestamp for segment in self._look().segments)
        return self.offset_for_timestamp(latest)

    def _find(self, find: Callable[[LogState], Found]) -> Found:
        """What `find` returns; asked again if another process cut the log under it."""
        with self._mutex:
            while True:
                state = self._look()
                cuts, damage = state.cuts, None
                try:
                    found = find(state)
                except (BatchTooShort, CorruptBatch) as error:
                    damage = error
                if self._look().cuts != cuts:
                    continue
                if damage is None:
                    return found
                raise CorruptLog(
                    f"the log {self.directory!r} cannot be searched: {damage.problem}",
                    "craft2 inspect shows the damaged place; restore that file from a copy",
                ) from damage

    def _look(self) -> LogState:
        """The state as published: unless this object alone writes, others may have moved it."""
        if self._closed:
            raise LogFailed(f"the log {self.directory!r} is closed", "open it again")
        if self.config.access != "exclusive":
            with self._mutex:
                reload_log(self._state, repair=False)
        return self._state

    @property
    def failure(self) -> BaseException | None:
        """What this log stopped after, if it did: it has to be opened again."""
        return self._failed

    def _check_usable(self) -> None:
        if self._process != process_id():
            raise LogFailed(
                f"the log {self.directory!r} was opened before this process was forked",
                "open it in the child: two processes must not share one object's locks",
            )
        if self._closed:
            raise LogFailed(f"the log {self.directory!r} is closed", "open it again")
        if self._failed is not None:
            raise LogFailed(
                f"the log {self.directory!r} stopped after an error: {self._failed}",
                "mend the disk, then open the log again: what was acknowledged is there",
            ) from self._failed

    # Shrinking.

    def advance_start(self, offset: int) -> None:
        """Make `offset` the log's start (DeleteRecords); segments entirely before it go."""
        _check_offset(offset)
        why = f"told to start at {offset}"
        self._shrink(
            lambda state: log_cutting.advance_start(state, offset, why),
            writers=("exclusive", "shared"),
        )

    def apply_retention(
        self, now_ms: int | None = None, *, most: int | None = None, before: int | None = None
    ) -> list[int]:
        """Delete the oldest whole segments as the settings say; returns their base offsets.

        Never deletes the active segment. now_ms: milliseconds since 1970; the clock's, if None.
        most: segments at once; None: all that are to go. before: only those that end there, at the
        latest; None: wherever they end.
        """
        now = self._clock.now_ms() if now_ms is None else now_ms
        bases = self.segment_bases
        self._shrink(lambda state: log_cutting.retain(state, now, most, before), _ANY_WRITER)
        return [base for base in bases if base not in self.segment_bases]

    def truncate_to(self, offset: int) -> None:
        """Remove every batch with a record at or after `offset` (a follower that diverged)."""
        _check_offset(offset)
        self._shrink(lambda state: log_cutting.truncate_to(state, offset), writers=("exclusive",))

    def reset_to(self, offset: int) -> None:
        """Remove everything and continue, empty, at `offset` (a snapshot was installed)."""
        _check_offset(offset)
        self._shrink(lambda state: log_cutting.reset_to(state, offset), writers=("exclusive",))

    def _shrink(self, change: Callable[[LogState], None], writers: tuple[str, ...]) -> None:
        if self.config.access not in writers:
            raise LogError(
                f"the log {self.directory!r} is open with access={self.config.access!r}",
                f"open it with access={writers[0]!r} for this",
            )
        with self._flush_mutex, self._mutex, self._appending() as state:
            try:
                change(state)
            except DiskError as error:
                self._failed = error
                raise

    def reconfigure(self, config: LogConfig) -> None:
        """Other settings, from the next append or cut on. Raises LogError for another `access`."""
        if config.access != self.config.access:
            raise LogError(f"access={config.access!r}", "open the log again to change its access")
        with self._mutex:
            self.config = self._state.config = config

    # Closing.

    def close(self) -> None:
        """Flush; and if nobody else has the log open, leave it so that opening checks nothing."""
        if self._closed:
            return
        if self._flusher is not None:
            self._flusher.close()
        with self._flush_mutex, self._mutex:
            self._closed = True
            state = self._state
            try:
                reader = self.config.access == "read"
                if self._failed is None and state.users.acquire(wait=False):
                    if reader and state.control.dirty:
                        return  # a writer died: the next one to open the log sees to it
                    reload_log(state, repair=not reader)
                    state.sync(state.unflushed())
                    state.control.flushed = state.end_offset
                    state.leave_clean()
                elif self._failed is None and self.config.access != "read":
                    state.sync(state.unflushed())
            finally:
                state.release()

    def __enter__(self) -> PartitionLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def _check_offset(offset: int) -> None:
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 2**63:
        raise OffsetOutOfRange(f"offset {offset!r}", "give a whole number of 0 or more")


def _stamped(data: bytearray, start: int, wanted: NewBatches, offset: int) -> Batches:
    """The batches of `wanted`, whose bytes are in `data` from `start` on: stamped there, with
    offsets from `offset` on."""
    found: Batches = []
    for position, header in wanted.batches:
        at = start + position
        stamp(data, at, header.size, offset, wanted.epoch, wanted.append_time_ms)
        if wanted.append_time_ms < 0:
            header = header.numbered(offset, wanted.epoch)
        else:
            header = read_header(data, at)
        found.append((at, header))
        offset = header.next_offset
    return found
