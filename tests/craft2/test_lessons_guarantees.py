"""What notebook 29 tries out, reads, prints and draws; it measures brokers itself."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from craft2.apps.bench.scenarios import bench_in
from craft2.apps.lessons.guarantees import (
    CLIENTS,
    STYLES,
    WRITING,
    alone,
    crowd,
    measure_reading,
    print_table,
)
from craft2.apps.lessons.survival import Fate, fates, print_fates
from craft2.viz import costs_of_guarantees

NOTHING, KILL, POWER = Fate(False, False, False), Fate(True, False, False), Fate(True, True, False)


@pytest.fixture(scope="module")
def found():
    return fates()


def test_what_each_way_survives(found):
    assert found == {
        "file a message": KILL,
        "file a message, synced": POWER,
        "log": KILL,
        "log, synced": POWER,
        "one broker, acks=0": NOTHING,
        "one broker, acks=1": KILL,
        "one broker, acks=1, synced": POWER,
        "three brokers, acks=0": NOTHING,
        "three brokers, acks=1": NOTHING,
        "three brokers, acks=all": Fate(True, False, True),
        "three brokers, acks=all, synced": Fate(True, True, True),
    }


def test_fates_are_printed_in_columns(found, capsys):
    print_fates(found)
    lines = capsys.readouterr().out.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[-2].split() == ["three", "brokers,", "acks=all", "kept", "lost", "kept"]


@pytest.fixture
def rows(tmp_path):
    """Two ways, made up: 1,000 and 250 messages a second with CLIENTS clients."""

    class Load:
        latencies_ms = (1.0,) * 100
        seconds, success_ratio = 1.0, 1.0
        calls_per_s = 0.0

        def percentile(self, percent):
            return percent / 10

        def errors(self):
            return ""

    with bench_in(tmp_path) as bench:
        for backend, rate in (("log", 1_000.0), ("log, synced", 250.0)):
            for clients in (1, CLIENTS):
                load = Load()
                load.calls_per_s = rate if clients > 1 else 1.0
                bench.add(
                    load,
                    phase=1,
                    backend=backend,
                    scenario=WRITING,
                    clients=clients,
                    size_bytes=100,
                )
        return bench.rows


def test_the_table_has_the_rate_of_the_crowd_and_the_wait_of_one(rows, capsys):
    print_table(rows, {"log": KILL, "log, synced": POWER})
    top, *lines = capsys.readouterr().out.splitlines()
    assert top.split("  ")[-1].strip() == "one client"
    first, second, third = (line.split("  ") for line in lines)
    assert [word.strip() for word in first if word.strip()][-1] == ["p50 ms", "p99 ms"][1]
    assert re.findall(r"[\d.,]+$|kill -9\b", "  ".join(second)) == ["kill -9", "9.90"]
    assert "  ".join(third).split()[-4:] == ["250", "0.25", "5.00", "9.90"]
    assert (alone(rows, "log").clients, crowd(rows, "log").clients) == (1, CLIENTS)


def test_a_rate_is_compared_within_one_place_only(rows, capsys):
    elsewhere = [replace(row, backend="file a message") for row in rows[:2]]
    print_table([*elsewhere, *rows], {"file a message": KILL, "log": KILL, "log, synced": POWER})
    ratios = [line[77:86].strip() for line in capsys.readouterr().out.splitlines()[2:]]
    assert ratios == ["", "", "0.25"]


def test_the_chart_has_a_line_a_way_coloured_by_what_it_survives(rows):
    chart = costs_of_guarantees(rows, {"log, synced": "b", "log": "a"}, "It costs")
    left, right = chart.axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["log", "log, synced"]
    assert [text.get_text() for text in left.texts] == ["1,000", "250"]
    assert [list(line.get_xdata()) for line in right.lines[::2]] == [[5.0, 9.9], [5.0, 9.9]]
    colours = [bar.get_facecolor() for bar in left.patches[:2]]
    assert colours[0] != colours[1]
    assert [text.get_text() for text in chart.legends[0].texts] == ["b", "a"]


def test_each_style_of_reading_stores_every_result_once(tmp_path):
    with bench_in(tmp_path) as bench:
        measure_reading(bench)
    assert [row.backend for row in bench.rows] == list(STYLES)
    assert {(row.messages, row.success_ratio) for row in bench.rows} == {(3_800, 1.0)}
