"""Machine metrics: due times, keys and differences, on a clock that moves when told."""

import json
from types import SimpleNamespace

import pytest

from craft2.apps.ingestion import machine_metrics
from craft2.apps.ingestion.machine_metrics import metrics
from craft2.clock import ManualClock
from craft2.errors import Craft2Error


@pytest.fixture
def machine(monkeypatch):
    """A machine that reads and writes 1,000 more bytes each time it is asked."""
    asked = {"disk": 0, "net": 0}

    def disk():
        asked["disk"] += 1000
        return SimpleNamespace(read_bytes=asked["disk"], write_bytes=2 * asked["disk"])

    def net():
        asked["net"] += 1000
        return SimpleNamespace(bytes_recv=asked["net"], bytes_sent=3 * asked["net"])

    memory = SimpleNamespace(used=10, available=20)
    fake = SimpleNamespace(
        cpu_percent=lambda percpu: [12.5, 50.0],
        virtual_memory=lambda: memory,
        disk_io_counters=disk,
        net_io_counters=net,
    )
    monkeypatch.setattr(machine_metrics, "psutil", fake)
    return fake


def test_each_reading_gives_an_event_a_metric(machine):
    events = list(metrics(0.5, ManualClock(start_ms=1000), count=2))
    assert [(event.key, event.time_ms) for event in events] == [
        (key, time)
        for time in (1500, 2000)
        for key in ("cpu-0", "cpu-1", "memory", "disk", "network")
    ]
    values = [json.loads(event.value) for event in events]
    assert values[1]["metric"] == "cpu-1"
    assert values[1]["busy_percent"] == 50.0
    assert values[2]["used_bytes"] == 10
    assert all(
        value["host"] and value["time_ms"] == e.time_ms
        for value, e in zip(values, events, strict=True)
    )


def test_counters_are_differences(machine):
    events = list(metrics(1.0, ManualClock(), count=3))
    disks = [json.loads(event.value) for event in events if event.key == "disk"]
    assert [(d["read_bytes"], d["written_bytes"]) for d in disks] == [(1000, 2000)] * 3


def test_a_slow_reader_does_not_shift_the_schedule(machine):
    clock = ManualClock()
    times = []
    for event in metrics(1.0, clock, count=3):
        if event.key == "cpu-0":
            times.append(event.time_ms)
            clock.advance(0.4)  # what the reader does with it
    assert times == [1000, 2000, 3000]


def test_a_machine_without_disk_counters_has_the_other_metrics(machine):
    machine.disk_io_counters = lambda: None
    keys = {event.key for event in metrics(1.0, ManualClock(), count=1)}
    assert keys == {"cpu-0", "cpu-1", "memory", "network"}


def test_the_real_machine_answers():
    events = list(metrics(0.001, ManualClock(), count=1))
    assert {"cpu-0", "memory"} <= {event.key for event in events}


def test_an_interval_that_is_no_time_is_refused():
    with pytest.raises(Craft2Error, match="above zero"):
        next(metrics(0.0, ManualClock()))
