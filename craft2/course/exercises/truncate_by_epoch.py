"""Exercise 25.2: where does a follower cut its log?"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import NamedTuple

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import doing, equal, that

BY_CHANCE = 500


class _Case(NamedTuple):
    words: str
    leader: tuple[int, ...]  # a log by the epochs of its records
    follower: tuple[int, ...]
    cuts: tuple[int, ...]  # where the follower cuts, one answer after the other


CASES = (
    _Case("an old leader has one record that nobody else has", (1, 1, 2), (1, 1, 1), (2,)),
    _Case("it has several", (1, 1, 2, 2, 2), (1, 1, 1, 1, 1), (2,)),
    _Case("the leader has nothing new yet", (1, 1), (1, 1, 1), (2,)),
    _Case("the follower's epoch is unknown to the leader", (1, 1, 1, 1, 3), (1, 1, 2, 2), (2,)),
    _Case("the leader has more of the epoch before than the follower", (1, 1, 1, 1, 1, 3),
          (1, 1, 2, 2, 2, 2), (2,)),
    _Case("the leader has less of it", (1, 1, 3), (1, 1, 1, 1, 2), (2,)),
    _Case("two leaders' records have to go, in two steps", (1, 3, 5), (1, 1, 1, 1, 4), (2, 1)),
    _Case("there is nothing in common: the leader begins later", (5, 5), (1, 1, 2), (0,)),
    _Case("there is nothing in common: the follower begins later", (1, 1, 6), (4, 4), (0,)),
    _Case("the leader's log is empty", (), (1, 1), (0,)),
)  # fmt: skip


def check(module: ModuleType) -> str:
    """Logs that parted, answer by answer; then by chance: they must agree, and keep their share."""
    for case in CASES:
        _repair(module, case)
    for seed in range(BY_CHANCE):
        _agree(module, seed)
    return f"{len(CASES)} pairs of logs, answer by answer, and {BY_CHANCE} by chance"


def _end_of(log: Sequence[int], epoch: int) -> tuple[int, int]:
    """As `PartitionLog.epoch_end_offset`."""
    below = [one for one in log if one <= epoch]
    return (below[-1], len(below)) if below else (-1, -1)


def _diverging(leader: Sequence[int], follower: Sequence[int]) -> tuple[int, int] | None:
    """What the leader answers; None: it sends records, because the logs agree."""
    if not follower:
        return None
    epoch, end = _end_of(leader, follower[-1])
    return None if epoch == follower[-1] and end >= len(follower) else (epoch, end)


def _repair(module: ModuleType, case: _Case) -> None:
    follower = case.follower
    for expected in case.cuts:
        there = _diverging(case.leader, follower)
        call = (
            f"truncate_at({there}, end_of); the epochs of the follower's log are "
            f"{list(follower)}, of the leader's {list(case.leader)}"
        )
        doing(call)
        got = module.truncate_at(there, partial(_end_of, follower))
        equal(call, got, expected, f"({case.words})")
        follower = follower[:got]


def _agree(module: ModuleType, seed: int) -> None:
    chance = random.Random(seed)
    shared = sorted(chance.choices(range(4), k=chance.randint(0, 4)))
    leader = shared + sorted(chance.choices((5, 7, 9), k=chance.randint(0, 5)))
    parted = sorted(chance.choices((4, 6, 8), k=chance.randint(0, 5)))
    follower = shared + parted
    if shared and chance.random() < 0.4:  # a leader that died has more of an epoch that both have
        follower = shared + [shared[-1]] * chance.randint(1, 3) + parted
    logs = f"the follower's log has the epochs {follower}, the leader's {leader}"
    cuts: list[int] = []
    while (there := _diverging(leader, follower)) is not None:
        call = f"truncate_at({there}, end_of), after cuts at {cuts}; {logs}"
        doing(call)
        cut = module.truncate_at(there, partial(_end_of, follower))
        that(
            call,
            isinstance(cut, int) and len(shared) <= cut < len(follower),
            expected=f"{len(shared)} to {len(follower) - 1}: both have what is before "
            f"{len(shared)}, and the follower's log ends at {len(follower)}",
            got=repr(cut),
        )
        cuts.append(cut)
        follower = follower[:cut]
    equal(f"what is left after cuts at {cuts}; {logs}", follower, leader[: len(follower)])


_NONE = "if epoch < 0 or ours < 0:\n    return 0\n"
_RIGHT = f"""epoch, end = diverging
ours, our_end = end_of(epoch)
{_NONE}
return min(end, our_end)
"""

EXERCISE = Exercise(
    id="25.2",
    title="truncate by epoch",
    file="phase3_raft/replication/truncation.py",
    hints=(
        "The leader names an epoch that it has, and where that ends there. Up to where could both "
        "logs have the same records of epochs up to this one? After which two offsets surely not?",
        "After the leader's end of that epoch, and after where it (or the latest before it) ends "
        "in the follower's own log, end_of(epoch). The smaller of the two. An older epoch than the "
        "one asked for is an answer like any other; (-1, -1) is none, and then nothing is kept.",
        "epoch, end = diverging; ours, our_end = end_of(epoch). If one of the two epochs is -1, "
        "the answer is 0. Else it is one of the two ends: which, if nothing may be kept "
        "that the leader might not have, and nothing that is of another epoch in our own log?",
    ),
    check=check,
    explanation=(
        "An epoch has one leader, which gives each offset once. So a record of one epoch at one "
        "offset is the same record in every log, and two logs have the same of an epoch up to "
        "where it ends in the shorter one. Cutting at the high watermark instead, as Kafka once "
        "did, lost records (KIP-101): a follower learns it late, so it may cut what it has and "
        "what was acknowledged, and then be elected."
    ),
    wrong={
        "where the leader's epoch ends": edited(_RIGHT, ("min(end, our_end)", "end")),
        "where our epoch ends": edited(_RIGHT, ("min(end, our_end)", "our_end")),
        "the later of the two": edited(_RIGHT, ("min(end, our_end)", "max(end, our_end)")),
        "everything is cut": "return 0\n",
        "everything of that epoch is cut": edited(
            _RIGHT, ("min(end, our_end)", "max(0, end_of(epoch - 1)[1])")
        ),
        "one record too many is cut": edited(
            _RIGHT, ("min(end, our_end)", "max(0, min(end, our_end) - 1)")
        ),
        "one record too few is cut": edited(_RIGHT, ("min(end, our_end)", "min(end, our_end) + 1")),
        "both have always some": edited(_RIGHT, (_NONE, "")),
        "only the leader may have none": edited(_RIGHT, ("epoch < 0 or ours < 0", "epoch < 0")),
        "none is an error": edited(_RIGHT, ("return 0", "raise ValueError(diverging)")),
        "ours is cut only if we have that epoch": edited(
            _RIGHT, ("min(end, our_end)", "min(end, our_end) if ours == epoch else end")
        ),
        "the leader's end, if we have that epoch": edited(
            _RIGHT, ("min(end, our_end)", "end if ours == epoch else our_end")
        ),
        "the epoch is an offset": edited(_RIGHT, ("min(end, our_end)", "min(epoch, end)")),
        "an end is a last offset": edited(_RIGHT, ("end_of(epoch)", "end_of(epoch)[0], end - 1")),
    },
)
