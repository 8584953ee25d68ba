"""Exercise 13.1: a batch that comes twice is stored once, and none is stored too early."""

from __future__ import annotations

import random
from collections import deque
from types import ModuleType
from typing import Any, NamedTuple

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import doing, that

LAST = 2**31 - 1  # the last sequence; after it comes 0
NEXT, GAP, FENCED = "append it", "OutOfOrderSequence", "InvalidProducerEpoch"
CHANNELS, BATCHES, IN_FLIGHT = 60, 30, 5


class _Batch(NamedTuple):
    """A batch of producer 7."""

    sequence: int
    records: int
    epoch: int = 4


class _Case(NamedTuple):
    words: str
    batch: _Batch
    expected: str | tuple[int, int]  # one of the three above, or the offsets of the first time


# In the log at offset 100: five batches of epoch 4, with sequences 20-22, 23, 24-27, 28-29, 30.
KNOWN = (_Batch(20, 3), _Batch(23, 1), _Batch(24, 4), _Batch(28, 2), _Batch(30, 1))
CASES = (
    _Case("what comes next", _Batch(31, 2), NEXT),
    _Case("the last one again", _Batch(30, 1), (110, 110)),
    _Case("the last but one again", _Batch(28, 2), (108, 109)),
    _Case("the one in the middle again", _Batch(24, 4), (104, 107)),
    _Case("the first of the five again", _Batch(20, 3), (100, 102)),
    _Case("one is missing in between", _Batch(32, 2), GAP),
    _Case("older than the five", _Batch(17, 3), GAP),
    _Case("begins as one of the five, and is longer", _Batch(24, 5), GAP),
    _Case("begins as one of the five, and is shorter", _Batch(24, 2), GAP),
    _Case("begins as the last one, and goes on", _Batch(30, 3), GAP),
    _Case("lies within one of the five", _Batch(25, 2), GAP),
    _Case("ends as one of the five", _Batch(29, 1), GAP),
    _Case("two of the five in one", _Batch(20, 4), GAP),
    _Case("begins anew, in the same epoch", _Batch(0, 2), GAP),
    _Case("an older epoch, next in sequence", _Batch(31, 2, 3), FENCED),
    _Case("an older epoch, like the last one", _Batch(30, 1, 3), FENCED),
    _Case("an older epoch that begins with 0", _Batch(0, 2, 0), FENCED),
    _Case("a newer epoch that begins with 0", _Batch(0, 2, 5), NEXT),
    _Case("a newer epoch that goes on", _Batch(31, 2, 5), GAP),
    _Case("a newer epoch, like the last one", _Batch(30, 1, 5), GAP),
    _Case("a much newer epoch that begins with 0", _Batch(0, 2, 9), NEXT),
)
ANEW = (_Batch(0, 3), _Batch(3, 2))
AROUND = (_Batch(LAST - 4, 3), _Batch(LAST - 1, 4))  # the second has sequences ..., LAST, 0, 1
CASES_ANEW = (
    _Case("the first one of epoch 4 again", _Batch(0, 3), (100, 102)),
    _Case("epoch 5 begins with what looks like a batch of epoch 4", _Batch(0, 3, 5), NEXT),
)
CASES_AROUND = (
    _Case("what comes next", _Batch(2, 1), NEXT),
    _Case("the one around the end again", _Batch(LAST - 1, 4), (103, 106)),
    _Case("as if sequences went on past the end", _Batch(LAST - 1, 3), GAP),
    _Case("one is missing in between", _Batch(3, 1), GAP),
    _Case("begins anew, and overlaps", _Batch(0, 2), GAP),
)


def _header(module: ModuleType, batch: _Batch, base_offset: int = 0) -> Any:
    return module.BatchHeader(
        base_offset=base_offset,
        length=100,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=batch.records - 1,
        base_timestamp=0,
        max_timestamp=0,
        producer_id=7,
        producer_epoch=batch.epoch,
        base_sequence=batch.sequence,
        count=batch.records,
    )


def check(module: ModuleType) -> str:
    """Every kind of batch after the same log, then producers behind channels that play tricks."""
    for known, cases in ((KNOWN, CASES), (ANEW, CASES_ANEW), (AROUND, CASES_AROUND)):
        for case in cases:
            _ask(module, known, case)
    again = sum(_channel(module, seed) for seed in range(CHANNELS))
    cases_in_all = len(CASES) + len(CASES_ANEW) + len(CASES_AROUND)
    return (
        f"{cases_in_all} kinds of batches; and through {CHANNELS} channels that lose, repeat and "
        f"reorder, every record was stored once and in order, with {again} repetitions recognised"
    )


def _ask(module: ModuleType, known: tuple[_Batch, ...], case: _Case) -> None:
    state = module.ProducerSequences()
    end = 100
    for batch in known:
        state.update(_header(module, batch, end))
        end += batch.records
    sequences = ", ".join(map(_span, known))
    call = f"{case.words}: sequences {_span(case.batch)}, epoch {case.batch.epoch}; "
    call += f"known are {sequences} of epoch 4"
    doing(call)
    before = state.snapshot()
    got = _answer(module, state, case.batch, call)
    that(
        f"the answer to: {call}",
        got == case.expected,
        expected=_words(case.expected),
        got=_words(got),
        difference=_why(case.expected, got),
    )
    that(
        f"what is known after {call}",
        state.snapshot() == before,
        expected="the same as before: `update` comes when the batch is in the log",
        got="something else",
    )


def _span(batch: _Batch) -> str:
    """The first and the last sequence of a batch."""
    return f"{batch.sequence}-{(batch.sequence + batch.records - 1) & LAST}"


def _answer(module: ModuleType, state: Any, batch: _Batch, words: str) -> str | tuple[int, int]:
    try:
        found = state._check_sequence(state._known[7], _header(module, batch))
    except module.OutOfOrderSequence:
        return GAP
    except module.InvalidProducerEpoch:
        return FENCED
    if found is None:
        return NEXT
    that(
        f"what is returned for {words}",
        isinstance(found, module.AppendResult) and found.duplicate is True,
        expected="None, or an AppendResult with duplicate=True",
        got=f"{found!r:.80}",
    )
    return (found.first_offset, found.last_offset)


def _words(answer: str | tuple[int, int]) -> str:
    if answer == NEXT:
        return f"None: {NEXT}"
    if isinstance(answer, str):
        return f"{answer} raised"
    return f"it is there already, at offsets {answer[0]} to {answer[1]}"


def _why(expected: str | tuple[int, int], got: str | tuple[int, int]) -> str:
    if isinstance(got, tuple) and isinstance(expected, tuple):
        return "its sender would believe that its records are at other offsets"
    if isinstance(got, tuple):
        return "its sender would believe that these records are stored: they would be lost"
    if isinstance(expected, tuple):
        return "the answer to the first time got lost: it is stored, and may not be stored again"
    return {
        NEXT: "the producer could never send anything again",
        GAP: "stored now, it would stand in front of what is missing, or be there twice",
        FENCED: "a newer producer goes on under this id; this one has to be told that it is out",
    }[expected]


def _channel(module: ModuleType, seed: int) -> int:
    """A producer with several batches on the way through a channel that plays tricks.

    Returns how often a batch was recognised.
    """
    rng = random.Random(seed)
    state = module.ProducerSequences()
    start = rng.choice((0, LAST - 20))
    sizes = [rng.randrange(1, 5) for _ in range(BATCHES)]
    firsts = [sum(sizes[:number]) for number in range(BATCHES)]  # records before it
    waiting: deque[int] = deque(range(BATCHES))  # not acknowledged, by number
    stored: list[int] = []  # numbers of batches, in the order of the log
    again = 0
    state.update(_header(module, _Batch((start - 1) % 2**31, 1), 0))  # so that it is known
    for _ in range(BATCHES * 40):
        if not waiting:
            break
        number = rng.choice(list(waiting)[:IN_FLIGHT])  # any of those on the way comes first
        batch = _Batch((start + firsts[number]) % 2**31, sizes[number])
        words = f"batch {number} of channel {seed}, {_span(batch)}; in the log: {stored[-5:]}"
        doing(words)
        answer = _answer(module, state, batch, words)
        offset = 1 + firsts[number]
        expected: str | tuple[int, int] = GAP
        if number in stored:
            expected = (offset, offset + sizes[number] - 1)
        elif number == len(stored):
            expected = NEXT
        that(
            f"the answer to: {words}",
            answer == expected,
            expected=_words(expected),
            got=_words(answer),
            difference=_why(expected, answer),
        )
        if expected == NEXT:
            state.update(_header(module, batch, offset))
            stored.append(number)
        again += isinstance(expected, tuple)
        if expected != GAP and rng.random() < 0.5 and number == waiting[0]:
            waiting.popleft()  # the answer arrived
    return again


_OLD = "header.producer_epoch < known.epoch"
_FENCE = f"if {_OLD}:\n    raise InvalidProducerEpoch('an older epoch', 'stop')\n"
_NEW = "if header.producer_epoch > known.epoch:\n    expected = 0\n"
_EXPECTED = "known.batches[-1].next_sequence"
_END = "sequence_after(header.base_sequence, header.count)"
_SAME = f"b.sequence == header.base_sequence and b.next_sequence == {_END}"
_FOUND = "AppendResult(b.first_offset, b.last_offset, duplicate=True)"
_AGAIN = f"""else:
    for b in known.batches:
        if {_SAME}:
            return {_FOUND}
"""
_GAP = """if header.base_sequence != expected:
    raise OutOfOrderSequence(f'expected {expected}', 'send what is missing')
"""
_RIGHT = f"{_FENCE}expected = {_EXPECTED}\n{_NEW}{_AGAIN}{_GAP}return None\n"

EXERCISE = Exercise(
    id="13.1",
    title="a batch that comes twice",
    file="phase2_groups/producer_sequences.py",
    hints=(
        "The epoch comes first: an older one is out, whatever it sends. A newer one has nothing to "
        "do with the batches that are known. Only in the same epoch can a batch be a repetition.",
        "A repetition has the same first sequence *and* the same end as one of known.batches, not "
        "only the last one: sequence_after(base_sequence, count) is where the batch ends, and it "
        "knows that 0 comes after 2,147,483,647. If it is none, it must begin where the last one "
        "ended, or with 0 in a newer epoch.",
        "Older epoch: raise InvalidProducerEpoch. Newer: expected = 0. Same: expected = "
        "known.batches[-1].next_sequence, but before that return AppendResult(b.first_offset, "
        "b.last_offset, duplicate=True) for a b of known.batches with that sequence and that end. "
        "Then raise OutOfOrderSequence if base_sequence != expected, else return None.",
    ),
    check=check,
    explanation=(
        "A repetition is answered like the first time, so the producer cannot tell that its answer "
        "got lost: that is all of idempotence. A gap is refused because the log only grows at its "
        "end: what is missing would come too late. Without the epoch, a producer that was replaced "
        "and woke up again could go on with numbers that fit by chance. Five batches are enough, "
        "as Kafka's producer may have five on the way, and not one more, while it is idempotent."
    ),
    wrong={
        "repetitions refused": edited(_RIGHT, (_AGAIN, "")),
        "repetitions appended": edited(_RIGHT, (f"return {_FOUND}", "return None")),
        "only the last one known again": edited(
            _RIGHT, ("in known.batches", "in known.batches[-1:]")
        ),
        "the count not looked at": edited(_RIGHT, (_SAME, "b.sequence == header.base_sequence")),
        "the beginning not looked at": edited(_RIGHT, (_SAME, f"b.next_sequence == {_END}")),
        "a part of one taken for all of it": edited(
            _RIGHT, (_SAME, f"b.sequence <= header.base_sequence < {_END} <= b.next_sequence")
        ),
        "whatever is behind taken for a repetition": edited(
            _RIGHT,
            ("for b in known.batches:", "for b in known.batches[-1:]:"),
            (_SAME, "header.base_sequence < expected"),
        ),
        "the offsets of the last one": edited(
            _RIGHT,
            (
                _FOUND,
                "AppendResult(known.batches[-1].first_offset, known.batches[-1].last_offset, True)",
            ),
        ),
        "not marked as a repetition": edited(_RIGHT, (", duplicate=True", "")),
        "gaps let through": edited(
            _RIGHT, ("header.base_sequence != expected", "header.base_sequence < expected")
        ),
        "no end to the sequences": edited(
            _RIGHT,
            (
                _EXPECTED,
                "b = known.batches[-1]\nexpected = b.sequence + b.last_offset - b.first_offset + 1",
            ),
            ("expected = b = ", "b = "),
        ),
        "no end to the sequence of the batch": edited(
            _RIGHT, (_END, "header.base_sequence + header.count")
        ),
        "epochs not looked at": edited(_RIGHT, (_FENCE, ""), (_NEW + "else:", "if True:")),
        "repetitions before the epoch": edited(
            _RIGHT,
            (_FENCE, ""),
            (_NEW + _AGAIN, _AGAIN.replace("else:", "if True:") + _FENCE + _NEW),
        ),
        "a newer epoch refused": edited(_RIGHT, (_OLD, "header.producer_epoch != known.epoch")),
        "a newer epoch begins anywhere": edited(_RIGHT, ("expected = 0", "return None")),
        "batches of two epochs compared": edited(_RIGHT, ("else:", "if True:")),
        "errors returned": edited(_RIGHT, ("raise ", "return ")),
        "notes it down at once": edited(
            _RIGHT,
            (
                "return None\n",
                "known.batches.append(Stored(header.base_sequence, 0, header.count - 1))\n"
                "return None\n",
            ),
        ),
    },
)
