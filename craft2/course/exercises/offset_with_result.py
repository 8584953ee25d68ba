"""Exercise 13.2: results and their offset in one transaction, and only if nobody was quicker."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from types import ModuleType
from typing import Any

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import MismatchError, doing, equal, that

FLIGHTS = ("flights", 0)
THREE = ["first", "second", "third"]


class Died(BaseException):
    """The process stops here."""


class _Watched:
    """The connection of a store, with something that happens before each of its steps."""

    def __init__(self, database: Any, before: Callable[[str], None]) -> None:
        self._database, self._before = database, before

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._database, name)
        if not name.startswith("execute") and name != "commit":
            return found

        def call(*arguments: Any) -> Any:
            self._before(f"{name}({arguments[0]!r}, ...)" if arguments else name)
            return found(*arguments)

        return call

    def __enter__(self) -> Any:
        self._database.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, at: Any) -> Any:
        if kind is Died:
            return False
        if kind is None:
            self._before("the end of the transaction")
        return self._database.__exit__(kind, error, at)


def _store(module: ModuleType, path: str) -> Any:
    store = module.ResultStore(path)
    store._database.execute("PRAGMA busy_timeout = 0")
    store._database.execute("PRAGMA synchronous = OFF")
    return store


def _new_store(module: ModuleType, folder: str) -> tuple[Any, str]:
    path = os.path.join(tempfile.mkdtemp(dir=folder), "results.sqlite")
    store = _store(module, path)
    store.next_offset(FLIGHTS)
    return store, path


def _state(module: ModuleType, path: str) -> tuple[int, list[str]]:
    """What another process finds: (the offset of FLIGHTS, the results)."""
    store = _store(module, path)
    try:
        return store.next_offset(FLIGHTS), store.results()
    except module.sqlite3.OperationalError as error:
        raise MismatchError(
            "what another process finds after save has returned",
            expected="the offset and the results",
            got=f"the database cannot be used: {error}",
            difference="a transaction was begun and has not ended",
        ) from error
    finally:
        store.close()


def check(module: ModuleType) -> str:
    """Saves, refusals, a death before every statement, and a rival before every statement."""
    with tempfile.TemporaryDirectory() as folder:
        _saves(module, folder)
        _refusals(module, folder)
        _all_or_nothing(module, folder)
        _deaths(module, folder)
        _rivals(module, folder)
    return (
        "results are stored with their offset or not at all: after a death before every step, with "
        "a rival before every step, with an error in the middle; who began elsewhere stores nothing"
    )


def _saves(module: ModuleType, folder: str) -> None:
    store, path = _new_store(module, folder)
    store.next_offset(("arrivals", 0))
    store.next_offset(("flights", 1))
    doing("save(('flights', 0), 0, 3, [three results]) into an empty store")
    equal("what save returns", store.save(FLIGHTS, 0, 3, THREE), True)
    equal("(next offset, results), for another process", _state(module, path), (3, THREE))
    for other in (("arrivals", 0), ("flights", 1)):
        equal(f"the next offset of {other}, which has not moved", store.next_offset(other), 0)
    doing("save(('flights', 0), 3, 9, []): six records without a result")
    equal("what save returns", store.save(FLIGHTS, 3, 9, []), True)
    equal("(next offset, results)", _state(module, path), (9, THREE))


def _refusals(module: ModuleType, folder: str) -> None:
    for start, end in ((0, 3), (2, 5), (4, 7)):
        store, path = _new_store(module, folder)
        store.save(FLIGHTS, 0, 3, THREE)
        call = f"save(('flights', 0), {start}, {end}, ...) while the next offset is 3"
        doing(call)
        equal(f"what {call} returns", store.save(FLIGHTS, start, end, ["late"] * 3), False)
        equal(f"(next offset, results) after {call}", _state(module, path), (3, THREE))
        doing(f"a save by another process after {call}")
        other = _store(module, path)
        equal("what it returns: no transaction is left open", other.save(FLIGHTS, 3, 4, []), True)
        other.close()


def _all_or_nothing(module: ModuleType, folder: str) -> None:
    store, path = _new_store(module, folder)
    doing("save with a result that cannot be stored, after one that can")
    raised = False
    try:
        store.save(FLIGHTS, 0, 2, ["first", object()])
    except Exception:
        raised = True
    that("an error on the way", raised, expected="goes on to the caller", got="was swallowed")
    equal("(next offset, results) after an error", _state(module, path), (0, []))


def _deaths(module: ModuleType, folder: str) -> None:
    for deaths in range(100):
        store, path = _new_store(module, folder)
        steps: list[str] = []

        def before(step: str, steps: list[str] = steps, last: int = deaths) -> None:
            steps.append(step)
            if len(steps) > last:
                raise Died

        real, store._database = store._database, _Watched(store._database, before)
        doing(f"save, until the process dies before step {deaths + 1}")
        try:
            store.save(FLIGHTS, 0, 3, THREE)
        except Died:
            real.close()
        else:
            that(
                "what save does",
                deaths > 1,
                expected="statements on self._database",
                got=f"{deaths} of them",
            )
            return
        found = _state(module, path)
        that(
            "(next offset, results) for the next process",
            found == (0, []),
            expected="(0, []): nothing of it, since save never returned",
            got=repr(found),
            difference=f"it died before `{steps[-1]}`: what came before that was already final",
        )


def _rivals(module: ModuleType, folder: str) -> None:
    for place in range(100):
        store, path = _new_store(module, folder)
        rival = _store(module, path)
        steps: list[str] = []
        won: list[bool] = []

        def before(
            step: str,
            steps: list[str] = steps,
            won: list[bool] = won,
            rival: Any = rival,
            place: int = place,
        ) -> None:
            steps.append(step)
            if len(steps) == place + 1:
                try:
                    won.append(rival.save(FLIGHTS, 0, 3, ["the rival's"] * 3))
                except module.sqlite3.OperationalError:
                    won.append(False)  # the database is locked, as it should be by now

        store._database = _Watched(store._database, before)
        doing("save, while another process saves the same records")
        mine = store.save(FLIGHTS, 0, 3, THREE)
        if not won:
            return
        _, results = _state(module, path)
        that(
            "what two processes have stored that saved the same three records",
            len(results) == 3 and [mine, *won].count(True) == 1,
            expected="three results, and one of them was told True",
            got=f"{len(results)} results; this one was told {mine}, the other {won[0]}",
            difference=f"the other one came just before `{steps[place]}`",
        )


_RIGHT = """
with self._database:
    moved = self._database.execute(
        "UPDATE offsets SET next = ? WHERE topic = ? AND number = ? AND next = ?",
        (end, *partition, start),
    )
    if not moved.rowcount:
        return False
    rows = [(result,) for result in results]
    self._database.executemany("INSERT INTO results VALUES (?)", rows)
    return True
"""
_INSERT = '    self._database.executemany("INSERT INTO results VALUES (?)", rows)\n'
_READ_FIRST = """
if self.next_offset(partition) != start:
    return False
with self._database:
    self._database.executemany("INSERT INTO results VALUES (?)", [(r,) for r in results])
    self._database.execute(
        "UPDATE offsets SET next = ? WHERE topic = ? AND number = ?", (end, *partition)
    )
    return True
"""

EXERCISE = Exercise(
    id="13.2",
    title="the offset goes with the result",
    file="phase2_groups/offsets_with_results.py",
    hints=(
        "If you first ask for the offset and then change it, somebody can come in between. Can one "
        "statement do both, and tell you whether it did?",
        "UPDATE offsets ... WHERE topic = ? AND number = ? AND next = ? changes one row if the "
        "offset is still `start`, and none if it is not: see `rowcount`. Do it first, and the "
        "database is yours until the transaction ends.",
        "with self._database: moved = self._database.execute('UPDATE offsets SET next = ? WHERE "
        "topic = ? AND number = ? AND next = ?', (end, *partition, start)); if not moved.rowcount: "
        "return False; then self._database.executemany('INSERT INTO results VALUES (?)', ...) and "
        "return True.",
    ),
    check=check,
    explanation=(
        "The transaction closes the gap between the work and the commit: a crash leaves both or "
        "neither. The condition in the UPDATE closes the other one, between two readers of one "
        "partition: it is a compare-and-set, and the offset is the version. Two statements that "
        "first look and then write would need a lock that is taken before the look. Kafka's own "
        "transactions do the same with the group's offsets and a producer's records."
    ),
    wrong={
        "no check": edited(
            _RIGHT, (" AND next = ?", ""), (", start)", ")"), ("if not moved.rowcount", "if False")
        ),
        "looks first, then writes": _READ_FIRST,
        "looks first, within the transaction": edited(
            _READ_FIRST,
            ("if self.next_offset(partition) != start:\n    return False\n", ""),
            (
                "with self._database:\n",
                'with self._database:\n    [(at,)] = self._database.execute("SELECT next FROM '
                'offsets WHERE topic = ? AND number = ?", partition).fetchall()\n'
                "    if at != start:\n        return False\n",
            ),
        ),
        "two transactions, results first": """
            with self._database:
                rows = [(result,) for result in results]
                self._database.executemany("INSERT INTO results VALUES (?)", rows)
            with self._database:
                moved = self._database.execute(
                    "UPDATE offsets SET next = ? WHERE topic = ? AND number = ? AND next = ?",
                    (end, *partition, start),
                )
            return moved.rowcount == 1
        """,
        "two transactions, the offset first": """
            with self._database:
                moved = self._database.execute(
                    "UPDATE offsets SET next = ? WHERE topic = ? AND number = ? AND next = ?",
                    (end, *partition, start),
                )
            if not moved.rowcount:
                return False
            for result in results:
                self.add(result)
            return True
        """,
        "a commit for each result": edited(
            _RIGHT,
            ("    rows = [(result,) for result in results]\n", ""),
            (_INSERT, "    for result in results:\n        self.add(result)\n"),
        ),
        "never ends the transaction": edited(_RIGHT, ("with self._database:", "if True:")),
        "results, whoever moved the offset": edited(
            _RIGHT,
            ("    if not moved.rowcount:\n        return False\n", ""),
            ("return True", "return moved.rowcount == 1"),
        ),
        "not before, instead of exactly there": edited(_RIGHT, ("AND next = ?", "AND next <= ?")),
        "not behind, instead of exactly there": edited(_RIGHT, ("AND next = ?", "AND next >= ?")),
        "the number alone": edited(
            _RIGHT, ("topic = ? AND number", "number"), ("*partition", "partition[1]")
        ),
        "the topic alone": edited(_RIGHT, ("number = ? AND ", ""), ("*partition", "partition[0]")),
        "moves by the number of results": edited(
            _RIGHT, ("(end, *partition", "(start + len(results), *partition")
        ),
        "swallows errors": "try:\n"
        + "\n".join(f"    {line}" for line in _RIGHT.strip().splitlines())
        + "\nexcept Exception:\n    return False\n",
        "says nothing": edited(_RIGHT, ("    return True\n", "")),
        "leaves a refusal open": edited(
            _RIGHT,
            ("with self._database:\n", "if True:\n"),
            ("    return True\n", "    self._database.commit()\n    return True\n"),
        ),
    },
)
