"""`begin`: the first cell of every notebook decides whose code runs, and says so.

The installed packages must not shadow the learner's, in this kernel nor in anything it starts:
child processes, notebook kernels, Spark workers.  So the edition's folder goes first on
`sys.path` (this process) and first in PYTHONPATH (everything started from here).
"""

from __future__ import annotations

import importlib.util
import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from craft2.course.checking import WIDTH
from craft2.course.edition import PACKAGES, REFERENCE, Edition
from craft2.course.exercises import EXERCISES
from craft2.course.needs import after_cell, used_by
from craft2.course.predictions import GRADING
from craft2.course.reloading import Reloader
from craft2.errors import Craft2Error

# What IPython calls because of the last `begin`: (its event, our function).
_hooks: list[tuple[str, Callable[[Any], None]]] = []


class WrongCodeError(Craft2Error):
    """A phase package comes from somewhere else than the learner's edition."""


def begin(notebook: str) -> None:
    """Start a notebook ("01"): run on the learner's code if we are in an edition, and say so.

    From then on a module saved in the editor is in force in the next cell.  Raises WrongCodeError
    if another copy of the packages was imported first.
    """
    edition = Edition.find()
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # A cached .pyc is trusted by the second and the size: an edit of one digit would be missed.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    if edition is None:
        print(f"Notebook {notebook} runs on the reference code: this is not a learner's edition.")
    else:
        put_first(edition.root)
        for package in PACKAGES:
            _assert_ours(package, edition.root)
        told = f"Notebook {notebook} runs on your code. {_who_answers(edition, notebook)}"
        print(textwrap.fill(told, WIDTH))  # or a browser breaks it, in the middle of a number
    _prepare_shell(edition, notebook)


def put_first(root: Path) -> None:
    """Let the packages in `root` win, here and in every process started from here."""
    sys.path[:] = [str(root), *(entry for entry in sys.path if entry != str(root))]
    others = [
        p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p not in ("", str(root))
    ]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *others])
    importlib.invalidate_caches()


def _assert_ours(package: str, root: Path) -> None:
    module = sys.modules.get(package)
    spec = module.__spec__ if module else importlib.util.find_spec(package)
    origin = Path(spec.origin or "").resolve() if spec else Path()
    if root not in origin.parents:
        raise WrongCodeError(
            f"{package} comes from {origin}, not from your folder {root}",
            "restart the kernel and run this cell first; if that does not help, `craft2 update`",
        )


def _who_answers(edition: Edition, notebook: str) -> str:
    """Which exercises that this notebook uses are written, and which are not. Of a notebook that
    the course does not know: which of those up to it."""
    used = used_by(edition, notebook)
    tasks = [
        e
        for e in EXERCISES.values()
        if (e.id in used if used is not None else int(e.id.split(".")[0]) <= int(notebook))
    ]
    if not tasks:
        return "It uses no exercise."
    started = [e.id for e in tasks if edition.is_started(e.file, e.id)]
    waiting = [e.id for e in tasks if e.id not in started]
    if not waiting:
        return f"You have written every exercise that it uses: {', '.join(started)}."
    them = "it" if len(waiting) == 1 else "them"
    mine = f"You have written {', '.join(started)}; for" if started else "For"
    return f"{mine} {', '.join(waiting)} the reference answers until you have written {them}."


def _prepare_shell(edition: Edition | None, notebook: str) -> None:
    """In IPython: load saved modules again, and name the exercise that made a cell fail."""
    if "IPython" not in sys.modules:
        return  # a script, not a notebook
    from IPython import get_ipython  # type: ignore[attr-defined]

    shell = get_ipython()
    if shell is None:
        return
    for event, hook in _hooks:
        shell.events.unregister(event, hook)
    reloader = Reloader(edition.root if edition else REFERENCE, shell.user_ns)
    _hooks[:] = [("pre_run_cell", reloader.reload), ("post_run_cell", reloader.note)]
    if edition is not None and not os.environ.get(GRADING):
        _hooks.append(("post_run_cell", after_cell(edition, notebook)))
    for event, hook in _hooks:
        shell.events.register(event, hook)
