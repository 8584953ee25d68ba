"""From slices of a log's files to whole, checked batches.

A read returns as many bytes as asked for, so its last batch may be cut; and while a reader holds a
slice, the log may be cut under it. What is neither is damage, and is reported: nothing is skipped.

A batch's checksum does not cover its first offset, which the broker writes (`craft2.batch_header`).
So that is checked against the neighbours: each batch begins where the one before it ends in the
file, at the same offset or a later one, and none reaches past its segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from craft2.disk import FileSlice
from craft2.record_batch import CorruptBatch, iter_headers, verify
from phase1_file_queue.log_config import CorruptLog


class Piece(NamedTuple):
    """A slice of one segment, and where that segment ends: its next offset, its size in bytes."""

    slice: FileSlice
    next_offset: int
    size: int


def checked_batches(
    read: Callable[[int], Piece], cuts: Callable[[], int], offset: int
) -> Iterator[bytes]:
    """Whole batches from the one with `offset` on, until `read` returns an empty slice.

    read: a piece of the log from an offset on. cuts: how often the log was cut so far.
    Raises CorruptLog, and what `read` raises.
    """
    last: Piece | None = None
    due = 0  # where in the file of `last` the next batch begins
    seen = cuts()
    while True:
        before = cuts()
        if before != seen:
            last, seen = None, before
        piece = read(offset)
        reason = _misplaced(piece, last, due, offset) if last else ""
        if not piece.slice.size and not reason:
            return
        data, start, follows = piece.slice.read(), offset, last is not None
        last, due = piece, piece.slice.position
        try:
            for position, header in iter_headers(data) if not reason else ():
                if follows and header.base_offset < offset:
                    reason = f"a batch with offset {header.base_offset} is there"
                elif header.next_offset > piece.next_offset:
                    reason = f"a batch up to {header.last_offset} is there, past the segment's end"
                if reason:
                    break
                verify(data, position)
                yield data[position : position + header.size]
                due += header.size
                offset, follows = max(offset, header.next_offset), True
        except CorruptBatch as error:
            reason = error.problem
        if offset == start and not reason:
            reason = "no whole batch is there"
        if reason and cuts() == before:
            raise CorruptLog(
                f"segment {piece.slice.file.path!r} is damaged at or behind byte {due}, where "
                f"offset {offset} should be: {reason}",
                "restore the file from a copy or a replica; craft2 inspect shows the place",
            )


def _misplaced(piece: Piece, last: Piece, due: int, offset: int) -> str:
    """Why `piece`, read for `offset`, does not continue `last` at its byte `due`; "" if it does."""
    if not piece.slice.size and offset < piece.next_offset:
        return ""  # the reader wants no more
    same = piece.slice.file.path == last.slice.file.path
    if (piece.slice.position if same else last.size) == due and (same or not piece.slice.position):
        return ""
    return f"the batch before it, which ends at byte {due}, says that it is elsewhere"
