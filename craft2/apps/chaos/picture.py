"""A run as a picture: what each broker suffered, what clients had of it meanwhile, who led."""

from __future__ import annotations

from collections import Counter

from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from craft2.apps.chaos.timeline import Timeline
from craft2.viz.style import COLOURS, DPI, GREY, MANY_COLOURS, Chart, style_axes

_KINDS = dict(
    zip(
        ("cut", "kill -9", "restart", "paused", "unplugged", "slow disk", "full disk", "wiped"),
        MANY_COLOURS,
        strict=False,
    )
)
_RUNS = "#ececec"
_WIDTH_INCHES = (9.0, 24.0)  # at least, at most; a minute gets `_MINUTE_INCHES`
_MINUTE_INCHES = 4.0


def timeline_picture(timeline: Timeline, brokers: int, title: str) -> Chart:
    """Lanes of the brokers; below them messages a second; below these the changes of leaders."""
    least, most = _WIDTH_INCHES
    width = min(most, max(least, timeline.end_s / 60 * _MINUTE_INCHES))
    heights = [0.34 * brokers, 1.6, 0.8]
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08)
    chart = Chart(figsize=(width, sum(heights) + 1.8), dpi=DPI, layout=layout)
    lanes, rates, leaders = chart.subplots(3, 1, sharex=True, height_ratios=heights)
    style_axes(lanes, title, "", "")
    style_axes(rates, "", "", "messages/s")
    style_axes(leaders, "", "seconds", "new leaders")
    _draw_lanes(lanes, timeline, brokers)
    _draw_rates(rates, timeline)
    changes = Counter(int(when) for when, _, _ in _changes(timeline))
    leaders.bar(list(changes), list(changes.values()), width=1.0, color=COLOURS[3])
    lanes.set_xlim(0, max(1.0, timeline.end_s))
    leaders.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    for axes in (rates, leaders):
        axes.set_ylim(bottom=0)
    return chart


def _changes(timeline: Timeline) -> list[tuple[float, int, int]]:
    """Without the first leaders that were seen."""
    seen: set[int] = set()
    found = []
    for change in timeline.leaders:
        if change[1] in seen:
            found.append(change)
        seen.add(change[1])
    return found


def _draw_lanes(axes: Axes, timeline: Timeline, brokers: int) -> None:
    for number in range(1, brokers + 1):
        axes.broken_barh([(0, timeline.end_s)], (number - 0.4, 0.8), color=_RUNS)
    for one in timeline.faults:
        end_s = one.end_s if one.end_s >= 0 else timeline.end_s
        span = (one.start_s, max(0.2, end_s - one.start_s))
        axes.broken_barh([span], (one.broker - 0.4, 0.8), color=_KINDS.get(one.kind, GREY))
    axes.set_yticks(range(1, brokers + 1), [f"broker {n}" for n in range(1, brokers + 1)])
    axes.set_ylim(brokers + 0.6, 0.4)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(left=False)
    there = {one.kind for one in timeline.faults}
    shown = [kind for kind in _KINDS if kind in there]
    handles = [axes.barh(0, 0, color=_KINDS[kind], label=kind) for kind in shown]
    if handles:
        axes.figure.legend(
            handles=handles,
            loc="outside upper right",  # type: ignore[arg-type]  # a layout's own place
            ncols=len(handles),
            frameon=False,
            fontsize=9,
            labelcolor=GREY,
            handlelength=1.0,
        )


def _draw_rates(axes: Axes, timeline: Timeline) -> None:
    seconds = list(range(int(timeline.end_s)))
    lines = (
        ("read by the group", timeline.consumed, COLOURS[4]),
        ("acknowledged", timeline.acknowledged, COLOURS[0]),
    )
    for name, counts, colour in lines:
        if not any(counts[second] for second in seconds):
            continue  # in a run of seconds the group begins to read when all is over
        axes.plot(
            [second + 0.5 for second in seconds],
            [counts[second] for second in seconds],
            color=colour,
            linewidth=1.3,
            label=name,
        )
    most = max((counts[second] for _, counts, _ in lines for second in seconds), default=0)
    axes.set_ylim(top=1.3 * max(1, most))  # the legend has a place above all of it
    if axes.lines:
        axes.legend(frameon=False, fontsize=9, labelcolor=GREY, loc="upper right", ncols=2)
