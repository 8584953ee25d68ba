"""`show`: the source of a function, class or module in a notebook, exercises folded.

A notebook shows code from the tested source, never a pasted copy.  What stands in an exercise
region is left out: the stored output would give the solution away.
"""

from __future__ import annotations

import inspect
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

from craft2.course.edition import Edition
from craft2.course.splice import BEGIN, END


def show(thing: ModuleType | type | Any) -> None:
    """Print the source of `thing`, with a line of dots for each exercise in it.

    Flush left, as a notebook's output that is too wide for its page breaks in the middle of words.
    """
    edition = Edition.find()
    file = Path(inspect.getsourcefile(thing) or "").resolve()
    ours = file.relative_to(edition.root) if edition and edition.root in file.parents else None
    print(folded(textwrap.dedent(inspect.getsource(thing)), str(ours or "")))


def folded(source: str, file: str = "") -> str:
    """`source` without the lines of its exercise regions. file: of the learner's, where they are
    written, unless a region still holds its stub."""
    kept: list[str] = []
    inside: list[str] | None = None
    for line in source.splitlines():
        if line.strip() == BEGIN:
            inside = []
            kept.append(line.replace(BEGIN, "..."))
        elif line.strip() == END:
            written = file and not any('reference("' in one for one in inside or ())
            kept[-1] += f"  # (yours, in {file})" if written else "  # an exercise: yours to write"
            inside = None
        elif inside is None:
            kept.append(line)
        else:
            inside.append(line)
    return "\n".join(kept)
