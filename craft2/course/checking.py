"""`check("0.1")`: run one exercise's check on the learner's code, in a process of its own.

The child sees an overlay: the learner's package, with every exercise region but the one under
test taken from the reference.  So each exercise can pass alone, whatever the state of the others,
and a hang or a crash ends in a message instead of a dead notebook.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from craft2.course.check_child import PATIENCE
from craft2.course.edition import REFERENCE, Edition, package_files
from craft2.course.exercises import exercise
from craft2.course.exercises.exercise import Exercise
from craft2.course.fallback import CHECKING
from craft2.course.splice import MarkerError, body_of, indented, regions, splice

TIME_LIMIT_S = 10.0
GRACE_S = 3.0  # what the child has beyond its limit to say what it was doing
WIDTH = 96  # characters a line of a notebook's output has room for before it breaks a word
PASSED, FAILED, NOT_STARTED = "passed", "failed", "not started"
LABELS = {"difference": "note"}  # how a person reads a field's name: it may be a reason, too
_RED, _GREEN, _BOLD, _OFF = "\x1b[31m", "\x1b[32m", "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True)
class Verdict:
    """What a check found; every field is text for a person, empty where it does not apply."""

    exercise: str
    status: str  # PASSED, FAILED or NOT_STARTED
    checked: str = ""  # what was checked, when it passed
    field: str = ""  # what was asked of the code, when it failed
    expected: str = ""
    got: str = ""
    difference: str = ""
    printed: str = ""  # what the code printed, when it failed
    hint: str = ""

    @property
    def one_line(self) -> str:
        """The verdict in one line; what matters comes first, as pytest's summary cuts at 80."""
        if self.status == PASSED:
            return f"{self.exercise} passed: {self.checked}"
        if self.status == NOT_STARTED:
            return f"not started: exercise {self.exercise} holds only its stub"
        return f"expected {self.expected}, got {self.got} from {self.field}"

    def lines(self) -> list[str]:
        """The verdict as a person reads it."""
        title = exercise(self.exercise).title
        if self.status == PASSED:
            return [f"{self.exercise} {title}: passed", f"checked: {self.checked}"]
        if self.status == NOT_STARTED:
            return [f"{self.exercise} {title}: not started", _row("hint", self.hint)]
        rows = [("asked", self.field), ("expected", self.expected), ("got", self.got)]
        rows += [
            (LABELS["difference"], self.difference),
            ("it printed", self.printed),
            ("hint", self.hint),
        ]
        return [f"{self.exercise} {title}: {self.status}"] + [
            _row(name, text) for name, text in rows if text
        ]


def _row(name: str, text: str) -> str:
    """One row of a verdict, wrapped at words unless it is lines already."""
    row, margin = f"  {name:<11}{text}", " " * 13
    if "\n" in text:
        return row.replace("\n", f"\n{margin}")
    return textwrap.fill(
        row, WIDTH, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False
    )


class CheckFailedError(AssertionError):
    """A check did not pass; in a notebook it shows as the verdict alone, without a traceback."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict)
        self.verdict = verdict

    def __str__(self) -> str:
        return self.verdict.one_line

    def _render_traceback_(self) -> list[str]:
        head, *rest = self.verdict.lines()
        return [f"{_RED}{_BOLD}{head}{_OFF}", *rest]


def check(exercise_id: str) -> None:
    """Check one exercise; print what was checked and why it is right, or raise CheckFailedError.

    In the repository itself, outside any edition, it checks the reference.
    """
    edition = Edition.find()
    verdict = run_check(exercise_id, edition.root if edition else REFERENCE)
    if verdict.status != PASSED:
        raise CheckFailedError(verdict)
    for line in (*verdict.lines(), f"why: {exercise(exercise_id).explanation}"):
        print(textwrap.fill(line, WIDTH, subsequent_indent="    "))


def run_check(
    exercise_id: str,
    root: Path,
    *,
    body: str | None = None,
    time_limit_s: float = TIME_LIMIT_S,
) -> Verdict:
    """Check one exercise of the packages under `root`, in a fresh child process.

    With `body` (flush left), that text stands in the region instead of what `root` holds: this is
    how the planted mistakes are tried.
    """
    task = exercise(exercise_id)
    with tempfile.TemporaryDirectory(prefix="craft2-check-") as scratch:
        try:
            _overlay(exercise_id, root, Path(scratch), body)
        except (MarkerError, OSError, SyntaxError, UnicodeDecodeError) as error:
            found = _failure("a file that can be read", f"{type(error).__name__}: {error}")
        else:
            found = _run_child(exercise_id, Path(scratch), time_limit_s)
    if found["status"] != PASSED:
        found.setdefault("field", task.title)
        found["hint"] = _latest_hint(task, Edition(root), found["status"])
    return Verdict(exercise=exercise_id, **found)


def _latest_hint(task: Exercise, edition: Edition, status: str) -> str:
    """The hint the learner was given last, or the first; and the command that gives more. Who has
    not begun has to ask; and for the last hint, which is nearly the solution, everybody has to."""
    asked = edition.remembered("hints")
    if status == NOT_STARTED and task.id not in asked:
        return f"there are {len(task.hints)} to ask for: `craft2 hint {task.id}`"
    given, all_of_them = max(1, asked.get(task.id, 1)), len(task.hints)
    number = min(given, all_of_them - 1)
    which = f"{task.hints[number - 1]} (hint {number} of {all_of_them}, whatever has failed; "
    if given < all_of_them:
        return f"{which}more: `craft2 hint {task.id}`)"
    return f"{which}the last one: `craft2 hint {task.id}`, then `craft2 solution {task.id}`)"


def _overlay(exercise_id: str, root: Path, scratch: Path, body: str | None) -> None:
    """Copy the exercise's package from `root`, all other regions replaced by the reference's."""
    task = exercise(exercise_id)
    for file in package_files(root, Path(task.file).parts[0]):
        target = scratch / "packages" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix != ".py":
            target.write_bytes((root / file).read_bytes())
            continue
        text = (root / file).read_text()
        original = (REFERENCE / file).read_text() if (REFERENCE / file).is_file() else ""
        for other in regions(original):
            if other != exercise_id:
                text = splice(text, other, body_of(original, other))
            elif body is not None:
                text = splice(text, other, indented(text, other, body))
        target.write_text(text)
    regions((scratch / "packages" / task.file).read_text())[exercise_id]


def _run_child(exercise_id: str, scratch: Path, time_limit_s: float) -> dict[str, str]:
    """Run `craft2.course.check_child` and return its verdict's fields."""
    result, output, place = (scratch / n for n in ("result.json", "output.txt", "work"))
    place.mkdir()
    env = dict(os.environ)
    env["PYTHONPATH"] = str(scratch / "packages")
    env[CHECKING] = exercise_id
    env["PYTHONHASHSEED"] = "0"  # the same attempt gets the same message
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, "-P", "-m", "craft2.course.check_child"]
    command += [exercise_id, str(result), str(time_limit_s)]
    with open(output, "wb") as out:
        # Its own session, so that what it starts dies with it; stdin is the lifeline: when this
        # process ends, however it ends, the child reads end of file and stops.
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=out, stderr=out,
            cwd=place, env=env, start_new_session=True,
        )  # fmt: skip
        try:
            # The child's own watchdog says more; this one is for code that never lets it run.
            code: int | None = _wait(child, time_limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _kill_group(child)
    if result.is_file():
        found: dict[str, str] = json.loads(result.read_text())
    elif code is None:
        found = _failure(
            f"an answer within {time_limit_s:.0f} s", "stopped: it never let go of the interpreter"
        )
    else:
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        found = _failure("the check to come to its end", f"the process ended early ({how})")
    if found["status"] == FAILED:
        found["printed"] = _tail(output.read_text(errors="replace"))
    return found


def _wait(child: subprocess.Popen[bytes], limit_s: float) -> int:
    """The child's exit code. Raises TimeoutExpired when it has worked, or waited, for too long."""
    import psutil

    latest = time.monotonic() + PATIENCE * limit_s + GRACE_S
    while True:
        try:
            return child.wait(timeout=limit_s + GRACE_S)
        except subprocess.TimeoutExpired:
            spent = psutil.Process(child.pid).cpu_times()
            if spent.user + spent.system > limit_s + GRACE_S or time.monotonic() > latest:
                raise


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    if child.stdin:
        child.stdin.close()
    child.wait()


def _failure(expected: str, got: str) -> dict[str, str]:
    return {"status": FAILED, "expected": expected, "got": got}


def _tail(text: str, lines: int = 10) -> str:
    """The last lines of what the code printed."""
    return "\n".join(text.strip().splitlines()[-lines:])
