"""A module saved in the editor is in force in the next cell, with its right line numbers.

Before each cell `Reloader` looks at the files of the loaded phase modules.  One that was saved
since is loaded again, whole, and whoever imported a function or class from it by name gets the
new one.  What holds neither a function nor a class (a number imported by name) stays as it was.
"""

from __future__ import annotations

import importlib
import linecache
import sys
import traceback
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from craft2.course.edition import PACKAGES

Stamp = tuple[int, int]  # a file's time of change (ns) and size (bytes)


class Reloader:
    """Keeps one kernel's phase modules as they are saved under `root`.

    `names` is the notebook's namespace, in which `from phase1_file_queue.x import f` left its f.
    """

    def __init__(self, root: Path, names: dict[str, Any]) -> None:
        self.root, self.names = root, names
        self._loaded: dict[str, Stamp] = {}  # module name: its file as last loaded, or tried
        self._classes: dict[tuple[str, str], list[type]] = {}  # (module, name): versions before
        self.note()

    def note(self, *_cell: object) -> None:
        """After a cell: remember the files of the modules it imported."""
        for name, (_module, stamp) in self._modules().items():
            self._loaded.setdefault(name, stamp)

    def reload(self, *_cell: object) -> None:
        """Before a cell: load again what was saved since; print a line for a file that is wrong."""
        self.note()
        for name, (module, stamp) in self._modules().items():
            if self._loaded[name] != stamp:
                self._loaded[name] = stamp  # a wrong file is reported once, not before each cell
                self._reload(module)

    def _modules(self) -> dict[str, tuple[ModuleType, Stamp]]:
        """The loaded phase modules whose files are under `root`, each with its file's stamp."""
        found = {}
        for name, module in list(sys.modules.items()):
            file = Path(getattr(module, "__file__", None) or "")
            if name.split(".")[0] in PACKAGES and self.root in file.parents and file.is_file():
                status = file.stat()
                found[name] = module, (status.st_mtime_ns, status.st_size)
        return found

    def _reload(self, module: ModuleType) -> None:
        linecache.checkcache()
        before = dict(vars(module))
        try:
            importlib.reload(module)
        except Exception as error:
            vars(module).clear()
            vars(module).update(before)
            print(
                f"{_place(error, module)}: {type(error).__name__}: "
                f"{error.msg if isinstance(error, SyntaxError) else error}; "
                "the last good version stays in force until you save it again"
            )
            return
        new = {id(old): vars(module)[name] for name, old in before.items() if _own(old, module)}
        for name, old in before.items():
            if _own(old, module) and isinstance(old, type):
                versions = self._classes.setdefault((module.__name__, name), [])
                versions.append(old)
                for version in versions:  # objects of any of them may be about
                    _renew_methods(version, vars(module)[name])
        users = [vars(user) for user, _stamp in self._modules().values()]
        for namespace in (*users, self.names):
            for name, value in list(namespace.items()):
                if id(value) in new:
                    namespace[name] = new[id(value)]


def _own(thing: object, module: ModuleType) -> bool:
    """True for a function or class that was defined in `module`."""
    return isinstance(thing, (FunctionType, type)) and thing.__module__ == module.__name__


def _renew_methods(old: type, new: object) -> None:
    """Give the objects made before, which are of the class `old`, the methods of the new one."""
    if not isinstance(new, type):
        return
    for name, method in vars(new).items():
        # A method that says super() works on objects of its own class only.
        if isinstance(method, FunctionType) and "__class__" not in method.__code__.co_freevars:
            setattr(old, name, method)


def _place(error: Exception, module: ModuleType) -> str:
    """The file and line an error of loading `module` points to: "partitioner.py line 46"."""
    file = str(module.__file__)
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"{Path(file).name} line {error.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
    return f"{Path(file).name} line {lines[-1]}" if lines else Path(file).name
