"""How many partitions does each rebalance move?"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from matplotlib.ticker import MaxNLocator

from craft2.viz.style import COLOURS, Chart, new_chart


def moves_by_step(
    moves: Mapping[str, Sequence[int]],
    sizes: Sequence[int],
    title: str = "Partitions that change their reader",
) -> Chart:
    """One line a strategy: the partitions that each step of a group's size moves.

    The names stand where the lines are furthest apart: at the ends they may well meet.

    moves: strategy -> a count for each step. sizes: of the group, one more than there are steps.
    """
    chart, axes = new_chart(title, "members before and after", "partitions moved")
    steps = range(len(sizes) - 1)
    at = max(steps, key=lambda step: _nearest([counts[step] for counts in moves.values()]))
    for (name, counts), colour in zip(moves.items(), COLOURS, strict=False):
        axes.plot(steps, counts, color=colour, linewidth=2, marker="o", markersize=5)
        axes.annotate(
            name,
            (at, counts[at]),
            xytext=(0, 6),
            textcoords="offset points",
            ha="center",
            color=colour,
            fontsize=10,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
    pairs = itertools.pairwise(sizes)
    axes.set_xticks(steps, [f"{old}\u2192{new}" for old, new in pairs])
    axes.set_ylim(0, 1.15 * max(1, *itertools.chain(*moves.values())))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    return chart


def _nearest(counts: Sequence[int]) -> int:
    """How far apart the two nearest of them are."""
    return min((high - low for low, high in itertools.pairwise(sorted(counts))), default=0)
