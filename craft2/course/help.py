"""Help with an exercise: the next hint, the solution, or the solution written into the file."""

from __future__ import annotations

import hashlib
import os
import textwrap

from craft2.course.checking import PASSED, WIDTH, run_check
from craft2.course.edition import REFERENCE, Edition, write_whole
from craft2.course.exercises import EXERCISES, exercise
from craft2.course.predictions import GRADING
from craft2.course.splice import MarkerError, body_of, splice
from craft2.course.workbook import keep_beside


def hint(exercise_id: str) -> None:
    """Print a hint: the next one if the exercise's code changed since the last, else that again.

    So running a notebook from top to bottom spends no hints.  Outside an edition, and while a
    notebook is graded, it is the first one every time.
    """
    edition = Edition.find()
    if edition is None or os.environ.get(GRADING):
        print(_numbered(exercise_id, 1))
        return
    given = edition.remembered("hints").get(exercise_id, 0)
    if given and edition.remembered("hinted").get(exercise_id) == _code_now(edition, exercise_id):
        text = _numbered(exercise_id, given)
    else:
        text = next_hint(edition, exercise_id)
    print(text)
    if not text.startswith(f"Hint {len(exercise(exercise_id).hints)} "):
        print(
            "The next one: run this cell again after changing your code, or type "
            f"`craft2 hint {exercise_id}` in a terminal."
        )


def next_hint(edition: Edition, exercise_id: str) -> str:
    """The next hint, numbered; the edition remembers how many were asked for."""
    hints = exercise(exercise_id).hints
    asked = edition.remembered("hints")
    number = min(asked.get(exercise_id, 0) + 1, len(hints))
    edition.remember("hints", asked | {exercise_id: number})
    hinted = edition.remembered("hinted") | {exercise_id: _code_now(edition, exercise_id)}
    edition.remember("hinted", hinted)
    return _numbered(exercise_id, number)


def _code_now(edition: Edition, exercise_id: str) -> str:
    """What stands in an exercise's region, as a SHA-256; of nothing if there is no region."""
    try:
        code = body_of((edition.root / exercise(exercise_id).file).read_text(), exercise_id)
    except (MarkerError, OSError):
        code = ""
    return hashlib.sha256(code.encode()).hexdigest()


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
    why = textwrap.fill(f"Why: {task.explanation}", WIDTH, subsequent_indent="    ")
    return f"{textwrap.dedent(reference_body(exercise_id))}\n{why}"


def solve(edition: Edition, exercise_id: str) -> str:
    """Write the reference's solution into the learner's file; return what was done, in a line.

    An attempt is kept: the file as it was, beside it.  Code that passes is left alone.
    """
    task = exercise(exercise_id)
    path = edition.root / task.file
    done = f"{path.name} now holds the solution of {exercise_id}"
    if edition.is_started(task.file, exercise_id):
        if run_check(exercise_id, edition.root).status == PASSED:
            return f"{exercise_id} already passes; nothing changed"
        done += f"; your attempt is in {keep_beside(path, f'attempt-{exercise_id}')}"
    write_whole(path, splice(path.read_text(), exercise_id, reference_body(exercise_id)))
    return done


def solve_all(edition: Edition) -> None:
    """Write every solution into an edition, keeping nothing: for tests and for measuring."""
    for exercise_id, task in EXERCISES.items():
        path = edition.root / task.file
        path.write_text(splice(path.read_text(), exercise_id, reference_body(exercise_id)))


def reference_body(exercise_id: str) -> str:
    """The lines of the reference's solution, as they stand in its file."""
    return body_of((REFERENCE / exercise(exercise_id).file).read_text(), exercise_id)
