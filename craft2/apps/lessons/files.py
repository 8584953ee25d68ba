"""Views of a queue's directory, and a place on the right disk for a lesson's files."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

from craft2.course.edition import Edition
from craft2.course.predictions import GRADING_RESULTS

_PREFIX = ".lesson-"


def results_folder() -> Path:
    """Where measurements are kept: `results` in the edition, or beside the notebooks' folder.

    While notebooks are graded it is a temporary folder: grading adds no runs to the learner's.
    """
    return Path(os.environ.get(GRADING_RESULTS) or _home())


def _home() -> Path:
    edition = Edition.find()
    return (edition.root if edition else Path.cwd().parent) / "results"


def scratch() -> Path:
    """A new folder for a lesson's files, inside the results folder.

    Not in the system's temporary directory: that is often kept in memory, where a sync costs
    nothing and a lesson about syncs would lie.  Folders of kernels that are gone are removed.
    """
    parent = _home()
    parent.mkdir(exist_ok=True)
    for old in parent.glob(f"{_PREFIX}*"):
        owner = old.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not _alive(int(owner)):
            shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=parent))


def _alive(pid: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


def listing(folder: str | os.PathLike[str], most: int = 3) -> None:
    """Print the files under `folder` with their sizes, at most `most` messages of each folder.

    A file that holds just a number is shown with that number.  Names that begin with a dot (locks,
    files being prepared) are left out.
    """
    for line in _lines(Path(folder), most, ""):
        print(line)


def _lines(folder: Path, most: int, indent: str) -> Iterator[str]:
    yield f"{indent}{folder.name}/"
    entries = sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    files = [p for p in entries if p.is_file()]
    messages = [p for p in files if p.suffix == ".msg"]
    for path in messages[:most] + [p for p in files if p not in messages]:
        size, text = path.stat().st_size, path.read_bytes()[:20].strip()
        what = f"holds {text.decode()}" if text.isdigit() else f"{size} bytes"
        yield f"{indent + '    ' + path.name:<34}{what}"
        if path in messages[most - 1 : most] and len(messages) > most:
            yield f"{indent}    ... {len(messages) - most} more"
    for path in entries:
        if path.is_dir():
            yield from _lines(path, most, indent + "    ")


def tell(error: Exception, folder: Path) -> None:
    """Print an error as a paragraph: its name and its text, paths as seen from `folder`."""
    text = f"{type(error).__name__}: {error}".replace(f"{folder}{os.sep}", "")
    for line in text.splitlines():
        print(textwrap.fill(line, 96, subsequent_indent="    "))


def jsonl_lines(path: str | os.PathLike[str]) -> tuple[int, list[str]]:
    """(how many lines of a file are whole JSON objects, the lines that are not)."""
    whole, broken = 0, []
    for line in Path(path).read_text().splitlines():
        try:
            whole += isinstance(json.loads(line), dict)
        except ValueError:
            broken.append(line)
    return whole, broken
