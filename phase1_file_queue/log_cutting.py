"""Cutting a log, at its start or its end, so that a crash in the middle does no harm.

- The end: recovery point and `flushed` down, durably -> the new end published, marked dirty ->
  later segments deleted, last first -> the file cut -> everything synced. Whoever comes after a
  crash finds a log that still promises only what is there, and goes on with the cut.
- The start: the new start, durably and published -> old segments deleted, first first.

The caller holds the locks that a change needs (`partition_log`).
"""

from __future__ import annotations

from bisect import bisect_right

from phase1_file_queue.log_state import LogState
from phase1_file_queue.producer_state import drop_snapshots


def advance_start(state: LogState, offset: int, because: str) -> None:
    """Make `offset` the log's start; segments entirely before it are deleted."""
    state.check_offset(offset)
    if offset == state.log_start:
        return
    state.log_start = offset
    state.epochs.advance(offset)
    state.epochs_changed = True
    state.save_epochs()
    state.save_checkpoint(log_start=offset)
    state.publish()
    state.tell("advance-start", offset, because)
    while len(state.segments) > 1 and state.segments[0].next_offset <= offset:
        state.tell("delete-segment", state.segments[0].base_offset, because)
        state.segments.pop(0).delete()
    if state.producers is not None:
        drop_snapshots(state.disk, state.directory, before=offset, after=state.end_offset)


def retain(
    state: LogState, now_ms: int, most: int | None = None, before: int | None = None
) -> None:
    """Delete whole segments, oldest first, as retention_bytes and retention_ms say: so many at
    most, and only those that end at `before` or earlier, if that is given."""
    excess = 0
    if state.config.retention_bytes is not None:
        excess = sum(s.size for s in state.segments) - state.config.retention_bytes
    oldest = now_ms - (state.config.retention_ms or 0)
    start = state.log_start
    for segment in state.segments[:-1][:most]:
        expired = state.config.retention_ms is not None and 0 <= segment.max_timestamp < oldest
        kept = before is not None and segment.next_offset > before
        if kept or (segment.size > excess and not expired):
            break
        excess -= segment.size
        start = segment.next_offset
    limits = f"retention: {state.config.retention_bytes} bytes, {state.config.retention_ms} ms"
    advance_start(state, max(start, state.log_start), limits)


def truncate_to(state: LogState, offset: int) -> None:
    """Remove every batch that has a record at or after `offset`; the log ends with the one before.

    It never ends before its start, though that may lie within the first batch that goes.
    """
    if offset >= state.end_offset:
        return
    state.check_offset(offset)
    number = bisect_right(state.segments, offset, key=lambda s: s.base_offset) - 1
    base = state.segments[number].base_offset
    position, end = state.segments[number].end_before(offset)
    _lower_durable(state, end, (base, position))
    state.cuts += 1
    state.control.dirty = True  # whoever comes if we die now goes on with the cut
    assert state.published is not None
    state.published = state.published._replace(
        segment_base=base,
        position=position,
        end_offset=max(end, state.log_start),
        cuts=state.cuts,
    )
    state.control.publish(state.published)
    state.restore_end()
    state.disk.sync_dir(state.directory)
    state.active.sync()
    if state.producers is not None:
        drop_snapshots(state.disk, state.directory, after=end)
    state.publish()
    state.tell("truncate", end, f"told to truncate to {offset}")


def reset_to(state: LogState, offset: int) -> None:
    """Remove everything and continue, empty, at `offset`."""
    truncate_to(state, state.log_start)
    state.control.dirty = True  # whoever comes if we die now deletes what is not published
    old = state.segments
    _lower_durable(state, min(offset, state.end_offset), (old[0].base_offset, 0))
    state.segments = []
    if old[-1].base_offset == offset:
        state.segments = [old.pop()]
        state.active.truncate(0, offset)
        state.active.sync()
    else:
        state.new_segment(offset)
        state.disk.sync_dir(state.directory)
    state.log_start = offset
    state.cuts += 1
    state.epochs.truncate(0)
    state.epochs_changed = True
    state.save_epochs()
    state.save_checkpoint(log_start=offset, recovery_point=offset, at=(offset, 0))
    state.publish()
    for segment in reversed(old):
        segment.delete()
    state.control.dirty = False
    if state.producers is not None:
        drop_snapshots(state.disk, state.directory, before=2**63, after=-1)
        state.producers.restore(b"")
    state.tell("reset", offset, f"told to start again at {offset}")


def _lower_durable(state: LogState, offset: int, at: tuple[int, int]) -> None:
    """Promise no more than `offset`, durably, before anything behind it goes."""
    if offset < state.checkpoint.recovery_point or state.checkpoint.clean:
        if offset <= state.checkpoint.recovery_point:
            state.save_checkpoint(recovery_point=offset, at=at)
        else:
            state.save_checkpoint()
    if offset < state.control.flushed:
        state.control.flushed = offset
        state.control.sync()
