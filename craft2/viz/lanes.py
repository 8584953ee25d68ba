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
    """From `start_s` to `end_s` (seconds since the first event) the lane belonged to `owner`.

    words: written into the span, in place of the owner. pale: drawn in a lighter tone.
    """

    start_s: float
    end_s: float
    owner: str
    words: str = ""
    pale: bool = False


class Mark(NamedTuple):
    """A moment: a short label for the picture, and the sentence that explains it.

    fault: something was done to a member from outside, such as a kill -9.
    """

    second: float
    label: str
    because: str
    fault: bool = False


class Arrow(NamedTuple):
    """Something that went from one lane to another, such as a message; or did not get there."""

    start_s: float
    end_s: float
    source: str
    target: str
    words: str
    lost: bool = False


class Box(NamedTuple):
    """A thing that a lane holds, such as an entry of a log, coloured like the spans of `owner`.

    sure: whether it is there to stay; else it is drawn dashed.
    """

    words: str
    owner: str
    sure: bool
    hint: str = ""


class Board(NamedTuple):
    """What a lane holds from `second` on: a line of words, and boxes. bar: a thick line stands
    before the box of this number, or behind the last one; -1: there is none."""

    second: float
    words: str
    boxes: tuple[Box, ...]
    bar: int = -1


@dataclass
class Lanes:
    """See the module. Lanes come in the order in which they are drawn, top to bottom.

    grey: owners that are drawn in grey, because they have nothing. lines: name -> (seconds,
    values), drawn below the lanes; `lines_label` says what they are. boards: what each lane holds
    at the moment that is looked at (the player alone shows it), in the order of time. begin_s:
    where the picture begins. order: all owners, in that of their colours, if it is to be the same
    in several pictures.
    """

    lanes: dict[str, list[Span]]
    marks: list[Mark]
    end_s: float
    grey: set[str] = field(default_factory=lambda: {IDLE})
    lines: Mapping[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    lines_label: str = ""
    arrows: list[Arrow] = field(default_factory=list)
    boards: Mapping[str, list[Board]] = field(default_factory=dict)
    begin_s: float = 0.0
    order: tuple[str, ...] = ()

    def owners(self) -> list[str]:
        """Everybody who ever owned a lane, but for the grey ones."""
        if self.order:
            return list(self.order)
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
    lags = _first_lags(ordered)
    held: dict[str, list[str]] = {}  # what a worker had when it was paused or killed
    seconds: list[float] = []
    totals: list[float] = []

    def close(lane: str, now: float, owner: str) -> None:
        if lane in open_spans and open_spans[lane][1] == owner:
            start, who = open_spans.pop(lane)
            lanes.setdefault(lane, []).append(Span(start, now, who))

    for event in ordered:
        now = (event.when_ms - zero) / 1000
        lane = f"{event.topic}-{event.partition}"
        match event.kind:
            case "assigned":
                if lags and not seconds:  # from when there is a reader
                    seconds.append(now)
                    totals.append(sum(lags.values()))
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
            case "progress" if event.data.get("lag") is not None:
                lags[lane] = float(event.data["lag"] or 0)
                seconds.append(now)
                totals.append(sum(lags.values()))
    end = (ordered[-1].when_ms - zero) / 1000
    for lane, (_, owner) in list(open_spans.items()):
        close(lane, end, owner)
    idle = {lane for lane, spans in lanes.items() if all(s.owner == IDLE for s in spans)}
    order = sorted(lanes, key=lambda lane: (lane in idle, _natural(lane)))
    lines = {"all partitions": (seconds, totals)} if seconds else {}
    return Lanes({x: lanes[x] for x in order}, marks, end, lines=lines, lines_label="lag, messages")


def _first_lags(ordered: Iterable[Event]) -> dict[str, float]:
    """What each partition's reader first said: it stands for what it has not said before, or the
    sum would begin late, when the last of them has spoken, or too low."""
    lags: dict[str, float] = {}
    for event in ordered:
        if event.kind == "progress" and event.data.get("lag") is not None:
            lags.setdefault(f"{event.topic}-{event.partition}", float(event.data["lag"] or 0))
    return lags


def _natural(lane: str) -> tuple[str, int]:
    name, _, number = lane.rpartition("-")
    return (name, int(number)) if number.isdigit() else (lane, -1)
