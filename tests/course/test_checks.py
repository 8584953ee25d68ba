"""The checks themselves: the reference passes, every planted mistake is caught and explained."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from course_helpers import ALL, ALL_BUT_FIRST, EXERCISE_IDS, child_environment, write_body

from craft2.course import check_child, checking
from craft2.course.checking import (
    FAILED,
    NOT_STARTED,
    PASSED,
    WIDTH,
    CheckFailedError,
    check,
    run_check,
)
from craft2.course.edition import REFERENCE, Edition
from craft2.course.exercises import EXERCISES, UnknownExerciseError
from craft2.course.help import reference_body, solve_all
from craft2.course.splice import body_of

MISTAKES = [(e.id, name) for e in EXERCISES.values() for name in e.wrong]


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_reference_passes_its_check(exercise_id):
    verdict = run_check(exercise_id, REFERENCE)
    assert verdict.status == PASSED, verdict.one_line
    assert verdict.checked


@pytest.mark.parametrize(("exercise_id", "mistake"), MISTAKES)
def test_planted_mistake_is_caught(exercise_id, mistake):
    task = EXERCISES[exercise_id]
    verdict = run_check(exercise_id, REFERENCE, body=task.wrong[mistake])
    assert verdict.status == FAILED
    assert verdict.field
    assert verdict.expected
    assert verdict.got
    assert verdict.expected != verdict.got
    assert task.hints[0] in verdict.hint
    assert "Traceback" not in verdict.got
    assert "SyntaxError" not in verdict.got, "the mistake is not what was planted"
    assert len(verdict.one_line) < 400, "a message, not a dump"


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_at_least_three_mistakes_and_hints(exercise_id):
    task = EXERCISES[exercise_id]
    assert len(task.wrong) >= 3
    assert len(task.hints) >= 2
    assert len(task.explanation) > 80


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_fresh_edition_is_not_started(edition, exercise_id):
    verdict = run_check(exercise_id, edition.root)
    assert verdict.status == NOT_STARTED
    assert verdict.hint


@pytest.mark.parametrize("exercise_id", EXERCISES)
def test_each_solution_alone_passes_whatever_the_others_hold(edition, exercise_id):
    for other in EXERCISES:
        write_body(edition, other, "return ((  # does not even parse")
    text = reference_body(exercise_id)
    write_body(edition, exercise_id, text)
    assert run_check(exercise_id, edition.root).status == PASSED
    other = EXERCISE_IDS[EXERCISE_IDS.index(exercise_id) - 1]
    assert run_check(other, edition.root).status == FAILED


def test_overlay_takes_every_other_exercise_from_the_reference(edition, tmp_path):
    for other in EXERCISES:
        write_body(edition, other, "return 'mine'")
    checking._overlay("0.1", edition.root, tmp_path, None)
    package = EXERCISES["0.1"].file.split("/")[0]  # the other packages are not copied at all
    bodies = {
        e.id: body_of((tmp_path / "packages" / e.file).read_text(), e.id)
        for e in EXERCISES.values()
        if e.file.startswith(f"{package}/")
    }
    assert len(bodies) > 5
    assert bodies.pop("0.1").strip() == "return 'mine'"
    assert bodies == {other: reference_body(other) for other in bodies}


def test_a_learners_own_helper_and_import_are_used(edition):
    path = edition.root / EXERCISES["0.1"].file
    path.write_text(path.read_text() + "\n\ndef positive(h):\n    return h & 0x7FFFFFFF\n")
    write_body(edition, "0.1", "return positive(murmur2(key)) % num_partitions")
    assert run_check("0.1", edition.root).status == PASSED


def test_a_hang_says_what_it_waited_for():
    body = "import threading\nthreading.Event().wait()"
    verdict = run_check("0.1", REFERENCE, body=body, time_limit_s=0.5)
    assert verdict.status == FAILED
    assert "stopped after" in verdict.got
    assert "partition_for(b'21', 1)" in verdict.got
    assert "`threading.Event().wait()` in partition_for" in verdict.got


def test_a_hang_that_holds_the_interpreter_is_stopped_too(monkeypatch):
    monkeypatch.setattr(checking, "GRACE_S", 0.5)
    body = "import re\nre.match(r'(a+)+$', 'a' * 64 + 'b')"
    verdict = run_check("0.1", REFERENCE, body=body, time_limit_s=0.5)
    assert verdict.status == FAILED
    assert "stopped" in verdict.got


class Machine:
    """Stands for `time`: a process that has a share of a processor."""

    def __init__(self, share):
        self.share, self.now = share, 0.0

    def sleep(self, seconds):
        self.now += seconds

    def monotonic(self):
        return self.now

    def process_time(self):
        return self.now * self.share


@pytest.mark.parametrize(
    ("share", "stopped_at"),
    [(1, 10), (0.25, 40), (0.0, 11), (0.01, 11), (0.1, 60)],
    ids=["works", "works on a busy machine", "waits", "looks now and then", "is at it for ever"],
)
def test_a_check_has_ten_seconds_of_work(share, stopped_at, monkeypatch):
    machine = Machine(share)
    monkeypatch.setattr(check_child, "time", machine)
    check_child._until_too_long(10.0)
    assert machine.now == pytest.approx(stopped_at, abs=1.01)


@pytest.mark.parametrize(
    ("body", "got"),
    [
        ("return no_such_name(key)", "NameError: name 'no_such_name' is not defined, at `return"),
        ("return ((", "SyntaxError: '(' was never closed, at `return ((`"),
        ("import os\nos._exit(3)", "exit code 3"),
        ("import os\nos._exit(0)", "exit code 0"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("raise SystemExit", "SystemExit"),
        ("return partition_for(key, num_partitions)", "RecursionError"),
        ("import sys\nsys.stdin.read()\nreturn 0", "it waited for `sys.stdin.read()`"),
    ],
)
def test_a_crash_becomes_a_message(body, got):
    verdict = run_check("0.1", REFERENCE, body=body)
    assert verdict.status == FAILED
    assert got in verdict.got


def test_a_fence_that_forgets_to_return_is_told_so():
    verdict = run_check("13.3", REFERENCE, body="self._unknown(request.member_id, None)")
    assert (verdict.expected, verdict.got) == ("ErrorCode.NONE", "None")
    assert "has to return an ErrorCode: ErrorCode.NONE if nothing is wrong" in verdict.difference


def test_an_endless_answer_is_cut():
    verdict = run_check("0.1", REFERENCE, body="return 'x' * 10_000_000")
    assert "characters)" in verdict.got
    assert len(verdict.one_line) < 1_000


def test_a_file_that_is_no_text_is_a_message(edition):
    (edition.root / EXERCISES["0.1"].file).write_bytes(b"\xff\xfe")
    verdict = run_check("0.1", edition.root)
    assert verdict.status == FAILED
    assert "UnicodeDecodeError" in verdict.got


def test_what_the_code_printed_is_shown_on_failure():
    verdict = run_check("0.1", REFERENCE, body="print('h is', murmur2(key))\nreturn 0")
    assert "h is 3321034988" in verdict.printed
    assert any("h is 3321034988" in line for line in verdict.lines())


def test_same_attempt_same_message():
    first, second = (run_check("0.1", REFERENCE, body="return hash(key) % 7") for _ in range(2))
    assert first == second


def test_missing_markers_are_a_message_not_a_traceback(edition):
    path = edition.root / EXERCISES["0.1"].file
    path.write_text(path.read_text().replace("# END SOLUTION", ""))
    verdict = run_check("0.1", edition.root)
    assert verdict.status == FAILED
    assert "`# END SOLUTION` is missing" in verdict.got


def test_check_prints_the_same_every_time_and_explains(capsys, monkeypatch):
    monkeypatch.chdir(REFERENCE)
    check("0.1")
    first = capsys.readouterr().out
    check("0.1")
    assert capsys.readouterr().out == first
    assert "0.1 a key's partition: passed" in first
    assert EXERCISES["0.1"].explanation in " ".join(first.split())
    assert max(map(len, first.splitlines())) <= WIDTH, "a notebook would break a word"


def test_check_failure_renders_as_the_verdict_alone(edition, monkeypatch):
    monkeypatch.chdir(edition.root / "notebooks")
    write_body(edition, "0.1", "return 0")
    with pytest.raises(CheckFailedError) as error:
        check("0.1")
    rendered = "\n".join(error.value._render_traceback_())
    assert "Traceback" not in rendered
    assert "expected   3" in rendered
    assert "got        0" in rendered
    assert "note       got - expected: -3" in rendered
    assert max(map(len, rendered.splitlines())) <= WIDTH, "a notebook would break a word"
    assert "hint " in rendered


def test_unknown_exercise_lists_the_known():
    with pytest.raises(UnknownExerciseError, match=r"0\.1"):
        run_check("9.9", REFERENCE)


SPAWNED = """
import multiprocessing, os, pathlib
from craft2.course import begin
begin("99")
import phase1_file_queue.partitioner as p
print("here", p.partition_for(b"UA", 4), p.partition_for(b"UA", 4) == 4711)
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("spawned", pool.apply(p.partition_for, (b"UA", 4)))
    import subprocess, sys
    code = "import phase1_file_queue.partitioner as p; print('child', p.partition_for(b'UA', 4))"
    subprocess.run([sys.executable, "-c", code], cwd="/", check=True)
"""


def run_script(edition: Edition, text: str) -> str:
    script = edition.root / "notebooks" / "script.py"
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=script.parent,
        env=child_environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_poisoned_edition_is_what_runs_here_in_spawned_and_in_other_processes(edition):
    write_body(edition, "0.1", "return 4711")
    out = run_script(edition, SPAWNED)
    assert "here 4711" in out
    assert "spawned 4711" in out
    assert "child 4711" in out


def test_unsolved_exercise_falls_back_to_the_reference_everywhere(edition):
    out = run_script(edition, SPAWNED)
    assert "For 0.1 the reference answers until you have written it." in out
    assert "spawned 2" in out
    assert "child 2" in out


def test_begin_says_who_answers(edition):
    write_body(edition, "0.1", "return 0")
    out = run_script(edition, 'from craft2.course import begin\nbegin("97")')
    assert " ".join(out.split()) == (
        "Notebook 97 runs on your code. "
        f"You have written 0.1; for {ALL_BUT_FIRST} "
        "the reference answers until you have written them."
    )
    assert max(map(len, out.splitlines())) <= WIDTH  # broken between numbers, not inside one
    solve_all(edition)
    out = run_script(edition, 'from craft2.course import begin\nbegin("97")')
    assert " ".join(out.split()) == (
        f"Notebook 97 runs on your code. You have written every exercise that it uses: {ALL}."
    )


def test_begin_speaks_of_this_notebook_and_those_before(edition):
    write_body(edition, "0.1", "return 0")
    out = run_script(edition, 'from craft2.course import begin\nbegin("00")')
    assert out.endswith("You have written every exercise that it uses: 0.1.\n")


def test_begin_speaks_of_what_the_notebook_checks_and_needs(edition):
    cell = {"cell_type": "code", "metadata": {"craft2": {"needs": ["1.1"]}}, "source": "x"}
    checks = {"cell_type": "code", "metadata": {}, "source": 'check("0.1")'}
    edition.twins.mkdir(parents=True, exist_ok=True)
    (edition.twins / "98_x.ipynb").write_text(json.dumps({"cells": [cell, checks]}))
    out = run_script(edition, 'from craft2.course import begin\nbegin("98")')
    assert "For 0.1, 1.1 the reference answers" in out


def test_begin_refuses_packages_imported_from_elsewhere(edition):
    out = run_script(
        edition,
        "import phase1_file_queue\n"
        "from craft2.course import begin\n"
        "try:\n    begin('99')\nexcept Exception as e:\n    print(type(e).__name__, e)\n",
    )
    assert "WrongCodeError phase1_file_queue comes from" in out
    assert "restart the kernel" in out


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "is missing from"),
        (lambda path: path.write_text(""), "marker line `# EXERCISE 0.1` is missing"),
    ],
)
def test_begin_in_a_damaged_edition_says_what_to_do(edition, damage, message):
    damage(edition.root / EXERCISES["0.1"].file)
    out = run_script(
        edition,
        "from craft2.course import begin\n"
        "try:\n    begin('99')\nexcept Exception as e:\n    print(type(e).__name__, e)\n",
    )
    assert "BrokenEditionError phase1_file_queue/partitioner.py" in out
    assert message in out
    assert "craft2 update" in out


def test_begin_outside_an_edition_runs_the_reference(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", 'from craft2.course import begin; begin("99")'],
        cwd=tmp_path,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == (
        "Notebook 99 runs on the reference code: this is not a learner's edition.\n"
    )
    assert not os.listdir(tmp_path)
