"""Help with an exercise: the next hint, the solution, or the solution written into the file."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

from craft2.course.checking import PASSED, WIDTH, run_check
from craft2.course.edition import REFERENCE, Edition, write_whole
from craft2.course.exercises import EXERCISES, exercise
from craft2.course.predictions import GRADING
from craft2.course.splice import body_of, splice
from craft2.course.workbook import keep_beside


def hint(exercise_id: str) -> None:
    """Print the next hint of an exercise; after the last one, the last again.

    Outside an edition, and while a notebook is graded, it is the first one every time.
    """
    edition = Edition.find()
    if edition is None or os.environ.get(GRADING):
        print(_numbered(exercise_id, 1))
    else:
        print(next_hint(edition, exercise_id))


def next_hint(edition: Edition, exercise_id: str) -> str:
    """The next hint, numbered; the edition remembers how many were asked for."""
    hints = exercise(exercise_id).hints
    asked = edition.remembered("hints")
    number = min(asked.get(exercise_id, 0) + 1, len(hints))
    edition.remember("hints", asked | {exercise_id: number})
    return _numbered(exercise_id, number)


def _numbered(exercise_id: str, number: int) -> str:
    hints = exercise(exercise_id).hints
    text = f"Hint {number} of {len(hints)} for {exercise_id}: {hints[number - 1]}"
    text = textwrap.fill(text, WIDTH, subsequent_indent="    ")
    if number == len(hints):
        text += f"\nThat was the last one. `craft2 solution {exercise_id}` shows the solution."
    return text


def solution(edition: Edition, exercise_id: str) -> str:
    """The solution and why it is right, if the exercise passes or this is the second request."""
    task = exercise(exercise_id)
    asked = edition.remembered("solutions")
    times = asked.get(exercise_id, 0) + 1
    edition.remember("solutions", asked | {exercise_id: times})
    if times < 2 and run_check(exercise_id, edition.root).status != PASSED:
        return (
            f"{exercise_id} does not pass yet. `craft2 hint {exercise_id}` gives a hint; "
            "ask for the solution once more to see it."
        )
    return f"{textwrap.dedent(reference_body(exercise_id))}\nWhy: {task.explanation}"


def solve(edition: Edition, exercise_id: str) -> tuple[Path, Path]:
    """Write the reference's solution into the learner's file; keep the file as it was beside.

    Returns (the file, the copy).
    """
    path = edition.root / exercise(exercise_id).file
    copy = keep_beside(path, f"attempt-{exercise_id}")
    write_whole(path, splice(path.read_text(), exercise_id, reference_body(exercise_id)))
    return path, copy


def solve_all(edition: Edition) -> None:
    """Write every solution into an edition, keeping nothing: for tests and for measuring."""
    for exercise_id, task in EXERCISES.items():
        path = edition.root / task.file
        path.write_text(splice(path.read_text(), exercise_id, reference_body(exercise_id)))


def reference_body(exercise_id: str) -> str:
    """The lines of the reference's solution, as they stand in its file."""
    return body_of((REFERENCE / exercise(exercise_id).file).read_text(), exercise_id)
