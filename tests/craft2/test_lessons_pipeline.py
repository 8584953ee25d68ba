"""What notebooks 27 and 30 count and draw, without a cluster; they themselves run one."""

from __future__ import annotations

from datetime import datetime

import pytest

from craft2.apps.lessons.cluster_groups import Handled, handled, wait_until_handled
from craft2.apps.lessons.pipeline import departures_chart
from craft2.apps.lessons.processes import Worker


def member(*acks):
    """One that has acknowledged these (partition, offset)."""
    one = Worker.__new__(Worker)
    one.acks = list(acks)
    return one


def test_a_record_counts_once_whoever_has_handled_it():
    both = [member((0, 0), (0, 1)), member((0, 1), (1, 0))]
    assert handled(both, 5) == Handled(never=2, once=2, twice=1)
    wait_until_handled(both, 3)


def test_who_waits_for_too_many_gives_up(monkeypatch):
    monkeypatch.setattr("craft2.apps.lessons.cluster_groups.LIMIT_S", 0.0)
    with pytest.raises(TimeoutError, match="4 records were not handled within 0 s"):
        wait_until_handled([member((0, 0))], 4)


def test_departures_are_added_up_by_day_for_the_airlines_with_the_most():
    rows = [
        {"carrier": carrier, "window_start": datetime(2013, 1, day, hour), "departures": count}
        for carrier, day, hour, count in [
            ("UA", 1, 0, 10),
            ("UA", 1, 6, 20),
            ("UA", 2, 0, 40),
            ("B6", 2, 0, 15),
            ("HA", 1, 0, 1),
        ]
    ]
    [axes] = departures_chart(rows, most=2).axes
    assert [line.get_ydata().tolist() for line in axes.lines] == [[30, 40], [0, 15]]
    assert {text.get_text() for text in axes.texts} == {"UA", "B6"}
