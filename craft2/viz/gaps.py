"""Throughput of several at once, each in a plot of its own, with the time in which nothing came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.ticker import FuncFormatter

from craft2.viz.style import GREY, SIZE_INCHES, Chart, colour_of, new_chart, short, style_axes

_ROOM = 2.0  # times the usual rate: what is higher, such as catching up, is cut off
_WIDE = 0.08  # of the picture: a gap in which its length can be written


def rates_with_gaps(
    rates: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    title: str = "What was acknowledged, by acks",
    gaps: Mapping[str, tuple[float, float]] | None = None,
    marks: Sequence[tuple[float, str]] = (),
) -> Chart:
    """A plot a name, below each other.

    rates: name -> (seconds, messages a second). gaps: name -> (second at which it began, its
    length in seconds). marks: (second, words), written above the first plot.
    """
    chart, first = new_chart(title, "", "")
    chart.set_size_inches(SIZE_INCHES[0], 0.9 + 1.0 * max(1, len(rates)))
    grid = first.get_subplotspec().get_gridspec()  # type: ignore[union-attr]
    parts = grid.figure.add_gridspec(max(1, len(rates)), 1)  # type: ignore[union-attr]
    first.set_subplotspec(parts[0])
    colours, plots = colour_of(rates), [first]
    plots += [chart.add_subplot(parts[n], sharex=first) for n in range(1, len(rates))]
    last = max((seconds[-1] for seconds, _ in rates.values() if len(seconds)), default=1.0)
    for axes, (name, (seconds, values)) in zip(plots, rates.items(), strict=False):
        style_axes(axes, title if axes is first else "", "", name)
        usual = median([value for value in values if value > 0] or [1.0])
        top = _ROOM * usual
        axes.fill_between(seconds, values, step="post", color=colours[name], linewidth=0)
        axes.set_ylim(0, top)
        axes.set_yticks([0, usual])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(round(value, -2))))
        if max(values, default=0.0) > top:
            at = seconds[max(range(len(values)), key=lambda n: values[n])]
            words = f" up to {short(round(max(values), -2))}/s: catching up"
            axes.annotate(words, (at, top), va="top", fontsize=9, color=GREY,
                          xytext=(6, -2), textcoords="offset points")  # fmt: skip
        start, length = (gaps or {}).get(name, (0.0, 0.0))
        if length > 0:
            axes.axvspan(start, start + length, color="#f0f0f0", zorder=0)
            height = usual / 2 if length > _WIDE * last else 1.4 * usual  # else over the columns
            axes.annotate(f"{length:.2f} s", (start + length / 2, height), ha="center",
                          va="center", fontsize=9, color="black")  # fmt: skip
        for second, words in marks:
            axes.axvline(second, color="#b00000", linewidth=1, linestyle=(0, (4, 3)))
            if axes is first:
                axes.annotate(words, (second, top), va="top", ha="right", fontsize=9,
                              color="#b00000", xytext=(-4, -2),
                              textcoords="offset points")  # fmt: skip
        if axes is not plots[-1]:
            axes.tick_params(labelbottom=False)
    plots[-1].set_xlabel("seconds", fontsize=10, color=GREY)
    first.set_xlim(0, last)
    return chart
