"""Helpers for the tests of the course: writing into editions, running nbval there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from craft2.course.edition import Edition
from craft2.course.exercises import EXERCISES
from craft2.course.splice import indented, splice
from craft2.course.workbook import start

EXERCISE_IDS = list(EXERCISES)
ALL = ", ".join(EXERCISE_IDS)  # as `begin` lists them
ALL_BUT_FIRST = ", ".join(EXERCISE_IDS[1:])
NOTEBOOKS = Path(__file__).parents[1] / "data" / "notebooks"


def write_body(edition: Edition, exercise_id: str, body: str) -> None:
    """Put `body` (flush left) into an exercise of an edition, as a learner would."""
    path = edition.root / EXERCISES[exercise_id].file
    text = path.read_text()
    path.write_text(splice(text, exercise_id, indented(text, exercise_id, body)))


@dataclass
class Nbval:
    """What a run of `pytest --nbval` in an edition said."""

    code: int
    output: str

    def outcomes(self) -> dict[str, str]:
        """Cell name to PASSED, FAILED, XFAIL, ..., from pytest's verbose lines."""
        line = re.compile(r"\.ipynb::(.+?) (PASSED|FAILED|SKIPPED|XPASS|XFAIL)\b.*\[ *\d+%\]")
        return {m[1]: m[2] for m in map(line.search, self.output.splitlines()) if m}


def child_environment() -> dict[str, str]:
    """An environment without what an outer pytest run put there."""
    dropped = ("PYTHONPATH", "CRAFT2_GRADING", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")
    env = {k: v for k, v in os.environ.items() if k not in dropped}
    return env | {"COLUMNS": "200"}


def run_nbval(edition: Edition, *arguments: str) -> Nbval:
    """Run `pytest --nbval -v` in the edition's folder, as a learner would."""
    command = [sys.executable, "-m", "pytest", "--nbval", "-v", "--color=no", *arguments]
    done = subprocess.run(
        command, cwd=edition.root, env=child_environment(), capture_output=True, text=True
    )
    return Nbval(done.returncode, done.stdout + done.stderr)


def notebook_of(tmp_path: Path, *sources: str) -> Edition:
    """A fresh edition whose one notebook has these code cells."""
    cells = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"c{number}",
            "metadata": {},
            "outputs": [],
            "source": source,
        }
        for number, source in enumerate(sources)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = {
        "cells": cells,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "98_trouble.ipynb").write_text(json.dumps(book))
    start(tmp_path / "w", notebooks=folder)
    return Edition((tmp_path / "w").resolve())
