"""What guarantees cost: how many messages get through, and how long one waits, a line each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from craft2.viz.style import COLOURS, DPI, GREY, Chart, plain_rows, short, style_axes

_WIDTH, _LINE, _REST = 7.6, 0.27, 1.35  # inches
_NOTHING = "#b0b0b0"


def costs_of_guarantees(rows: Any, kinds: Mapping[str, str], title: str) -> Chart:
    """A line a backend, in the order of the rows: messages a second of those rows of it that have
    the most clients, and from p50 to p99 of those that have the fewest, on log axes.

    rows: of the results store. kinds: backend -> what it survives; a colour each, the first grey.
    """
    plain = [row for row in plain_rows(rows) if row["backend"] in kinds]
    names = list(dict.fromkeys(row["backend"] for row in plain))
    least, most = (pick(row["clients"] for row in plain) for pick in (min, max))
    crowd = {row["backend"]: row for row in plain if row["clients"] == most}
    alone = {row["backend"]: row for row in plain if row["clients"] == least}
    words = list(dict.fromkeys(kinds.values()))
    colours = dict(zip(words, (_NOTHING, *COLOURS), strict=False))
    layout = ConstrainedLayoutEngine(w_pad=0.06, h_pad=0.08)
    chart = Chart(figsize=(_WIDTH, _REST + _LINE * len(names)), dpi=DPI, layout=layout)
    left, right = chart.subplots(1, 2, sharey=True, width_ratios=(1.25, 1))
    style_axes(left, "", f"messages a second, {most} clients", "")
    style_axes(right, "", f"ms for {least} client, p50 to p99", "")
    chart.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    for place, name in enumerate(names):
        colour, rate = colours[kinds[name]], crowd[name]["messages_per_s"]
        left.barh(place, rate, color=colour, height=0.7)
        left.text(rate * 1.12, place, f"{rate:,.0f}", va="center", fontsize=8, color=GREY)
        p50, p99 = alone[name]["p50_ms"], alone[name]["p99_ms"]
        right.plot([p50, p99], [place, place], color=colour, linewidth=4, solid_capstyle="butt")
        right.plot(p50, place, "o", color=colour, markersize=6)
    left.set_yticks(range(len(names)), names)
    left.set_ylim(len(names) - 0.4, -0.6)
    rates = [row["messages_per_s"] for row in crowd.values()]
    _log_x(left, min(rates) / 3, max(rates) * 4)
    waits = [row[key] for row in alone.values() for key in ("p50_ms", "p99_ms")]
    _log_x(right, min(waits) / 1.5, max(waits) * 1.5)
    handles = [left.barh(0, 0, color=colour, label=word) for word, colour in colours.items()]
    chart.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        labelcolor=GREY,
        handlelength=1.0,
    )
    return chart


def _log_x(axes: Axes, low: float, high: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(LogLocator(base=10))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    axes.grid(visible=False, axis="y")
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.tick_params(axis="y", length=0)
