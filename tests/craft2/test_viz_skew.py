"""The chart of keys on partitions."""

from __future__ import annotations

from craft2.viz import partition_skew
from craft2.viz.skew import OTHER

COUNTS = {(0, "B6"): 30, (0, "US"): 10, (1, "AA"): 20, (3, "UA"): 40}


def test_pieces_stand_end_to_end_largest_first():
    axes = partition_skew(COUNTS).axes[0]
    pieces = [(p.get_y() + p.get_height() / 2, p.get_x(), p.get_width()) for p in axes.patches]
    assert sorted(pieces) == [(0, 0, 30), (0, 30, 10), (1, 0, 20), (3, 0, 40)]


def test_an_empty_partition_has_a_place_and_a_narrow_piece_no_name():
    axes = partition_skew({**COUNTS, (0, "tiny"): 1}).axes[0]
    assert list(axes.get_yticks()) == [0, 1, 2, 3]
    assert {text.get_text() for text in axes.texts} == {"B6", "US", "AA", "UA"}


def test_only_the_largest_keys_are_coloured():
    many = {(0, f"key-{i}"): 100 - i for i in range(9)}
    colours = [p.get_facecolor() for p in partition_skew(many).axes[0].patches]
    assert len(set(colours[:6])) == 6
    assert len(set(colours[6:])) == 1, OTHER


def test_no_messages_make_an_empty_chart():
    assert partition_skew({})._repr_png_().startswith(b"\x89PNG")
