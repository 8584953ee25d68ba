"""A stage as a film: a lane a server, coloured by term; messages as arrows; logs below.

    solid box   an entry that this server knows to be committed
    dashed box  one that may still be overwritten

Source: the paper's figures 7 and 8 draw logs so, and RaftScope (D. Ongaro) the timers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from craft2.apps.simulate.looks import DOWN, Letter, Look
from craft2.apps.simulate.stage import Stage, Step
from craft2.viz import Player, player
from craft2.viz.lanes import Arrow, Board, Box, Lanes, Mark, Span

_MOST_BOXES = 12  # of a log; what comes before is one box


def film(
    stage: Stage,
    *,
    from_ms: int = 0,
    to_ms: int | None = None,
    at_ms: int | None = None,
    title: str = "Raft, message by message",
    every_message: bool = False,
) -> Player:
    """The player. from_ms, to_ms: the part to show. at_ms: where it stands when it is opened.
    every_message: a step halts wherever a message arrives, too."""
    lanes = lanes_of_stage(stage, from_ms, stage.now_ms if to_ms is None else to_ms)
    stops_s = [one.end_s for one in lanes.arrows if not one.lost] if every_message else ()
    return player(lanes, title, "", None if at_ms is None else at_ms / 1000, stops_s)


def lanes_of_stage(stage: Stage, from_ms: int, to_ms: int) -> Lanes:
    """What the player draws of a stage."""
    done = [(step.ms, _done(step)) for step in stage.steps]
    return lanes_of(stage.looks, stage.letters, done, from_ms, to_ms)


def lanes_of(
    looks: Mapping[int, Sequence[Look]],
    letters: Iterable[Letter],
    done: Iterable[tuple[int, str]],
    from_ms: int,
    to_ms: int,
) -> Lanes:
    """What the player draws. looks: of each server, oldest first. done: (ms, what was done)."""
    latest = max((look.term for seen in looks.values() for look in seen), default=0)
    return Lanes(
        {name(number): _spans(seen, from_ms, to_ms) for number, seen in looks.items()},
        _marks(looks, done, from_ms, to_ms),
        to_ms / 1000,
        grey={DOWN},
        arrows=[_arrow(one) for one in letters if from_ms <= one.sent_ms < to_ms],
        boards={name(number): _boards(seen) for number, seen in looks.items()},
        begin_s=from_ms / 1000,
        order=tuple(f"term {term}" for term in range(latest + 1)),
    )


def name(number: int) -> str:
    """A server's, as it is drawn."""
    return f"server {number}"


def _owner(look: Look) -> str:
    return DOWN if look.role == DOWN else f"term {look.term}"


def _spans(looks: Sequence[Look], from_ms: int, to_ms: int) -> list[Span]:
    spans: list[Span] = []
    for look, after in zip(looks, [*(one.ms for one in looks[1:]), to_ms], strict=True):
        start, end = max(look.ms, from_ms) / 1000, min(after, to_ms) / 1000
        if end <= start:
            continue
        leads = look.role == "leader"
        words = f"{look.role}, {_owner(look)}" if look.role != DOWN else DOWN
        same = spans and (spans[-1].owner, spans[-1].words) == (_owner(look), words)
        if same and spans[-1].end_s == start:
            spans[-1] = spans[-1]._replace(end_s=end)
        else:
            spans.append(Span(start, end, _owner(look), words, pale=not leads))
    return spans


def _marks(
    looks: Mapping[int, Sequence[Look]],
    done: Iterable[tuple[int, str]],
    from_ms: int,
    to_ms: int,
) -> list[Mark]:
    marks = [Mark(ms / 1000, "", what, fault=True) for ms, what in done if from_ms <= ms <= to_ms]
    for number, seen in looks.items():
        before: Look | None = None
        for look in seen:
            changed = before is None or (before.role, before.term) != (look.role, look.term)
            if changed and look.role == "leader" and from_ms <= look.ms <= to_ms:
                because = f"server {number} leads term {look.term}: a majority voted for it"
                marks.append(Mark(look.ms / 1000, f"T{look.term}", because))
            before = look
    return sorted(marks, key=lambda mark: mark.second)


def _done(step: Step) -> str:
    who = ", ".join(str(one) for one in step.arguments)
    if step.name == "propose":
        return f"server {step.arguments[0]} is asked to store {step.arguments[1]!r}"
    if step.name == "heal":
        return "the network is whole again"
    words = {
        "time_out": f"the election timer of server {who} rings",
        "stop": f"server {who} is stopped",
        "start": f"server {who} starts again",
        "cut": f"cut off from the others: server {who}",
        "drop": f"message {who} is lost",
        "change_voters": f"server {step.arguments[0]} is asked to let {who[3:]} vote",
        "transfer": f"server {step.arguments[0]} is asked to hand over to {step.arguments[-1]}",
        "read": f"server {who} is asked what is stored",
        "compact": f"server {who} makes a snapshot",
    }
    return words[step.name]


def _arrow(letter: Letter) -> Arrow:
    message, lost = letter.message, letter.fate != "arrives"
    words = f"{letter.words} [message {letter.number}{', ' + letter.fate if lost else ''}]"
    start, end = letter.sent_ms / 1000, letter.arrives_ms / 1000
    return Arrow(start, end, name(message.sender), name(message.to), words, lost)


def _boards(looks: Sequence[Look]) -> list[Board]:
    boards: list[Board] = []
    for look in looks:
        cells = look.cells[-_MOST_BOXES:]
        hidden = len(look.cells) - len(cells)
        boxes = []
        if look.snapshot:
            boxes.append(Box(f"snapshot to {look.snapshot}", "", True, "entries are gone"))
        if hidden:
            boxes.append(Box("…", "", True, f"{hidden} entries before"))
        boxes += [
            Box(
                cell.text,
                f"term {cell.term}",
                cell.committed,
                f"entry {cell.index} of term {cell.term}, "
                + ("committed" if cell.committed else "not known to be committed"),
            )
            for cell in cells
        ]
        boards.append(Board(look.ms / 1000, _words(look), tuple(boxes)))
    return boards


def _words(look: Look) -> str:
    if look.role == DOWN:
        return DOWN
    words = f"{look.role}, term {look.term}"
    if look.role == "leader":
        agree = ", ".join(f"{n}: {look.match[n]}/{look.next[n]}" for n in sorted(look.next))
        return f"{words}; match/next of {agree}"
    if look.voted_for is not None:
        words += f", voted for {look.voted_for}"
    return f"{words}; stands at {look.election_at_ms} ms"
