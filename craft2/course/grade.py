"""`craft2 grade`: every exercise of one or many editions, found out by running the checks.

It uses the checks installed with the course and only the packages in the learner's folder: what
else was changed there does not matter.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from craft2.course.checking import FAILED, LABELS, NOT_STARTED, PASSED, run_check
from craft2.course.edition import Edition, notebooks_folder
from craft2.course.exercises import EXERCISES, UnknownExerciseError, exercise
from craft2.course.predictions import prediction_ids, same

ASKED = ("asked", "expected", "got", "difference", "hint")
COLUMNS = ("edition", "exercise", "title", "status", *ASKED)
RECORDED, NOT_RECORDED = "recorded", "not recorded"  # a prediction is neither right nor wrong
_STYLE = {PASSED: "green", FAILED: "red", NOT_STARTED: "dim"}


def grade(
    folders: Iterable[Path], notebooks: Path | None = None, only: Sequence[str] = ()
) -> Iterator[dict[str, str]]:
    """One row (see COLUMNS) for each exercise of each edition, then one for each prediction.

    `notebooks` is where the committed notebooks are (default: those installed with the course).
    `only`: these exercises ("10.1"), and all exercises and predictions of these notebooks ("10");
    of all notebooks, if it is empty.
    Raises NoEditionError for a folder that is none, UnknownExerciseError for an exercise or a
    notebook.
    """
    every = prediction_ids(notebooks or notebooks_folder())
    whole = {int(word) for word in only if "." not in word}
    tasks = [exercise(word) for word in only if "." in word]
    tasks += [task for one, task in EXERCISES.items() if not only or _notebook(one) in whole]
    asked = [one for one in every if not only or _notebook(one) in whole]
    for number in sorted(whole - {_notebook(one) for one in (*EXERCISES, *every)}):
        raise UnknownExerciseError(
            f"notebook {number} has no exercise", f"use one of {', '.join(EXERCISES)}"
        )
    editions = [Edition.require(folder) for folder in folders]
    with ThreadPoolExecutor(max_workers=2) as pool:
        for edition in editions:
            verdicts = pool.map(lambda task, root=edition.root: run_check(task.id, root), tasks)
            for task, verdict in zip(tasks, verdicts, strict=True):
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


def _notebook(number: str) -> int:
    """The notebook of an exercise ("0.1") or a prediction ("00.1")."""
    return int(number.split(".")[0])


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


def all_pass(rows: Iterable[dict[str, str]]) -> bool:
    """Whether each exercise of the rows passes."""
    return {row["status"] for row in rows} <= {PASSED, RECORDED, NOT_RECORDED}


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


def print_table(rows: Iterable[dict[str, str]], console: Console | None = None) -> None:
    """The rows for a terminal: a table an edition; below it what was asked and came, with a hint,
    and what was predicted."""
    console = console or Console()
    for edition, group in itertools.groupby(rows, key=lambda row: row["edition"]):
        of_edition = list(group)
        table = Table("exercise", "status", title=Text(edition, style="bold"))
        missing = sum(row["status"] == NOT_RECORDED for row in of_edition)
        below = []
        for row in of_edition:
            if row["status"] == RECORDED:
                it_is = f"; it is {row['expected']}" if row["expected"] else ""
                if it_is and same(row["got"], row["expected"]):
                    it_is = ", and so it is"
                below.append(f"prediction {row['exercise']}: you said {row['got']}{it_is}")
            elif row["status"] != NOT_RECORDED:
                name = Text(f"{row['exercise']} {row['title']}")
                table.add_row(name, Text(row["status"], style=_STYLE[row["status"]]))
            if row["status"] == FAILED:
                told = [(LABELS.get(column, column), row[column]) for column in ASKED]
                below += [f"{row['exercise']} {label}: {text}" for label, text in told if text]
        if missing:
            below.append(
                f"Not answered yet: {missing} of the questions that the notebooks ask before an "
                "experiment. Put your answer in place of the dots in predict(...) and run the "
                "cell. Right or wrong does not count, and no exercise needs it."
            )
        if table.row_count:
            console.print(table)
        for line in below:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
