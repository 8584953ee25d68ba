"""What do more consumers give, and for how long?"""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from craft2.viz.style import COLOURS, GREY, Chart, label_line_ends, log_y, new_chart, plain_rows

_X_LABEL = "consumers (dotted: what one of them does, so many times)"


def throughput_by_consumers(
    rows: Any, title: str = "Consumers help while there are partitions for them"
) -> Chart:
    """One line a number of partitions: messages a second against the number of consumers.

    `rows` is what the results store gives (`Result`s, an Arrow table, or collected Spark rows) of
    the scenario `consumers`, whose `backend` is "4 partitions". Where a pair of numbers was
    measured several times, the line joins the medians.
    """
    rates: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in plain_rows(rows):
        partitions = int(row["backend"].split()[0])
        rates[partitions][row["clients"]].append(row["messages_per_s"])
    chart, axes = new_chart(title, _X_LABEL, "messages a second")
    ends = []
    for partitions, colour in zip(sorted(rates, reverse=True), COLOURS, strict=False):
        by_consumers = rates[partitions]
        consumers = sorted(by_consumers)
        medians = [statistics.median(by_consumers[n]) for n in consumers]
        axes.plot(consumers, medians, color=colour, linewidth=2, marker="o", markersize=5)
        name = f"{partitions} partition{'s' if partitions > 1 else ''}"
        ends.append((name, float(consumers[-1]), medians[-1], colour))

    every_n = sorted({n for by_consumers in rates.values() for n in by_consumers})
    one = statistics.median([rate for each in rates.values() for rate in each[every_n[0]]])
    ideal = [one * n / every_n[0] for n in every_n]
    axes.plot(every_n, ideal, color=GREY, linestyle=":", linewidth=1.2, zorder=1)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(every_n))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    log_y(axes, one, ideal[-1])
    axes.set_ylim(one / 1.5, ideal[-1] * 1.3)
    label_line_ends(axes, ends)
    return chart
