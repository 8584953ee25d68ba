"""A batch taken apart for a reader: nothing is left out, nothing twice."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st
from record_strategies import record_lists

from craft2.apps.ingestion.flights import flights
from craft2.apps.lessons.batch_bytes import bytes_per_flight, pieces, print_pieces
from craft2.record_batch import Record, encode
from craft2.viz import bytes_by_batch_size


@given(records=record_lists(), codec=st.sampled_from(["none", "zstd"]))
def test_the_pieces_of_a_batch_are_all_of_it_in_order(records, codec):
    batch = encode(records, base_offset=records[0].offset, codec=codec)
    found = pieces(batch)
    assert b"".join(piece.raw for piece in found) == batch
    ends = accumulate(len(piece.raw) for piece in found)
    assert [piece.position for piece in found] == [0, *ends][:-1]


def test_each_field_is_printed_with_its_name_and_meaning(capsys):
    print_pieces(pieces(encode([Record(0, 5, b"UA", None, (("from", b"EWR"),))])))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 13 + 12
    assert lines[3].split() == ["16", "02", "magic", "2"]
    assert lines[-1].split() == ["76", "45", "57", "52", "header", "value", "EWR"]


def test_bytes_per_flight_falls_with_the_batch(tmp_path):
    found = bytes_per_flight(list(flights(100)), (1, 10, 100), ("none", "gzip"))
    assert found["none"][1] > found["none"][10] > found["none"][100] > found["gzip"][100]
    assert set(found["the values alone"]) == {1, 10, 100}
    bytes_by_batch_size(found).savefig(tmp_path / "sizes.png")
