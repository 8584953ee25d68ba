"""Lanes as a figure: who owned what, when that changed, and because of what."""

from __future__ import annotations

from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from craft2.viz.lanes import Lanes
from craft2.viz.style import GREY, MANY_COLOURS, Chart, new_chart

_IDLE_COLOUR = "#c8c8c8"
_FAULT_COLOUR = "#b00000"
_LANE, _LINE, _REST = 0.26, 0.19, 1.6  # inches: a lane, a line of text, everything else
_LETTER = 0.0125  # of the width of the lanes: a letter, about
_MOST_REASONS = 12


def lane_timeline(lanes: Lanes, title: str = "Who had which partition") -> Chart:
    """A bar a span, coloured by its owner; a numbered line where all changed, explained below."""
    reasons = [mark for mark in lanes.marks if not mark.fault][-_MOST_REASONS:]
    below = 1.2 if lanes.lines else 0.0
    chart, axes = new_chart("", "", "")
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=18)
    text = _LINE * len(reasons)
    faults = _rows(lanes)
    height = _LANE * max(1, len(lanes.lanes)) + _LINE * (1 + max(faults.values(), default=-1))
    chart.set_size_inches(6.4, _REST + height + below + text)
    colours = dict(zip(lanes.owners(), cycle(MANY_COLOURS), strict=False))
    for place, spans in enumerate(lanes.lanes.values()):
        for span in spans:
            colour = colours.get(span.owner, _IDLE_COLOUR)
            width = span.end_s - span.start_s
            axes.broken_barh([(span.start_s, width)], (place - 0.4, 0.8), color=colour)
    axes.set_yticks(range(len(lanes.lanes)), list(lanes.lanes))
    axes.set_ylim(height / _LANE - 0.4, -0.6)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(left=False)
    last = axes
    if lanes.lines:
        last = _lines_below(chart, axes, lanes, height)
    last.set_xlabel("seconds", fontsize=10, color=GREY)
    for one in dict.fromkeys((axes, last)):
        one.set_xlim(_begin_s(lanes), max(_begin_s(lanes) + 0.1, lanes.end_s))
    _mark(axes, lanes, faults)
    handles = [axes.barh(0, 0, color=colour, label=who) for who, colour in colours.items()]
    if any(span.owner in lanes.grey for spans in lanes.lanes.values() for span in spans):
        handles.append(axes.barh(0, 0, color=_IDLE_COLOUR, label="idle"))
    if handles:
        chart.legend(
            handles=handles,
            loc="outside upper right",
            ncols=min(5, len(handles)),
            frameon=False,
            fontsize=9,
            labelcolor=GREY,
            handlelength=1.0,
        )
    words = [f"{mark.label}  {_short(mark.because)}" for mark in reasons]
    if words:
        chart.supxlabel("\n".join(words), x=0.02, ha="left", fontsize=9, color=GREY)
    return chart


def _begin_s(lanes: Lanes) -> float:
    """Shortly before anybody had anything: until then there is nothing to see."""
    first = min((span.start_s for spans in lanes.lanes.values() for span in spans), default=0.0)
    return max(0.0, first - 0.05 * (lanes.end_s - first))


def _lines_below(chart: Figure, axes: Axes, lanes: Lanes, height: float) -> Axes:
    """The lines, in a plot of their own under the lanes (`height` inches high), same seconds."""
    grid = axes.get_subplotspec().get_gridspec()  # type: ignore[union-attr]
    parts = grid.figure.add_gridspec(2, 1, height_ratios=[height, 1.0])  # type: ignore[union-attr]
    axes.set_subplotspec(parts[0])
    lower = chart.add_subplot(parts[1], sharex=axes)
    for seconds, values in lanes.lines.values():
        lower.plot(seconds, values, color=GREY, linewidth=1.5)
    lower.set_ylim(bottom=0)
    lower.set_ylabel(lanes.lines_label, fontsize=9, color=GREY)
    lower.tick_params(labelsize=9, colors=GREY)
    lower.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelbottom=False)
    return lower


def _width_s(words: str, lanes: Lanes) -> float:
    """About how many seconds of the picture these words take."""
    return len(words) * _LETTER * (lanes.end_s - _begin_s(lanes))


def _rows(lanes: Lanes) -> dict[int, int]:
    """Mark number -> the row of its words, for what was done to a member: no two overprint."""
    rows, ends = {}, list[float]()  # ends: of each row, the second at which its last words end
    for number, mark in enumerate(lanes.marks):
        if mark.fault:
            width = _width_s(mark.because, lanes)
            left = min(mark.second, lanes.end_s - width)  # at the right edge, left of the line
            row = next((row for row, end in enumerate(ends) if end < left), len(ends))
            ends[row : row + 1] = [left + width]
            rows[number] = row
    return rows


def _mark(axes: Axes, lanes: Lanes, rows: dict[int, int]) -> None:
    """Numbers where all changed; words, dashed and below, where something was done to a member."""
    labels: list[tuple[float, str]] = []
    for number, mark in enumerate(lanes.marks):
        colour, style = (_FAULT_COLOUR, (0, (4, 3))) if mark.fault else ("black", "solid")
        bottom = axes.get_ylim()[0] if mark.fault else len(lanes.lanes) - 0.4  # above all words
        axes.plot([mark.second] * 2, [-0.6, bottom], color=colour, linewidth=1, linestyle=style)
        if mark.fault:
            left = min(mark.second, lanes.end_s - _width_s(mark.because, lanes))
            place = len(lanes.lanes) - 0.4 + (rows[number] + 0.5) * _LINE / _LANE
            _write(axes, mark.because, (left, place), "data", colour)
        elif labels and mark.second < labels[-1][0] + _width_s(labels[-1][1] + " ", lanes):
            labels[-1] = labels[-1][0], f"{labels[-1][1]}, {mark.label}"  # else they overprint
        else:
            labels.append((mark.second, mark.label))
    for second, words in labels:
        _write(axes, words, (second, 1), ("data", "axes fraction"), "black", weight="bold")


def _write(
    axes: Axes,
    words: str,
    place: tuple[float, float],
    units: str | tuple[str, str],
    colour: str,
    weight: str = "normal",
) -> None:
    axes.annotate(
        words,
        place,
        xycoords=units,
        xytext=(3, 2 if weight == "bold" else 0),
        textcoords="offset points",
        fontsize=9,
        fontweight=weight,
        color=colour,
        va="bottom" if weight == "bold" else "center",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )


def _short(words: str, most: int = 90) -> str:
    return words if len(words) <= most else words[: most - 1] + "…"
