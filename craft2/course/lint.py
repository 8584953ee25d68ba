"""The rules for notebooks that a machine can check.

    python -m craft2.course.lint notebooks/*.ipynb

The figures are those that hold in notebooks people finish: short cells, prose around each, an
honest number of minutes.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

from craft2.course.exercises import EXERCISES
from craft2.course.workbook import exercise_of, source_of

CODE_CELLS = range(15, 26)
WORDS = range(1_100, 1_701)
LONGEST_CELL, MEDIAN_CELL = 12, 5  # lines
CORE_MINUTES = 660  # of all core notebooks together: the course promises 8 to 12 hours
CLOSING = ("summary", "questionnaire", "further exercises")  # headings near the end, in this order


def lint(path: Path) -> list[str]:
    """What is wrong with one notebook, one line a thing; an empty list if nothing is."""
    notebook = json.loads(path.read_text())
    cells = notebook["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    found = _size(cells, code) + _first_cells(path, notebook, code)
    found += _prose_around(cells) + _cells(code) + _closing(cells)
    return [f"{path.name}: {what}" for what in found]


def core_minutes(paths: list[Path]) -> int:
    """The minutes that the core notebooks among `paths` declare, together."""
    declared = [json.loads(path.read_text())["metadata"].get("craft2", {}) for path in paths]
    return sum(course.get("minutes", 0) for course in declared if course.get("core"))


def lines_of(source: str) -> int:
    """How many lines a reader reads: blank ones and nbval's markers do not count."""
    lines = [line.strip() for line in source.splitlines()]
    return len([line for line in lines if line and not line.startswith("# NBVAL_")])


def words_of(source: str) -> int:
    """How many words of prose a markdown cell holds: no code blocks, no link targets, no tags."""
    prose = re.sub(r"```.*?```", " ", source, flags=re.DOTALL)
    prose = re.sub(r"\]\([^)]*\)|<[^>]*>", " ", prose)
    return len(re.findall(r"[^\W_]+(?:['’.,-][^\W_]+)*", prose))


def _size(cells: list[Any], code: list[Any]) -> list[str]:
    found = []
    if len(code) not in CODE_CELLS:
        found.append(f"{len(code)} code cells, not {CODE_CELLS.start} to {CODE_CELLS.stop - 1}")
    words = sum(words_of(source_of(c)) for c in cells if c["cell_type"] == "markdown")
    if words not in WORDS:
        found.append(f"{words} words of prose, not {WORDS.start} to {WORDS.stop - 1}")
    lengths = [lines_of(source_of(cell)) for cell in code]
    if lengths and statistics.median(lengths) > MEDIAN_CELL:
        found.append(f"half of the code cells are longer than {MEDIAN_CELL} lines")
    return found


def _first_cells(path: Path, notebook: Any, code: list[Any]) -> list[str]:
    found = []
    number = path.name.split("_")[0]
    if not code or f'begin("{number}")' not in source_of(code[0]):
        found.append(f'the first code cell does not call begin("{number}")')
    course = notebook["metadata"].get("craft2", {})
    if not isinstance(course.get("minutes"), int) or not isinstance(course.get("core"), bool):
        found.append('the metadata lacks "craft2": {"minutes": …, "core": true or false}')
    if notebook["metadata"].get("kernelspec", {}).get("name") != "python3":
        found.append("the kernel is not python3")
    return found


def _prose_around(cells: list[Any]) -> list[str]:
    return [
        f"cell {index} is code after code: say first what it does"
        for index, cell in enumerate(cells)
        if cell["cell_type"] == "code" and (index == 0 or cells[index - 1]["cell_type"] == "code")
    ]


def _cells(code: list[Any]) -> list[str]:
    found = []
    for number, cell in enumerate(code):
        source = source_of(cell)
        if (length := lines_of(source)) > LONGEST_CELL:
            found.append(f"code cell {number} has {length} lines, more than {LONGEST_CELL}")
        if re.search(r"\binput\(", source):
            found.append(f"code cell {number} calls input(): use predict()")
        if cell.get("execution_count") is None:
            found.append(f"code cell {number} has no execution count, so is never compared")
        exercise_id = exercise_of(source)
        if re.search(r"\bcheck\(", source) and not exercise_id:
            found.append(f'code cell {number}: write check("…") at the start of a line')
        if exercise_id and exercise_id not in EXERCISES:
            found.append(f"code cell {number} checks {exercise_id}, which is no exercise")
        if any(output["output_type"] == "error" for output in cell["outputs"]):
            tags = cell["metadata"].get("tags", [])
            if "raises-exception" not in tags and "# NBVAL_RAISES_EXCEPTION" not in source:
                found.append(f"code cell {number} ended in an error")
    return found


def _closing(cells: list[Any]) -> list[str]:
    text = "\n".join(source_of(c) for c in cells if c["cell_type"] == "markdown")
    headings = [h.strip().lower() for h in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)]
    if headings[-len(CLOSING) :] != list(CLOSING):
        return [f"it does not end with the headings {', '.join(CLOSING)}"]
    return []


if __name__ == "__main__":
    complaints = [line for name in sys.argv[1:] for line in lint(Path(name))]
    sys.exit("\n".join(complaints) or 0)
