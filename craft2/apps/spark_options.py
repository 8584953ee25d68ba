"""The options of the Spark data source `craft2`, read and checked.

>>> Options.of({"path": "/queues", "topic": "flights", "startingOffsets": "latest"}).start
-1
>>> Options.of({"path": "/queues", "endingOffset": "7"})
Traceback (most recent call last):
...
craft2.apps.spark_options.SourceError: spark.read has no option 'endingOffset'. Fix: use some of \
path, kafka.bootstrap.servers, topic, startingOffsets, startingTimestamp, maxRecordsPerPartition, \
endingOffsets, endingTimestamp

Source: https://spark.apache.org/docs/latest/structured-streaming-kafka-integration.html
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from craft2.errors import Craft2Error

EARLIEST, LATEST = -2, -1
_OF_BATCHES = ("endingOffsets", "endingTimestamp")
_OF_STREAMS = ("maxOffsetsPerTrigger", "failOnDataLoss")
_SERVERS = "kafka.bootstrap.servers"
_OF_EITHER = (
    *("path", _SERVERS, "topic", "startingOffsets", "startingTimestamp", "maxRecordsPerPartition"),
    *_OF_BATCHES,
    *_OF_STREAMS,
)
_OF_SINKS = ("path", "topic")
_SPARKS_OWN = ("owner", "checkpointLocation", "queryName")  # for CREATE TABLE and writeStream

Offsets = int | Mapping[str, Mapping[str, int]]  # for every partition; or topic -> partition -> it


class SourceError(Craft2Error):
    """An option, a path, a column or a range of offsets that cannot be read or written."""


@dataclass(frozen=True)
class Options:
    """The options of `spark.read` or of `spark.readStream`.

    path: a directory; or, if `remote`, the bootstrap servers of a cluster.

    Invariant: of a stream `end` is LATEST and `end_ms` None; of a batch job the last two are as
    they are by default.
    """

    path: str
    topic: str | None = None
    start: Offsets = EARLIEST
    end: Offsets = LATEST
    start_ms: int | None = None
    end_ms: int | None = None
    most: int = 500_000  # records in a range
    most_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    remote: bool = False

    @classmethod
    def of(cls, given: Mapping[str, str], *, stream: bool | None = False) -> Options:
        """stream: None: not known yet, it may be either.

        Raises SourceError naming the option, its value, and what it may be.
        """
        other = {None: (), True: _OF_BATCHES, False: _OF_STREAMS}[stream]
        allowed = [name for name in _OF_EITHER if name not in other]
        read = named(given, allowed, "spark.readStream" if stream else "spark.read")
        for end in ("starting", "ending"):
            if f"{end}Offsets" in read and f"{end}Timestamp" in read:
                raise SourceError(
                    f"both {end}Offsets and {end}Timestamp are given", "give one of the two"
                )
        if _SERVERS in read and "topic" not in read:
            raise SourceError(f"{_SERVERS} is given, and no topic", 'add .option("topic", NAME)')
        return cls(
            read.get(_SERVERS) or read["path"],
            read.get("topic"),
            _offsets(read, "startingOffsets", LATEST if stream else EARLIEST),
            _offsets(read, "endingOffsets", LATEST),
            _number(read, "startingTimestamp", None, 0),
            _number(read, "endingTimestamp", None, 0),
            _number(read, "maxRecordsPerPartition", cls.most, 1) or cls.most,
            _number(read, "maxOffsetsPerTrigger", None, 1),
            _flag(read, "failOnDataLoss", True),
            _SERVERS in read,
        )


@dataclass(frozen=True)
class SinkOptions:
    """The options of `write` and `writeStream`. topic: None: each row names its own."""

    path: str
    topic: str | None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> SinkOptions:
        """Raises SourceError for an option that does not exist, or if there is no path."""
        read = named(given, _OF_SINKS, "write")
        return cls(read["path"], read.get("topic"))


def named(given: Mapping[str, str], allowed: Sequence[str], where: str) -> dict[str, str]:
    """The options as they are spelled here, whatever their case; the path made absolute."""
    names = {name.lower(): name for name in (*allowed, *_SPARKS_OWN)}
    read = {}
    for name, value in given.items():
        if name == "paths":  # what load([one, two]) becomes
            raise SourceError(
                f"several paths are given: {value}",
                "load each alone, and join them: a.union(b)",
            )
        if name.lower() not in names:
            spelled = next((one for one in _OF_EITHER if one.lower() == name.lower()), name)
            raise SourceError(
                f"{where} has no option {spelled!r}", f"use some of {', '.join(allowed)}"
            )
        read[names[name.lower()]] = value
    if read.get(_SERVERS):
        if read.get("path"):
            raise SourceError(f"both a path and {_SERVERS} are given", "give one of the two")
        return read
    if not read.get("path"):
        raise SourceError("no path is given", 'add .option("path", DIRECTORY)')
    return read | {"path": os.path.abspath(read["path"].removeprefix("file:"))}


def _number(read: Mapping[str, str], name: str, default: int | None, least: int) -> int | None:
    text = read.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least:
        unit = "ms since 1970" if "Timestamp" in name else "records, 1 at least"
        raise SourceError(f"option {name} is {text!r}", f"give a whole number of {unit}")
    return int(text)


def _flag(read: Mapping[str, str], name: str, default: bool) -> bool:
    text = read.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise SourceError(f"option {name} is {read[name]!r}", "give true or false")
    return text == "true"


def _offsets(read: Mapping[str, str], name: str, default: int) -> Offsets:
    text = read.get(name)
    if text is None:
        return default
    if text.lower() in ("earliest", "latest"):
        return EARLIEST if text.lower() == "earliest" else LATEST
    try:
        value: Offsets = json.loads(text, object_pairs_hook=_each_once)
        topics = value.values() if isinstance(value, dict) else [{"": value}]
        numbers = [number for offsets in topics for number in offsets.values()]
        if all(type(number) is int and number >= EARLIEST for number in numbers):
            return value
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    raise SourceError(
        f"option {name} is {text!r}",
        'give "earliest", "latest", a number, or {"topic": {"0": 23, "1": -2}}',
    )


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise ValueError("a name is given twice")
    return dict(pairs)
