"""How evenly do keys spread over partitions?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from matplotlib.ticker import FuncFormatter

from craft2.viz.style import COLOURS, Chart, new_chart, short

OTHER = "#c8c8c8"
_WIDE_ENOUGH = 0.05  # of the axis: a narrower piece has no room for its name


def partition_skew(
    counts: Mapping[tuple[int, str], int], title: str = "Messages by partition and key"
) -> Chart:
    """One bar a partition, made of one piece a key, the largest first.

    counts: (partition, key) -> messages.  The six largest keys have colours, the others are grey.
    """
    totals: Counter[str] = Counter()
    partitions: Counter[int] = Counter()
    for (partition, key), count in counts.items():
        totals[key] += count
        partitions[partition] += count
    colours = dict(zip((key for key, _ in totals.most_common()), COLOURS[:6], strict=False))
    chart, axes = new_chart(title, "messages", "partition")
    longest = max(partitions.values(), default=1)
    filled: Counter[int] = Counter()
    for (partition, key), count in sorted(counts.items(), key=lambda item: -item[1]):
        axes.barh(
            partition,
            count,
            left=filled[partition],
            height=0.7,
            color=colours.get(key, OTHER),
            edgecolor="white",
            linewidth=0.8,
        )
        if count > _WIDE_ENOUGH * longest:
            middle = filled[partition] + count / 2
            ink = "white" if key in colours else "black"
            axes.text(middle, partition, key, color=ink, ha="center", va="center", fontsize=9)
        filled[partition] += count
    axes.set_yticks(range(max(partitions, default=0) + 1))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    return chart
