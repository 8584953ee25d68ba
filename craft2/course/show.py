"""`show`: the source of a function, class or module in a notebook, exercises folded.

A notebook shows code from the tested source, never a pasted copy.  What stands in an exercise
region is left out: the stored output would give the solution away.
"""

from __future__ import annotations

import inspect
import textwrap
from types import ModuleType
from typing import Any

from craft2.course.splice import BEGIN, END


def show(thing: ModuleType | type | Any) -> None:
    """Print the source of `thing`, with a line of dots for each exercise in it.

    Flush left, as a notebook's output that is too wide for its page breaks in the middle of words.
    """
    print(folded(textwrap.dedent(inspect.getsource(thing))))


def folded(source: str) -> str:
    """`source` without the lines of its exercise regions."""
    kept: list[str] = []
    inside = False
    for line in source.splitlines():
        if line.strip() == BEGIN:
            inside = True
            kept.append(line.replace(BEGIN, "...  # an exercise: yours to write"))
        elif line.strip() == END:
            inside = False
        elif not inside:
            kept.append(line)
    return "\n".join(kept)
