"""The committed notebooks keep the rules, and the rules notice what breaks them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from craft2.course.edition import notebooks_folder
from craft2.course.exercises import EXERCISES
from craft2.course.lint import CORE_MINUTES, core_minutes, lint, words_of

PATHS = sorted(notebooks_folder().glob("*.ipynb"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_notebook_keeps_the_rules(path):
    assert lint(path) == []


def test_the_core_path_fits_the_promised_hours():
    assert core_minutes(PATHS) <= CORE_MINUTES


def cell(kind: str, source: str) -> dict[str, object]:
    made: dict[str, object] = {"cell_type": kind, "id": "x", "metadata": {}, "source": source}
    return made | ({"execution_count": 1, "outputs": []} if kind == "code" else {})


def good() -> dict[str, object]:
    cells = [cell("markdown", "# Title\n" + "word " * 1_150), cell("code", 'begin("42")')]
    for _ in range(16):
        cells += [cell("markdown", "Look."), cell("code", "1")]
    cells.append(cell("markdown", "## Summary\n\n## Questionnaire\n\n## Further exercises"))
    course = {"minutes": 40, "core": True}
    return {"cells": cells, "metadata": {"craft2": course, "kernelspec": {"name": "python3"}}}


def complaints(tmp_path: Path, notebook: dict[str, object]) -> str:
    path = tmp_path / "42_x.ipynb"
    path.write_text(json.dumps(notebook))
    return "\n".join(lint(path))


def test_a_good_notebook_has_no_complaint(tmp_path):
    assert complaints(tmp_path, good()) == ""


@pytest.mark.parametrize(
    ("break_it", "complaint"),
    [
        (lambda n: n["cells"].__delitem__(slice(4, 10)), "14 code cells"),
        (lambda n: n["cells"][0].update(source="short"), "words of prose"),
        (lambda n: n["cells"][1].update(source="1"), "does not call begin"),
        (lambda n: n["cells"].pop(4), "code after code"),
        (lambda n: n["cells"][3].update(source="1\n" * 13), "13 lines"),
        (lambda n: n["cells"][3].update(source="input('?')"), "calls input()"),
        (lambda n: n["cells"][3].update(execution_count=None), "no execution count"),
        (lambda n: n["cells"][3].update(source='check("9.9")'), "no exercise"),
        (lambda n: n["cells"][3].update(source="x = 1; check('0.1')"), "at the start of a line"),
        (lambda n: n["metadata"].pop("craft2"), "minutes"),
        (lambda n: n["metadata"].pop("kernelspec"), "kernel"),
        (lambda n: n["cells"].pop(), "does not end with"),
        (
            lambda n: [c.update(source="1\n" * 6) for c in n["cells"][3::2]],
            "half of the code cells",
        ),
        (
            lambda n: n["cells"][3].update(outputs=[{"output_type": "error"}]),
            "ended in an error",
        ),
    ],
)
def test_a_broken_rule_is_named(tmp_path, break_it, complaint):
    notebook = good()
    break_it(notebook)
    assert complaint in complaints(tmp_path, notebook)


def test_words_are_those_of_the_prose():
    assert words_of("Kafka's hash, [a link](http://x.y/z).\n```python\nnot = these\n```") == 4


def test_every_exercise_is_checked_in_some_notebook():
    if not PATHS:
        pytest.skip("there are no notebooks yet")
    text = "\n".join(path.read_text() for path in PATHS)
    assert [e for e in EXERCISES if f'check(\\"{e}\\")' not in text] == []
