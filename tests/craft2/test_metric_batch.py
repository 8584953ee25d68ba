"""What a body may be, and that every other one is refused with its field, its value and a fix."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from craft2.apps.ingestion.metric_batch import (
    MAX_METRICS,
    Metric,
    MetricBatch,
    NotJson,
    Refusal,
    message_of,
    parse,
)

GOOD = {"client_id": "web-7", "metrics": [{"name": "cpu", "value": 0.5, "time_ms": 7}]}
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
values = st.floats(allow_nan=False, allow_infinity=False)
metrics = st.builds(Metric, names, values, st.none() | st.integers(0, 2**63 - 1))
batches = st.builds(MetricBatch, names, st.lists(metrics, min_size=1, max_size=5))
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | values | names,
    lambda some: st.lists(some, max_size=3) | st.dictionaries(names, some, max_size=3),
    max_leaves=10,
)


def good(**changed):
    """The good batch with some fields changed, as a body; `...` leaves a field out."""
    found = {k: v for k, v in (GOOD | changed).items() if v is not ...}
    return json.dumps(found).encode()


def metric(**changed):
    found = {k: v for k, v in (GOOD["metrics"][0] | changed).items() if v is not ...}
    return good(metrics=[GOOD["metrics"][0], found])


def refusal_of(body):
    """Why the body is refused; None if it is taken."""
    try:
        assert isinstance(parse(body), MetricBatch)
    except Refusal as refusal:
        return refusal
    return None


@given(batches)
def test_a_batch_comes_through_as_it_was_sent(batch):
    assert parse(msgspec.json.encode(batch)) == batch
    assert parse(json.dumps(msgspec.to_builtins(batch)).encode()) == batch


@given(batches, st.integers(0, 2**41))
def test_what_is_stored_can_be_read_and_has_a_time(batch, now_ms):
    stored = parse(message_of(batch, now_ms))
    assert [m.value for m in stored.metrics] == [m.value for m in batch.metrics]
    for was, now in zip(batch.metrics, stored.metrics, strict=True):
        assert now.time_ms == (now_ms if was.time_ms is None else was.time_ms)


@given(st.binary(max_size=60) | st.binary(max_size=20).map(lambda tail: good() + tail))
def test_any_bytes_are_a_batch_or_refused(body):
    refusal = refusal_of(body)
    assert refusal is None or (refusal.status in (400, 422) and refusal.fix)


@given(
    anything
    | st.builds(lambda some: GOOD | {"client_id": some}, anything)
    | st.builds(lambda some: GOOD | {"metrics": some}, anything)
    | st.builds(lambda some: GOOD | {"metrics": [some]}, anything)
    | st.builds(lambda name, some: GOOD | {name: some}, names, anything)
    | st.builds(lambda name, some: GOOD | {"metrics": [{name: some}]}, names, anything)
)
def test_any_json_is_a_batch_or_refused_as_json(value):
    refusal = refusal_of(json.dumps(value).encode())
    assert refusal is None or (refusal.status == 422 and refusal.fix)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (good(client_id=...), "client_id is missing. Fix: give a text"),
        (good(client_id=""), 'client_id is "": Expected `str` of length >= 1'),
        (good(client_id=7), "client_id is 7: Expected `str`, got `int`"),
        (good(client_id="x" * 201), f'client_id is "{"x" * 56}...: Expected'),
        (good(metrics=...), "metrics is missing"),
        (good(metrics=[]), "metrics is []: Expected `array` of length >= 1"),
        (good(metrics=[GOOD["metrics"][0]] * (MAX_METRICS + 1)), "Expected `array` of length <="),
        (metric(value="high"), 'metrics[1].value is "high": Expected `float`, got `str`'),
        (metric(value=...), "metrics[1].value is missing. Fix: give a number"),
        (metric(time_ms=-1), "metrics[1].time_ms is -1: Expected `int` >= 0"),
        (metric(time_ms=1.5), "metrics[1].time_ms is 1.5: Expected"),
        (metric(time_ms=2**63), f"metrics[1].time_ms is {2**63}: Expected"),
        (metric(unit="%"), 'metrics[1].unit is "%": no such field is known. Fix: leave it out'),
        (good(client="x"), 'client is "x": no such field is known'),
        (b"[]", "the body is []: Expected `object`, got `array`. Fix: send {"),
    ],
)
def test_a_refusal_names_field_value_and_fix(body, words):
    with pytest.raises(Refusal) as found:
        parse(body)
    assert words in str(found.value)
    assert found.value.status == 422


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"cpu=1",
        b"\xff",
        good()[:-1],
        good() + b"{}",
        b'{"client_id": "\\ud800", "metrics": [{"name": "cpu", "value": 1}]}',
        b'{"client_id": "a", "metrics": [{"name": "cpu", "value": NaN}]}',
        b'{"client_id": 7, "metrics": [',  # wrong before it breaks off
    ],
)
def test_what_is_no_json_is_called_so(body):
    with pytest.raises(NotJson, match="no JSON") as found:
        parse(body)
    assert found.value.status == 400


def test_nesting_without_end_is_refused():
    with pytest.raises(Refusal):
        parse(b"[" * 100_000)
