"""The commands: hints one at a time, the solution not at once, the attempt kept, grades."""

from __future__ import annotations

import ast
import csv
import io
import json
import re

import pytest
from course_helpers import EXERCISE_IDS, write_body
from rich.console import Console
from typer.testing import CliRunner

from craft2.apps.cli import app
from craft2.course import compare, hint, predict
from craft2.course.checking import PASSED, run_check
from craft2.course.edition import REFERENCE, NoEditionError
from craft2.course.exercises import EXERCISES, UnknownExerciseError
from craft2.course.grade import grade, print_table
from craft2.course.help import solve_all
from craft2.course.predictions import UnknownPredictionError, same
from craft2.course.show import folded, show
from craft2.course.workbook import source_of
from phase1_file_queue import partitioner


@pytest.fixture
def inside(edition, monkeypatch):
    monkeypatch.chdir(edition.root / "notebooks")
    return edition


def craft2(*words: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result.output


def test_hints_come_one_at_a_time_and_the_last_again(inside):
    hints = EXERCISES["0.1"].hints
    for number, text in enumerate((*hints, hints[-1]), start=1):
        out = craft2("hint", "0.1")
        assert text in " ".join(out.split())
        assert f"Hint {min(number, len(hints))} of {len(hints)}" in out
    assert "craft2 solution 0.1" in out
    assert "Hint 1 of" in craft2("hint", "1.1")


def test_hint_in_a_notebook_outside_an_edition_is_the_first_every_time(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    hint("0.1")
    first = capsys.readouterr().out
    hint("0.1")
    assert capsys.readouterr().out == first
    assert "Hint 1 of" in first


def test_hint_in_a_notebook_that_is_graded_is_not_counted(inside, monkeypatch, capsys):
    monkeypatch.setenv("CRAFT2_GRADING", "1")
    hint("0.1")
    monkeypatch.delenv("CRAFT2_GRADING")
    hint("0.1")
    assert capsys.readouterr().out.count("Hint 1 of") == 2


def test_hint_in_a_notebook_gives_the_next_only_after_the_code_changed(inside, capsys):
    def hint_of_notebook() -> str:
        hint("0.1")
        return capsys.readouterr().out

    first = hint_of_notebook()
    assert "Hint 1 of 3" in first
    assert "after changing your code" in first
    assert hint_of_notebook() == first, "run all cells: no hint is spent"
    write_body(inside, "0.1", "return 17")
    assert "Hint 2 of 3" in hint_of_notebook()
    assert "Hint 2 of 3" in hint_of_notebook()
    assert "Hint 3 of 3" in craft2("hint", "0.1"), "the command always gives the next"
    assert "Hint 3 of 3" in hint_of_notebook()


def test_a_failed_check_shows_the_hint_given_last(inside):
    hints = EXERCISES["0.1"].hints
    assert run_check("0.1", inside.root).hint == "there are 3 to ask for: `craft2 hint 0.1`"
    for number, text in enumerate(hints[:2], 1):
        craft2("hint", "0.1")
        which = f"(hint {number} of 3, whatever has failed; more: `craft2 hint 0.1`)"
        assert run_check("0.1", inside.root).hint == f"{text} {which}"


def test_the_last_hint_is_nearly_the_solution_and_nothing_shows_it_unasked(inside):
    write_body(inside, "0.1", "return 0")
    last = EXERCISES["0.1"].hints[-1]
    for _ in range(4):
        assert last not in run_check("0.1", inside.root).hint
        assert last not in json.loads(craft2("grade", "0.1", "--json", status=1))[0]["hint"]
        asked = craft2("hint", "0.1")
    assert last in " ".join(asked.split()), "who asks gets it, as often as they ask"
    assert "`craft2 solution 0.1`" in run_check("0.1", inside.root).hint


def test_every_exercise_has_a_hint_that_may_be_shown_unasked():
    assert min(len(task.hints) for task in EXERCISES.values()) >= 2


def test_solution_only_when_asked_for_twice(inside):
    first, second = craft2("solution", "0.1"), craft2("solution", "0.1")
    assert "0x7FFFFFFF" not in first
    assert "once more" in first
    assert "return (murmur2(key) & 0x7FFFFFFF) % num_partitions" in second
    assert EXERCISES["0.1"].explanation in " ".join(second.split())


def test_solution_at_once_after_passing(inside):
    solve_all(inside)
    out = craft2("solution", "1.1")
    assert EXERCISES["1.1"].explanation in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 96


def test_solve_writes_the_solution_and_keeps_the_attempt(inside):
    write_body(inside, "0.1", "return 17  # my attempt")
    out = craft2("solve", "0.1")
    folder = inside.root / "phase1_file_queue"
    assert "my attempt" in (folder / "partitioner.py.attempt-0.1").read_text()
    assert "partitioner.py.attempt-0.1" in out
    assert "my attempt" not in (folder / "partitioner.py").read_text()
    assert run_check("0.1", inside.root).status == PASSED
    assert craft2("solve", "0.1") == "0.1 already passes; nothing changed\n"
    assert not (folder / "partitioner.py.attempt-0.1-2").exists()
    write_body(inside, "0.1", "return 18")
    craft2("solve", "0.1")
    assert "return 18" in (folder / "partitioner.py.attempt-0.1-2").read_text()


def test_solve_of_an_untouched_stub_keeps_no_copy(inside):
    assert craft2("solve", "1.1") == "publish.py now holds the solution of 1.1\n"
    assert not list(inside.root.rglob("*.attempt*"))
    assert run_check("1.1", inside.root).status == PASSED


def test_commands_outside_an_edition_say_where_to_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoEditionError, match="craft2 start DIR"):
        craft2("hint", "0.1")


def test_the_workbook_is_found_from_above_it_and_start_makes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path / "workbook") in craft2("start")
    assert "Hint 1 of" in craft2("hint", "0.1")
    monkeypatch.chdir(tmp_path / "workbook" / "notebooks")
    assert "your exercises are kept" in craft2("start")
    assert not list(tmp_path.glob("workbook/**/workbook"))


def exercises(rows) -> list[dict[str, str]]:
    return [row for row in rows if row["title"] != "prediction"]


@pytest.fixture
def predicting(inside):
    """An edition with a notebook that asks for the predictions 99.1 and 99.2."""
    cells = ['x = 1\npredict("99.1", ...)', 'predict("99.2", ...)']
    made = {"cells": [{"cell_type": "code", "source": source} for source in cells]}
    (inside.twins / "99_x.ipynb").write_text(json.dumps(made))
    return inside


def test_grade_says_whether_a_prediction_was_recorded(predicting):
    def rows() -> list[tuple[str, ...]]:
        found = grade([predicting.root], notebooks=predicting.twins)
        columns = ("exercise", "status", "expected", "got")
        return [tuple(r[c] for c in columns) for r in found if r["title"] == "prediction"]

    predict("99.2", "all of them")
    assert rows() == [
        ("99.1", "not recorded", "", ""),
        ("99.2", "recorded", "", "'all of them'"),
    ]
    compare("99.2", 7)
    assert rows()[1] == ("99.2", "recorded", "7", "'all of them'")


def test_a_prediction_no_notebook_asks_for_is_refused(predicting):
    with pytest.raises(UnknownPredictionError, match=r"'99\.3'.*use one of 99\.1, 99\.2"):
        predict("99.3", 1)


def test_grade_reports_each_exercise_of_each_edition(inside, tmp_path):
    write_body(inside, "0.1", "return 0")
    rows = exercises(json.loads(craft2("grade", str(inside.root), "--json", status=1)))
    assert [(r["exercise"], r["status"]) for r in rows] == [
        ("0.1", "failed"),
        *((other, "not started") for other in EXERCISE_IDS[1:]),
    ]
    assert (rows[0]["expected"], rows[0]["got"]) == ("3", "0")
    assert rows[0]["asked"] == "partition_for(b'21', 7)"
    assert rows[0]["hint"]
    craft2("start", str(tmp_path / "other"))
    table = craft2("grade", "--csv", str(inside.root), str(tmp_path / "other"), status=1)
    read = exercises(csv.DictReader(io.StringIO(table)))
    assert [(r["edition"], r["exercise"], r["status"]) for r in read] == [
        ("workbook", "0.1", "failed"),
        *(("workbook", other, "not started") for other in EXERCISE_IDS[1:]),
        *(("other", each, "not started") for each in EXERCISE_IDS),
    ]


def test_grade_ends_with_status_1_until_all_that_it_was_asked_for_passes(inside):
    assert "not started" in craft2("grade", "0.1", status=1), "a script must not take it for done"
    craft2("solve", "0.1")
    assert "passed" in craft2("grade", "0.1")
    craft2("grade", "0.1", "1.1", "--csv", status=1)
    write_body(inside, "0.1", "return 0")
    assert "(hint 1 of 3" in " ".join(craft2("grade", "0.1", status=1).split())


def test_grade_reads_well_in_80_columns(inside):
    write_body(inside, "0.1", "return [][len(key)]")
    out = io.StringIO()
    print_table(grade([inside.root]), Console(file=out, width=80))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    below = " ".join(" ".join(lines[lines.index(next(x for x in lines if "asked" in x)) :]).split())
    assert below.startswith("0.1 asked: partition_for(")
    assert f"0.1 hint: {EXERCISES['0.1'].hints[0]}" in below
    assert "1.1 hint" not in below


def test_grade_takes_exercises_by_their_numbers(inside):
    write_body(inside, "0.1", "return 0")
    rows = json.loads(craft2("grade", "0.1", "10.1", "--json", status=1))
    assert [(r["exercise"], r["status"]) for r in rows] == [
        ("0.1", "failed"),
        ("10.1", "not started"),
    ]
    with pytest.raises(UnknownExerciseError, match=r"no exercise '9\.9'"):
        craft2("grade", "9.9")


def test_grade_takes_a_whole_notebook_by_its_number(predicting):
    def graded(*only: str) -> list[str]:
        rows = grade([predicting.root], notebooks=predicting.twins, only=only)
        return [f"{row['title'] == 'prediction'} {row['exercise']}" for row in rows]

    assert graded("11") == ["False 11.1", "False 11.2"]
    assert graded("00", "1.1") == ["False 1.1", "False 0.1"]
    assert graded("99") == ["True 99.1", "True 99.2"]
    with pytest.raises(UnknownExerciseError, match=r"notebook 98 has no exercise.*use one of 0\.1"):
        graded("98")
    assert [
        row["exercise"] for row in exercises(json.loads(craft2("grade", "3", "--json", status=1)))
    ] == [
        "3.1",
        "3.2",
        "3.3",
    ]


def test_grade_says_below_the_table_what_was_predicted(predicting):
    predict("99.2", "all of them")
    out = io.StringIO()
    print_table(grade([predicting.root], predicting.twins), Console(file=out, width=80))
    assert "prediction 99.2: you said 'all of them'\n" in out.getvalue()
    compare("99.2", "All of them")
    print_table(grade([predicting.root], predicting.twins), Console(file=out, width=80))
    assert "prediction 99.2: you said 'all of them', and so it is\n" in out.getvalue()
    assert "Not answered yet: 1 of the questions" in out.getvalue()
    assert "in place of the dots in predict(...)" in " ".join(out.getvalue().split())


def test_grade_does_not_believe_what_the_edition_says_about_itself(inside):
    """Twins, conftest and state are the learner's to touch: the checks are not."""
    for path in (*inside.twins.glob("*"), inside.root / "conftest.py"):
        path.write_text("{}")
    rows = exercises(json.loads(craft2("grade", str(inside.root), "--json", status=1)))
    assert {r["status"] for r in rows} == {"not started"}


def test_predictions_are_recorded_and_compared(predicting, capsys, monkeypatch):
    predict("99.1", ...)
    predict("99.1", 4)
    compare("99.1", 3)
    compare("99.2", 3)
    assert capsys.readouterr().out.splitlines() == [
        "Prediction 99.1: write your answer in place of the three dots.",
        "Prediction 99.1 recorded.",
        "Prediction 99.1: you said 4; it is 3.",
        "Prediction 99.2: you recorded nothing; it is 3.",
    ]
    predict("99.2", " No ")
    compare("99.2", "no")
    compare("99.2", "yes")
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Prediction 99.2: you said ' No ', and so it is.",
        "Prediction 99.2: you said ' No '; it is 'yes'.",
    ]
    predict("99.2", (2, -1))
    compare("99.2", (2, -1))
    assert "you said '(2, -1)', and so it is" in capsys.readouterr().out
    with pytest.raises(TypeError, match="not a number"):
        predict("99.2", [2, -1])
    monkeypatch.setenv("CRAFT2_GRADING", "1")
    predict("99.1", 1000)
    assert predicting.remembered("predictions")["99.1"] == 4, "grading replaces no answer"


def test_an_answer_can_be_written_as_the_question_says():
    written = []
    for path in sorted(REFERENCE.glob("notebooks/*.ipynb")):
        question = ""
        for cell in json.loads(path.read_text())["cells"]:
            text = source_of(cell)
            if cell["cell_type"] == "markdown":
                question = text
            for asked in re.findall(r'^predict\("([^"]+)"', text, flags=re.MULTILINE):
                for form in re.findall(r'such as\s(\([^)]*\)|"[^"]*")', question):
                    predict(asked, ast.literal_eval(form))
                    written.append(form)
    assert "(2, 2)" in written
    assert len(written) > 5


@pytest.mark.parametrize(
    ("said", "actual", "alike"),
    [
        ("No", "no", True),
        ("the new one is refused", "'The new one is refused '", True),
        ("The new one is refused.", "the new one is refused", True),
        ("14", 14.0, True),
        (".5", "5", False),
        ("(2,-1)", (2, -1), True),
        ("True", True, True),
        (1, True, False),
        ("no", "yes", False),
        (3, 4, False),
    ],
)
def test_case_and_blanks_around_do_not_make_a_prediction_wrong(said, actual, alike):
    assert same(said, actual) is alike


def test_predictions_outside_an_edition_leave_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    predict("99.1", 4)
    compare("99.1", 3)
    assert not list(tmp_path.iterdir())


def test_show_folds_exercises(capsys):
    show(partitioner)
    out = capsys.readouterr().out
    assert "def murmur2" in out
    assert "def partition_for" in out
    assert "% num_partitions" not in out
    assert "yours to write" in out
    assert folded("a\nb") == "a\nb"
    mine, stub = "x = 1", 'return reference("0.1")(key)'
    region = "# BEGIN SOLUTION\n{}\n# END SOLUTION"
    assert folded(region.format(mine), "a.py") == "...  # (yours, in a.py)"
    assert folded(region.format(stub), "a.py") == "...  # an exercise: yours to write"
