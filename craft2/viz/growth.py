"""How does a rate grow with something? One panel each for several somethings."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from craft2.viz.style import COLOURS, DPI, GREY, Chart, plain_rows, short, style_axes

_SCENARIO = re.compile(r"growth: (.+)=(\d+)")
_SIZE_INCHES = (9.6, 3.4)


def rates_by_growth(rows: Any, panels: Mapping[str, str]) -> Chart:
    """A panel for each of `panels` ("partitions": its title), a line for each backend.

    rows: what the results store gives (`Result`s, an Arrow table, or collected Spark rows); those
    of the scenarios "growth: WHAT=NUMBER" are drawn. Where one was measured several times, the
    line joins the medians.
    """
    rates: dict[str, dict[str, dict[int, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in plain_rows(rows):
        if found := _SCENARIO.fullmatch(row["scenario"]):
            what, number = found.groups()
            rates[what][row["backend"]][int(number)].append(row["messages_per_s"])
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    chart = Chart(figsize=_SIZE_INCHES, dpi=DPI, layout=layout)
    for axes, (what, title) in zip(chart.subplots(1, len(panels)), panels.items(), strict=True):
        style_axes(axes, title, what, "")
        numbers = sorted({n for by_number in rates[what].values() for n in by_number})
        for (backend, by_number), colour in zip(rates[what].items(), COLOURS, strict=False):
            medians = [statistics.median(by_number[n]) for n in sorted(by_number)]
            axes.plot(
                sorted(by_number), medians, color=colour, linewidth=2, marker="o", markersize=4,
                label=backend,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(numbers))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    first = chart.axes[0]
    first.set_ylabel("messages a second", fontsize=10, color=GREY)
    handles, names = first.get_legend_handles_labels()
    chart.legend(handles, names, loc="outside upper right", ncols=2, frameon=False, fontsize=10)
    return chart
