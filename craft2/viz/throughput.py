"""How many messages a second, for how many clients, and at which fsync policy?"""

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
    line_name,
    log_y,
    new_chart,
    plain_rows,
    policies_of,
    short,
)

_STYLES = ("-", (0, (4, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))


def throughput_by_clients(
    rows: Any,
    title: str = "Throughput by number of clients",
    known: tuple[str, float] | None = None,
    of: str = "messages",
) -> Chart:
    """One line a backend: messages a second against the number of clients, on a log axis. `of`:
    what is counted, if not messages.

    A backend measured with several fsync policies has a line for each, in one colour: the first
    one solid, the others dashed and dotted.

    `rows` is what the results store gives: `Result`s, an Arrow table, or collected Spark rows.
    Where a backend was measured several times, the line joins the medians and a dot is a run.
    The rate axis is a log axis too when the rates span more than a factor of twenty.
    `known` is a name and a rate from elsewhere, drawn as a dotted line.
    """
    rates: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    plain = plain_rows(rows)
    policies = policies_of(plain)
    for row in plain:
        line = row["backend"], row["fsync_policy"]
        rates[line][row["clients"]].append(row["messages_per_s"])
    chart, axes = new_chart(title, "clients", f"{of} a second")
    colours = colour_of(policies)
    ends = []
    for (backend, policy), by_clients in rates.items():
        clients = sorted(by_clients)
        medians = [statistics.median(by_clients[n]) for n in clients]
        colour = colours[backend]
        style = _STYLES[policies[backend].index(policy) % len(_STYLES)]
        axes.plot(
            clients, medians, color=colour, linewidth=2, linestyle=style, marker="o", markersize=5
        )
        for n in clients:
            if len(by_clients[n]) > 1:
                axes.plot([n] * len(by_clients[n]), by_clients[n], ".", color=colour, alpha=0.4)
        name = line_name(backend, policy, policies)
        ends.append((name, float(clients[-1]), medians[-1], colour))

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
