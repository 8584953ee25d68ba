"""What changed while it ran: how far consumers were behind, and which calls had to wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from craft2.viz.style import (
    COLOURS,
    GREY,
    Chart,
    colour_of,
    label_line_ends,
    log_y,
    new_chart,
    note_above,
    short,
)

STALL = 10.0  # times the median: a call as slow as this is drawn as a stall


def lag_over_time(
    lags: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    title: str = "Lag over time",
    marks: Sequence[tuple[float, str]] = (),
) -> Chart:
    """One line a group or partition: messages that it has not handled yet.

    lags: name -> (seconds since the start, messages). marks: (second, words), such as
    (3.2, "killed"): a thin line with its words at the top.
    """
    return _over_time(lags, title, "messages not yet handled", marks)


def rate_over_time(
    rates: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    title: str = "Throughput over time",
    marks: Sequence[tuple[float, str]] = (),
) -> Chart:
    """One line a process: messages a second; `rates` and `marks` as in `lag_over_time`."""
    return _over_time(rates, title, "messages a second", marks)


def _over_time(
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    title: str,
    y_label: str,
    marks: Sequence[tuple[float, str]],
) -> Chart:
    chart, axes = new_chart(title, "seconds", y_label)
    colours = colour_of(lines)
    ends = []
    for name, (seconds, values) in lines.items():
        axes.plot(seconds, values, color=colours[name], linewidth=2)
        if len(seconds):
            ends.append((name, float(seconds[-1]), float(values[-1]), colours[name]))
    axes.set_ylim(bottom=0)
    last = [seconds[-1] for seconds, _ in lines.values() if len(seconds)]
    axes.set_xlim(0, 1.04 * max([0.1, *last, *(second for second, _ in marks)]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    _mark(axes, marks)
    label_line_ends(axes, ends)
    return chart


def _mark(axes: Axes, marks: Sequence[tuple[float, str]]) -> None:
    """The words get room above the lines; of two neighbours one stands higher than the other."""
    if marks:
        axes.set_ylim(top=1.25 * axes.get_ylim()[1])
    for number, (second, words) in enumerate(sorted(marks)):
        axes.axvline(second, color=GREY, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(
            words,
            (second, 1),
            xycoords=("data", "axes fraction"),
            xytext=(3, -10 - 13 * (number % 2)),
            textcoords="offset points",
            fontsize=9,
            color=GREY,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )


def latency_over_time(
    seconds: Sequence[float], latencies_ms: Sequence[float], title: str = "Latency over time"
) -> Chart:
    """One dot a call, on a log axis: its latency in ms at the second it began.

    Calls that took ten times the median or longer, the stalls, are larger and counted.
    """
    chart, axes = new_chart(title, "seconds", "latency, ms")
    when, ms = np.asarray(seconds, dtype=float), np.asarray(latencies_ms, dtype=float)
    if not len(ms):
        return chart
    stalled = ms >= STALL * np.median(ms)
    axes.plot(when[~stalled], ms[~stalled], ".", color=COLOURS[0], markersize=3, alpha=0.5)
    axes.plot(when[stalled], ms[stalled], "D", color=COLOURS[1], markersize=5)
    log_y(axes, float(ms.min()), float(ms.max()))
    words = f"{stalled.sum()} of {len(ms):,} calls took {STALL:g} times the median or longer"
    note_above(axes, words, COLOURS[1])
    return chart
