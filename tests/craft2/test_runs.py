"""The runs whose traces notebook 05 reads: each leaves what the notebook asks of it."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from craft2.apps.bench.results import Results
from craft2.apps.ingestion.flights import flights
from craft2.apps.lessons import runs
from craft2.apps.lessons.processes import WorkerError, hashes
from craft2.apps.lessons.runs import fill_logs, measure_policies, record_appends, record_lag
from craft2.events import read_events
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.partitioner import partition_for


def test_every_flight_is_in_the_partition_of_its_key_in_order(tmp_path):
    events = list(flights(2_000))
    fill_logs(tmp_path, "planes", events, key="tailnum")
    found = []
    for partition in range(4):
        with PartitionLog(tmp_path / f"planes-{partition}") as log:
            records = list(log.records())
        assert {partition_for(record.key, 4) for record in records} == {partition}
        for record in records:
            flight = msgspec.json.decode(record.value)
            assert record.key.decode() == (flight["tailnum"] or flight["carrier"])
        found += [(record.timestamp, record.value) for record in records]
    assert Counter(found) == Counter((e.event_time_ms, e.value) for e in events)


def test_the_lag_rises_between_the_kill_and_the_restart_and_falls_after(tmp_path):
    record_lag(tmp_path / "lag.jsonl", tmp_path / "queue")
    events = read_events(tmp_path / "lag.jsonl").events
    kinds = [event.kind for event in events]
    killed, restarted = kinds.index("killed"), kinds.index("restarted")
    lag = [event.data.get("messages") for event in events]
    assert lag[restarted - 1] >= 200 > lag[killed - 1]
    assert lag[-1] < lag[restarted - 1]


def test_a_process_that_ends_by_itself_is_an_error_and_not_a_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "produce_steadily", hashes)  # which cannot be given that
    with pytest.raises(WorkerError, match="'hashes' ended with code 1 after 0"):
        record_lag(tmp_path / "lag.jsonl", tmp_path / "queue")


def test_each_append_is_an_event_and_so_is_each_roll(tmp_path):
    record_appends(tmp_path / "appends.jsonl", tmp_path / "x-0", count=800)
    events = read_events(tmp_path / "appends.jsonl").events
    appends = [event.offset for event in events if event.kind == "append"]
    assert appends == list(range(800))
    assert [event.offset for event in events if event.kind == "roll"] == [740]


def test_each_policy_is_measured_with_each_number_of_clients(tmp_path):
    store = Results(tmp_path)
    rows = measure_policies(store, clients=(1, 2), seconds=0.02)
    assert [(row.fsync_policy, row.clients) for row in rows] == [
        (policy, n) for policy in ("every batch", "every 100 ms", "never") for n in (1, 2)
    ]
    assert store.table().num_rows == 6
