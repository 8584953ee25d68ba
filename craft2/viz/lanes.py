"""What changed hands over time, as lanes: who owns a partition now, and since when.

A *lane* is a thing (a partition; later a replica, a Raft server), its *spans* say what it was in
which stretch of time, and *marks* say when and because of what everything changed. One figure and
one player draw this, whatever the things are; `lanes_of_group` makes it from a group's events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from craft2.events import Event

IDLE = "idle"


class Span(NamedTuple):
    """From `start_s` to `end_s` (seconds since the first event) the lane belonged to `owner`."""

    start_s: float
    end_s: float
    owner: str


class Mark(NamedTuple):
    """A moment: a short label for the picture, and the sentence that explains it.

    fault: something was done to a member from outside, such as a kill -9.
    """

    second: float
    label: str
    because: str
    fault: bool = False


@dataclass
class Lanes:
    """See the module. Lanes come in the order in which they are drawn, top to bottom.

    grey: owners that are drawn in grey, because they have nothing. lines: name -> (seconds,
    values), drawn below the lanes; `lines_label` says what they are.
    """

    lanes: dict[str, list[Span]]
    marks: list[Mark]
    end_s: float
    grey: set[str] = field(default_factory=lambda: {IDLE})
    lines: Mapping[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    lines_label: str = ""

    def owners(self) -> list[str]:
        """Everybody who ever owned a lane, but for the grey ones."""
        found = {span.owner for spans in self.lanes.values() for span in spans} - self.grey
        return sorted(found, key=_natural)


def lanes_of_group(events: Iterable[Event]) -> Lanes:
    """A lane a partition, coloured by who reads it, and one for each member while it has none.

    Reads the events "assigned", "revoked", "lost" and "idle" of consumers, "member-gone" and
    "stable" of the group (its generations), "killed", "paused" and the like of a worker pool, and
    the lag in "progress".
    """
    ordered = sorted(events, key=lambda event: event.when_ms)
    if not ordered:
        return Lanes({}, [], 0.0)
    zero = ordered[0].when_ms
    open_spans: dict[str, tuple[float, str]] = {}
    lanes: dict[str, list[Span]] = {}
    marks: list[Mark] = []
    lags: dict[str, float] = {}
    assigned: set[str] = set()  # partitions that ever had an owner
    held: dict[str, list[str]] = {}  # what a worker had when it was paused or killed
    seconds, totals = [], []

    def close(lane: str, now: float, owner: str) -> None:
        if lane in open_spans and open_spans[lane][1] == owner:
            start, who = open_spans.pop(lane)
            lanes.setdefault(lane, []).append(Span(start, now, who))

    for event in ordered:
        now = (event.when_ms - zero) / 1000
        lane = f"{event.topic}-{event.partition}"
        match event.kind:
            case "assigned":
                assigned.add(lane)
                close(event.who, now, IDLE)
                if lane in open_spans:
                    close(lane, now, open_spans[lane][1])
                for lanes_of_paused in held.values():
                    if lane in lanes_of_paused:
                        lanes_of_paused.remove(lane)
                open_spans[lane] = now, event.who
            case "revoked" | "lost":
                close(lane, now, event.who)
            case "idle":
                open_spans.setdefault(event.who, (now, IDLE))
            case "member-gone":
                close(event.who, now, IDLE)
                for other, (_, owner) in list(open_spans.items()):
                    if owner == event.who:
                        close(other, now, owner)
            case "stable":
                marks.append(Mark(now, f"{event.generation}", event.because))
            case "killed" | "paused" | "resumed" | "stopped":
                worker = str(event.data.get("worker"))
                marks.append(Mark(now, event.kind, f"{worker} {event.kind}", fault=True))
                if event.kind in ("killed", "paused"):  # it reads no more, whatever others believe
                    held[worker] = [x for x, (_, owner) in open_spans.items() if owner == worker]
                    for other in held[worker]:
                        close(other, now, worker)
                elif event.kind == "resumed":
                    for other in held.pop(worker, []):
                        open_spans.setdefault(other, (now, worker))
            case "progress":
                lags[lane] = float(event.data.get("lag") or 0)
                if assigned <= lags.keys():  # else the sum would lack some
                    seconds.append(now)
                    totals.append(sum(lags.values()))
    end = (ordered[-1].when_ms - zero) / 1000
    for lane, (_, owner) in list(open_spans.items()):
        close(lane, end, owner)
    idle = {lane for lane, spans in lanes.items() if all(s.owner == IDLE for s in spans)}
    order = sorted(lanes, key=lambda lane: (lane in idle, _natural(lane)))
    lines = {"all partitions": (seconds, totals)} if seconds else {}
    return Lanes({x: lanes[x] for x in order}, marks, end, lines=lines, lines_label="lag, messages")


def _natural(lane: str) -> tuple[str, int]:
    name, _, number = lane.rpartition("-")
    return (name, int(number)) if number.isdigit() else (lane, -1)
