"""From slices of a log's files to whole, checked batches.

A read returns as many bytes as asked for, so its last batch may be cut; and while a reader holds a
slice, the log may be cut under it. What is neither is damage, and is reported: nothing is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from craft2.disk import FileSlice
from craft2.record_batch import CorruptBatch, iter_headers, verify
from phase1_file_queue.log_config import CorruptLog


def checked_batches(
    read: Callable[[int], FileSlice], cuts: Callable[[], int], offset: int
) -> Iterator[bytes]:
    """Whole batches from the one with `offset` on, until `read` returns an empty slice.

    read: a slice of the log from an offset on. cuts: how often the log was cut so far.
    Raises CorruptLog, and what `read` raises.
    """
    while True:
        before = cuts()
        piece = read(offset)
        if not piece.size:
            return
        data, start, reason = piece.read(), offset, ""
        try:
            for position, header in iter_headers(data):
                if position and header.base_offset < offset:
                    reason = f"a batch with offset {header.base_offset} is there"
                    break
                verify(data, position)
                yield data[position : position + header.size]
                offset = max(offset, header.next_offset)
        except CorruptBatch as error:
            reason = error.problem
        if offset == start and not reason:
            reason = "no whole batch is there"
        if reason and cuts() == before:
            raise CorruptLog(
                f"segment {piece.file.path!r} is damaged at or behind byte {piece.position}, "
                f"where offset {offset} should be: {reason}",
                "restore the file from a copy or a replica; craft2 inspect shows the place",
            )
