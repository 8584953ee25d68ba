"""Opening a log: alone after a clean close, alone after a crash, or beside others.

Kernel locks tell which, since they go when a process goes, however it goes:

    .users    everybody holds it shared; who can have it alone is the first, and checks the log
    .writers  an exclusive writer holds it alone, shared writers hold it shared
    .append   held for the time of one append (by an exclusive writer: never needed)

Who comes second believes the control page. Who is alone believes the log's own bytes: everything
from the recovery point on is checked (`recovery`), the indexes behind it are rebuilt.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right

from craft2.clock import Clock
from craft2.disk import Disk
from craft2.errors import Craft2Error
from craft2.events import Emitter
from craft2.record_batch import BatchTooShort, CorruptBatch
from phase1_file_queue.control_page import Published
from phase1_file_queue.log_config import CorruptLog, LogConfig, LogInUse, NotALog
from phase1_file_queue.log_files import EPOCHS, Checkpoint, remove_orphans, segment_bases
from phase1_file_queue.log_state import LogState
from phase1_file_queue.producer_state import ProducerState
from phase1_file_queue.publish import publish
from phase1_file_queue.recovery import Cut, Damage, RecoveryReport, corrupt, judge, scan
from phase1_file_queue.segment import Segment, segment_path

_ATTEMPTS = 500
_PAUSE_S = 0.005


def open_log(
    disk: Disk,
    directory: str,
    config: LogConfig,
    producers: ProducerState | None,
    events: Emitter | None,
    clock: Clock,
) -> LogState:
    """The state of the log in `directory`, checked as far as need be. See PartitionLog."""
    try:
        if config.access != "read":
            disk.mkdir(directory)
        bases = segment_bases(disk, directory)  # before the first lock file is made: is this a log?
    except (FileExistsError, NotADirectoryError):
        raise NotALog(f"{directory!r} is a file", "give the path of a directory") from None
    except FileNotFoundError:
        bases = []
    if config.access == "read" and not bases and Checkpoint.load(disk, directory) is None:
        raise NotALog(
            f"{directory!r} holds no log",
            'correct the path, or open it with access="shared" to make a new log',
        )
    state = LogState(disk, directory, config, producers, events)
    try:
        if config.access != "read":
            shared = config.access == "shared"
            if not state.writers.acquire(shared=shared, wait=False):
                raise LogInUse(
                    f"the log {directory!r} is already open for writing",
                    'close it there; or open it here with access="read"; or on both sides with '
                    'access="shared"',
                )
        _enter(state, clock)
        if state.control.sync_failed and config.access != "read":
            state.rewrite_unflushed()
    except BaseException:
        state.release()
        raise
    return state


def _enter(state: LogState, clock: Clock) -> None:
    """Become one of the log's users: the first, who checks it, or one more."""
    for _ in range(_ATTEMPTS):
        if state.users.acquire(wait=False):
            state.control.serving = False
            _recover(state)
            state.publish()
            state.control.dirty = False
            state.control.serving = True
            state.users.acquire(shared=True)
            return
        state.users.acquire(shared=True)
        if state.control.serving:
            _join(state)
            return
        state.users.release()  # the first one died while it checked the log: once more
        clock.wait(threading.Event(), _PAUSE_S)
    raise CorruptLog(
        f"the log {state.directory!r} is in use, but its control page says that nobody opened it",
        "close the log everywhere, then open it again: it is then checked from its own bytes",
    )


def _join(state: LogState) -> None:
    """Join a log that others have open: take over what they published, repaired if need be."""
    state.append_lock.acquire()
    try:
        state.checkpoint = Checkpoint.load(state.disk, state.directory) or Checkpoint()
        reload_log(state, repair=state.config.access != "read")
        state.replay_producers(state.end_offset)
    finally:
        state.append_lock.release()


def reload_log(state: LogState, *, repair: bool) -> None:
    """Bring `state` up to what is published now.

    repair: the caller may append; if a writer died in the middle, go back to the published end.
    """
    damage: Exception | None = None
    for _ in range(_ATTEMPTS):
        now = state.control.read()
        if now is None:
            break
        try:
            _take_over(state, now, broken=repair and state.control.dirty)
            return
        except FileNotFoundError:  # a segment was deleted while we opened it: look again
            _forget_segments(state)
        except (BatchTooShort, CorruptBatch) as error:  # it was cut while we read it, or is damaged
            _forget_segments(state)
            damage = error
            if state.control.read() == now:
                break
    raise CorruptLog(
        f"the control page of {state.directory!r} does not fit its files while the log is in use"
        + (f": {damage.problem}" if isinstance(damage, Craft2Error) else ""),
        "close the log everywhere and open it again: it is then checked from its own bytes",
    ) from damage


def _take_over(state: LogState, now: Published, *, broken: bool) -> None:
    before = state.published
    if now == before and not broken:
        return
    if before is None or now.cuts != before.cuts or broken:
        _forget_segments(state)
        before = None
    _load_segments(state, now)
    if before is None or now.epoch != before.epoch:
        state.epochs.load(state.disk, os.path.join(state.directory, EPOCHS))
    state.log_start, state.cuts, state.published = now.log_start, now.cuts, now
    if broken:
        state.restore_end()


def _forget_segments(state: LogState) -> None:
    for segment in state.segments:
        segment.close()
    state.segments.clear()
    state.published = None


def _load_segments(state: LogState, now: Published) -> None:
    """Open segments that are new to us, drop those that are gone, move the end."""
    known = {segment.base_offset for segment in state.segments}
    if now.segment_base not in known:
        for base in segment_bases(state.disk, state.directory):
            if base not in known and base <= now.segment_base:
                grows = base == now.segment_base and state.config.access != "read"
                state.segments.append(
                    Segment(state.disk, state.directory, base, state.config, grows=grows)
                )
        latest = state.control.read()
        if latest is None or (latest.log_start, latest.cuts) != (now.log_start, now.cuts):
            raise FileNotFoundError("segments were deleted before we could list them")
        state.segments.sort(key=lambda segment: segment.base_offset)
        for segment, after in zip(state.segments, state.segments[1:], strict=False):
            segment.refresh(segment.file.size(), after.base_offset)
            segment.load_max_timestamp()
    while len(state.segments) > 1 and state.segments[0].next_offset <= now.log_start:
        state.segments.pop(0).close()
    if not state.segments:
        raise FileNotFoundError("every segment is newer than the page: look again")
    active = state.active
    active.refresh(now.position, now.end_offset)
    active.max_timestamp = now.max_timestamp
    active.max_timestamp_offset = now.max_timestamp_offset


def _recover(state: LogState) -> None:
    """Open a log that nobody else has open, from its own bytes."""
    bases = segment_bases(state.disk, state.directory)
    remove_orphans(state.disk, state.directory, bases)
    published = state.control.read()
    state.cuts = published.cuts + 1 if published else 0
    checkpoint = Checkpoint.load(state.disk, state.directory)
    state.checkpoint = checkpoint or Checkpoint(log_start=bases[0] if bases else 0)
    state.log_start = state.checkpoint.log_start
    while len(bases) > 1 and bases[1] <= state.log_start:  # deletion was under way
        Segment(state.disk, state.directory, bases.pop(0), state.config, grows=True).delete()
    if not bases and state.checkpoint.recovery_point > state.log_start:
        raise CorruptLog(
            f"the log {state.directory!r} has no segment, but it held records up to offset "
            f"{state.checkpoint.recovery_point - 1}",
            "restore its files from a copy or a replica, or remove the directory to begin anew",
        )
    if bases and bases[0] > state.log_start:
        raise CorruptLog(
            f"the log {state.directory!r} starts at offset {state.log_start}, but its first "
            f"segment is {segment_path(state.directory, bases[0])!r}",
            "restore the segments before it from a copy or a replica, or remove the file "
            "recovery-point to start the log where its first segment starts",
        )
    for number, base in enumerate(bases):
        grows = number + 1 == len(bases) or bases[number + 1] > state.checkpoint.segment
        state.segments.append(Segment(state.disk, state.directory, base, state.config, grows=grows))
    state.epochs.load(state.disk, os.path.join(state.directory, EPOCHS))
    if not bases:
        state.new_segment(state.log_start)
    end = (state.active.base_offset, state.active.file.size())
    clean = state.checkpoint.clean and end == (state.checkpoint.segment, state.checkpoint.position)
    state.report = RecoveryReport(clean=clean)
    if clean:
        _load_clean(state)
    else:
        _check(state)
    if state.end_offset < state.log_start:  # what was lost had been deleted already
        old = state.segments
        state.segments = []
        state.new_segment(state.log_start)
        for segment in old:
            segment.delete()
    for cut in state.report.cuts:
        kept = f"; they are kept in {cut.kept_as}" if cut.kept_as else ""
        why = f"{cut.size} bytes at {cut.path}:{cut.position} did not survive a crash{kept}"
        state.tell("cut", cut.offset, why)
    if not clean and bases:
        checked = f"it was not closed properly: {state.report.scanned_bytes} bytes checked"
        state.tell("recover", state.end_offset, checked)
    durable = max(state.control.flushed, state.checkpoint.recovery_point)
    state.control.flushed = min(durable, state.end_offset)
    state.replay_producers(state.end_offset)


def _load_sealed(state: LogState, count: int) -> None:
    """Take over the first `count` segments as they are; rebuild indexes that cannot be right."""
    for number in range(count):
        segment, after = state.segments[number : number + 2]
        if not segment.load_sealed():
            segment.close()
            state.segments[number] = segment = Segment(
                state.disk, state.directory, segment.base_offset, state.config, grows=True
            )
            segment.recover_from(0, segment.base_offset)
            segment.size = segment.file.size()
            try:
                segment.note(segment.headers())
            except (BatchTooShort, CorruptBatch) as error:
                path = segment_path(state.directory, segment.base_offset)
                raise CorruptLog(f"segment {path!r}: {error.problem}", error.fix) from error
            if segment.next_offset == after.base_offset:
                segment.finish()
        if segment.next_offset != after.base_offset:
            ends = f"the file's last batch ends before offset {segment.next_offset}"
            end = Damage(segment.size, after.base_offset, ends)
            path = segment_path(state.directory, segment.base_offset)
            raise corrupt(path, end, f"the next segment begins at offset {after.base_offset}")


def _load_clean(state: LogState) -> None:
    _load_sealed(state, len(state.segments) - 1)
    active = state.active
    active.refresh(state.checkpoint.position, state.checkpoint.recovery_point)
    try:
        active.load_max_timestamp()
    except (BatchTooShort, CorruptBatch) as error:
        path = segment_path(state.directory, active.base_offset)
        raise CorruptLog(f"segment {path!r}: {error.problem}", error.fix) from error


def _check(state: LogState) -> None:
    """Check everything from the recovery point on, segment by segment; cut a torn tail."""
    point = state.checkpoint.recovery_point
    known = list(state.epochs.entries)
    bases = [segment.base_offset for segment in state.segments]
    first = max(bisect_right(bases, state.checkpoint.segment) - 1, 0)
    _load_sealed(state, first)
    durable = max(state.control.flushed, point)
    if durable <= state.log_start:
        durable = 0  # all that was promised has been deleted since
    for number, segment in enumerate(state.segments[first:], first):
        behind = state.segments[number + 1 :]
        at_point = segment.base_offset == state.checkpoint.segment
        start = state.checkpoint.position if at_point else 0
        damage = _check_segment(state, segment, start, point if at_point else segment.base_offset)
        if damage is None and behind and segment.next_offset < behind[0].base_offset:
            reason = f"the file ends here, and the next segment begins at {behind[0].base_offset}"
            damage = Damage(segment.size, segment.next_offset, reason, short=True)
        if damage is not None:
            _cut(state, number, damage, durable, later=any(s.file.size() for s in behind))
            break
        if behind:
            segment.finish()
    if state.end_offset < durable:
        end = Damage(state.active.size, state.end_offset, "the file ends here")
        raise corrupt(
            segment_path(state.directory, state.active.base_offset),
            end,
            f"records up to offset {durable - 1} had been flushed",
        )
    if not set(known) <= set(state.epochs.entries):
        # Of a record that was lost. Another one comes to its offset, before its epoch is noted.
        state.epochs_changed = True
        state.save_epochs()


def _check_segment(state: LogState, segment: Segment, start: int, offset: int) -> Damage | None:
    """Scan one segment, rebuild its indexes and the epochs; returns the first damage."""
    size = segment.file.size()
    if start > size:
        path = segment_path(state.directory, segment.base_offset)
        ends = Damage(size, offset, f"the file ends before byte {start}")
        raise corrupt(path, ends, "everything up to there had been flushed")
    segment.recover_from(start, offset)
    batches, damage = scan(segment.file, start, size, offset)
    state.report.scanned_bytes += size - start
    state.epochs.truncate(offset)
    segment.note(batches)
    for position, header in batches:
        segment.size = position + header.size
        readable = header.next_offset > state.log_start
        begins = max(header.base_offset, state.log_start)
        if readable and state.epochs.assign(header.leader_epoch, begins):
            state.epochs_changed = True
    return damage


def _cut(state: LogState, number: int, damage: Damage, durable: int, later: bool) -> None:
    """Cut the log at the damage, if a crash explains it; keep whole batches beside it."""
    segment = state.segments[number]
    path = segment_path(state.directory, segment.base_offset)
    cut = judge(path, segment.file, segment.file.size(), damage, durable, later)
    if cut.kept_as is not None:
        publish(state.disk, cut.kept_as, segment.file.read_at(cut.position, cut.size))
    if cut.size:
        state.report.cuts.append(cut)
    for after in reversed(state.segments[number + 1 :]):
        size = after.file.size()
        after_path = segment_path(state.directory, after.base_offset)
        if size:
            kept = f"{after_path}.0.cut"
            state.disk.rename(after_path, kept)
            state.report.cuts.append(Cut(after_path, 0, size, after.base_offset, kept))
        after.delete()
        state.segments.pop()
    state.disk.sync_dir(state.directory)
    segment.truncate(damage.position, damage.offset)
    segment.sync()
