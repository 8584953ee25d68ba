"""`pytest --nbval` in an edition: red and green in the right places, and the message arrives."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from course_helpers import Nbval, notebook_of, run_nbval, write_body

from craft2.course.help import solve_all


def test_fresh_edition_is_red_exactly_at_the_exercise_cells(edition):
    run = run_nbval(edition)
    assert run.outcomes() == {
        "cell 0": "PASSED",
        "cell 1": "PASSED",
        "exercise 0.1": "FAILED",
        "cell 3": "PASSED",
    }, run.output
    assert run.code == 1
    assert (
        "99_tiny.ipynb::exercise 0.1 - not started: exercise 0.1 holds only its stub" in run.output
    )


def test_solved_edition_is_green_whatever_the_learners_notebook_holds(edition):
    solve_all(edition)
    (edition.root / "notebooks" / "99_tiny.ipynb").write_text("spoiled")
    run = run_nbval(edition)
    assert run.code == 0, run.output
    assert set(run.outcomes().values()) == {"PASSED"}


def test_wrong_code_shows_expected_and_got_and_which_exercise_a_cell_needs(edition):
    write_body(edition, "0.1", "return [][len(key)]")
    notebook = edition.root / "notebooks" / "99_tiny.ipynb"
    cells = json.loads(notebook.read_text())
    cells["cells"] = [c for c in cells["cells"] if "check(" not in "".join(c["source"])]
    notebook.write_text(json.dumps(cells))
    run = run_nbval(edition, "notebooks/99_tiny.ipynb")
    assert run.outcomes()["cell 1"] == "FAILED", run.output
    assert run.outcomes()["exercise 0.1"] == "FAILED", "a deleted check does not help"
    assert run.outcomes()["cell 3"] == "PASSED"
    assert "exercise 0.1 - expected no exception, got IndexError: list index" in run.output
    assert "cell 1 - needs 0.1, which is wrong: expected no exception" in run.output


def test_poisoned_edition_runs_in_nbvals_kernels_and_a_selected_cell_gets_its_setup(edition):
    write_body(edition, "0.1", "return 4711")
    twin = edition.twins / "99_tiny.ipynb"
    text = twin.read_text()
    last = """assert partition_for(b'UA', 4) == 4711"""
    assert """print(\\"all of it ran\\")""" in text
    twin.write_text(text.replace("""print(\\"all of it ran\\")""", last))
    run = run_nbval(edition, "-k", "3")
    everything = {
        "cell 0": "PASSED",
        "cell 1": "PASSED",
        "exercise 0.1": "FAILED",
        "cell 3": "PASSED",
    }
    assert run.outcomes() == everything, run.output
    del everything["cell 3"]
    assert run_nbval(edition, "--lf").outcomes() == everything


def test_measurements_of_a_grading_do_not_join_the_learners(tmp_path):
    edition = notebook_of(
        tmp_path,
        "from craft2.apps.lessons.files import results_folder\n"
        "where = results_folder()\n"
        "(where / 'row').write_text('1')",
        "assert (results_folder() / 'row').read_text() == '1'\nraise OSError(str(where))",
    )
    run = run_nbval(edition)
    assert run.outcomes()["cell 0"] == "PASSED", run.output
    where = re.search(r"OSError: (\S*craft2-results-\w+)", run.output)
    assert where, run.output
    assert not Path(where[1]).exists(), "and is removed at the end"
    assert not (edition.root / "results").exists()


def test_a_python_without_craft2_is_told_what_to_do(edition):
    script = "import sys; sys.modules['craft2'] = None; exec(open('conftest.py').read())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=edition.root, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "craft2 is not installed in the Python that runs this pytest.",
        f"Fix: run `source {sys.prefix}/bin/activate` first, then pytest again.",
    ]


def test_a_dead_kernel_is_noticed_and_named(tmp_path):
    edition = notebook_of(tmp_path, "1", "import os\nos.kill(os.getpid(), 9)", "2")
    run = run_nbval(edition, "-rfx")
    assert run.outcomes() == {
        "cell 0": "PASSED",
        "cell 1": "FAILED",
        "cell 2": "XFAIL",
    }, run.output
    assert "cell 1 - the kernel died in cell 1" in run.output
    assert "cell 2 - not run: the kernel died in cell 1" in run.output


def test_a_hanging_cell_is_interrupted(tmp_path):
    edition = notebook_of(tmp_path, "import threading\nthreading.Event().wait()", "print(1)")
    run: Nbval = run_nbval(edition, "--nbval-cell-timeout=1")
    assert run.outcomes()["cell 0"] == "FAILED", run.output
    assert "KeyboardInterrupt" in run.output
    assert "cell 0 - Timeout of 1 seconds exceeded" in run.output
