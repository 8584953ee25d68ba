"""Exercise 11.2: what must be let go before it can be given away?"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import doing, equal, that

Numbers = Mapping[str, Sequence[int]]  # member -> numbers of the partitions of topic t
GROUPS = 300


class _Case(NamedTuple):
    words: str
    wanted: Numbers
    owned: Numbers
    stale: Sequence[int]  # claimed, too, by members that do not own them any more
    expected: Numbers


CASES = (
    _Case("nothing moves", {"a": [0, 1], "b": [2]}, {"a": [0, 1], "b": [2]}, (),
          {"a": [0, 1], "b": [2]}),
    _Case("t-1 is to go from a to new", {"a": [0], "new": [1]}, {"a": [0, 1], "new": []}, (),
          {"a": [0], "new": []}),
    _Case("t-2 has no reader", {"a": [0, 1], "b": [2]}, {"a": [0, 1], "b": []}, (),
          {"a": [0, 1], "b": [2]}),
    _Case("t-1 is to go from a to b, and t-3 has no reader", {"a": [0], "b": [2, 1, 3]},
          {"a": [0, 1], "b": [2]}, (), {"a": [0], "b": [2, 3]}),
    _Case("a and b are to change places", {"a": [2, 3], "b": [0, 1]}, {"a": [0, 1], "b": [2, 3]},
          (), {"a": [], "b": []}),
    _Case("nobody owns t-1, but one that was away says it does", {"a": [0], "b": [1]},
          {"a": [0], "b": []}, (1,), {"a": [0], "b": []}),
    _Case("a owns t-0, and one that was away says it does, too", {"a": [0, 1], "late": []},
          {"a": [0], "late": []}, (0,), {"a": [0, 1], "late": []}),
    _Case("everything is new", {"a": [2, 0], "b": [1]}, {"a": [], "b": []}, (),
          {"a": [2, 0], "b": [1]}),
)  # fmt: skip


def check(module: ModuleType) -> str:
    """Small situations, then random moves, each carried out in two rounds."""
    for case in CASES:
        got = _revoke(module, case.words, case.wanted, case.owned, case.stale)
        for member, numbers in case.expected.items():
            equal(
                f"what {member} has of {list(case.wanted[member])} in this round; {case.words}",
                got[member],
                list(numbers),
                _why(member, got[member], numbers, case.owned),
            )
    for seed in range(GROUPS):
        _two_rounds(module, seed)
    return (
        f"{len(CASES)} situations and {GROUPS} random moves: nobody is given what another may be "
        "reading, nobody loses what it keeps, and the second round is the last"
    )


def _why(member: str, got: Sequence[int], expected: Sequence[int], owned: Numbers) -> str:
    if set(got) == set(expected):
        return "each once, in the order of `wanted`"
    for number in got:
        if number not in expected:
            if number in owned[member]:
                return f"{member} is to lose t-{number}, and would never learn of it"
            return f"somebody may still be reading t-{number}: it would have two readers"
    lost = next(number for number in expected if number not in got)
    if lost in owned[member]:
        return f"{member} reads t-{lost} and is to keep it: nobody would read it meanwhile"
    return f"t-{lost} has no reader for certain, and would have none for a round more"


def _revoke(
    module: ModuleType, words: str, wanted: Numbers, owned: Numbers, stale: Sequence[int]
) -> dict[str, list[int]]:
    """What the code under test answers, as numbers."""
    asked = {member: [("t", n) for n in numbers] for member, numbers in wanted.items()}
    theirs = {member: [("t", n) for n in numbers] for member, numbers in owned.items()}
    claimed = {("t", n) for numbers in (*owned.values(), stale) for n in numbers}
    before = repr((asked, theirs, sorted(claimed)))
    doing(f"_revoke_first() when {words}; wanted: {wanted}, owned: {owned}, stale: {list(stale)}")
    found = module._revoke_first(asked, theirs, claimed)
    that(
        f"the arguments after the call; {words}",
        repr((asked, theirs, sorted(claimed))) == before,
        expected="as they were",
        got="changed",
    )
    that(f"the answer; {words}", isinstance(found, dict), expected="a dict", got=f"{found!r:.60}")
    equal(f"members in the answer; {words}", sorted(found), sorted(wanted))
    for member, mine in found.items():
        that(
            f"the partitions of {member}; {words}",
            isinstance(mine, list) and all(type(p) is tuple and p[0] == "t" for p in mine),
            expected="a list of partitions",
            got=f"{mine!r:.60}",
        )
    return {member: [number for _, number in found[member]] for member in wanted}


def _two_rounds(module: ModuleType, seed: int) -> None:
    rng = random.Random(seed)
    members = [f"m{n}" for n in range(rng.randrange(1, 5))]

    def dealt() -> dict[str, list[int]]:
        given: dict[str, list[int]] = {member: [] for member in members}
        for number in rng.sample(range(9), 9):
            given[rng.choice(members)].append(number)
        return given

    wanted = dealt()
    owned = {m: [n for n in numbers if rng.random() < 0.6] for m, numbers in dealt().items()}
    if rng.random() < 0.5:  # most groups move little
        owned = {m: [n for n in numbers if rng.random() < 0.8] for m, numbers in wanted.items()}
    stale = [number for number in range(9) if rng.random() < 0.2]
    words = f"round 1 of random group {seed}"
    first = _revoke(module, words, wanted, owned, stale)
    readers = {n: m for m, numbers in owned.items() for n in numbers}
    read = {*readers, *stale}
    for member in members:
        allowed = [n for n in wanted[member] if readers.get(n) == member or n not in read]
        what = f"what {member} has in {words}; it owned {owned[member]}, claimed: {sorted(read)}"
        equal(what, first[member], allowed, _why(member, first[member], allowed, owned))
    second = _revoke(module, f"round 2 of random group {seed}", wanted, first, ())
    equal(f"who has what after round 2 of random group {seed}", second, wanted)


_MINE = "p in owned[member]"
_FREE = "p not in claimed"
_RIGHT = f"""
result = {{}}
for member, partitions in wanted.items():
    result[member] = [p for p in partitions if {_MINE} or {_FREE}]
return result
"""
_OTHERS = "not any(p in theirs for theirs in owned.values())"

EXERCISE = Exercise(
    id="11.2",
    title="revoke first",
    file="phase2_groups/sticky.py",
    hints=(
        "Take one partition that a member is to have. There are three cases: it reads it already; "
        "somebody else may be reading it; nobody can be. In which of them may it have it now?",
        "Who loses a partition needs no line of its own: it is not in its list of `wanted`, and "
        "so it learns of the loss. The danger is in whoever gains it. Look for readers in "
        "`claimed`, not in `owned`: one that missed a rebalance reads on without owning.",
        "For each member keep, in order, those partitions of its list for which this is true: "
        "partition in owned[member] or partition not in claimed. Return a new dict, with an empty "
        "list where nothing is left.",
    ),
    check=check,
    explanation=(
        "A move takes two rounds because the answer reaches the members at different moments: if "
        "the new reader hears it first, two read one partition, and both commit. So the first "
        "round only takes away, and who has lost something joins again at once; by then the "
        "partition is claimed by nobody. All others never stop reading, which is what KIP-429 is "
        "for: an eager group stops altogether for every member that comes or goes."
    ),
    wrong={
        "all at once": "return {m: list(partitions) for m, partitions in wanted.items()}",
        "only what it has already": edited(_RIGHT, (f" or {_FREE}", "")),
        "only what nobody claims": edited(_RIGHT, (f"{_MINE} or ", "")),
        "both at once": edited(_RIGHT, (" or ", " and ")),
        "owners asked, claims not": edited(_RIGHT, (_FREE, _OTHERS)),
        "the claims the wrong way round": edited(_RIGHT, (_FREE, "p in claimed")),
        "anybody's partition will do": edited(
            _RIGHT, (_MINE, "any(p in theirs for theirs in owned.values())")
        ),
        "a member that loses something gets nothing": edited(
            _RIGHT,
            (
                "return result",
                "for m in result:\n    if set(owned[m]) - set(wanted[m]):\n        result[m] = []\n"
                "return result",
            ),
        ),
        "while anything moves nothing new is given": edited(
            _RIGHT,
            (_FREE, "p not in claimed and not moves"),
            (
                "result = {}",
                "moves = any(set(owned[m]) - set(wanted[m]) for m in wanted)\nresult = {}",
            ),
        ),
        "the old owner keeps it for this round": edited(
            _RIGHT,
            ("return result", "return {m: sorted({*result[m], *owned[m]}) for m in result}"),
        ),
        "members without a partition left out": edited(
            _RIGHT, ("return result", "return {m: mine for m, mine in result.items() if mine}")
        ),
        "sets, and their order": edited(
            _RIGHT,
            (
                f"[p for p in partitions if {_MINE} or {_FREE}]",
                "list(set(partitions) & set(owned[member]) | set(partitions) - set(claimed))",
            ),
        ),
        "taken out of `wanted` itself": """
            for member, partitions in wanted.items():
                for p in list(partitions):
                    if p not in owned[member] and p in claimed:
                        partitions.remove(p)
            return wanted
        """,
        "removed while going through them": """
            result = {member: list(partitions) for member, partitions in wanted.items()}
            for member, mine in result.items():
                for p in mine:
                    if p not in owned[member] and p in claimed:
                        mine.remove(p)
            return result
        """,
        "the members that change alone": edited(
            _RIGHT, ("return result", "return {m: r for m, r in result.items() if r != owned[m]}")
        ),
    },
)
