"""What an exercise is, apart from its region in the code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType


@dataclass(frozen=True)
class Exercise:
    """One exercise.

    The task's text is the docstring of the function itself; everything that would give the answer
    away is here, in the installed package, and never in a learner's folder.
    """

    id: str  # the number of its notebook, a dot, its number there: "1.2" is in notebook 01
    title: str
    file: str  # the module that holds the region, from the folder of packages: "phase1_.../x.py"
    hints: tuple[str, ...]  # from a nudge to nearly the answer; asked for one at a time
    # Called in a child process with the module under test.  Returns what was checked, in one
    # line; raises through `craft2.course.expect` otherwise.
    check: Callable[[ModuleType], str]
    explanation: str  # why the solution is right; shown after passing
    wrong: Mapping[str, str]  # planted mistakes, name -> body (flush left); each must be caught

    @property
    def module(self) -> str:
        """The dotted name of the module that holds the region."""
        return self.file.removesuffix(".py").replace("/", ".")


def edited(body: str, *changes: tuple[str, str]) -> str:
    """`body` with one text after the other replaced: most mistakes are a solution with a slip."""
    for old, new in changes:
        assert old in body, old
        body = body.replace(old, new)
    return body
