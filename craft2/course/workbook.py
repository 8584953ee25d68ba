"""Writing a learner's edition (`craft2 start`) and renewing it (`craft2 update`).

Two promises.  `start` writes only what is missing.  `update` renews everything outside the
learner's regions, keeps what is inside them, and where the learner changed anything else it keeps
their version beside the new one and says so.  Nothing a learner wrote is ever deleted.

To know what the learner changed, the course remembers the SHA-256 of every file as it wrote it,
with the exercise regions emptied.
"""

from __future__ import annotations

import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from craft2.course.edition import (
    MARK,
    PACKAGES,
    REFERENCE,
    Edition,
    notebooks_folder,
    package_files,
    write_whole,
)
from craft2.course.splice import MarkerError, body_of, emptied, is_started, regions, splice
from craft2.errors import Craft2Error

_TOML = f"""\
# This file marks a learner's edition: the notebooks and commands look for it.
version = "{version("craft2")}"
"""

_PYTEST_INI = """\
# `pytest --nbval` in this folder grades it: see conftest.py.
[pytest]
addopts = --nbval --nbval-current-env --nbval-cell-timeout=150
testpaths = .craft2/notebooks
"""

_CONFTEST = '''\
"""Grading: `pytest --nbval` runs pristine copies of the notebooks on the packages in this folder.

Your own notebooks are yours to change: they are not what is graded, your code is.
"""

try:
    import craft2
except ImportError:
    raise SystemExit(
        "craft2 is not installed in the Python that runs this pytest.\\n"
        "Fix: run `source {venv}/bin/activate` first, then pytest again."
    ) from None

pytest_plugins = ["craft2.course.pytest_plugin"]
'''


class NotAnEditionError(Craft2Error):
    """A folder that holds something else was given where an edition was expected."""


def start(folder: Path, notebooks: Path | None = None) -> list[str]:
    """Write the learner's edition into `folder`; return what was done, one line a thing.

    Files that exist are kept as they are.  `notebooks` is where the committed notebooks are
    (default: those installed with the course).  Raises NotAnEditionError if the folder holds
    other things.
    """
    root = folder.resolve()
    if root.is_dir() and any(root.iterdir()) and not (root / MARK).exists():
        raise NotAnEditionError(
            f"{root} is not empty and holds no {MARK}", "name a new folder, or an empty one"
        )
    if root == REFERENCE:
        raise NotAnEditionError(f"{root} holds the course itself", "name another folder")
    new, kept = 0, 0
    edition = Edition(root)
    written = edition.remembered("written")
    for name, text in fresh_files(notebooks or notebooks_folder()).items():
        target = root / name
        if target.exists():
            kept += 1
            continue
        write_whole(target, text)
        written[name] = fingerprint(text)
        new += 1
    edition.remember("written", written)
    report = [f"wrote {new} files to {root}"] if new else []
    if kept:
        report.append(
            f"kept {kept} files that were there already: your exercises are kept "
            "(`craft2 update` renews the rest)"
        )
    return report


def update(edition: Edition, notebooks: Path | None = None) -> list[str]:
    """Renew the edition; return what was changed and what was kept beside, one line a thing."""
    report: list[str] = []
    notebooks = notebooks or notebooks_folder()
    written = edition.remembered("written")
    for name, text in fresh_files(notebooks).items():
        target = edition.root / name
        if not target.exists():
            write_whole(target, text)
            report.append(f"wrote {name}")
        elif name.startswith(".craft2/"):
            write_whole(target, text)
        else:
            report += _renew(target, name, text, written.get(name, ""))
        written[name] = fingerprint(text)
    for twin in edition.twins.glob("*.ipynb"):
        if not (notebooks / twin.name).exists():
            twin.unlink()  # no longer part of the course; the learner's own copy stays
    edition.remember("written", written)
    return report or ["everything was up to date"]


def fresh_files(notebooks: Path) -> dict[str, str]:
    """Every file of an untouched edition: relative path to text."""
    files = {
        MARK: _TOML,
        "pytest.ini": _PYTEST_INI,
        "conftest.py": _CONFTEST.format(venv=sys.prefix),
    }
    for package in PACKAGES:
        for path in package_files(REFERENCE, package):
            text = (REFERENCE / path).read_text()
            files[path.as_posix()] = emptied(text) if path.suffix == ".py" else text
    for path in sorted(notebooks.glob("*.ipynb")):
        text = path.read_text()
        files[f"notebooks/{path.name}"] = learners_notebook(text)
        files[f".craft2/notebooks/{path.name}"] = pristine_twin(text)
    return files


def learners_notebook(text: str) -> str:
    """A committed notebook without its outputs: the copy the learner works in."""
    return _strip(text, keep_exercises=False)


def pristine_twin(text: str) -> str:
    """A committed notebook with the outputs of its exercise cells only: what grading runs.

    nbval compares only cells that have an execution count; the others just have to run.
    """
    return _strip(text, keep_exercises=True)


def _strip(text: str, *, keep_exercises: bool) -> str:
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code" and not (keep_exercises and exercise_of(source_of(cell))):
            cell["outputs"], cell["execution_count"] = [], None
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def source_of(cell: dict[str, Any]) -> str:
    """A cell's source as one text: in the file it may be a list of lines."""
    source = cell["source"]
    return source if isinstance(source, str) else "".join(source)


def exercise_of(source: str) -> str:
    """The id of the exercise a cell checks, or "": the cell says `check("0.1")`."""
    for line in source.splitlines():
        if line.startswith('check("'):
            return line.split('"')[1]
    return ""


def fingerprint(text: str) -> str:
    """What tells whether a learner changed a file outside its exercise regions.

    For a notebook: its cells' sources, because running it changes everything else.
    """
    try:
        if text.startswith("{"):
            text = repr([source_of(cell) for cell in json.loads(text)["cells"]])
        else:
            text = emptied(text)
    except (MarkerError, SyntaxError, ValueError, KeyError, TypeError):
        pass  # not what it should be, so not what was written: any other text will do
    return hashlib.sha256(text.encode()).hexdigest()


def _renew(target: Path, name: str, fresh: str, was: str) -> list[str]:
    """Bring one existing file up to date, keeping the learner's regions and their changes."""
    theirs = target.read_text()
    if fingerprint(theirs) == fingerprint(fresh):
        return []
    changed_by_learner = fingerprint(theirs) != was
    if changed_by_learner and was == fingerprint(fresh) and name.endswith(".ipynb"):
        return []  # nothing new to bring: the notebook stays as the learner has it
    report = []
    if changed_by_learner:
        beside = keep_beside(target, "mine")
        report.append(f"{name}: you had changed it; your version is now {beside.name}")
    write_whole(target, _with_their_regions(fresh, theirs))
    return [*report, f"renewed {name}"]


def _with_their_regions(fresh: str, theirs: str) -> str:
    """`fresh` with every exercise the learner has started taken over from `theirs`."""
    try:
        ids = regions(theirs).keys() & regions(fresh).keys()
    except MarkerError:
        return fresh
    for exercise_id in ids:
        if is_started(theirs, exercise_id):
            fresh = splice(fresh, exercise_id, body_of(theirs, exercise_id))
    return fresh


def keep_beside(path: Path, word: str) -> Path:
    """Copy a file beside itself as NAME.word (or word-2, …; before .ipynb); return the copy."""
    number = 1
    while True:
        tag = word if number == 1 else f"{word}-{number}"
        if path.suffix == ".ipynb":
            copy = path.with_name(f"{path.stem}.{tag}.ipynb")
        else:
            copy = path.with_name(f"{path.name}.{tag}")
        if not copy.exists():
            copy.write_bytes(path.read_bytes())
            return copy
        number += 1
