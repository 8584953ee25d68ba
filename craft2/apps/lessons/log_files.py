"""What the lessons show of a log's files."""

from __future__ import annotations

from craft2.viz.segments import SegmentPicture
from phase1_file_queue.partition_log import PartitionLog


def segments_of(log: PartitionLog) -> list[SegmentPicture]:
    """The segments of an open log, for `segment_map`."""
    return [
        SegmentPicture(
            segment.base_offset,
            segment.size,
            [(position, header.size) for position, header in segment.headers()],
            [segment.offset_index.entry(n)[1] for n in range(segment.offset_index.count)],
        )
        for segment in log._state.segments
    ]
