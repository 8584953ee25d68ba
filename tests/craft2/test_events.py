"""Events: the same `emit` in memory and on file, and what a crash does to the file."""

import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craft2.clock import ManualClock
from craft2.events import Event, EventLog, Events, EventsError, read_events, to_arrow


def test_an_event_survives_the_file(tmp_path):
    clock = ManualClock(start_ms=1_700_000_000_000)
    memory = Events("consumer-1", clock)
    with EventLog(tmp_path / "events.jsonl", "consumer-1", clock) as log:
        for sink in (memory, log):
            sink.emit(
                "rebalance",
                topic="flights",
                partition=2,
                group="g",
                generation=7,
                because="member m2 missed its heartbeat",
                data={"members": 3, "cooperative": False, "lag_s": 0.5, "leader": None},
            )
    read = read_events(tmp_path / "events.jsonl")
    assert read.events == memory.events
    assert not read.damaged
    assert read.events[0].when_ms == 1_700_000_000_000
    assert read.events[0].offset is None


def test_logical_time_counts_from_one_across_threads(tmp_path):
    with EventLog(tmp_path / "e", "a") as log:
        threads = [
            threading.Thread(target=lambda: [log.emit("tick") for _ in range(50)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [event.seq for event in read_events(tmp_path / "e").events] == list(range(1, 201))


def test_an_empty_line_is_no_damage(tmp_path):
    path = tmp_path / "e"
    for who in "ab":
        with EventLog(path, who) as log:
            log.emit("tick", because="x")
            if who == "a":
                path.write_bytes(path.read_bytes() + b"\n")  # as of one opened in mid-write
    with path.open("ab") as file:
        file.write(b"torn\n")
    read = read_events(path)
    assert [event.who for event in read.events] == ["a", "b"]
    assert [damage.line for damage in read.damaged] == [4]


def test_several_processes_share_a_file(tmp_path):
    code = (
        "import sys; from craft2.events import EventLog; log = EventLog(sys.argv[1], sys.argv[2])\n"
        "for i in range(300): log.emit('tick', offset=i, because='x' * 300)"
    )
    path = tmp_path / "e"
    children = [subprocess.Popen([sys.executable, "-c", code, path, who]) for who in "abc"]
    assert [child.wait() for child in children] == [0, 0, 0]
    read = read_events(path)
    assert not read.damaged
    for who in "abc":
        assert [e.offset for e in read.events if e.who == who] == list(range(300))


@given(cut=st.integers(min_value=1, max_value=60))
def test_a_torn_last_line_is_reported_and_hides_nothing(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("events") / "e"
    with EventLog(path, "a", ManualClock()) as log:
        first = log.emit("first")
        log.emit("second", because="x" * 60)
    path.write_bytes(path.read_bytes()[:-cut])

    read = read_events(path)
    assert read.events == [first]
    assert [damage.line for damage in read.damaged] == [2]

    with EventLog(path, "b", ManualClock()) as log:  # the next writer starts a line of its own
        third = log.emit("third")
    read = read_events(path)
    # When only the line end was missing, ending the line makes it whole again.
    assert read.events[-1] == third
    assert len(read.damaged) == (0 if cut == 1 else 1)


def test_a_line_that_is_no_event_is_reported_with_its_place(tmp_path):
    path = tmp_path / "e"
    path.write_bytes(b'{"kind": "x"}\n\xff\xfe\n')
    with EventLog(path, "a") as log:
        log.emit("fine")
    read = read_events(path)
    assert [event.kind for event in read.events] == ["fine"]
    assert [damage.line for damage in read.damaged] == [1, 2]
    assert "who" in read.damaged[0].problem


def test_errors_name_the_file(tmp_path):
    with pytest.raises(EventsError, match="nowhere"):
        EventLog(tmp_path / "nowhere" / "e", "a")
    with pytest.raises(EventsError, match="missing"):
        read_events(tmp_path / "missing")
    log = EventLog(tmp_path / "e", "a")
    log.close()
    log.close()
    with pytest.raises(EventsError, match="'late'"):
        log.emit("late")


def test_the_arrow_table_has_a_column_for_each_field():
    events = Events("a", ManualClock())
    events.emit("commit", partition=1, offset=8, data={"n": 1})
    table = to_arrow(events.events)
    assert table.column_names == list(Event.__struct_fields__)
    assert table.to_pylist()[0]["data"] == '{"n":1}'
    assert to_arrow([]).num_rows == 0


def test_importing_events_loads_neither_pyarrow_nor_pandas():
    code = (
        "import sys, craft2.events; sys.exit(any(m in sys.modules for m in ('pyarrow', 'pandas')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
