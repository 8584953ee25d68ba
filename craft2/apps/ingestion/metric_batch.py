"""What a client may send: one batch of metrics as JSON, and what is said about any other body.

    {"client_id": "web-7", "metrics": [{"name": "cpu", "value": 0.42, "time_ms": 1700000000000}]}

Pure: bytes in, a `MetricBatch` or a `Refusal` out. A refusal names the field, its value and the
fix, since whoever reads it has a log line and no debugger.

>>> parse(b'{"client_id": "web-7", "metrics": [{"name": "cpu", "value": 1}]}').metrics[0].name
'cpu'
>>> try:
...     parse(b'{"client_id": "web-7", "metrics": [{"name": "cpu", "value": "high"}]}')
... except Refusal as refusal:
...     print(refusal.status, refusal)
422 metrics[0].value is "high": Expected `float`, got `str`. Fix: give a number
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from craft2.errors import Craft2Error

MAX_METRICS = 1_000  # in one batch
MAX_TIME_MS = 2**63 - 1  # an int64 in every format that it may travel in
_Name = Annotated[str, Meta(min_length=1, max_length=200)]


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One number, and when it was measured: milliseconds since 1970; None: when it arrived."""

    name: _Name
    value: float
    time_ms: Annotated[int, Meta(ge=0, le=MAX_TIME_MS)] | None = None


class MetricBatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one client sends in one request. It becomes one message, whose key is the client."""

    client_id: _Name
    metrics: Annotated[list[Metric], Meta(min_length=1, max_length=MAX_METRICS)]


class Refusal(Craft2Error):
    """A body that is no batch of metrics."""

    @property
    def status(self) -> int:
        """422 for JSON that says something else, 400 for what is not JSON."""
        return 422


class NotJson(Refusal):
    """A body that is not JSON at all."""

    @property
    def status(self) -> int:
        return 400


_decoder = msgspec.json.Decoder(MetricBatch)
_encoder = msgspec.json.Encoder()
_PLACE = re.compile(r"(?P<what>.*?)(?: - at `(?P<path>\$.*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]")
_NAMED = re.compile(r"Object (?P<how>missing required|contains unknown) field `(?P<name>.*)`")
_FIXES = {
    "client_id": "give a text of 1 to 200 characters",
    "metrics": f"give a list of 1 to {MAX_METRICS} metrics",
    "name": "give a text of 1 to 200 characters",
    "value": "give a number",
    "time_ms": "give whole milliseconds since 1970, or leave it out",
}
_SHAPE = 'send {"client_id": "...", "metrics": [{"name": "...", "value": 1.5}]}'


def parse(body: bytes) -> MetricBatch:
    """The batch in a request's body. Raises NotJson, Refusal."""
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError as error:
        complaint = str(error)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_json(body, error) from None
    try:
        whole = msgspec.json.decode(body)  # only now: to show the value, and to see the rest of it
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _not_json(body, error) from None
    raise _refusal(complaint, whole)


def _not_json(body: bytes, error: Exception) -> NotJson:
    """What is wrong with it, and where."""
    try:
        body.decode()
    except UnicodeDecodeError as bad:
        where = f"byte {bad.start}, {body[bad.start : bad.start + 1]!r}"
        what = f"the body is no JSON: {where}, is no UTF-8"
        return NotJson(what, "encode the text as UTF-8")
    what = str(error).partition(" - at ")[0]  # msgspec knows no more of the place than this shows
    if what == "Number out of range":
        fix = "send numbers from -1.8e308 to 1.8e308"
        return NotJson(f"a number that is too large for 64 bits, in {_short(body)}", fix)
    return NotJson(f"the body is no JSON: {what}; it begins {_short(body)}", _SHAPE)


def message_of(batch: MetricBatch, now_ms: int) -> bytes:
    """The batch as it is stored: JSON again, with the time of arrival where none was given."""
    metrics = [
        metric if metric.time_ms is not None else msgspec.structs.replace(metric, time_ms=now_ms)
        for metric in batch.metrics
    ]
    return _encoder.encode(msgspec.structs.replace(batch, metrics=metrics))


def _refusal(complaint: str, whole: Any) -> Refusal:
    """What msgspec complains about, with the value that it does not show."""
    match = _PLACE.fullmatch(complaint)
    what, path = (match["what"], match["path"] or "$") if match else (complaint, "$")
    value, name = whole, ""
    for step in _STEP.finditer(path):
        name = step["name"] or name
        value = value[step["name"] or int(step["index"])]
    place = path.removeprefix("$").removeprefix(".")
    if named := _NAMED.fullmatch(what):
        field = ".".join(filter(None, [place, named["name"]]))
        if named["how"] == "missing required":
            return Refusal(f"{field} is missing", _FIXES.get(named["name"], _SHAPE))
        found = _short(value.get(named["name"]))
        return Refusal(f"{field} is {found}: no such field is known", "leave it out")
    fix = _SHAPE if isinstance(value, dict) or not place else _FIXES.get(name, _SHAPE)
    return Refusal(f"{place or 'the body'} is {_short(value)}: {what}", fix)


def _short(value: object) -> str:
    """A value for an error message: JSON, 60 characters at most."""
    text = repr(value[:60])[1:] if isinstance(value, bytes) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
