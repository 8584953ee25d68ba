"""`craft2 grade`: every exercise of one or many editions, found out by running the checks.

It uses the checks installed with the course and only the packages in the learner's folder: what
else was changed there does not matter.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from craft2.course.checking import FAILED, NOT_STARTED, PASSED, run_check
from craft2.course.edition import Edition, notebooks_folder
from craft2.course.exercises import EXERCISES
from craft2.course.predictions import prediction_ids

_COLUMN = 30  # characters of a table's cell
ASKED = ("asked", "expected", "got", "difference", "hint")
COLUMNS = ("edition", "exercise", "title", "status", *ASKED)
RECORDED, NOT_RECORDED = "recorded", "not recorded"  # a prediction is neither right nor wrong
_STYLE = {PASSED: "green", FAILED: "red", NOT_STARTED: "dim", RECORDED: "", NOT_RECORDED: "dim"}


def grade(folders: Iterable[Path], notebooks: Path | None = None) -> Iterator[dict[str, str]]:
    """One row (see COLUMNS) for each exercise of each edition, then one for each prediction.

    `notebooks` is where the committed notebooks are (default: those installed with the course).
    Raises NoEditionError for a folder that is none.
    """
    asked = prediction_ids(notebooks or notebooks_folder())
    editions = [Edition.require(folder) for folder in folders]
    with ThreadPoolExecutor(max_workers=2) as pool:
        for edition in editions:
            verdicts = pool.map(run_check, EXERCISES, [edition.root] * len(EXERCISES))
            for task, verdict in zip(EXERCISES.values(), verdicts, strict=True):
                yield {
                    "edition": edition.root.name,
                    "exercise": task.id,
                    "title": task.title,
                    "status": verdict.status,
                    "asked": verdict.field,
                    "expected": verdict.expected,
                    "got": verdict.got,
                    "difference": verdict.difference,
                    "hint": verdict.hint if verdict.status == FAILED else "",
                }
            yield from _predictions(edition, asked)


def _predictions(edition: Edition, ids: list[str]) -> Iterator[dict[str, str]]:
    """One row a prediction; `expected` is what came out, once the learner has seen it."""
    recorded, outcomes = edition.remembered("predictions"), edition.remembered("outcomes")
    for prediction_id in ids:
        yield dict.fromkeys(COLUMNS, "") | {
            "edition": edition.root.name,
            "exercise": prediction_id,
            "title": "prediction",
            "status": RECORDED if prediction_id in recorded else NOT_RECORDED,
            "expected": outcomes.get(prediction_id, ""),
            "got": repr(recorded[prediction_id]) if prediction_id in recorded else "",
        }


def as_json(rows: Iterable[dict[str, str]]) -> str:
    """The rows as a JSON list."""
    return json.dumps(list(rows), indent=1, ensure_ascii=False)


def as_csv(rows: Iterable[dict[str, str]]) -> str:
    """The rows as CSV with a header line."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def _is_short(text: str) -> bool:
    """Whether it can be read in a column of a table."""
    return len(text) <= _COLUMN


def print_table(rows: Iterable[dict[str, str]], console: Console | None = None) -> None:
    """The rows for a terminal: a table an edition, and below it what was asked, with a hint."""
    console = console or Console()
    for edition, group in itertools.groupby(rows, key=lambda row: row["edition"]):
        of_edition = list(group)
        table = Table("exercise", "status", "expected", "got", title=Text(edition, style="bold"))
        missing = sum(row["status"] == NOT_RECORDED for row in of_edition)
        for row in of_edition:
            if row["status"] != NOT_RECORDED:
                table.add_row(
                    Text(f"{row['exercise']} {row['title']}"),
                    Text(row["status"], style=_STYLE[row["status"]]),
                    *(
                        Text(row[c] if _is_short(row[c]) else "(below)")
                        for c in ("expected", "got")
                    ),
                )
        if missing:
            table.caption = f"{missing} predictions are not recorded"
        console.print(table)
        for row in of_edition:
            for column in ASKED:
                told = column in ("expected", "got") and _is_short(row[column])
                if row["status"] == FAILED and row[column] and not told:
                    text = Text(f"{row['exercise']} {column}: {row[column]}")
                    console.print(Padding(text, (0, 0, 0, 2), expand=False))
