"""Exercise regions: finding them in a source file, and putting other lines into them.

An exercise is a marked region of a real module.  The region is the whole body of one function, or
of one `async def`, after its docstring:

    # EXERCISE 0.1 a key's partition
    def partition_for(key: bytes, num_partitions: int) -> int:
        '''The task, in words.'''
        # BEGIN SOLUTION
        ...
        # END SOLUTION

Stubs, solutions, planted bugs and overlays are all one operation: `splice(text, id, body)`, which
replaces the lines between the two markers and touches nothing else.  It works on lines, not on
syntax trees, so it also works on a file that does not parse.

The markers are the ones nbgrader uses (https://nbgrader.readthedocs.io, "Autograded answer cells").
"""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass

from craft2.errors import Craft2Error

_EXERCISE = re.compile(r"^\s*# EXERCISE (?P<id>\d+\.\d+) (?P<title>.+?)\s*$")
BEGIN = "# BEGIN SOLUTION"
END = "# END SOLUTION"


class MarkerError(Craft2Error):
    """An exercise region cannot be found: one of its three marker lines is missing or misplaced."""


@dataclass(frozen=True)
class Region:
    """Where one exercise lies in a file; line numbers count from 0."""

    id: str
    title: str
    begin: int  # the line of BEGIN SOLUTION
    end: int  # the line of END SOLUTION. Invariant: begin < end
    indent: str  # the white space before BEGIN SOLUTION


def regions(text: str) -> dict[str, Region]:
    """Every exercise region of a source file, by exercise id, in file order.

    Raises MarkerError if a marker is missing, doubled or out of order.
    """
    found: dict[str, Region] = {}
    open_id, title, begin, indent = "", "", -1, ""
    for number, line in enumerate(text.splitlines()):
        stripped = line.strip()
        if match := _EXERCISE.match(line):
            if open_id:
                raise _missing(open_id, BEGIN if begin < 0 else END)
            open_id, title, begin = match["id"], match["title"], -1
            if open_id in found:
                raise MarkerError(f"exercise {open_id} is marked twice", "remove one of the two")
        elif stripped == BEGIN:
            if not open_id or begin >= 0:
                raise MarkerError(
                    f"line {number + 1} is `{BEGIN}` but no exercise starts there",
                    "undo the change to the marker lines, or run `craft2 update`",
                )
            begin, indent = number, line[: len(line) - len(line.lstrip())]
        elif stripped == END:
            if begin < 0:
                raise _missing(open_id or "(no number)", BEGIN)
            found[open_id] = Region(open_id, title, begin, number, indent)
            open_id, begin = "", -1
    if open_id:
        raise _missing(open_id, BEGIN if begin < 0 else END)
    return found


def region_of(text: str, exercise_id: str) -> Region:
    """The region of one exercise; MarkerError if the file has none."""
    found = regions(text)
    if exercise_id not in found:
        raise _missing(exercise_id, f"# EXERCISE {exercise_id}")
    return found[exercise_id]


def body_of(text: str, exercise_id: str) -> str:
    """The lines between the markers, as they stand, each with its newline."""
    region = region_of(text, exercise_id)
    return "".join(text.splitlines(keepends=True)[region.begin + 1 : region.end])


def splice(text: str, exercise_id: str, body: str) -> str:
    """`text` with the lines between the markers of one exercise replaced by `body`, verbatim."""
    region = region_of(text, exercise_id)
    lines = text.splitlines(keepends=True)
    if body and not body.endswith("\n"):
        body += "\n"
    return "".join(lines[: region.begin + 1]) + body + "".join(lines[region.end :])


def indented(text: str, exercise_id: str, body: str) -> str:
    """`body`, written flush left, moved to where the region of `exercise_id` stands."""
    return textwrap.indent(
        textwrap.dedent(body).strip("\n") + "\n", region_of(text, exercise_id).indent
    )


def stub(text: str, exercise_id: str) -> str:
    """The body a learner finds: a place for their code, and the reference standing in for it."""
    _name, arguments, is_async = _signature(text, region_of(text, exercise_id))
    call = f'reference("{exercise_id}")({arguments})'
    return indented(
        text,
        exercise_id,
        f"""
        # your code here, in place of these lines: they let the reference answer until then
        from craft2.course import reference

        return {"await " if is_async else ""}{call}
        """,
    )


def emptied(text: str) -> str:
    """`text` with every exercise region replaced by its stub."""
    for exercise_id in regions(text):
        text = splice(text, exercise_id, stub(text, exercise_id))
    return text


def is_started(text: str, exercise_id: str) -> bool:
    """True once the region holds anything but its stub (white space aside)."""
    return f'reference("{exercise_id}")' not in body_of(text, exercise_id)


def function_name(text: str, exercise_id: str) -> str:
    """The qualified name of the function the region is the body of: `f`, or `Class.f`."""
    return _signature(text, region_of(text, exercise_id))[0]


def _signature(text: str, region: Region) -> tuple[str, str, bool]:
    """The qualified name of the function around a region, its arguments as a call passes them, and
    whether it is `async`.

    Only the lines above the region are parsed, with `pass` for a body, so that what a learner
    wrote inside it does not matter.
    """
    head = "\n".join(text.splitlines()[: region.begin]) + f"\n{region.indent}pass\n"
    scope: ast.AST = ast.parse(head)
    path: list[str] = []
    while True:
        last = scope.body[-1]  # type: ignore[attr-defined]
        if not isinstance(last, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        path.append(last.name)
        scope = last
    if not isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef)):
        raise MarkerError(
            f"exercise {region.id} is not the body of a function",
            "let the region be everything after the docstring of one `def`",
        )
    a = scope.args
    passed = [arg.arg for arg in a.posonlyargs + a.args]
    passed += [f"*{a.vararg.arg}"] if a.vararg else []
    passed += [f"{arg.arg}={arg.arg}" for arg in a.kwonlyargs]
    passed += [f"**{a.kwarg.arg}"] if a.kwarg else []
    return ".".join(path), ", ".join(passed), isinstance(scope, ast.AsyncFunctionDef)


def _missing(exercise_id: str, marker: str) -> MarkerError:
    return MarkerError(
        f"exercise {exercise_id}: its marker line `{marker}` is missing",
        "undo the change to the marker lines, or run `craft2 update` (it keeps your file beside)",
    )
