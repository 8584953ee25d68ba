"""When a cell fails because an exercise it needs is wrong, say which.

The author's tool measures what each cell needs and stores it in the cell's metadata:
`"craft2": {"needs": ["0.1"]}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from craft2.course.checking import FAILED, CheckFailedError, run_check
from craft2.course.edition import Edition
from craft2.course.workbook import exercise_of, source_of


def wrong_needs(needs: list[str], root: Path) -> list[str]:
    """Of these exercises, those whose check fails on the packages in `root`, each with why."""
    verdicts = (run_check(exercise_id, root) for exercise_id in needs)
    return [f"{v.exercise}, which is wrong: {v.one_line}" for v in verdicts if v.status == FAILED]


def needs_of(edition: Edition, notebook: str, source: str, cell_id: str | None) -> list[str]:
    """What the pristine notebook ("01") says that a cell needs.

    The learner may have changed the cell, or not every editor says a cell's id: either will do.
    """
    for path in edition.twins.glob(f"{notebook}_*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            if (cell_id and cell.get("id") == cell_id) or source_of(cell).strip() == source.strip():
                needs: list[str] = cell["metadata"].get("craft2", {}).get("needs", [])
                return needs
    return []


def used_by(edition: Edition, notebook: str) -> set[str] | None:
    """The exercises that the pristine notebook checks or needs; None if there is no such one."""
    for path in edition.twins.glob(f"{notebook}_*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        checked = {exercise_of(source_of(cell)) for cell in cells} - {""}
        return checked.union(*(c["metadata"].get("craft2", {}).get("needs", []) for c in cells))
    return None


def after_cell(edition: Edition, notebook: str) -> Callable[[Any], None]:
    """What IPython is to call after each cell of a learner's notebook."""

    def explain(result: Any) -> None:
        error = result.error_in_exec
        if error is None or isinstance(error, CheckFailedError):
            return
        needs = needs_of(edition, notebook, result.info.raw_cell, result.info.cell_id)
        for text in wrong_needs(needs, edition.root):
            print(f"This cell needs exercise {text}")

    return explain
