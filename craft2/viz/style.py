"""The look all charts share: small, direct labels, colours that colour-blind readers tell apart."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

# Okabe and Ito, "Color Universal Design" (2008), without the yellow, which fades on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
# Where more than seven have to be told apart; they are named in the picture, too.
MANY_COLOURS = (*COLOURS, "#8c564b", "#882255", "#44aa99")
GREY = "#5a5a5a"
SIZE_INCHES = (6.4, 3.6)
DPI = 100  # 640 x 360 pixels: the width of a notebook's text


class Chart(Figure):
    """A figure that a notebook shows as a PNG, whatever matplotlib backend it uses.

    Its size is fixed, so its text form in a stored output is the same on every machine.
    """

    def draw(self, renderer: Any) -> None:
        """Draw it; a dollar sign in a name is a dollar sign, not the beginning of a formula."""
        for text in self.findobj(Text):
            text.set_parse_math(False)  # type: ignore[attr-defined]
        super().draw(renderer)

    def _repr_png_(self) -> bytes:
        png = io.BytesIO()
        self.savefig(png, format="png")
        return png.getvalue()


def new_chart(title: str, x_label: str, y_label: str) -> tuple[Chart, Axes]:
    """An empty chart and its axes; the title states what is shown, in a sentence or a phrase."""
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    chart = Chart(figsize=SIZE_INCHES, dpi=DPI, layout=layout)
    axes = chart.add_subplot()
    style_axes(axes, title, x_label, y_label)
    return chart, axes


def style_axes(axes: Axes, title: str, x_label: str, y_label: str) -> None:
    """The look of an empty chart, also as one of several in a figure."""
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel(x_label, fontsize=10, color=GREY)
    axes.set_ylabel(y_label, fontsize=10, color=GREY)
    axes.tick_params(labelsize=9, colors=GREY)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#b0b0b0")
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)


def label_line_ends(axes: Axes, ends: Sequence[tuple[str, float, float, str]]) -> None:
    """Write each line's name right of its last point: (name, x, y, colour), in data units.

    Names that would overlap are pushed apart, in their order from bottom to top.  Call it last,
    when the axes have their scales and limits.
    """
    axes.autoscale_view()  # else the limits are those of before the last line, until it is drawn
    to_points = 72.0 / axes.figure.dpi
    ordered = sorted(ends, key=lambda end: end[2])
    wanted = [axes.transData.transform((x, y))[1] * to_points for _, x, y, _ in ordered]
    placed = _apart(wanted, lowest=axes.bbox.y0 * to_points)
    right = max((x for _, x, _, _ in ends), default=0.0)
    for (name, _, y, colour), place, want in zip(ordered, placed, wanted, strict=True):
        axes.annotate(
            name,
            (right, y),
            xytext=(8, place - want),
            textcoords="offset points",
            va="center",
            color=colour,
            fontsize=10,
            annotation_clip=False,
        )


def _apart(wanted: Sequence[float], lowest: float, gap: float = 13.0) -> list[float]:
    """Places near the `wanted` ones (ascending), `gap` points apart, none below `lowest`.

    Neighbours that would overlap become a group, which stands around the mean of what they want.
    """

    def first(group: list[float]) -> float:
        return max(lowest, sum(want - gap * i for i, want in enumerate(group)) / len(group))

    groups: list[list[float]] = []
    for want in wanted:
        groups.append([want])
        while len(groups) > 1 and first(groups[-2]) + gap * len(groups[-2]) > first(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [first(group) + gap * i for group in groups for i in range(len(group))]


def note_above(axes: Axes, words: str, colour: str = GREY) -> None:
    """A line of small print above the right end of the plot."""
    axes.annotate(
        words,
        (1, 1),
        xycoords="axes fraction",
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=9,
        color=colour,
    )


def plain_rows(rows: Any) -> list[dict[str, Any]]:
    """Rows of the results store as dicts: from `Result`s, an Arrow table, or Spark rows."""
    if hasattr(rows, "to_pylist"):
        return list(rows.to_pylist())
    return [_plain(row) for row in rows]


def policies_of(rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """backend -> the fsync policies it was measured with, both in order of first appearance."""
    policies: dict[str, list[str]] = {}
    for row in rows:
        seen = policies.setdefault(row["backend"], [])
        if row["fsync_policy"] not in seen:
            seen.append(row["fsync_policy"])
    return policies


def line_name(backend: str, policy: str, policies: dict[str, list[str]]) -> str:
    """The name of a line: the backend, and its policy if it has several."""
    return backend if len(policies[backend]) == 1 else f"{backend}, fsync {policy or '?'}"


def _plain(row: Any) -> dict[str, Any]:
    if isinstance(row, dict):
        return row
    if hasattr(row, "asDict"):
        return dict(row.asDict(recursive=True))
    return {name: getattr(row, name) for name in row.__struct_fields__}


def log_y(axes: Axes, lowest: float, highest: float) -> None:
    """A log axis with plain numbers; over less than two decades 2 and 5 are marked too."""
    axes.set_yscale("log")
    subs = (1.0,) if highest > 100 * lowest else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))


def short(value: float) -> str:
    """A number for an axis: 800, 2k, 1.5M."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def colour_of(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name, in order of first appearance; they repeat after seven."""
    unique = list(dict.fromkeys(names))
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(unique)}
