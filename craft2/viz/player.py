"""Lanes as a small film: scrub, step from change to change, read the reason of each.

It is one piece of HTML with its data in it. A saved notebook shows it without a kernel, and a page
without a notebook (`player(lanes).html` written to a file). It draws whatever has lanes.
"""

from __future__ import annotations

import html
import json
from importlib.resources import files

from craft2.viz.lanes import Lanes
from craft2.viz.style import MANY_COLOURS

_LANE, _LINES = 24, 76  # pixels, as in player.html
_WORDS, _REST = 18, 120  # a line of words below, and everything else


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
    lanes: Lanes, title: str = "Who had which partition", mark_word: str = "generation"
) -> Player:
    """The film of `lanes`. mark_word: what the numbers of its marks count."""
    story = {
        "title": title,
        "mark_word": mark_word,
        "end": lanes.end_s,
        "colours": {
            who: MANY_COLOURS[n % len(MANY_COLOURS)] for n, who in enumerate(lanes.owners())
        },
        "lanes": [
            {
                "name": name,
                "spans": [{"start": s.start_s, "end": s.end_s, "owner": s.owner} for s in spans],
            }
            for name, spans in lanes.lanes.items()
        ],
        "marks": [mark._asdict() for mark in lanes.marks],
        "lines": [
            {"seconds": list(seconds), "values": list(values)}
            for seconds, values in lanes.lines.values()
        ],
        "lines_label": lanes.lines_label,
    }
    # A name with "</script>" in it must not end the script.
    data = json.dumps(story).replace("<", "\\u003c")
    page = files("craft2.viz").joinpath("player.html").read_text(encoding="utf-8")
    height = _REST + (_LANE + _WORDS) * len(lanes.lanes) + (_LINES if lanes.lines else 0)
    return Player(page.replace("/*STORY*/", data), height)
