"""What happened, in one form for every phase.

A message is written, a group rebalances, a leader is elected: each is an `Event`, with the reason
in `because`.  The checker, the pictures and the Spark cells read events and nothing else.

>>> events = Events(who="consumer-1")
>>> _ = events.emit("commit", topic="flights", partition=2, offset=8, because="handler returned")
>>> events.events[0].kind, events.events[0].seq, events.events[0].offset
('commit', 1, 8)

`Events` keeps them in memory; `EventLog` appends them to a file of JSON lines that several
processes may share.  Both have the same `emit`.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from craft2.clock import Clock, SystemClock
from craft2.errors import Craft2Error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Scalar = str | int | float | bool | None


class EventsError(Craft2Error):
    """An event file that cannot be written or read."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that happened.  A field that does not apply is None and is left out of the file.

    Invariant: among the events of one emitter, `seq` starts at 1 and grows by 1; wall-clock time
    orders the events of several emitters only roughly.
    """

    kind: str  # what happened, a verb or a noun: "commit", "rebalance", "leader-elected"
    who: str  # the client, member or broker that saw it
    when_ms: int  # wall clock, milliseconds since 1970
    seq: int  # the emitter's own logical time
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None  # for a commit: the next one to read
    group: str | None = None
    generation: int | None = None  # of the group
    term: int | None = None  # of the leader
    because: str = ""  # the reason, as a person would give it
    data: dict[str, Scalar] = {}


class Emitter:
    """What a queue, a log or a broker is given to report to: the `emit` both collectors share."""

    def __init__(self, who: str, clock: Clock | None = None) -> None:
        self._who = who
        self._clock = clock or SystemClock()
        self._seq = itertools.count(1)
        self._lock = threading.Lock()

    def emit(
        self,
        kind: str,
        *,
        who: str = "",
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        group: str | None = None,
        generation: int | None = None,
        term: int | None = None,
        because: str = "",
        data: dict[str, Scalar] | None = None,
    ) -> Event:
        """Record an event and return it; `who` only where one collector serves several."""
        with self._lock:
            event = Event(
                kind=kind,
                who=who or self._who,
                when_ms=self._clock.now_ms(),
                seq=next(self._seq),
                topic=topic,
                partition=partition,
                offset=offset,
                group=group,
                generation=generation,
                term=term,
                because=because,
                data=data or {},
            )
            self._keep(event)
        return event

    def _keep(self, event: Event) -> None:
        raise NotImplementedError


class Events(Emitter):
    """A collector in memory, for tests and simulations: `.events` is the list."""

    def __init__(self, who: str = "", clock: Clock | None = None) -> None:
        super().__init__(who, clock)
        self.events: list[Event] = []

    def _keep(self, event: Event) -> None:
        self.events.append(event)


class EventLog(Emitter):
    """Appends events to a file of JSON lines, one `write` an event.

    The file is opened with O_APPEND: the kernel moves to the end and writes in one step, so
    processes that share a file do not write into each other's lines.  Events are not synced to
    disk: they describe the system, and losing the last of them loses no message.
    """

    def __init__(self, path: str | os.PathLike[str], who: str, clock: Clock | None = None) -> None:
        super().__init__(who, clock)
        self.path = Path(path)
        try:
            self._fd = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
        except OSError as error:
            raise EventsError(
                f"event file {str(self.path)!r} cannot be opened: {error.strerror}",
                fix="name a file in an existing folder that you may write to",
            ) from error
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            # A writer died in the middle of its last line.  End that line, so that it stays the
            # only damaged one.  (Or a live one is in the middle of it: then this makes an empty
            # line behind it, which readers pass over.)
            os.write(self._fd, b"\n")

    def _keep(self, event: Event) -> None:
        line = msgspec.json.encode(event) + b"\n"
        try:
            written = os.write(self._fd, line)
        except OSError as error:
            raise EventsError(
                f"event {event.kind!r} was not written to {str(self.path)!r}: {error.strerror}",
                fix="free some space on that disk",
            ) from error
        if written != len(line):
            raise EventsError(
                f"only {written} of {len(line)} bytes of event {event.kind!r} were written to"
                f" {str(self.path)!r}",
                fix="free some space on that disk",
            )

    def close(self) -> None:
        """Close the file.  Emitting afterwards raises `EventsError`."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Damage(NamedTuple):
    """A line of an event file that is not an event: torn by a crash, or not ours."""

    line: int  # counted from 1
    text: str  # its first 200 characters
    problem: str


class Recording(NamedTuple):
    """An event file as read: its events in file order, and the lines that are none."""

    events: list[Event]
    damaged: list[Damage]


def read_events(path: str | os.PathLike[str]) -> Recording:
    """Read the events in the file at `path`.

    A damaged line does not hide the others: it is returned beside them.  Raises `EventsError`
    when there is no such file.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise EventsError(
            f"event file {os.fspath(path)!r} cannot be read: {error.strerror}",
            fix="check the path; the file appears with the first EventLog opened on it",
        ) from error
    recording = Recording([], [])
    decoder = msgspec.json.Decoder(Event)
    *lines, last = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line:  # an EventLog was opened while another one wrote
            continue
        try:
            recording.events.append(decoder.decode(line))
        except msgspec.DecodeError as error:
            recording.damaged.append(_damage(number, line, str(error)))
    if last:
        recording.damaged.append(_damage(len(lines) + 1, last, "the line has no end: torn"))
    return recording


def _damage(number: int, line: bytes, problem: str) -> Damage:
    return Damage(number, line[:200].decode(errors="replace"), problem)


def to_arrow(events: Iterable[Event]) -> pa.Table:
    """The events as an Arrow table, a column a field; `data` as JSON text, `when_ms` an int64."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("kind", pa.string()),
            ("who", pa.string()),
            ("when_ms", pa.int64()),
            ("seq", pa.int64()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("group", pa.string()),
            ("generation", pa.int32()),
            ("term", pa.int64()),
            ("because", pa.string()),
            ("data", pa.string()),
        ]
    )
    rows: list[dict[str, Any]] = [
        msgspec.structs.asdict(e) | {"data": msgspec.json.encode(e.data).decode()} for e in events
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def to_spark(events: Iterable[Event], session: SparkSession) -> DataFrame:
    """The events as a Spark DataFrame, with the columns of `to_arrow`."""
    return session.createDataFrame(to_arrow(events))
