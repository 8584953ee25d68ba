"""How many partitions does each rebalance move?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from matplotlib.ticker import MaxNLocator

from craft2.viz.style import COLOURS, Chart, label_line_ends, new_chart


def moves_by_step(
    moves: Mapping[str, Sequence[int]],
    sizes: Sequence[int],
    title: str = "Partitions that change their reader",
) -> Chart:
    """One line a strategy: the partitions that each step of a group's size moves.

    moves: strategy -> a count for each step. sizes: of the group, one more than there are steps.
    """
    chart, axes = new_chart(title, "members before and after", "partitions moved")
    steps = range(len(sizes) - 1)
    ends = []
    for (name, counts), colour in zip(moves.items(), COLOURS, strict=False):
        axes.plot(steps, counts, color=colour, linewidth=2, marker="o", markersize=5)
        ends.append((name, float(steps[-1]), float(counts[-1]), colour))
    pairs = itertools.pairwise(sizes)
    axes.set_xticks(steps, [f"{old}\u2192{new}" for old, new in pairs])
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    label_line_ends(axes, ends)
    return chart
