"""The one base of every error this project raises on purpose.

An error names the thing, its value and the fix, because the person who reads it is usually
in the middle of something else:

>>> from craft2.errors import Craft2Error
>>> print(Craft2Error("partition 7 does not exist: the queue at 'q' has 4 (0 to 3)",
...                   fix="produce with a key, or grow the queue with add_partitions(8)"))
partition 7 does not exist: the queue at 'q' has 4 (0 to 3). Fix: produce with a key, or grow the \
queue with add_partitions(8)
"""

from __future__ import annotations


class Craft2Error(Exception):
    """Base class: `problem` says what is wrong with which value, `fix` what to do about it.

    Subclasses add no constructor of their own, so every one of them survives pickling through
    a process pool.
    """

    def __init__(self, problem: str, fix: str = "") -> None:
        super().__init__(problem, fix)
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        stop = "" if self.problem.endswith((".", "?", "!")) else "."
        return f"{self.problem}{stop} Fix: {self.fix}" if self.fix else self.problem
