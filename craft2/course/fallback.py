"""What an exercise does until it is solved: the reference answers for it.

A stub reads `return reference("0.1")(key, num_partitions)`.  So the rest of the system runs, on
the learner's code as soon as there is some.  Wrong code never falls back: there is no stub left
to do it.  The stub is ordinary code in the module itself, so it behaves the same in a notebook,
in a child process and in a Spark worker.
"""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from craft2.course.edition import REFERENCE
from craft2.course.exercises import exercise
from craft2.course.splice import function_name
from craft2.errors import Craft2Error

CHECKING = "CRAFT2_CHECK"  # environment: the id of the exercise a child process is checking


class UnsolvedError(Craft2Error, NotImplementedError):
    """An exercise was called in its own check and holds no solution yet."""


@functools.cache
def reference(exercise_id: str) -> Callable[..., Any]:
    """The reference's function for one exercise, ready to be called in its place.

    It is the reference's code with the globals of the learner's module, so it meets the same
    classes, imports and helpers the learner's code would.  Raises UnsolvedError inside the check
    of this very exercise: there only the learner's own code counts.
    """
    if os.environ.get(CHECKING) == exercise_id:
        raise UnsolvedError(f"exercise {exercise_id} has no solution yet", "write one")
    task = exercise(exercise_id)
    path = REFERENCE / task.file
    text = path.read_text()
    wanted = function_name(text, exercise_id)
    code = _find(compile(text, str(path), "exec"), wanted)
    return types.FunctionType(code, vars(sys.modules[task.module]), wanted)


def _find(code: types.CodeType, wanted: str) -> types.CodeType:
    """The code object of the function `wanted` (a qualified name) inside a module's code."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            if constant.co_qualname == wanted:
                return constant
            if wanted.startswith(constant.co_qualname + "."):
                return _find(constant, wanted)
    raise LookupError(wanted)
