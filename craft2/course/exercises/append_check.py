"""Exercise 23.1: do the leader's entries fit?"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.exercises.raft_scenes import entries, part, run_seeds, server, terms_of
from craft2.course.expect import doing, equal, that

LEADER = (1, 1, 1, 4, 4, 5, 5, 6, 6, 6)  # the paper's figure 7, and its followers:
FIGURE_7 = {
    "a": (1, 1, 1, 4, 4, 5, 5, 6, 6),
    "b": (1, 1, 1, 4),
    "c": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6),
    "d": (1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7),
    "e": (1, 1, 1, 4, 4, 4, 4),
    "f": (1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3),
}


class _Case(NamedTuple):
    words: str
    log: tuple[int, ...]  # ours, by its terms
    prev: tuple[int, int]  # index, term
    new: tuple[int, ...]  # the terms of the entries
    commit: int
    returns: int | None
    after: tuple[int, ...]  # the terms of our log afterwards
    committed: int  # afterwards; before: `before`
    before: int = 0


CASES = (
    _Case("entries after our last one", (1, 1), (2, 1), (2, 2), 0, 4, (1, 1, 2, 2), 0),
    _Case("the very first entries", (), (0, 0), (1, 1), 1, 2, (1, 1), 1),
    _Case("we lack the entry before them", (1, 1), (3, 1), (2,), 0, None, (1, 1), 0),
    _Case("the entry before them is of another term", (1, 1, 1), (3, 2), (2,), 0, None,
          (1, 1, 1), 0),
    _Case("a heartbeat that fits", (1, 1), (2, 1), (), 2, 2, (1, 1), 2),
    _Case("a heartbeat that does not fit", (1, 1), (2, 2), (), 2, None, (1, 1), 0),
    _Case("entries that contradict ours", (1, 1, 1, 1), (1, 1), (2,), 0, 2, (1, 2), 0),
    _Case("entries that we have already", (1, 1, 1), (0, 0), (1, 1, 1), 0, 3, (1, 1, 1), 0),
    _Case("a late message with less than we have", (1, 1, 2, 2), (1, 1), (1,), 0, 2,
          (1, 1, 2, 2), 0),
    _Case("the leader has committed more than it sent", (1, 1), (2, 1), (2,), 9, 3, (1, 1, 2), 3),
    _Case("more is committed than the entries, and ours behind them may be wrong", (1, 1, 1, 1),
          (1, 1), (1,), 4, 2, (1, 1, 1, 1), 2),
    _Case("a heartbeat does not say that our later entries are right", (1, 1, 1), (1, 1), (), 3, 1,
          (1, 1, 1), 1),
    _Case("it does not fit, and commit is not looked at", (1, 1, 1), (4, 1), (1,), 3, None,
          (1, 1, 1), 0),
    _Case("an old message with an old commit index", (1, 1, 1), (3, 1), (1,), 1, 4, (1, 1, 1, 1), 3,
          3),
    _Case("a message from before what is committed", (1, 1, 1), (0, 0), (1, 1), 2, 3, (1, 1, 1), 3,
          3),
)  # fmt: skip


def check(module: ModuleType) -> str:
    """Messages that fit and that do not; figure 7; then seeds."""
    for case in CASES:
        _take(module, case)
    for name, log in FIGURE_7.items():
        _repair(module, name, log)
    return f"{len(CASES)} messages, figure 7, and {run_seeds(module)}"


def _append(
    module: ModuleType, prev: tuple[int, int], new: Sequence[int], commit: int, term: int
) -> Any:
    return part(module, "messages").Append(
        sender=2,
        to=1,
        term=term,
        prev_index=prev[0],
        prev_term=prev[1],
        entries=tuple(entries(module, new, prev[0] + 1)),
        commit=commit,
    )


def _take(module: ModuleType, case: _Case) -> None:
    one = server(module, 1, case.log, 9, committed=case.before)
    call = (
        f"_take(prev_index={case.prev[0]}, prev_term={case.prev[1]}, entries of the terms "
        f"{list(case.new)}, commit={case.commit}) with a log of the terms {list(case.log)}, "
        f"committed up to {case.before}"
    )
    doing(call)
    got = one._take(_append(module, case.prev, case.new, case.commit, 9))
    why = f"({case.words})"
    that(
        f"what {call} returns",
        got == case.returns and type(got) is type(case.returns),
        expected=f"{case.returns} {why}",
        got=repr(got),
    )
    equal(f"the terms of the log after {call}", terms_of(one), list(case.after), why)
    equal(f"log.committed after {call}", one.log.committed, case.committed, why)


def _repair(module: ModuleType, name: str, log: Sequence[int]) -> None:
    """Step back entry by entry until they fit; then the logs must be equal."""
    one = server(module, 1, log, 8)
    for index in range(len(LEADER), -1, -1):
        prev = (index, LEADER[index - 1] if index else 0)
        doing(f"_take() at follower ({name}) of figure 7, behind entry {index}")
        got = one._take(_append(module, prev, LEADER[index:], 0, 8))
        fits = tuple(log[:index]) == LEADER[:index] and index <= len(log)
        words = f"what follower ({name}) of figure 7 says to entries behind {index}"
        if got is None:
            that(words, not fits, expected=f"{len(LEADER)}: they fit", got="None")
            continue
        that(words, fits, expected="None: they do not fit", got=repr(got))
        break
    mine = terms_of(one)[: len(LEADER)]
    equal(f"the terms of follower ({name}) of figure 7, repaired", mine, list(LEADER))


_LOG = "log = self.log\n"
_CHECK = _LOG + "if log.term_at(append.prev_index) != append.prev_term:\n    return None\n"
_PUT = "log.put(append.prev_index, append.entries)\n"
_INDEX = "index = append.prev_index + len(append.entries)\n"
_COMMIT = "log.committed = max(log.committed, min(append.commit, index))\n"
_RIGHT = _CHECK + _PUT + _INDEX + _COMMIT + "return index\n"

EXERCISE = Exercise(
    id="23.1",
    title="the append check",
    file="phase3_raft/raft/replication.py",
    hints=(
        "Four lines: does it fit; put; how far both agree; how far that is committed. What do you "
        "know about the entries of ours that come after the last one of the message?",
        "Return None if log.term_at(append.prev_index) is not append.prev_term. Else log.put, and "
        "the index is append.prev_index + len(append.entries). The commit index may rise to "
        "append.commit, not beyond that index, and must not fall.",
        "if log.term_at(append.prev_index) != append.prev_term: return None; log.put("
        "append.prev_index, append.entries); index = append.prev_index + len(append.entries). "
        "Before you return index, log.committed is set from itself, append.commit and index: "
        "which of the three is a lower limit, and which two are upper ones?",
    ),
    check=check,
    explanation=(
        "This is the induction step of log matching: if the entry before fits, everything up to "
        "there is equal, so everything up to the last new entry is. What we may have after it is "
        "no proof of anything: it may come from a leader that nobody followed. So the commit index "
        "stops at what the message has shown, and a message that says less than we have cuts "
        "nothing off: it may only be late."
    ),
    wrong={
        "everything is taken": _LOG + _PUT + _INDEX + _COMMIT + "return index\n",
        "only that there is an entry": edited(_RIGHT, ("!= append.prev_term", "is None")),
        "the last entry is compared": edited(
            _RIGHT,
            (
                "log.term_at(append.prev_index) != append.prev_term",
                "(log.last_index, log.last_term) != (append.prev_index, append.prev_term)",
            ),
        ),
        "one entry too far": edited(
            _RIGHT, ("log.term_at(append.prev_index)", "log.term_at(append.prev_index - 1)")
        ),
        "heartbeats always fit": edited(
            _RIGHT, ("if log.term_at", "if append.entries and log.term_at")
        ),
        "nothing is put": edited(_RIGHT, (_PUT, "")),
        "what is behind is cut off": edited(
            _RIGHT,
            (
                _PUT,
                _PUT + "if append.entries and append.prev_index + len(append.entries) < "
                "log.last_index:\n    log._cut(append.prev_index + len(append.entries) + 1)\n",
            ),
        ),
        "agreed up to our last entry": edited(_RIGHT, (_INDEX, "index = log.last_index\n")),
        "a heartbeat answers with the last entry": edited(
            _RIGHT, (_INDEX, _INDEX + "index = index if append.entries else log.last_index\n")
        ),
        "as far as the leader says": edited(
            _RIGHT, ("min(append.commit, index)", "min(append.commit, log.last_index)")
        ),
        "commit whatever the leader has": edited(
            _RIGHT, ("min(append.commit, index)", "append.commit")
        ),
        "commit all that came": edited(_RIGHT, ("min(append.commit, index)", "index")),
        "the commit index falls": edited(
            _RIGHT, ("max(log.committed, min(append.commit, index))", "min(append.commit, index)")
        ),
        "nothing is committed": edited(_RIGHT, (_COMMIT, "")),
        "commit before the check": _LOG + _COMMIT.replace("index", "append.prev_index") + _RIGHT,
        "only heartbeats commit": edited(
            _RIGHT, (_COMMIT, "if not append.entries:\n    " + _COMMIT)
        ),
        "only entries commit": edited(_RIGHT, (_COMMIT, "if append.entries:\n    " + _COMMIT)),
        "the number of entries is the answer": edited(
            _RIGHT, ("return index\n", "return len(append.entries)\n")
        ),
        "false instead of None": edited(_RIGHT, ("return None", "return False")),
    },
)
