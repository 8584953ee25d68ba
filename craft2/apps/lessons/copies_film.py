"""The copies of a partition as a film: a lane a broker, coloured by leader epoch.

    boxes       the records of a log, in the colour of the epoch in which they were written
    thick bar   the high watermark, as this broker knows it: consumers see what is before it
    dashed box  a record that is behind it; at the producer, one that is not acknowledged

The controller's lane says who leads, and who is in sync.
"""

from __future__ import annotations

from craft2.apps.lessons.copies import CONTROLLER, Copies
from craft2.apps.lessons.copies_seen import Look, Sent
from craft2.viz import Player, player
from craft2.viz.lanes import Arrow, Board, Box, Lanes, Mark, Span
from phase3_raft.metadata.records import PartitionRecord

PRODUCER, DOWN, NOBODY = "producer", "down", "nobody leads"
_WAITS, _IDLE = "waits for an answer", ""
_REFUSED = {"refused": "refused", "unknown": "its leader is gone: nobody knows"}


def film(
    copies: Copies,
    title: str,
    *,
    from_ms: int = 0,
    to_ms: int | None = None,
    at_ms: int | None = None,
) -> Player:
    """The player, whose steps halt at changes and where a message arrives. from_ms, to_ms: the part
    to show. at_ms: where it stands when it is opened."""
    lanes = lanes_of_copies(copies, from_ms, copies.now_ms if to_ms is None else to_ms)
    stops_s = [arrow.end_s for arrow in lanes.arrows if not arrow.lost]
    return player(lanes, title, "", None if at_ms is None else at_ms / 1000, stops_s)


def lanes_of_copies(copies: Copies, from_ms: int, to_ms: int) -> Lanes:
    """What the player draws."""
    names = {number: f"broker {number}" for number in copies.numbers}
    decided = [
        (ms, _epoch(one.leader_epoch) if one.leader >= 0 else NOBODY, _controller(one), False)
        for ms, one in copies.records
    ]
    lanes = {CONTROLLER: _spans(decided, from_ms, to_ms)}
    boards = {CONTROLLER: [Board(s / 1000, words, ()) for s, _, words, _ in decided]}
    for number, looks in copies.looks.items():
        changes = [(one.ms, *_role(one)) for one in looks]
        lanes[names[number]] = _spans(changes, from_ms, to_ms)
        boards[names[number]] = [_board(one) for one in looks]
    waits = [(ms, _WAITS if _waits(sent) else _IDLE) for ms, sent in copies.sents]
    spans = _spans([(ms, words, words, True) for ms, words in waits], from_ms, to_ms)
    lanes[PRODUCER] = [span for span in spans if span.owner == _WAITS]
    boards[PRODUCER] = [_sent(ms, sent) for ms, sent in copies.sents]
    epochs = max(one.leader_epoch for _, one in copies.records) + 1
    return Lanes(
        lanes,
        _marks(copies, from_ms, to_ms),
        to_ms / 1000,
        grey={DOWN, NOBODY, _WAITS},
        arrows=[
            Arrow(one.sent_ms / 1000, one.arrives_ms / 1000, one.source, one.target, one.words,
                  one.lost)
            for one in copies.post.letters
            if from_ms <= one.sent_ms < to_ms
        ],
        boards=boards,
        begin_s=from_ms / 1000,
        order=tuple(_epoch(number) for number in range(epochs)),
    )  # fmt: skip


def _epoch(number: int) -> str:
    return f"epoch {number}"


def _controller(record: PartitionRecord) -> str:
    leads = f"{record.leader} leads" if record.leader >= 0 else NOBODY
    return f"{leads}; ISR {' '.join(map(str, record.isr))}"


def _role(look: Look) -> tuple[str, str, bool]:
    """Its owner, its words, and whether it is drawn pale."""
    if look.role == DOWN:
        return DOWN, DOWN, False
    return _epoch(look.epoch), f"{look.role}, epoch {look.epoch}", look.role != "leads"


def _spans(changes: list[tuple[int, str, str, bool]], from_ms: int, to_ms: int) -> list[Span]:
    spans: list[Span] = []
    ends = [*(change[0] for change in changes[1:]), to_ms]
    for (ms, owner, words, pale), after in zip(changes, ends, strict=True):
        start, end = max(ms, from_ms) / 1000, min(after, to_ms) / 1000
        if end <= start:
            continue
        if spans and spans[-1][2:] == (owner, words, pale):
            spans[-1] = spans[-1]._replace(end_s=end)
        else:
            spans.append(Span(start, end, owner, words, pale))
    return spans


def _marks(copies: Copies, from_ms: int, to_ms: int) -> list[Mark]:
    marks = [Mark(ms / 1000, "", words, fault=True) for ms, words in copies.done]
    before = copies.records[0][1]
    for ms, record in copies.records[1:]:
        label = f"{record.leader} leads" if record.leader != before.leader else "ISR"
        marks.append(Mark(ms / 1000, label, f"the controller decides: {_controller(record)}"))
        before = record
    inside = [mark for mark in marks if from_ms <= mark.second * 1000 <= to_ms]
    return sorted(inside, key=lambda mark: mark.second)


def _board(look: Look) -> Board:
    boxes = tuple(
        Box(cell.text, _epoch(cell.epoch), cell.seen, f"offset {offset}, epoch {cell.epoch}")
        for offset, cell in enumerate(look.cells)
    )
    words = f"{look.role}; end {len(boxes)}, high watermark {look.watermark}"
    return Board(look.ms / 1000, words, boxes, sum(cell.seen for cell in look.cells))


def _waits(sent: tuple[Sent, ...]) -> bool:
    return any(one.state == "waiting" for one in sent)


def _sent(ms: int, sent: tuple[Sent, ...]) -> Board:
    boxes = tuple(
        Box(one.text, _epoch(one.leader_epoch), one.state == "acknowledged",
            _REFUSED.get(one.state, one.state))
        for one in sent
    )  # fmt: skip
    count = sum(box.sure for box in boxes)
    return Board(ms / 1000, f"{count} acknowledged of {len(boxes)}", boxes)
