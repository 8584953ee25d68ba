"""The author's tools: outputs stored, needs measured, cells written as text."""

from __future__ import annotations

import shutil

import nbformat
import pytest
from course_helpers import NOTEBOOKS

from craft2.course.author import (
    NotebookFailedError,
    execute,
    main,
    measure_needs,
    notebook_from_py,
)

TEXT = """\
# craft2: minutes = 40
# craft2: core = true

# %% [markdown]
# # A title
#
# Some *prose*: 1 # 2.

# %%
1 + 1

# %%
from craft2.course import show
from phase1_file_queue import partitioner
show(partitioner)
"""


def test_cells_are_written_as_text():
    notebook = notebook_from_py(TEXT)
    assert [c.cell_type for c in notebook.cells] == ["markdown", "code", "code"]
    assert notebook.cells[0].source == "# A title\n\nSome *prose*: 1 # 2."
    assert notebook.cells[1].source == "1 + 1"
    assert notebook.metadata.craft2 == {"minutes": 40, "core": True}


def test_running_a_notebook_stores_what_is_the_same_every_time(tmp_path):
    (tmp_path / "97_text.py").write_text(TEXT)
    main([str(tmp_path / "97_text.py")])
    path = tmp_path / "97_text.ipynb"
    first = path.read_text()
    notebook = nbformat.reads(first, as_version=4)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    assert [c.execution_count for c in code] == [1, 2]
    assert code[0].outputs[0].data["text/plain"] == "2"
    assert code[1].metadata.tags == ["nbval-ignore-output"]
    assert "% num_partitions" not in first, "show folds exercises"
    assert notebook.metadata.kernelspec.name == "python3"
    execute(path)
    assert path.read_text() == first


def test_a_cell_that_raises_is_named(tmp_path):
    path = tmp_path / "97_text.ipynb"
    nbformat.write(notebook_from_py("\n# %%\n1 / 0"), path)
    with pytest.raises(NotebookFailedError, match=r"97_text.ipynb, cell 0: ZeroDivisionError"):
        execute(path)


def test_needs_are_measured_by_breaking_one_exercise_at_a_time(tmp_path):
    shutil.copy(NOTEBOOKS / "99_tiny.ipynb", tmp_path)
    assert measure_needs(tmp_path / "99_tiny.ipynb") == {3: ["0.1"]}
