"""Exercise 11.1: as even as possible, and then with as few moves as possible."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import doing, equal, that

Partition = tuple[str, int]
GROUPS, ROUNDS = 60, 6


class _Name(str):
    """A name that hashes differently each time, as a str does from process to process."""

    salt = 0

    def __hash__(self) -> int:
        return hash((str(self), _Name.salt))


class _Case(NamedTuple):
    words: str
    partitions: int
    owned: Mapping[str, Sequence[int]]  # member -> numbers of the partitions of topic t


CASES = (
    _Case("a group begins: nobody owns anything", 10, {"a": [], "b": [], "c": [], "d": []}),
    _Case("nothing has changed", 6, {"a": [4, 5], "b": [0, 3], "c": [1, 2]}),
    _Case("b and c have the one more", 8, {"a": [6, 7], "b": [0, 1, 2], "c": [3, 4, 5]}),
    _Case("`new` comes, for whom one must go", 3, {"a": [0, 1, 2], "new": []}),
    _Case("`new` comes", 9, {"a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7, 8], "new": []}),
    _Case("the owner of 3 and 4 has left", 9, {"a": [0, 1, 2], "b": [6, 7, 8], "c": [5]}),
    _Case("the topic has grown from 4 to 8", 8, {"a": [0, 1], "b": [2, 3]}),
    _Case("more members than partitions", 3, {"a": [], "b": [], "c": [0], "d": [2], "e": [1]}),
    _Case("one owns everything", 7, {"a": [], "b": list(range(7)), "c": []}),
    _Case("one member alone", 4, {"a": [2]}),
    _Case("there are no partitions", 0, {"a": [], "b": []}),
)


def check(module: ModuleType) -> str:
    """Small situations, then groups whose members come and go at random."""
    for case in CASES:
        topic = [("t", number) for number in range(case.partitions)]
        owned = {member: [("t", n) for n in numbers] for member, numbers in case.owned.items()}
        _assign(module, case.words, topic, owned)
    changes = sum(_life(module, seed) for seed in range(GROUPS))
    return (
        f"{len(CASES)} situations and {changes} changes in {GROUPS} random groups: every partition "
        "has one owner, loads differ by one at most, and no assignment as even moves fewer"
    )


def _life(module: ModuleType, seed: int) -> int:
    """A group into which members come, which they leave, and whose topics grow."""
    rng = random.Random(seed)
    counts = {"t": rng.randrange(1, 12), "u": rng.randrange(12)}
    owned: dict[str, list[Partition]] = {f"m{n}": [] for n in range(rng.randrange(1, 6))}
    for number in range(ROUNDS):
        everything = [(topic, n) for topic in sorted(counts) for n in range(counts[topic])]
        words = f"round {number + 1} of random group {seed}"
        assigned = _assign(module, words, everything, owned)
        for member in rng.sample(sorted(owned), rng.randrange(len(owned))):
            del assigned[member]
        assigned |= {f"m{rng.randrange(100, 200)}": [] for _ in range(rng.randrange(3))}
        owned = {member: sorted(assigned[member]) for member in sorted(assigned)}
        counts["u"] += rng.choice((0, 0, 3))
    return ROUNDS


def _assign(
    module: ModuleType, words: str, everything: list[Partition], owned: dict[str, list[Partition]]
) -> dict[str, list[Partition]]:
    """What the code under test answers, looked at from all sides."""
    answers = []
    doing(f"_assign_equal() when {words}; owned: {_loads(owned)}; {len(everything)} partitions")
    for _Name.salt in (1, 2):
        names = {member: _Name(member) for member in [*owned, "t", "u"]}
        all_there_are = [(names[topic], number) for topic, number in everything]
        theirs = {
            names[m]: [(names[topic], number) for topic, number in mine]
            for m, mine in owned.items()
        }
        found = module._assign_equal(all_there_are, theirs)
        that(words, isinstance(found, dict), expected="a dict", got=repr(found)[:60])
        equal(f"members in the answer; {words}", sorted(map(str, found)), sorted(owned))
        answers.append({str(m): [(str(t), n) for t, n in found[m]] for m in found})
        after = {str(m): [(str(t), n) for t, n in mine] for m, mine in theirs.items()}
        that(
            f"`owned` after the call; {words}",
            after == owned and len(all_there_are) == len(everything),
            expected=f"as it was: {_loads(owned)}",
            got=f"changed: {_loads(after)}",
        )
    _look(words, everything, owned, answers[0])
    that(
        f"the answer of another process; {words}",
        answers[0] == answers[1],
        expected="the same",
        got="another one",
        difference="the order of a set is another one in each process: two leaders would disagree",
    )
    return answers[0]


def _look(
    words: str,
    everything: list[Partition],
    owned: dict[str, list[Partition]],
    assigned: dict[str, list[Partition]],
) -> None:
    owners = Counter(partition for mine in assigned.values() for partition in mine)
    wrong = [p for p in sorted({*owners, *everything}) if owners[p] != (p in everything)]
    that(
        f"owners of each partition; {words}",
        not wrong,
        expected="one",
        got=", ".join(f"{owners[(t, n)]} of {t}-{n}" for t, n in wrong[:3]),
        difference=f"owned {_loads(owned)}; assigned {_loads(assigned)}",
    )
    loads = [len(mine) for mine in assigned.values()]
    that(
        f"how many each has; {words}; owned: {_loads(owned)}",
        max(loads) - min(loads) <= 1,
        expected=f"any two differ by one at most, of {len(everything)}",
        got=_loads(assigned),
    )
    moved = [
        f"{t}-{n} from {member}"
        for member, mine in owned.items()
        for t, n in mine
        if (t, n) not in assigned[member]
    ]
    fewest = sum(map(len, owned.values())) - _most_kept(len(everything), owned)
    that(
        f"partitions that were taken from their owners; {words}; owned: {_loads(owned)}",
        len(moved) <= fewest,
        expected=str(fewest),
        got=f"{len(moved)}: {', '.join(moved[:3])}{', ...' * (len(moved) > 3)}",
        difference=f"assigned: {_loads(assigned)}, which is even, but cost moves for nothing",
    )


def _most_kept(partitions: int, owned: Mapping[str, Sequence[Partition]]) -> int:
    """Of what is owned, how much an even assignment can leave where it is."""
    share, extra = divmod(partitions, len(owned))
    with_more = sum(len(mine) > share for mine in owned.values())
    return sum(min(len(mine), share) for mine in owned.values()) + min(extra, with_more)


def _loads(assigned: Mapping[str, Sequence[Partition]]) -> str:
    return ", ".join(f"{member} {len(mine)}" for member, mine in assigned.items())


_FIRST = "sorted(owned, key=lambda m: len(owned[m]) <= share)[:extra]"
_KEEP = "{m: list(mine[: quota[m]]) for m, mine in owned.items()}"
_KEPT = "{p for mine in assignment.values() for p in mine}"
_WITHIN = "{p for m, mine in owned.items() for p in mine[: quota[m]]}"
_FREE = "[p for p in everything if p not in kept]"
_RIGHT = f"""
share, extra = divmod(len(everything), len(owned))
quota = dict.fromkeys(owned, share)
for m in {_FIRST}:
    quota[m] += 1
assignment = {_KEEP}
kept = {_KEPT}
free = {_FREE}
for m, mine in assignment.items():
    while len(mine) < quota[m]:
        mine.append(free.pop())
return assignment
"""
_BY_LOAD = """
assignment = {m: list(mine) for m, mine in owned.items()}
kept = {p for mine in owned.values() for p in mine}
for p in everything:
    if p not in kept:
        min(assignment.values(), key=len).append(p)
"""
_LEVEL = """while True:
    least = min(assignment.values(), key=len)
    most = max(assignment.values(), key=len)
    if len(most) - len(least) <= 1:
        return assignment
    least.append(most.pop())
"""

EXERCISE = Exercise(
    id="11.1",
    title="even, with few moves",
    file="phase2_groups/sticky.py",
    hints=(
        "Say first how many each member will have, and only then which. With 10 partitions and 4 "
        "members, divmod gives 2 for everybody and 2 members who get one more. Who should those "
        "two be, if as little as possible is to move?",
        "One more goes first to members that own more than the share: each of them keeps one that "
        "would have to move otherwise. Then every member keeps what it owns up to its quota, in a "
        "list of its own. What is in no list is free: go through `everything`, not through a set.",
        "share, extra = divmod(len(everything), len(owned)); the quota is share, and share + 1 for "
        "the first `extra` of sorted(owned, key=lambda m: len(owned[m]) <= share). Then "
        "{m: list(owned[m][:quota[m]])} and fill each list up to its quota from those partitions "
        "of everything that nobody has kept.",
    ),
    check=check,
    explanation=(
        "The loads of an even assignment are settled before anybody is looked at: only who gets "
        "the `extra` ones is free, and given to members that own more than the share each of them "
        "saves a move. No answer can keep more than everybody's quota, and this one keeps all of "
        "it. A move is dear in Kafka: the new reader starts from the last commit, with cold caches "
        "and state to rebuild. And since the answer hangs on no set's order, whoever leads the "
        "group decides the same."
    ),
    wrong={
        "dealt anew": """
            members = list(owned)
            assignment = {m: [] for m in members}
            for number, p in enumerate(everything):
                assignment[members[number % len(members)]].append(p)
            return assignment
        """,
        "runs of neighbours": """
            share, extra = divmod(len(everything), len(owned))
            assignment, first = {}, 0
            for place, m in enumerate(owned):
                end = first + share + (place < extra)
                assignment[m] = list(everything[first:end])
                first = end
            return assignment
        """,
        "one more for the first members": edited(_RIGHT, (_FIRST, "list(owned)[:extra]")),
        "one more for nobody": edited(_RIGHT, ("[:extra]", "[:0]")),
        "one more for everybody": edited(_RIGHT, ("[:extra]", "")).replace(
            "< quota[m]:", "< quota[m] and free:"
        ),
        "nothing is ever taken": _BY_LOAD + "return assignment",
        "one is taken, and no more": _BY_LOAD
        + edited(_LEVEL, ("while True:", "for _ in range(2):"))
        + "return assignment",
        "a difference of two is left": _BY_LOAD + edited(_LEVEL, ("<= 1", "<= 2")),
        "everybody keeps the share, and the rest is dealt": edited(
            _RIGHT, ("mine[: quota[m]]", "mine[:share]")
        ),
        "what is taken stays with its old owner, too": edited(
            _RIGHT, (_KEEP, "{m: list(mine) for m, mine in owned.items()}"), (_KEPT, _WITHIN)
        ),
        "what nobody owned is forgotten": edited(
            _RIGHT,
            (_FREE, "[p for mine in owned.values() for p in mine if p not in kept]"),
            ("< quota[m]:", "< quota[m] and free:"),
        ),
        "members without a partition left out": edited(
            _RIGHT,
            ("return assignment", "return {m: mine for m, mine in assignment.items() if mine}"),
        ),
        "free ones in a set": edited(_RIGHT, (_FREE, "set(everything) - kept")),
        "the lists of `owned` themselves": edited(
            _RIGHT,
            (_KEEP, "dict(owned)"),
            ("kept =", "for m in owned:\n    del owned[m][quota[m] :]\nkept ="),
        ),
        "nothing returned": edited(_RIGHT, ("return assignment", "")),
    },
)
