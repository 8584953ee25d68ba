"""Linearizability, judged from outside: could one machine, doing one thing at a time, say this?

Every operation took effect at one moment between its call and its answer, if what was answered fits
some such order. In general that is hard to decide; for these two it is not, because every value is
written once:

- *an append-only list*: reads are prefixes of one list, so their lengths say which came first;
- *a register*: all operations on one value form a block, and the blocks must fit behind each other.

>>> a = Operation("append", 1, called=0, answered=5)
>>> stale = Operation("list", called=6, answered=7, seen=())
>>> check_list([a, stale])
'append of 1 was answered at 5, and a read called at 6 has []'

Source: Gibbons and Korach, "Testing Shared Memories", section 4 (the register).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf


@dataclass(frozen=True)
class Operation:
    """What a client asked and was told. kind: append, list, write or read.

    value: what was appended or written, or what a read of the register has returned. seen: what a
    read of the list has returned. answered: inf if never.
    """

    kind: str
    value: int | None = None
    called: float = 0
    answered: float = inf
    seen: tuple[int, ...] = ()


def check_list(history: Sequence[Operation]) -> str | None:
    """What is wrong with these appends and reads of a list, in words; None if nothing is."""
    appends = {op.value: op for op in history if op.kind == "append"}
    reads = sorted((op for op in history if op.kind == "list"), key=lambda op: op.called)
    whole = max((read.seen for read in reads), key=len, default=())
    place = {value: number for number, value in enumerate(whole)}
    if len(place) < len(whole):
        return f"a value is in the list twice: {list(whole)}"
    for read in reads:
        seen = read.seen
        if seen != whole[: len(seen)]:
            return f"reads saw {list(seen)} and {list(whole)}: neither begins as the other does"
        late = [v for v in seen if v not in appends or appends[v].called > read.answered]
        if late:
            return f"a read answered at {read.answered} has {late[0]}, which nobody had appended"
    for value, append in appends.items():
        for read in reads:
            if read.called > append.answered and place.get(value or 0, inf) >= len(read.seen):
                return (
                    f"append of {value} was answered at {append.answered}, and a read called at "
                    f"{read.called} has {list(read.seen)}"
                )
    return _in_time_order(reads, sorted(place, key=place.__getitem__), appends)


def _in_time_order(
    reads: Sequence[Operation], order: Sequence[int], appends: dict[int | None, Operation]
) -> str | None:
    for first in reads:
        for second in reads:
            if first.answered < second.called and len(first.seen) > len(second.seen):
                return (
                    f"a read answered at {first.answered} has {len(first.seen)} values, a later "
                    f"one has {len(second.seen)}"
                )
    latest_call = -inf
    for value in order:
        if appends[value].answered < latest_call:
            return f"append of {value} was answered before one that precedes it was called"
        latest_call = max(latest_call, appends[value].called)
    return None


def check_register(history: Sequence[Operation]) -> str | None:
    """What is wrong with these writes (of different values) and reads; None if nothing is.

    The register begins with None.
    """
    blocks: dict[int | None, list[Operation]] = {None: [Operation("write", None, -inf, -inf)]}
    for op in history:
        if op.kind == "write":
            blocks.setdefault(op.value, []).insert(0, op)
    for op in history:
        if op.kind == "read":
            if op.value not in blocks:
                return f"a read has {op.value}, which nobody wrote"
            if blocks[op.value][0].called > op.answered:
                return f"a read answered at {op.answered} has {op.value} before it was written"
            blocks[op.value].append(op)
    # A block must span from its first answer to its last call (if these are in this order: then
    # nothing else fits in between), or else fits anywhere between the two.
    spans = []
    for value, ops in blocks.items():
        if len(ops) > 1 or ops[0].answered < inf:
            spans.append((min(o.answered for o in ops), max(o.called for o in ops), value))
    forward = sorted(span for span in spans if span[0] < span[1])
    for (_, end, value), (start, _, other) in pairwise(forward):
        if start < end:
            return f"{value} and {other} were both the value while the other one was"
    for first, last, value in spans:
        if first >= last:
            for start, end, other in forward:
                if start < last and first < end:
                    return f"{value} was written and read while {other} was the value"
    return None
