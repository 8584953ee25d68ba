"""`pytest --nbval` for the course: what nbval does, and what a learner needs beside it.

In an edition it runs the pristine twins, never the learner's own notebooks, on the learner's
packages.  Everywhere it

- shows a failed check as its verdict alone, in pytest's summary line too;
- says which exercise is wrong when a cell that needs it fails;
- runs the cells before a selected one (`-k`, `--lf`), which set up what it uses;
- notices within two seconds that a kernel has died, where nbval waits for the cell's time limit;
- begins another kernel, once, if the first never answers.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
import warnings
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from _pytest.compat import legacy_path
from nbval.plugin import IPyNbCell, IPyNbFile, NbCellError

from craft2.course.edition import REFERENCE, Edition
from craft2.course.needs import wrong_needs
from craft2.course.predictions import GRADING, GRADING_RESULTS
from craft2.course.whose_code import put_first
from craft2.course.workbook import exercise_of

_POLL_S = 2.0
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class KernelDiedError(Exception):
    """The notebook's kernel process ended while it ran a cell."""


class Report:
    """A failure as pytest shows it: `lines` in the report, `summary` in the FAILED line."""

    def __init__(self, summary: str, lines: list[str]) -> None:
        self.lines = lines
        self.reprcrash = type("Crash", (), {"message": summary})()

    def toterminal(self, writer: Any) -> None:
        """Called by pytest to print the report."""
        for line in self.lines:
            writer.line(line)

    def __str__(self) -> str:
        return "\n".join(self.lines)


class CourseNotebook(IPyNbFile):  # type: ignore[misc]
    """One notebook; its children are its code cells, in order."""

    twin: Path  # the file to read: in an edition, the pristine copy of the one that was asked for

    @property
    def fspath(self) -> Any:
        """What nbval reads the notebook by; `path` stays what pytest was asked for."""
        return legacy_path(self.twin)

    def collect(self) -> Iterator[CourseCell]:
        self.cells: list[CourseCell] = []
        self.died = ""
        for found in super().collect():
            exercise_id = exercise_of(found.cell.source)
            name = f"exercise {exercise_id}" if exercise_id else f"cell {found.cell_num}"
            cell = CourseCell.from_parent(
                self, name=name, cell_num=found.cell_num, cell=found.cell, options=found.options
            )
            self.cells.append(cell)
            yield cell

    def setup(self) -> None:
        try:
            super().setup()
        except RuntimeError as error:  # a kernel that began and never answered
            warnings.warn(f"{self.name}: {error}; another kernel is begun", stacklevel=1)
            super().setup()
        self.kernel.await_reply = partial(_await_reply, self.kernel)


def _await_reply(kernel: Any, message_id: str, timeout: float | None = None) -> None:
    """Wait for the kernel's reply to one message, looking every 2 s whether it still lives.

    Raises KernelDiedError, or queue.Empty once `timeout` seconds have passed.
    """
    deadline = time.monotonic() + (timeout or float("inf"))
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise Empty
        try:
            message = kernel.get_message(stream="shell", timeout=min(_POLL_S, left))
        except Empty:
            if not kernel.is_alive():
                raise KernelDiedError from None
            continue
        if message["parent_header"].get("msg_id") == message_id:
            return


class CourseCell(IPyNbCell):  # type: ignore[misc]
    """One code cell."""

    def setup(self) -> None:
        if self.parent.died:
            pytest.xfail(f"not run: the kernel died in {self.parent.died}")
        super().setup()

    def runtest(self) -> None:
        try:
            super().runtest()
        except KernelDiedError:
            self.parent.died = self.name
            raise

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}: {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
        error = excinfo.value
        if isinstance(error, KernelDiedError):
            summary = f"the kernel died in {self.name}"
            return self._report(summary, [summary, "", *self.cell.source.splitlines()])
        if not isinstance(error, NbCellError):
            return super().repr_failure(excinfo)
        raised = next((o for o in self.test_outputs or [] if o.output_type == "error"), None)
        if raised is not None and raised.ename == "CheckFailedError":
            return self._report(raised.evalue, ["\n".join(raised.traceback)])
        if raised is None or self.parent.timed_out:
            summary = str(error)
        else:
            summary = f"{raised.ename}: {raised.evalue}"
        return self._report(summary, [super().repr_failure(excinfo)])

    def _report(self, summary: str, lines: list[str]) -> Report:
        edition = Edition.find(self.config.rootpath)
        wrong = wrong_needs(
            self.cell.metadata.get("craft2", {}).get("needs", []),
            edition.root if edition else REFERENCE,
        )
        if wrong:
            summary = f"needs {wrong[0]}"
            lines = [*(f"this cell needs exercise {text}" for text in wrong), "", *lines]
        plain = _COLOURS.sub("", " ".join(summary.split()))
        return Report(plain, lines)


def pytest_configure(config: pytest.Config) -> None:
    """Let every kernel started from here run the edition's packages."""
    os.environ[GRADING] = "1"
    if GRADING_RESULTS not in os.environ:  # a worker of pytest-xdist has it from its parent
        folder = tempfile.TemporaryDirectory(prefix="craft2-results-")
        os.environ[GRADING_RESULTS] = folder.name
        config.add_cleanup(folder.cleanup)
    edition = Edition.find(config.rootpath)
    if edition is not None:
        put_first(edition.root)


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[Any], list[Any]]:
    """Replace nbval's collector by ours and, in an edition, a notebook by its pristine twin."""
    found = yield
    if not any(isinstance(node, IPyNbFile) for node in found):
        return found
    edition = Edition.find(parent.config.rootpath)
    notebook = CourseNotebook.from_parent(parent, path=file_path)
    notebook.twin = file_path if edition is None else edition.twins / file_path.name
    if not notebook.twin.is_file():
        return []  # the learner's own notebook: nothing to grade it against
    return [notebook]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Put back, before each notebook's last selected cell, the cells that were deselected."""
    last: dict[CourseNotebook, int] = {}
    others = []
    for item in session.items:
        if isinstance(item, CourseCell):
            last[item.parent] = max(last.get(item.parent, 0), item.cell_num)
        else:
            others.append(item)
    cells = [c for book, number in last.items() for c in book.cells if c.cell_num <= number]
    session.items[:] = [*others, *cells]
