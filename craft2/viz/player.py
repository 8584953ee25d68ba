"""Lanes as a small film: scrub, step from change to change, read the reason of each.

It is one piece of HTML with its data in it. A saved notebook shows it without a kernel, and a page
without a notebook (`player(lanes).html` written to a file). It draws whatever has lanes.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files

from craft2.viz.lanes import Lanes
from craft2.viz.style import MANY_COLOURS

_LANE, _LINES = 24, 76  # pixels, as in player.html
_WORDS, _REST = 18, 156  # a line of words below, and everything else
_TALL_LANE, _BOARD = 46, 34  # a lane with arrows between it and the next; what it holds, below


class Player:
    """What a notebook shows as the film; its text form is always the same."""

    def __init__(self, page: str, height: int) -> None:
        self.html = page
        self._height = height

    def _repr_html_(self) -> str:
        # A frame of its own: neither its style nor its script touches the notebook.
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" width="100%" height="{self._height}" '
            'style="border: none" sandbox="allow-scripts" title="what happened, step by step">'
            "</iframe>"
        )

    def __repr__(self) -> str:
        return "<Player>"


def player(
    lanes: Lanes,
    title: str = "Who had which partition",
    mark_word: str = "generation",
    at_s: float | None = None,
    stops_s: Sequence[float] = (),
) -> Player:
    """The film of `lanes`. mark_word: what the numbers of its marks count. at_s: where it stands
    when it is opened; at its end, if None. stops_s: where a step halts, besides the marks."""
    names = list(lanes.lanes)
    story = {
        "title": title,
        "mark_word": mark_word,
        "begin": lanes.begin_s,
        "end": lanes.end_s,
        "at": lanes.end_s if at_s is None else at_s,
        "colours": {
            who: MANY_COLOURS[n % len(MANY_COLOURS)] for n, who in enumerate(lanes.owners())
        },
        "lanes": [
            {
                "name": name,
                "spans": [span._asdict() for span in spans],
                "boards": [
                    {**board._asdict(), "boxes": [box._asdict() for box in board.boxes]}
                    for board in lanes.boards.get(name, ())
                ],
            }
            for name, spans in lanes.lanes.items()
        ],
        "marks": [mark._asdict() for mark in lanes.marks],
        "stops": sorted({*stops_s, *(mark.second for mark in lanes.marks)}),
        "lines": [
            {"seconds": list(seconds), "values": list(values)}
            for seconds, values in lanes.lines.values()
        ],
        "lines_label": lanes.lines_label,
        "arrows": [
            {
                **arrow._asdict(),
                "source": names.index(arrow.source),
                "target": names.index(arrow.target),
            }
            for arrow in lanes.arrows
        ],
    }
    # A name with "</script>" in it must not end the script.
    data = json.dumps(story).replace("<", "\\u003c")
    page = files("craft2.viz").joinpath("player.html").read_text(encoding="utf-8")
    below = _BOARD if lanes.boards else _WORDS
    lane = _TALL_LANE if lanes.arrows else _LANE
    height = _REST + (lane + below) * len(lanes.lanes) + (_LINES if lanes.lines else 0)
    return Player(page.replace("/*STORY*/", data), height)
