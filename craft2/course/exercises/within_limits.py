"""Exercise 21.1: answer a Fetch within its limits of bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.exercises.fetch_scenes import MARK, Shelf, batches_within
from craft2.course.expect import doing, equal, that

MANY = 10**6
Held = Sequence[int] | str


class _Case(NamedTuple):
    words: str
    held: tuple[Held, ...]  # for each partition the sizes of its batches, or an error
    limits: tuple[int, ...]  # of each partition
    max_bytes: int
    sizes: tuple[int, ...]  # the bytes that each partition has in the answer


CASES = (
    _Case("room for all", ((100, 100), (50,)), (MANY, MANY), MANY, (200, 50)),
    _Case("a limit for each partition", ((100,) * 9, (50,) * 9), (250, 120), MANY, (200, 100)),
    _Case("one limit for all", ((100,) * 9, (50,) * 9), (MANY, MANY), 450, (400, 50)),
    _Case("the first takes it all", ((100,) * 5, (50,)), (MANY, MANY), 500, (500, 0)),
    _Case("the first batch is larger than max_bytes", ((900, 100), (50,)), (MANY, MANY), 300,
          (900, 0)),
    _Case("the first batch is larger than its partition's limit", ((900, 100), (50,)),
          (300, MANY), 2_000, (900, 50)),
    _Case("the first partition is empty, and the second has a large batch", ((), (900, 10)),
          (300, 300), 300, (0, 900)),
    _Case("only the first to have records may exceed its limit", ((100,), (900, 10), (80,)),
          (300, 300, 300), 500, (100, 0, 80)),
    _Case("a large batch waits, and a later partition has what fits", ((100,), (900,), (300,)),
          (MANY, MANY, MANY), 450, (100, 0, 300)),
    _Case("the last batch fits exactly", ((100,), (200, 10)), (MANY, 200), 300, (100, 200)),
    _Case("the last batch is one byte too large", ((100,), (201,)), (MANY, MANY), 300, (100, 0)),
    _Case("nothing may be sent, and somebody must get on", ((100, 100), (50,)), (MANY, MANY), 0,
          (100, 0)),
    _Case("a partition's limit of 0", ((100,), (50,)), (0, 0), MANY, (100, 0)),
    _Case("an error is no records", ("NOT_LEADER_OR_FOLLOWER", (900,), (50,)),
          (300, 300, 300), 300, (0, 900, 0)),
    _Case("an error behind the records", ((100,), "UNKNOWN_TOPIC_OR_PARTITION", (50,)),
          (MANY, MANY, MANY), 100, (100, 0, 0)),
    _Case("nothing anywhere", ((), (), ()), (MANY, MANY, MANY), MANY, (0, 0, 0)),
    _Case("nothing asked", (), (), MANY, ()),
)  # fmt: skip
RANDOM = 300


def check(module: ModuleType) -> str:
    """Each case, then requests by chance, compared with the rule."""
    for case in CASES:
        _ask(module, case)
    by_chance = random.Random(21)
    for number in range(RANDOM):
        _ask(module, _by_chance(by_chance, number))
    return f"{len(CASES)} requests, and {RANDOM} by chance against the rule of KIP-74"


def _by_chance(chance: random.Random, number: int) -> _Case:
    held: tuple[Held, ...] = tuple(
        [chance.randint(1, 99) for _ in range(chance.randint(0, 4))]
        for _ in range(chance.randint(1, 4))
    )
    limits = tuple(chance.randint(0, 200) for _ in held)
    max_bytes = chance.randint(0, 300)
    sizes: list[int] = []
    for mine, limit in zip(held, limits, strict=True):
        room = min(limit, max_bytes - sum(sizes))
        size = batches_within(mine, room)  # type: ignore[arg-type]
        if not sum(sizes) and mine:
            size = size or int(mine[0])
        elif size > room:
            size = 0
        sizes.append(size)
    return _Case(f"request {number} by chance", held, limits, max_bytes, tuple(sizes))


def _ask(module: ModuleType, case: _Case) -> None:
    shelf = Shelf(module, case.held)
    wanted = shelf.wanted(case.limits)
    call = (
        f"look() with max_bytes={case.max_bytes}, partition limits {list(case.limits)}, "
        f"batches of {list(case.held)} bytes ({case.words})"
    )
    doing(call)
    found: Any = module.look(wanted, case.max_bytes)
    that(
        f"what {call} returns",
        isinstance(found, list) and all(isinstance(one, module.Found) for one in found),
        expected="a list with a Found for each partition",
        got=repr(found)[:100],
    )
    equal(f"how many answers {call} has", len(found), len(wanted))
    sizes = [0 if one.records is None else one.records.size for one in found]
    equal(f"the bytes of each partition in {call}", sizes, list(case.sizes))
    for number, (one, held) in enumerate(zip(found, case.held, strict=True)):
        if isinstance(held, str):
            equal(f"the error of partition {number} in {call}", one.error.name, held)
        else:
            mark = "a partition without records has a high watermark all the same"
            field = f"the high watermark of partition {number} in {call}"
            equal(field, one.high_watermark, MARK + number, mark)


_START = "found = []\nleft, has_some = max_bytes, False\nfor one in wanted:\n"
_LIMIT = "    limit = min(left, one.max_bytes)\n"
_READ = "    here = read(one, max(limit, 1) if not has_some else limit)\n"
_WAITS = (
    "    if here.records is not None and here.records.size > limit and has_some:\n"
    "        here = read(one, 0)\n"
)
_SIZE = "    size = here.records.size if here.records is not None else 0\n"
_SOME = "    has_some = has_some or size > 0\n"
_LEFT = "    left = max(0, left - size)\n"
_RIGHT = (
    _START + _LIMIT + _READ + _WAITS + _SIZE + _SOME + _LEFT
    + "    found.append(here)\nreturn found\n"
)  # fmt: skip

EXERCISE = Exercise(
    id="21.1",
    title="answer within limits",
    file="phase3_raft/handlers/fetch.py",
    hints=(
        "Carry two things from partition to partition: how many bytes are left, and whether any "
        "partition has had records. `read` is generous with the first batch; when may it be?",
        "The limit of one is the smaller of what is left and one.max_bytes. While nobody has "
        "records, read with at least 1, so that a first batch comes; afterwards with the limit, "
        "and if more came than that, read(one, 0) instead. Subtract what it has from what is left.",
        "for one in wanted: limit = min(left, one.max_bytes); here = read(one, limit if has_some "
        "else max(limit, 1)); size = here.records.size if here.records else 0; if has_some and "
        "size > limit: here, size = read(one, 0), 0; has_some = has_some or size > 0; left = "
        "max(0, left - size); found.append(here).",
    ),
    check=check,
    explanation=(
        "Batches are sent whole, as the broker would have to unpack them to do otherwise. So a "
        "limit that is smaller than a batch would stop a consumer for ever, and one batch may "
        "exceed it: the first of the first partition that has any. Were every partition allowed "
        "that, a request for a thousand partitions could bring a thousand large batches, and a "
        "client's memory would be at an end. A client has the partitions it was served last asked "
        "last, so that each is first at some time (KIP-74)."
    ),
    wrong={
        "no limit for all": edited(_RIGHT, ("min(left, one.max_bytes)", "one.max_bytes")),
        "no limit for each": edited(_RIGHT, ("min(left, one.max_bytes)", "left")),
        "never too large": edited(
            _RIGHT,
            ("max(limit, 1) if not has_some else limit", "limit"),
            (" and has_some:", ":"),
        ),
        "everybody may": edited(_RIGHT, (_WAITS, "")),
        "everybody, and at least one byte": edited(
            _RIGHT, (_WAITS, ""), ("max(limit, 1) if not has_some else limit", "max(limit, 1)")
        ),
        "only partition 0 may": edited(
            _RIGHT,
            ("not has_some else", "not found else"),
            ("limit and has_some", "limit and found"),
        ),
        "who is first, whether it has records or not": edited(
            _RIGHT, ("has_some = has_some or size > 0", "has_some = True")
        ),
        "an error counts as records": edited(
            _RIGHT, ("or size > 0", "or size > 0 or bool(here.error)")
        ),
        "nothing is subtracted": edited(_RIGHT, (_LEFT, "")),
        "less than nothing is left": edited(
            _RIGHT,
            ("max(0, left - size)", "left - size"),
            ("max(limit, 1)", "abs(limit) or 1"),
            (" if not has_some else limit", " if not has_some else abs(limit)"),
            ("records.size > limit", "records.size > abs(limit)"),
        ),
        "the limit is subtracted": edited(_RIGHT, ("left - size", "left - limit")),
        "one large batch ends the answer": edited(
            _RIGHT, ("here = read(one, 0)\n", "here, left = read(one, 0), 0\n")
        ),
        "what has no room is left out": edited(
            _RIGHT, ("        here = read(one, 0)\n", "        continue\n")
        ),
        "it stops when nothing is left": edited(
            _RIGHT, (_LIMIT, "    if left <= 0:\n        break\n" + _LIMIT)
        ),
        "no room, no watermark": edited(
            _RIGHT, ("here = read(one, 0)\n", "here = Found(ErrorCode.NONE)\n")
        ),
        "a batch that fits exactly waits": edited(
            _RIGHT, ("records.size > limit", "records.size >= limit")
        ),
        "records cut to size": edited(
            _RIGHT,
            (
                "here = read(one, 0)\n",
                "here = here._replace(records=FileSlice(here.records.file, "
                "here.records.position, max(limit, 0)))\n",
            ),
        ),
        "a dictionary": edited(_RIGHT, ("return found\n", "return dict(enumerate(found))\n")),
    },
)
