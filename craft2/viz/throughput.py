"""How many messages a second, for how many clients?"""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from craft2.viz.style import (
    GREY,
    Chart,
    colour_of,
    label_line_ends,
    log_y,
    new_chart,
    plain_rows,
    short,
)


def throughput_by_clients(
    rows: Any,
    title: str = "Throughput by number of clients",
    known: tuple[str, float] | None = None,
) -> Chart:
    """One line a backend: messages a second against the number of clients, on a log axis.

    `rows` is what the results store gives: `Result`s, an Arrow table, or collected Spark rows.
    Where a backend was measured several times, the line joins the medians and a dot is a run.
    The rate axis is a log axis too when the rates span more than a factor of twenty.
    `known` is a name and a rate from elsewhere, drawn as a dotted line.
    """
    rates: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in plain_rows(rows):
        rates[row["backend"]][row["clients"]].append(row["messages_per_s"])
    chart, axes = new_chart(title, "clients", "messages a second")
    colours = colour_of(rates)
    ends = []
    for backend, by_clients in rates.items():
        clients = sorted(by_clients)
        medians = [statistics.median(by_clients[n]) for n in clients]
        colour = colours[backend]
        axes.plot(clients, medians, color=colour, linewidth=2, marker="o", markersize=5)
        for n in clients:
            if len(by_clients[n]) > 1:
                axes.plot([n] * len(by_clients[n]), by_clients[n], ".", color=colour, alpha=0.4)
        ends.append((backend, float(clients[-1]), medians[-1], colour))

    every_n = sorted({n for by_clients in rates.values() for n in by_clients})
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(every_n))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    every_rate = [rate for b in rates.values() for some in b.values() for rate in some if rate > 0]
    if every_rate and max(every_rate) > 20 * min(every_rate):
        log_y(axes, min(every_rate), max(every_rate))
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    if known is not None:
        name, rate = known
        axes.axhline(rate, color=GREY, linestyle=":", linewidth=1.2)
        ends.append((name, float(every_n[-1]), rate, GREY))
    label_line_ends(axes, ends)
    return chart
