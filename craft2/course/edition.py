"""Where things are: the reference packages, a learner's edition, and what it remembers.

The *reference* is the phase packages as installed (or as in the repository).  An *edition* is a
learner's folder: `craft2.toml` marks it, and it holds copies of the phase packages with the
exercise regions emptied.  Everything the course writes for itself is under `.craft2/`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import craft2
from craft2.course.splice import MarkerError, is_started
from craft2.errors import Craft2Error

REFERENCE = Path(craft2.__file__).resolve().parents[1]
_PHASES = ("phase1_file_queue", "phase2_groups", "phase3_raft")
PACKAGES = tuple(name for name in _PHASES if (REFERENCE / name).is_dir())
MARK = "craft2.toml"
WORKBOOK = "workbook"  # the edition's folder unless another is named


class NoEditionError(Craft2Error):
    """A command that works on a learner's folder was given none."""


class BrokenEditionError(Craft2Error):
    """A file of the edition is missing, or the marker lines of an exercise are."""


@dataclass(frozen=True)
class Edition:
    """A learner's folder."""

    root: Path

    @classmethod
    def find(cls, start: Path | None = None) -> Edition | None:
        """The edition that `start` (default: the current folder) lies in, or None."""
        here = (start or Path.cwd()).resolve()
        for folder in (here, *here.parents):
            if (folder / MARK).is_file():
                return cls(folder)
        return None

    @classmethod
    def require(cls, start: Path | None = None) -> Edition:
        """Like `find`, or the one in `workbook` below `start`; NoEditionError if there is none."""
        if start is not None and not start.exists():
            raise NoEditionError(
                f"there is no folder {str(start)!r}", "give a workbook's folder, or nothing"
            )
        edition = cls.find(start) or cls.find((start or Path.cwd()) / WORKBOOK)
        if edition is None:
            raise NoEditionError(
                f"there is no {MARK} in {(start or Path.cwd()).resolve()} or above it",
                "go to your workbook folder, or make one with `craft2 start DIR` or `craft2 start`",
            )
        return edition

    @property
    def private(self) -> Path:
        """The folder the course keeps its own things in."""
        return self.root / ".craft2"

    @property
    def twins(self) -> Path:
        """The pristine notebooks that grading runs."""
        return self.private / "notebooks"

    def remembered(self, topic: str) -> dict[str, Any]:
        """What was last remembered under `topic` ("hints", "predictions"), or an empty dict."""
        try:
            found = json.loads((self.private / f"{topic}.json").read_text())
        except (FileNotFoundError, json.JSONDecodeError):
            return {}
        return found if isinstance(found, dict) else {}

    def remember(self, topic: str, value: dict[str, Any]) -> None:
        """Replace what is remembered under `topic`; `value` must be JSON."""
        text = json.dumps(value, indent=1, sort_keys=True) + "\n"
        write_whole(self.private / f"{topic}.json", text)

    def is_started(self, exercise_file: str, exercise_id: str) -> bool:
        """True once the learner has written something into that region.

        Raises BrokenEditionError if the file or its markers are not there.
        """
        try:
            return is_started((self.root / exercise_file).read_text(), exercise_id)
        except FileNotFoundError:
            raise BrokenEditionError(
                f"{exercise_file} is missing from {self.root}",
                "run `craft2 update`: it writes what is missing",
            ) from None
        except MarkerError as error:
            raise BrokenEditionError(f"{exercise_file}: {error.problem}", error.fix) from None


def write_whole(target: Path, text: str) -> None:
    """Write a file so that, whatever happens meanwhile, it holds its old text or its new one."""
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    partial.write_text(text)
    partial.replace(target)


def package_files(root: Path, package: str) -> Iterator[Path]:
    """Every file of one package under `root`, relative to `root`, without caches."""
    for path in sorted((root / package).rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(root)


def notebooks_folder() -> Path:
    """Where the committed notebooks are: inside the installed package, or in the repository."""
    installed = Path(craft2.__file__).resolve().parent / "course" / "notebooks"
    return installed if installed.is_dir() else REFERENCE / "notebooks"
