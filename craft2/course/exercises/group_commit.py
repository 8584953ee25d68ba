"""Exercise 3.1: which waiters may this sync release?"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import doing, equal, that
from craft2.disk import DiskError
from craft2.faulty_disk import Crashed, FaultyDisk, crash_points

PATH, WIDTH = "/log", 8  # every item is so many bytes, so its place in the file is its number
PLAN = (("a", "b", "c"), ("d", "e"), ("f",))  # who waits at first; who comes while it works


class _Trial:
    """A GroupCommit over a file, whose items come at moments we choose: no threads, no luck."""

    def __init__(self, module: ModuleType, disk: FaultyDisk) -> None:
        self.module = module
        self.calls: list[str] = []  # what the code under test asked for, in order
        self.appended: list[str] = []
        self.durable = 0  # of these, how many the last flush covers
        self.late: dict[str, Sequence[str]] = {}  # "append" or "flush" -> who comes during it
        self.fail: dict[str, BaseException] = {}  # the same -> what it raises
        self.refused: dict[str, Exception] = {}  # item -> the error that it alone gets
        self.locked = False
        self._file = disk.open(PATH, "create")
        self.commit: Any = module.GroupCommit(self._append, self._flush)

    def come(self, names: Sequence[str]) -> None:
        """New waiters, as `submit` would add them."""
        self.commit._waiting += [self.module._Waiter(name) for name in names]

    def _during(self, step: str) -> None:
        if self.commit._mutex.acquire(blocking=False):
            self.commit._mutex.release()
        else:
            self.locked = True
        self.come(self.late.pop(step, ()))
        if step in self.fail:
            raise self.fail[step]

    def _append(self, items: Sequence[str]) -> list[str | Exception]:
        self.calls.append(f"append {' '.join(items)}")
        taken = [item for item in items if item not in self.refused]
        data = b"".join(item.encode().ljust(WIDTH) for item in taken)
        self._file.write_at(len(self.appended) * WIDTH, data)
        self.appended += taken
        self._during("append")
        return [self.refused.get(item, f"outcome of {item}") for item in items]

    def _flush(self) -> None:
        self.calls.append("flush")
        reached = len(self.appended)
        self._file.sync()
        self._during("flush")
        self.durable = reached

    def lead(self) -> list[Any]:
        """One turn of the code under test."""
        group = self.commit._make_durable()
        that(
            "what _make_durable() returns",
            isinstance(group, list) and all(isinstance(w, self.module._Waiter) for w in group),
            expected="a list of waiters",
            got=repr(group)[:80],
        )
        return list(group)


def check(module: ModuleType) -> str:
    """One group with others arriving, errors of every kind, then crashes."""
    _one_group(module)
    _an_error_of_one(module)
    for step in ("append", "flush"):
        for error in (DiskError("no more", "none"), KeyboardInterrupt()):
            _an_error_of_all(module, step, error)
    crashes = _with_crashes(module)
    return (
        "one write and one sync a group, whoever comes meanwhile waits for the next, errors reach "
        f"the whole group; after {crashes} crashes nobody's record was lost who had been let go"
    )


def _fresh(module: ModuleType) -> _Trial:
    trial = _Trial(module, FaultyDisk())
    trial.come(PLAN[0])
    return trial


def _names(waiters: Sequence[Any]) -> list[str]:
    return [waiter.item for waiter in waiters]


def _one_group(module: ModuleType) -> None:
    trial = _fresh(module)
    trial.late = {"append": PLAN[1], "flush": PLAN[2]}
    doing("_make_durable() while a, b, c wait, d and e come during append, f during flush")
    group = trial.lead()
    equal("the calls for a, b and c", trial.calls, ["append a b c", "flush"])
    why = "d, e and f came after the append: this sync says nothing about them"
    equal("who may go", _names(group), list(PLAN[0]), why)
    equal("who is left in self._waiting", _names(trial.commit._waiting), ["d", "e", "f"])
    that(
        "self._mutex while the disk works",
        not trial.locked,
        expected="free, so that others can come",
        got="held",
    )
    _outcomes(group, [f"outcome of {name}" for name in PLAN[0]])
    equal("outcomes of d, e, f so far", [w.outcome for w in trial.commit._waiting], [None] * 3)
    doing("_make_durable() for d, e and f")
    equal("who may go next", _names(trial.lead()), ["d", "e", "f"])
    equal("the calls for both groups", trial.calls[2:], ["append d e f", "flush"])


def _outcomes(group: Sequence[Any], expected: Sequence[object]) -> None:
    for waiter, outcome in zip(group, expected, strict=True):
        got = waiter.outcome
        that(
            f"the outcome of {waiter.item}",
            got is outcome or got == outcome,
            expected=repr(outcome),
            got=repr(got),
        )


def _an_error_of_one(module: ModuleType) -> None:
    trial = _fresh(module)
    error = trial.refused["b"] = ValueError("b is no batch")
    doing("_make_durable() while append refuses b")
    _outcomes(trial.lead(), ["outcome of a", error, "outcome of c"])


def _an_error_of_all(module: ModuleType, step: str, error: BaseException) -> None:
    trial = _fresh(module)
    trial.fail = {step: error}
    trial.late = {step: PLAN[1]}
    call = f"_make_durable() when {step} raises {type(error).__name__}"
    doing(call)
    try:
        group = trial.lead()
    except (Exception, KeyboardInterrupt) as raised:
        that(
            call,
            raised is not error,
            expected="a, b and c returned, each with the error",
            got="the error itself: a, b and c would never be woken",
        )
        raise
    equal(f"who may go after {call}", _names(group), list(PLAN[0]))
    _outcomes(group, [error] * len(group))
    equal(f"who waits after {call}", _names(trial.commit._waiting), list(PLAN[1]))


def _with_crashes(module: ModuleType) -> int:
    """Crash before every step of three groups; who was let go must find its record."""
    let_go: list[tuple[int, str]] = []

    def run(disk: FaultyDisk) -> None:
        let_go.clear()
        trial = _Trial(module, disk)
        disk.sync_dir("/")
        trial.come(PLAN[0])
        for late in ({"append": PLAN[1]}, {"flush": PLAN[2]}, {}):
            trial.late = dict(late)
            for waiter in trial.lead():
                if isinstance(waiter.outcome, Crashed):
                    raise waiter.outcome
                let_go.append((trial.appended.index(waiter.item), waiter.item))

    count = 0
    for words, disk in crash_points(run):
        count += 1
        doing(f"{words}: looking at the file")
        found = disk.tree().get(PATH, b"")
        for number, name in let_go:
            got = found[number * WIDTH : (number + 1) * WIDTH].strip(b" \x00").decode()
            that(f"the record of {name}, {words}", got == name, expected=name, got=got or "nothing")
    return count


_TAKE = "with self._mutex:\n    group, self._waiting = self._waiting, []"
_TWO_NAMES = "group = self._waiting\n    self._waiting.clear()"
_FLUSH = "\n    self._flush()"
_TRY = f"""try:
    outcomes = self._append([waiter.item for waiter in group]){_FLUSH}
except BaseException as error:
    outcomes = [error] * len(group)"""
_GIVE = """
for waiter, outcome in zip(group, outcomes):
    waiter.outcome = outcome
"""
_RIGHT = f"{_TAKE}\n{_TRY}{_GIVE}return group"

EXERCISE = Exercise(
    id="3.1",
    title="group commit",
    file="phase1_file_queue/group_commit.py",
    hints=(
        "A sync covers what was written before it began. So who belongs to this group must be "
        "settled before the append, and those who come later must find a list of their own.",
        "Take the list and leave an empty one in its place, both while you hold `self._mutex`, and "
        "let go of it before the disk works. Remember that append and flush may raise: whom does "
        "that concern?",
        "with self._mutex: group, self._waiting = self._waiting, []. Then, in a try: outcomes = "
        "self._append([...the items...]); self._flush(). On BaseException as error: outcomes = "
        "[error] * len(group). Give each waiter of the group its outcome; return group.",
    ),
    check=check,
    explanation=(
        "The swap under the mutex draws the line: whoever is in the list belongs to this sync, "
        "whoever comes later to the next. A thread that arrives during the sync may even have its "
        "bytes written already, and still the sync may not cover them. When a sync fails nobody "
        "knows what is on disk, so all of the group must hear it; catching only Exception would "
        "leave the others asleep for ever when the leader is interrupted."
    ),
    wrong={
        "takes those who came during the sync": """
            with self._mutex:
                items = [waiter.item for waiter in self._waiting]
            outcomes = self._append(items)
            self._flush()
            with self._mutex:
                group, self._waiting = self._waiting, []
            for number, waiter in enumerate(group):
                waiter.outcome = outcomes[min(number, len(items) - 1)]
            return group
        """,
        "the new ones are thrown away": edited(
            _RIGHT, (_TAKE, "group = list(self._waiting)"), (_GIVE, f"\nself._waiting = []{_GIVE}")
        ),
        "the same list under two names": edited(
            _RIGHT, ("group, self._waiting = self._waiting, []", _TWO_NAMES)
        ),
        "flush before append": edited(
            _RIGHT,
            (_FLUSH, ""),
            ("outcomes = self._append", "self._flush()\n    outcomes = self._append"),
        ),
        "no flush": edited(_RIGHT, (_FLUSH, "")),
        "a sync for each": """
            with self._mutex:
                group, self._waiting = self._waiting, []
            for waiter in group:
                try:
                    [waiter.outcome] = self._append([waiter.item])
                    self._flush()
                except BaseException as error:
                    waiter.outcome = error
            return group
        """,
        "the mutex held while the disk works": edited(
            _RIGHT, (_TRY, "with self._mutex:\n" + textwrap.indent(_TRY, "    "))
        ),
        "errors not caught": edited(_RIGHT, ("except BaseException", "except ZeroDivisionError")),
        "only Exception caught": edited(_RIGHT, ("BaseException", "Exception")),
        "a failed flush is no failure": edited(
            _RIGHT,
            (
                _FLUSH,
                "\n    with __import__('contextlib').suppress(BaseException):\n    " + _FLUSH[1:],
            ),
        ),
        "the error only for the first": edited(_RIGHT, ("[error] * len(group)", "[error]")),
        "outcomes not given": edited(_RIGHT, (_GIVE, "\n")),
    },
)
