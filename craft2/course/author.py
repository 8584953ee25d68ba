"""For those who write notebooks: run one on the reference and store what it printed.

    python -m craft2.course.author notebooks/00_start_here.ipynb [--needs]

The committed notebook is the source.  This runs it in a clean kernel, stores outputs and execution
counts, and drops whatever differs from run to run; cells are formatted first.  With `--needs` it
also measures which cells need which exercise, by breaking one exercise at a time, and stores that
in the cells' metadata.

A file of `# %%` cells (see `notebook_from_py`) is turned into a notebook first.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

from craft2.course.edition import Edition
from craft2.course.exercises import EXERCISES
from craft2.course.help import solve_all
from craft2.course.splice import indented, splice
from craft2.course.workbook import exercise_of, start
from craft2.errors import Craft2Error

CELL_TIMEOUT_S = 150  # a Spark of its own needs 120 at most on a busy machine
_KERNELSPEC = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
_WIDGETS = "application/vnd.jupyter.widget-view+json"  # of objects that ended with their kernel


class NotebookFailedError(Craft2Error):
    """A cell of a notebook raised on the reference."""


def tidy(path: Path) -> None:
    """Format a notebook's cells and sort their imports, as `make test` wants them."""
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "--quiet", "--fix", "--select", "I", str(path)], check=True)
    subprocess.run([*ruff, "format", "--quiet", str(path)], check=True)


def execute(path: Path) -> None:
    """Run the notebook at `path` on the reference and store outputs, counts and clean metadata."""
    notebook = nbformat.read(path, as_version=4)
    _run(notebook, path.parent)
    for number, cell in enumerate(notebook.cells):
        raised = [o for o in cell.get("outputs", []) if o.output_type == "error"]
        if raised and "raises-exception" not in cell.metadata.get("tags", []):
            trace = "\n".join(raised[0].traceback)
            raise NotebookFailedError(
                f"{path.name}, cell {number}: {raised[0].ename}: {raised[0].evalue}\n{trace}",
                "repair the cell; a cell meant to raise has the tag `raises-exception`",
            )
    clean(notebook)
    nbformat.write(notebook, path)


def clean(notebook: nbformat.NotebookNode) -> None:
    """Drop what differs from run to run, and set what must be the same in every notebook."""
    course = notebook.metadata.get("craft2", {})
    notebook.metadata = nbformat.from_dict({"kernelspec": _KERNELSPEC, "craft2": course})
    number = 0
    for index, cell in enumerate(notebook.cells):
        cell.id = f"cell-{index}"
        kept = {k: cell.metadata[k] for k in ("craft2", "tags") if cell.metadata.get(k)}
        if cell.cell_type == "code":
            if re.search(r"(?<![\w.])show\(", cell.source):  # ours, not a data frame's
                kept["tags"] = sorted({*kept.get("tags", []), "nbval-ignore-output"})
            number += 1
            cell.execution_count = number
            for output in cell.outputs:
                output.get("data", {}).pop(_WIDGETS, None)
                if output.output_type == "execute_result":
                    output.execution_count = number
        cell.metadata = nbformat.from_dict(kept)


def measure_needs(path: Path) -> dict[int, list[str]]:
    """Which code cells need which exercises: cell index to exercise ids, cells without left out.

    Runs the notebook once an exercise, in an edition that holds every solution but this one, whose
    region raises.  A cell needs the exercise if it then fails.
    """
    needs: dict[int, list[str]] = {}
    for exercise_id, task in EXERCISES.items():
        notebook = nbformat.read(path, as_version=4)
        with tempfile.TemporaryDirectory(prefix="craft2-needs-") as folder:
            edition = Edition(Path(folder).resolve())
            start(edition.root, notebooks=path.parent)
            solve_all(edition)
            broken = edition.root / task.file
            text = broken.read_text()
            body = indented(text, exercise_id, 'raise RuntimeError("broken on purpose")')
            broken.write_text(splice(text, exercise_id, body))
            _run(notebook, edition.root / "notebooks")
        for index, cell in enumerate(notebook.cells):
            failed = any(o.output_type == "error" for o in cell.get("outputs", []))
            if failed and not exercise_of(cell.source):
                needs.setdefault(index, []).append(exercise_id)
    return needs


def store_needs(path: Path) -> None:
    """Measure the needs of a notebook's cells and store them in it."""
    needs = measure_needs(path)
    notebook = nbformat.read(path, as_version=4)
    for index, cell in enumerate(notebook.cells):
        course = {k: v for k, v in cell.metadata.get("craft2", {}).items() if k != "needs"}
        if index in needs:
            course["needs"] = needs[index]
        if course or "craft2" in cell.metadata:
            cell.metadata.craft2 = course
    nbformat.write(notebook, path)


def _run(notebook: nbformat.NotebookNode, folder: Path) -> None:
    """Run all cells in a clean kernel that starts in `folder`; errors stay in the cells."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT_S,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        client.execute(env=env)
    except DeadKernelError as error:
        raise NotebookFailedError(
            "the notebook's kernel died", "run its cells one by one"
        ) from error


def notebook_from_py(text: str) -> Any:
    """A notebook from a text of `# %%` (code) and `# %% [markdown]` cells.

    The lines of a markdown cell start with `# `.  A line `# craft2: KEY = VALUE`
    before the first cell sets a number or true/false in the notebook's `craft2` metadata.
    """
    head, *parts = text.split("\n# %%")
    notebook = nbformat.v4.new_notebook(metadata={"craft2": {}})
    for line in head.splitlines():
        if line.startswith("# craft2:"):
            key, value = (part.strip() for part in line.removeprefix("# craft2:").split("="))
            notebook.metadata.craft2[key] = int(value) if value.isdigit() else value == "true"
    for part in parts:
        first, _, body = part.partition("\n")
        if first.strip() == "[markdown]":
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.split("\n")]
            notebook.cells.append(nbformat.v4.new_markdown_cell("\n".join(lines).strip()))
        else:
            notebook.cells.append(nbformat.v4.new_code_cell(body.strip()))
    return notebook


def main(arguments: list[str]) -> None:
    """Run every notebook (or `.py` file of cells) named on the command line."""
    for name in (a for a in arguments if not a.startswith("-")):
        path = Path(name)
        if path.suffix == ".py":
            notebook = notebook_from_py(path.read_text())
            path = path.with_suffix(".ipynb")
            nbformat.write(notebook, path)
        tidy(path)
        if "--needs" in arguments:
            store_needs(path)
        execute(path)
        print(f"{path}: done")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Craft2Error as error:
        sys.exit(str(error))
