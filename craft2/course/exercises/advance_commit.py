"""Exercise 23.2: what is committed?"""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.exercises.raft_scenes import part, run_seeds, server
from craft2.course.expect import doing, equal


class _Case(NamedTuple):
    words: str
    log: tuple[int, ...]  # the leader's, by its terms; it leads the last term unless `term` is set
    match: tuple[int, ...]  # of servers 2, 3, ...
    committed: int  # afterwards
    before: int = 0
    stable: int | None = None  # of its log, on its disk; all of it if None
    term: int | None = None
    leads_only: bool = False  # the leader is no voter: it is being removed


CASES = (
    _Case("nobody else has anything", (4, 4, 4), (0, 0, 0, 0), 0),
    _Case("one of four followers is not enough", (4, 4, 4), (3, 0, 0, 0), 0),
    _Case("two of four followers are", (4, 4, 4), (3, 2, 0, 0), 2),
    _Case("all have all", (4, 4, 4), (3, 3, 3, 3), 3),
    _Case("the third best counts", (4, 4, 4, 4, 4), (1, 5, 2, 3), 3),
    _Case("two of three servers", (4, 4, 4), (2, 0), 2),
    _Case("two of four servers are no majority", (4, 4, 4), (3, 0, 0), 0),
    _Case("three of four are", (4, 4, 4), (3, 1, 0), 1),
    _Case("alone, it is the majority", (4, 4), (), 2),
    _Case("our own disk counts, not our memory", (4, 4, 4), (3, 0), 1, stable=1),
    _Case("the followers' disks may be ahead of ours", (4, 4, 4), (3, 3), 3, stable=1),
    _Case("figure 8 (c): an entry of term 2 on a majority, we lead term 4", (1, 2, 4),
          (2, 2, 1, 1), 1, 1),
    _Case("figure 8 (e): ours is on a majority too, and takes the older one with it", (1, 2, 4),
          (3, 3, 1, 1), 3, 1),
    _Case("nothing of this term yet, all have all", (1, 2, 2), (3, 3, 3, 3), 0, term=5),
    _Case("the majority has the entry before the first of this term", (3, 3, 5, 5), (2, 2, 4, 0),
          0, term=5),
    _Case("and now the first of this term", (3, 3, 5, 5), (3, 2, 4, 0), 3, term=5),
    _Case("the index never falls", (4, 4, 4), (1, 1, 0, 0), 3, 3),
    _Case("a leader that is being removed does not count itself", (4, 4, 4), (3, 1, 0), 1,
          leads_only=True),
)  # fmt: skip


def check(module: ModuleType) -> str:
    """Who has how much, figure 8, and then seeds."""
    for case in CASES:
        _advance(module, case)
    return f"{len(CASES)} leaders, figure 8 among them, and {run_seeds(module)}"


def _leader(module: ModuleType, case: _Case) -> Any:
    others = tuple(range(2, 2 + len(case.match)))
    voters = others if case.leads_only else (1, *others)
    term = max(case.log) if case.term is None else case.term
    one = server(module, 1, case.log, term, voters=voters, committed=case.before)
    state = part(module, "state")
    one.role = state.Role.LEADER
    one.peers = {
        other: state.Peer(next=match + 1, match=match)
        for other, match in zip(others, case.match, strict=True)
    }
    if case.stable is not None:
        one.log.stable = case.stable
    return one


def _advance(module: ModuleType, case: _Case) -> None:
    one = _leader(module, case)
    term, stable = one.term, one.log.stable
    call = (
        f"_advance_commit() in term {term}: our log's terms are {list(case.log)}, stable={stable}, "
        f"the others' match {list(case.match)}, committed={case.before}"
        f"{'; we are no voter' if case.leads_only else ''}"
    )
    doing(call)
    one._advance_commit()
    equal(f"log.committed after {call}", one.log.committed, case.committed, case.words)


_REACHED = """
reached = sorted(
    self.log.stable if voter == self.id else self.peers[voter].match
    for voter in self.members.voters
)
"""
_TERM = " and self.log.term_at(index) == self.term"
_RIGHT = f"""{_REACHED}
index = reached[-self.members.majority]
if index > self.log.committed{_TERM}:
    self.log.committed = index
"""

EXERCISE = Exercise(
    id="23.2",
    title="advance the commit index",
    file="phase3_raft/raft/replication.py",
    hints=(
        "Sort how far each voter's disk has come. If three of five decide, which of the five "
        "numbers have three of them reached?",
        "A list of self.log.stable for ourselves and self.peers[voter].match for every other one "
        "of self.members.voters, sorted; the number at [-self.members.majority]. Then the two "
        "conditions: it is higher than before, and the entry there is of our own term.",
        "reached = sorted(self.log.stable if voter == self.id else self.peers[voter].match for "
        "voter in self.members.voters); index = reached[-self.members.majority]. It becomes "
        "self.log.committed if it is higher, and if self.log.term_at(index) is right: is that "
        "self.term, any earlier term as well, or the term of the last entry? Figure 8 decides.",
    ),
    check=check,
    explanation=(
        "A majority is enough because the next leader needs the votes of one, and one server is in "
        "both. But it proves something only for entries of the leader's own term: an entry of term "
        "2 on three servers can still be overwritten by a candidate whose last entry is of term 3, "
        "and figure 8 shows how. Once an entry of our term is on a majority nobody else can be "
        "elected without it, and with it come all before it. Hence the new leader's no-op."
    ),
    wrong={
        "figure 8": edited(_RIGHT, (_TERM, "")),
        "not older than a term ago": edited(_RIGHT, ("== self.term", ">= self.term - 2")),
        "the last entry's term is compared": edited(
            _RIGHT, ("self.log.term_at(index)", "self.log.last_term")
        ),
        "half is enough": edited(
            _RIGHT, ("[-self.members.majority]", "[-max(1, len(reached) // 2)]")
        ),
        "everybody must have it": edited(_RIGHT, ("[-self.members.majority]", "[0]")),
        "one is enough": edited(_RIGHT, ("[-self.members.majority]", "[-1]")),
        "not sorted": edited(_RIGHT, ("sorted(", "list(")),
        "our memory counts": edited(_RIGHT, ("self.log.stable", "self.log.last_index")),
        "we do not count ourselves": edited(
            _RIGHT,
            (
                "for voter in self.members.voters",
                "for voter in self.members.voters if voter != "
                "self.id or len(self.members.voters) == 1",
            ),
        ),
        "we always count ourselves": edited(
            _RIGHT,
            ("self.log.stable if voter == self.id else self.peers[voter].match", "match"),
            (
                "for voter in self.members.voters",
                "for match in [self.log.stable, *(peer.match for peer in self.peers.values())]",
            ),
        ),
        "it may fall": edited(_RIGHT, ("index > self.log.committed and ", "")),
        "one entry at a time": edited(
            _RIGHT, ("self.log.committed = index", "self.log.committed += 1")
        ),
        "next instead of match": edited(_RIGHT, ("].match", "].next")),
        "only up to our disk": edited(
            _RIGHT, ("if index >", "index = min(index, self.log.stable)\nif index >")
        ),
    },
)
