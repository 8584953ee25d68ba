"""Throughput of several at once, each in a plot of its own, with the time in which nothing came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from matplotlib.ticker import FuncFormatter

from craft2.viz.style import GREY, SIZE_INCHES, Chart, colour_of, new_chart, short, style_axes

_CUT, _WORDS, _TOP = 1.8, 2.2, 2.6  # times the usual rate: columns are cut off; words stand above
_WIDE = 0.08  # of the picture: a gap in which its length can be written
_LETTER = 0.011  # of the picture: a letter, about


def rates_with_gaps(
    rates: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    title: str = "What was acknowledged, by acks",
    gaps: Mapping[str, tuple[float, float]] | None = None,
    marks: Sequence[tuple[float, str]] = (),
    among: Sequence[str] = (),
) -> Chart:
    """A plot a name, below each other.

    rates: name -> (seconds, messages a second). gaps: name -> (second at which it began, its
    length in seconds). marks: (second, words), written above the first plot. among: all names that
    there are in this picture and others like it, so that each has one colour in all of them.
    """
    chart, first = new_chart(title, "", "")
    chart.set_size_inches(SIZE_INCHES[0], 0.9 + 1.0 * max(1, len(rates)))
    grid = first.get_subplotspec().get_gridspec()  # type: ignore[union-attr]
    parts = grid.figure.add_gridspec(max(1, len(rates)), 1)  # type: ignore[union-attr]
    first.set_subplotspec(parts[0])
    colours, plots = colour_of(among or rates), [first]
    plots += [chart.add_subplot(parts[n], sharex=first) for n in range(1, len(rates))]
    last = max((seconds[-1] for seconds, _ in rates.values() if len(seconds)), default=1.0)
    for axes, (name, (seconds, values)) in zip(plots, rates.items(), strict=False):
        style_axes(axes, title if axes is first else "", "", name)
        usual = median([value for value in values if value > 0] or [1.0])
        cut = [min(value, _CUT * usual) for value in values]
        axes.fill_between(seconds, cut, step="post", color=colours[name], linewidth=0)
        axes.set_ylim(0, _TOP * usual)
        axes.set_yticks([0, usual])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(round(value, -2))))
        start, length = (gaps or {}).get(name, (0.0, 0.0))
        later = [(value, at) for at, value in zip(seconds, values, strict=True) if at >= start]
        most, place = max(later, default=(0.0, 0.0))
        words = [f"up to {short(round(most, -2))}/s: catching up"] if most > _CUT * usual else []
        if length > 0:
            axes.axvspan(start, start + length, color="#f0f0f0", zorder=0)
        if length > _WIDE * last:
            axes.annotate(f"{length:.2f} s", (start + length / 2, usual / 2), ha="center",
                          va="center", fontsize=9, color="black")  # fmt: skip
        elif length > 0:
            words, place = [f"{length:.2f} s", *words], start + length
        caption = ", then ".join(words)
        fits = place + len(caption) * _LETTER * last < last
        if caption:
            axes.annotate(caption, (place, _WORDS * usual), va="center", fontsize=9,
                          color=GREY, ha="left" if fits else "right")  # fmt: skip
        for second, said in marks:
            axes.axvline(second, color="#b00000", linewidth=1, linestyle=(0, (4, 3)))
            if axes is first:
                axes.annotate(said, (second, _WORDS * usual), va="center", ha="right", fontsize=9,
                              color="#b00000", xytext=(-4, 0),
                              textcoords="offset points")  # fmt: skip
        if axes is not plots[-1]:
            axes.tick_params(labelbottom=False)
    plots[-1].set_xlabel("seconds", fontsize=10, color=GREY)
    first.set_xlim(0, last)
    return chart
