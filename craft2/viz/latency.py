"""How long do calls take: the usual ones, and the slowest in a thousand?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from craft2.viz.style import (
    Chart,
    colour_of,
    label_line_ends,
    line_name,
    log_y,
    new_chart,
    plain_rows,
    policies_of,
)

STORED = (("p50_ms", 50.0), ("p95_ms", 95.0), ("p99_ms", 99.0), ("p999_ms", 99.9))


def latency_distribution(
    data: Any,
    title: str = "Latency by percentile",
    of: str = "calls",
    measured: str = "latency",
) -> Chart:
    """One line a backend: the latency in ms that so many percent of the calls did not exceed.

    `data` is either a mapping from names to all their latencies in ms (array, list), drawn in
    full, or rows of the results store, drawn through the percentiles they hold.  The percent axis
    gives each further nine (90, 99, 99.9) the same width: the tail is what users notice, and an
    even axis would hide it in the last pixel.  of, measured: what was measured, and what of it.
    """
    lines = _from_samples(data) if isinstance(data, Mapping) else _from_rows(data)
    chart, axes = new_chart(title, f"percent of {of}", f"{measured}, ms")
    colours = colour_of(lines)
    ends = []
    for name, (percents, latencies) in lines.items():
        marker = "" if isinstance(data, Mapping) else "o"
        x = _nines(percents)
        axes.plot(x, latencies, color=colours[name], linewidth=2, marker=marker, markersize=5)
        ends.append((name, float(x[-1]), float(latencies[-1]), colours[name]))
    last = max((x for _, x, _, _ in ends), default=3.0)
    ticks = [p for p in (0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999) if _nines(p) <= last + 0.01]
    axes.xaxis.set_major_locator(FixedLocator([float(_nines(p)) for p in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda _, i: f"{ticks[i]:g}"))
    every = [ms for _, latencies in lines.values() for ms in (min(latencies), max(latencies))]
    log_y(axes, min(every, default=1.0), max(every, default=1.0))
    label_line_ends(axes, ends)
    return chart


def _nines(percent: Any) -> Any:
    """Where a percentile lies on the axis: 90 at 1, 99 at 2, 99.9 at 3."""
    return -np.log10(1 - np.asarray(percent) / 100)


def _from_samples(samples: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    lines = {}
    for name, values in samples.items():
        ordered = np.sort(np.asarray(values, dtype=float))
        # The i-th of n samples stands for the middle of its share, so that the slowest one has a
        # place on an axis that never reaches 100.
        lines[name] = (100 * (np.arange(len(ordered)) + 0.5) / len(ordered), ordered)
    return {name: line for name, line in lines.items() if len(line[1])}


def _from_rows(rows: Any) -> dict[str, tuple[Any, Any]]:
    """The newest row of each backend, fsync policy and number of clients."""
    plain = [row for row in plain_rows(rows) if row["p50_ms"] is not None]
    several = len({row["clients"] for row in plain}) > 1
    policies = policies_of(plain)
    lines = {}
    for row in plain:
        name = line_name(row["backend"], row["fsync_policy"], policies)
        if several:
            name += f", {row['clients']} client{'s' if row['clients'] > 1 else ''}"
        points = [(p, row[column]) for column, p in STORED if row[column] is not None]
        lines[name] = (np.array([p for p, _ in points]), np.array([ms for _, ms in points]))
    return lines
