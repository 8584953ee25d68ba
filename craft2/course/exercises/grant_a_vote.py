"""Exercise 22.1: who gets this server's vote?"""

from __future__ import annotations

from types import ModuleType
from typing import NamedTuple

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.exercises.raft_scenes import part, run_seeds, server, terms_of
from craft2.course.expect import doing, that

TERM = 1_000


class _Case(NamedTuple):
    words: str
    granted: bool
    voted_for: int | None = None
    log: tuple[int, ...] = (1, 1, 4)  # ours, by its terms
    last: tuple[int, int] = (4, 3)  # of who asks: term, index
    pre: bool = False
    term: int = TERM


CASES = (
    _Case("equal logs, no vote given yet", True),
    _Case("the vote is somebody else's", False, voted_for=3),
    _Case("the vote is theirs already, and the answer was lost", True, voted_for=2),
    _Case("their log is shorter, with the same last term", False, last=(4, 2)),
    _Case("their log is longer, with the same last term", True, last=(4, 9)),
    _Case("their log is longer, with an earlier last term", False, last=(3, 9)),
    _Case("their log is shorter, with a later last term", True, last=(5, 1)),
    _Case("both logs are empty", True, log=(), last=(0, 0)),
    _Case("their log is empty, ours is not", False, last=(0, 0)),
    _Case("a longer log, but the vote is gone", False, voted_for=3, last=(9, 9)),
    _Case("theirs already, but the log is behind", False, voted_for=2, last=(4, 2)),
    _Case("a pre-vote for the next term, our vote of this term given", True, voted_for=3,
          pre=True, term=TERM + 1),
    _Case("a pre-vote for this term, our vote of it given", False, voted_for=3, pre=True),
    _Case("a pre-vote for this term, our vote of it free", True, pre=True),
    _Case("a pre-vote for the next term, with a log that is behind", False, last=(3, 9), pre=True,
          term=TERM + 1),
)  # fmt: skip


def check(module: ModuleType) -> str:
    """Who asks, with which log, and what the vote was before; then seeds."""
    for case in CASES:
        _ask(module, case)
    return f"{len(CASES)} requests, and {run_seeds(module)}"


def _ask(module: ModuleType, case: _Case) -> None:
    one = server(module, 1, case.log, TERM, voted_for=case.voted_for)
    request = part(module, "messages").RequestVote(
        sender=2,
        to=1,
        term=int(str(case.term)),
        last_term=case.last[0],
        last_index=case.last[1],
        pre=case.pre,
    )
    mine = f"our log's terms are {list(case.log)}, voted_for={case.voted_for}, term={TERM}"
    call = (
        f"_grants(last_term={case.last[0]}, last_index={case.last[1]}, term={case.term}"
        f"{', pre=True' if case.pre else ''}) from server 2; {mine}"
    )
    doing(call)
    got = one._grants(request)
    that(
        call,
        got is case.granted,
        expected=f"{case.granted}: {case.words}",
        got=repr(got),
    )
    that(
        f"the server after {call}",
        (one.voted_for, one.term, terms_of(one)) == (case.voted_for, TERM, list(case.log)),
        expected="unchanged",
        got="something else: this only says whether; the caller notes the vote",
    )


_FREE = "self.voted_for in (None, ask.sender)"
_PRE = "(ask.pre and ask.term > self.term)"
_MINE = "(self.log.last_term, self.log.last_index)"
_NOT_BEHIND = f"(ask.last_term, ask.last_index) >= {_MINE}"
_RIGHT = f"""
if not ({_FREE} or {_PRE}):
    return False
return {_NOT_BEHIND}
"""

EXERCISE = Exercise(
    id="22.1",
    title="grant a vote",
    file="phase3_raft/raft/elections.py",
    hints=(
        "Two conditions, and both must hold: is the vote free, and is their log at least as far "
        "as ours? Python compares pairs as the paper compares logs.",
        "Free: self.voted_for is None or ask.sender; or ask.pre, and ask.term is later than "
        "self.term. Logs: compare (last_term, last_index) of both; equal is far enough.",
        "free = self.voted_for in (None, ask.sender) or (ask.pre and ask.term > self.term). And "
        "(ask.last_term, ask.last_index) is compared with the same pair of self.log: with > or "
        "with >=? Think of three servers with equal logs.",
    ),
    check=check,
    explanation=(
        "One vote a term makes two leaders of one term impossible: two majorities share a server. "
        "The comparison makes a leader without a committed entry impossible: a majority has that "
        "entry, one of them must vote for the winner, and it refuses whoever is behind it. The "
        "last term comes before the length, since a server that was alone for long may have many "
        "entries that nobody wanted. And the vote is on disk before the answer leaves: "
        "a server that forgot it in a crash would vote twice."
    ),
    wrong={
        "whoever asks": "return True",
        "the first who asks, whatever its log": f"return {_FREE} or {_PRE}",
        "whoever is not behind": f"return {_NOT_BEHIND}",
        "length alone": edited(
            _RIGHT,
            (
                _NOT_BEHIND,
                "ask.last_index >= self.log.last_index",
            ),
        ),
        "term alone": edited(
            _RIGHT,
            (_NOT_BEHIND, "ask.last_term >= self.log.last_term"),
        ),
        "both must be as large": edited(
            _RIGHT,
            (
                _NOT_BEHIND,
                "ask.last_term >= self.log.last_term and ask.last_index >= self.log.last_index",
            ),
        ),
        "length before term": edited(
            _RIGHT,
            (
                _NOT_BEHIND,
                "(ask.last_index, ask.last_term) >= (self.log.last_index, self.log.last_term)",
            ),
        ),
        "only who is ahead": edited(_RIGHT, (">= (", "> (")),
        "not a second time for the same one": edited(_RIGHT, (_FREE, "self.voted_for is None")),
        "a pre-vote is always free": edited(_RIGHT, (_PRE, "ask.pre")),
        "a pre-vote like a vote": edited(_RIGHT, (f" or {_PRE}", "")),
        "a pre-vote without a look at the log": f"return ask.pre or ({_FREE} and {_NOT_BEHIND})",
        "the vote is noted at once": edited(
            _RIGHT, ("return (ask", "self.voted_for = ask.sender\nreturn (ask")
        ),
        "the wrong way round": edited(_RIGHT, (">= (", "<= (")),
        "the term of the log is taken for the server's": edited(
            _RIGHT, ("self.log.last_term", "self.term")
        ),
    },
)
