"""`craft2 start` and `craft2 update`: nothing a learner wrote is lost, no solution leaks."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from course_helpers import NOTEBOOKS, write_body

from craft2.course import workbook
from craft2.course.edition import REFERENCE, Edition, notebooks_folder
from craft2.course.exercises import EXERCISES
from craft2.course.help import reference_body
from craft2.course.splice import body_of, emptied
from craft2.course.workbook import NotAnEditionError, fingerprint, start, update

PARTITIONER = "phase1_file_queue/partitioner.py"
TINY = "notebooks/99_tiny.ipynb"


def contents(root: Path) -> dict[str, str]:
    return {p.relative_to(root).as_posix(): p.read_text() for p in root.rglob("*") if p.is_file()}


def solution_lines() -> set[str]:
    """The lines that give an answer away: those that stand in a region and nowhere else."""
    inside, outside = set(), set()
    for task in EXERCISES.values():
        inside |= {line.strip() for line in reference_body(task.id).splitlines()}
    for text in (p.read_text() for p in REFERENCE.glob("phase*/**/*.py")):
        outside |= {line.strip() for line in emptied(text).splitlines()}
    return {line for line in inside - outside if len(line) > 8}


@pytest.mark.parametrize("notebooks", [NOTEBOOKS, notebooks_folder()])
def test_no_solution_line_occurs_anywhere_in_an_edition(tmp_path, notebooks):
    start(tmp_path / "w", notebooks=notebooks)
    secret = solution_lines()
    assert "return (murmur2(key) & 0x7FFFFFFF) % num_partitions" in secret
    assert "disk.rename(staged, path)" in secret
    for name, text in contents(tmp_path / "w").items():
        if name.endswith(".ipynb"):
            text = text.replace("\\n", "\n").replace('\\"', '"').replace('"', "\n")
        found = secret & {line.strip() for line in text.splitlines()}
        found |= {line for line in secret if len(line) > 20 and line in text}
        assert not found, f"{name} gives away {found}"


def test_edition_holds_what_it_needs(edition):
    names = contents(edition.root).keys()
    assert {"craft2.toml", "pytest.ini", "conftest.py", PARTITIONER, TINY} <= names
    assert ".craft2/notebooks/99_tiny.ipynb" in names
    assert not [n for n in names if n.startswith("craft2/")], "the toolkit is never copied"


def test_learners_notebook_has_no_outputs_and_the_twin_only_those_of_exercises(edition):
    for cell in json.loads((edition.root / TINY).read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    twin = json.loads((edition.twins / "99_tiny.ipynb").read_text())
    with_outputs = [c for c in twin["cells"] if c.get("outputs")]
    assert ["check(" in "".join(c["source"]) for c in with_outputs] == [True]
    assert with_outputs[0]["execution_count"] is not None


def test_start_again_keeps_everything_and_says_so(edition):
    write_body(edition, "0.1", "return 17")
    (edition.root / TINY).write_text("mine")
    (edition.root / "pytest.ini").unlink()
    before = contents(edition.root)
    report = start(edition.root, notebooks=NOTEBOOKS)
    after = contents(edition.root)
    assert {k: v for k, v in after.items() if k != "pytest.ini" and k in before} == before
    assert "pytest.ini" in after
    assert "wrote 1 files" in report[0]
    assert "your exercises are kept" in report[1]


def test_start_refuses_a_folder_with_other_things(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(NotAnEditionError, match="not empty"):
        start(tmp_path, notebooks=NOTEBOOKS)
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.txt"]


def test_start_refuses_the_course_itself():
    with pytest.raises(NotAnEditionError):
        start(REFERENCE)


@pytest.fixture
def newer(monkeypatch, tmp_path):
    """A newer course: one line changed outside the regions, one cell added to the notebook."""
    reference = tmp_path / "newer"
    for package in workbook.PACKAGES:
        shutil.copytree(REFERENCE / package, reference / package)
    path = reference / PARTITIONER
    path.write_text(path.read_text().replace("SEED = 0x9747B28C", "SEED = 0x9747B28C  # newer"))
    shutil.copytree(NOTEBOOKS, reference / "notebooks")
    notebook = reference / TINY
    text = json.loads(notebook.read_text())
    text["cells"].append(
        {"cell_type": "markdown", "id": "new", "metadata": {}, "source": "A new end."}
    )
    notebook.write_text(json.dumps(text))
    monkeypatch.setattr(workbook, "REFERENCE", reference)
    return reference / "notebooks"


def test_update_renews_around_the_learners_region(edition, newer):
    write_body(edition, "0.1", "return 17  # mine")
    report = update(edition, notebooks=newer)
    text = (edition.root / PARTITIONER).read_text()
    assert "# newer" in text
    assert body_of(text, "0.1").strip() == "return 17  # mine"
    assert f"renewed {PARTITIONER}" in report
    assert not list(edition.root.rglob("*.mine*"))
    assert "A new end." in (edition.root / TINY).read_text()
    assert "A new end." in (edition.twins / "99_tiny.ipynb").read_text()
    assert update(edition, notebooks=newer) == ["everything was up to date"]


def test_update_keeps_changes_outside_a_region_beside(edition, newer):
    path = edition.root / PARTITIONER
    path.write_text(path.read_text() + "\n\ndef my_helper(): ...\n")
    write_body(edition, "0.1", "return my_helper()")
    theirs = path.read_text()
    report = update(edition, notebooks=newer)
    assert (path.parent / "partitioner.py.mine").read_text() == theirs
    assert body_of(path.read_text(), "0.1").strip() == "return my_helper()"
    assert "# newer" in path.read_text()
    assert any("partitioner.py.mine" in line for line in report)
    path.write_text(path.read_text() + "\n# again\n")
    update(edition, notebooks=newer)
    assert (path.parent / "partitioner.py.mine").read_text() == theirs
    assert "# again" in (path.parent / "partitioner.py.mine-2").read_text()


def test_update_keeps_an_edited_notebook_beside_a_renewed_one(edition, newer):
    path = edition.root / TINY
    text = json.loads(path.read_text())
    text["cells"][0]["source"] = "my notes"
    path.write_text(json.dumps(text))
    update(edition, notebooks=newer)
    assert "A new end." in path.read_text()
    assert "my notes" in (path.parent / "99_tiny.mine.ipynb").read_text()


def test_update_leaves_an_edited_notebook_alone_when_there_is_nothing_new(edition):
    path = edition.root / TINY
    text = json.loads(path.read_text())
    text["cells"][0]["source"] = "my notes"
    path.write_text(json.dumps(text))
    assert update(edition, notebooks=NOTEBOOKS) == ["everything was up to date"]
    assert "my notes" in path.read_text()


def test_update_does_not_count_running_a_notebook_as_a_change(edition, newer):
    path = edition.root / TINY
    text = json.loads(path.read_text())
    text["cells"][1]["execution_count"] = 5
    path.write_text(json.dumps(text))
    update(edition, notebooks=newer)
    assert "A new end." in path.read_text()
    assert not list(edition.root.rglob("*.mine*"))


def test_update_with_broken_markers_keeps_the_file_beside_and_writes_a_good_one(edition):
    path = edition.root / PARTITIONER
    write_body(edition, "0.1", "return 17")
    path.write_text(path.read_text().replace("# BEGIN SOLUTION", ""))
    update(edition, notebooks=NOTEBOOKS)
    assert "return 17" in (path.parent / "partitioner.py.mine").read_text()
    assert "# your code here" in body_of(path.read_text(), "0.1")


def test_update_brings_back_a_deleted_file(edition):
    shutil.rmtree(edition.private)
    (edition.root / PARTITIONER).unlink()
    update(edition, notebooks=NOTEBOOKS)
    assert (edition.root / PARTITIONER).exists()
    assert (edition.twins / "99_tiny.ipynb").exists()


def test_update_drops_the_twin_of_a_notebook_that_left_the_course(edition, tmp_path):
    (tmp_path / "none").mkdir()
    update(edition, notebooks=tmp_path / "none")
    assert not list(edition.twins.glob("*.ipynb")), "it would still be graded"
    assert (edition.root / TINY).exists(), "the learner's copy is theirs"


def test_fingerprint_ignores_regions_and_outputs_only():
    text = (REFERENCE / PARTITIONER).read_text()
    assert fingerprint(text) == fingerprint(emptied(text))
    assert fingerprint(text) != fingerprint(text + "\n# more\n")
    notebook = (NOTEBOOKS / "99_tiny.ipynb").read_text()
    assert fingerprint(notebook) == fingerprint(workbook.learners_notebook(notebook))
    assert fingerprint("{not json") != fingerprint("{not json either")


def test_edition_is_found_from_inside_and_missed_outside(edition, tmp_path):
    assert Edition.find(edition.root / "notebooks") == edition
    assert Edition.find(edition.twins) == edition
    assert Edition.find(tmp_path) is None
