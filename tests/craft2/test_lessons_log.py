"""What the lesson on the log leans on: counted calls, walks, power cuts, the three tricks."""

from __future__ import annotations

import threading

import pytest

from craft2.apps.ingestion.flights import flights
from craft2.apps.lessons import file_tricks, log_loads
from craft2.errors import Craft2Error
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog


@pytest.fixture(scope="module")
def events():
    return list(flights(200))


def test_calls_are_counted_for_each_way(tmp_path, events, capsys):
    calls = log_loads.call_table(tmp_path, events[:60])
    assert calls["a file each"] == 9 * 60
    assert 2 * 60 <= calls["log, by 1"] < 3 * 60
    assert calls["log, by 100"] < 30
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert len({len(line) for line in lines}) == 1, "columns line up"


def test_a_walk_counts_batches_up_to_the_one_that_is_looked_for(tmp_path, events):
    config = LogConfig(index_interval_bytes=3_000, segment_bytes=20_000, flush_policy="never")
    with PartitionLog(tmp_path / "log-0", config) as log:
        for batch in log_loads.batches(events, 5):
            log.append_durably(batch)
        segment = log_loads.segment_of(log, 150)
        assert segment.base_offset <= 150 < segment.next_offset
        first = segment.base_offset
        assert log_loads.batches_walked(segment, first, start=0) == 1
        assert log_loads.batches_walked(segment, first + 12, start=0) == 3
        assert 3 <= log_loads.longest_walk(segment) <= 5


def test_sharing_and_not_sharing_a_sync_are_both_measured(tmp_path):
    for share in (True, False):
        assert log_loads.log_rate(tmp_path, clients=3, share=share, seconds=0.02) > 0


def test_who_shares_a_sync_needs_fewer(tmp_path):
    alone, shared = (
        log_loads.syncs_per_message(tmp_path, clients=16, share=share, calls=20)
        for share in (False, True)
    )
    batched = log_loads.syncs_per_message(tmp_path, clients=1, size=100, calls=20)
    assert batched < 0.05 < shared < 1 <= alone


def test_a_power_cut_leaves_what_was_synced_and_a_table_says_what_else(capsys):
    log_loads.power_cuts(12)
    lines = capsys.readouterr().out.splitlines()
    assert sum(int(line.split()[0]) for line in lines) == 12
    assert all(int(line.split()[6].rstrip(":")) >= log_loads.SYNCED for line in lines)
    assert any("kept in a file" in line for line in lines)
    killed = log_loads.log_without_power(keep=1.0, seed=0)
    assert PartitionLog(log_loads.LOST, disk=killed).end_offset == log_loads.APPENDED


def test_a_flipped_bit_is_reported_and_nothing_is_cut():
    disk = log_loads.flipped_bit(2_500)
    with pytest.raises(Craft2Error, match="where offset 2 should be"):
        PartitionLog(log_loads.LOST, disk=disk)
    assert log_loads.batches_left(disk) == log_loads.APPENDED


def test_the_tricks_do_what_the_plain_way_does(tmp_path, capsys):
    measured = file_tricks.measure_tricks(tmp_path, seconds=0.002)
    assert "mmap: read an index entry" in measured
    assert all(pairs.ratio > 0 for pairs in measured.values())
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(file_tricks.TRICKS)
    for name in ("ahead", "plain", "direct", "cached"):
        path = tmp_path / name
        if path.exists() and path.stat().st_size:
            assert set(path.read_bytes()) == {ord("x")}, "no zeros, not even at the end"


def test_a_trick_that_is_not_here_is_said_and_left_out(tmp_path, capsys, monkeypatch):
    monkeypatch.delattr(file_tricks.os, "O_DIRECT", raising=False)
    measured = file_tricks.measure_tricks(tmp_path, seconds=0.002)
    assert not any("direct" in name for name in measured)
    assert "this file system has no O_DIRECT" in capsys.readouterr().out


def test_threads_that_are_never_let_go_are_an_error_and_not_a_silence():
    class Waiting:
        def append_durably(self, batch):
            never.wait()

    never = threading.Event()
    with pytest.raises(log_loads.NotLetGoError, match=r"4 of 4 threads .* still wait"):
        log_loads._let_go(Waiting(), limit_s=0.01)
    never.set()
