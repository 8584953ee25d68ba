"""Where the bytes of a log are: its segments, the batches in them, and what the index knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from craft2.viz.style import COLOURS, Chart, new_chart, note_above, short

_SHADES = ("#9cc7e4", "#d3e6f3")  # neighbouring batches differ, however thin they are drawn
_HEIGHT = 0.5  # of a row
_EDGES_UPTO = 150  # batches in a row: thinner ones have no room for edges


class SegmentPicture(NamedTuple):
    """What `segment_map` draws of one segment; positions and sizes in bytes."""

    base_offset: int
    size: int
    batches: list[tuple[int, int]]  # (position, size)
    index: list[int]  # type: ignore[assignment]  # positions it points to


def segment_map(segments: Sequence[SegmentPicture], title: str = "A log, byte by byte") -> Chart:
    """One row a segment, the oldest on top, to scale: its batches, and a tick an index entry."""
    chart, axes = new_chart(title, "position in the file, bytes", "segment, by base offset")
    for row, segment in enumerate(segments):
        _draw(axes, row, segment)
    axes.set_yticks(range(len(segments)), [f"{segment.base_offset:,}" for segment in segments])
    axes.set_ylim(max(len(segments), 1) - 0.35, -0.65)
    axes.set_xlim(0, 1.01 * max([1, *(segment.size for segment in segments)]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.grid(visible=False)
    batches = sum(len(segment.batches) for segment in segments)
    entries = sum(len(segment.index) for segment in segments)
    note_above(axes, f"{batches:,} batches; {entries:,} index entries (ticks below)")
    return chart


def _draw(axes: Axes, row: int, segment: SegmentPicture) -> None:
    edges = len(segment.batches) <= _EDGES_UPTO
    for shade, colour in enumerate(_SHADES):
        blocks = [
            Rectangle((position, row - _HEIGHT / 2), size, _HEIGHT)
            for position, size in segment.batches[shade::2]
        ]
        axes.add_collection(
            PatchCollection(
                blocks,
                facecolor=colour,
                edgecolor="white" if edges else "none",
                linewidth=0.5 if edges else 0,
            )
        )
    bottom = row + _HEIGHT / 2
    ticks = [[(position, bottom), (position, bottom + 0.16)] for position in segment.index]
    axes.add_collection(LineCollection(ticks, colors=COLOURS[1], linewidths=1.2))
