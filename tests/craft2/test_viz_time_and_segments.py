"""The charts of what changed over time, and of where a log's bytes are."""

from __future__ import annotations

import pytest

from craft2.apps.lessons.log_files import segments_of
from craft2.record_batch import encode_values
from craft2.viz import SegmentPicture, lag_over_time, latency_over_time, segment_map
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_lag_has_a_named_line_a_group_and_words_at_its_marks():
    lags = {"billing": ([0, 1, 2], [0, 40, 10]), "archive": ([0, 1], [5, 5])}
    axes = lag_over_time(lags, marks=[(1.5, "restarted"), (1.0, "killed")]).axes[0]
    lines = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines[:2]]
    assert lines == [([0, 1, 2], [0, 40, 10]), ([0, 1], [5, 5])]
    assert sorted(texts(axes)) == ["archive", "billing", "killed", "restarted"]
    assert axes.get_ylim()[1] > 1.2 * 40  # room for the words


def test_stalls_are_counted_and_stand_out():
    chart = latency_over_time(range(100), [1.0] * 97 + [10.0, 50.0, 9.9])
    usual, stalled = chart.axes[0].lines
    assert list(stalled.get_ydata()) == [10.0, 50.0]
    assert len(usual.get_ydata()) == 98
    assert texts(chart.axes[0]) == ["2 of 100 calls took 10 times the median or longer"]


def test_a_log_is_drawn_to_scale(tmp_path):
    log = PartitionLog(tmp_path / "t-0", LogConfig(segment_bytes=3000, index_interval_bytes=800))
    for _ in range(40):
        log.append_as_leader(encode_values([b"x" * 100]), 0)
    segments = segments_of(log)
    assert [s.base_offset for s in segments] == log.segment_bases
    assert sum(s.size for s in segments) == log.size
    for segment in segments:
        ends = [position + size for position, size in segment.batches]
        assert [0, *ends[:-1]] == [position for position, _ in segment.batches]
        assert ends[-1] == segment.size
        assert set(segment.index) <= {position for position, _ in segment.batches}
    axes = segment_map(segments).axes[0]
    blocks = [c for c in axes.collections if type(c).__name__ == "PatchCollection"]
    assert sum(len(c.get_paths()) for c in blocks) == 40
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        str(base) for base in log.segment_bases
    ]


@pytest.mark.parametrize(
    "chart",
    [
        lag_over_time({}),
        lag_over_time({"new": ([], [])}, marks=[(1, "killed")]),
        latency_over_time([], []),
        latency_over_time([0.0], [2.0]),
        segment_map([]),
        segment_map([SegmentPicture(0, 0, [], [])]),
    ],
)
def test_little_or_nothing_makes_a_chart_too(chart):
    assert chart._repr_png_().startswith(b"\x89PNG")
