"""Everything that is checked: lint, types, tests, browser, notebooks.  `make test` runs this.

With arguments it runs pytest alone, with these arguments.  The last line is the sum over all
pytest runs, `N passed, N failed`; the exit code is 0 only if every step was clean.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-m", "not prove"]
# One process more than two cores: Spark or a disk is what many tests wait for.
PARALLEL = ["-q", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", "--durations=12"]
LONGEST_FIRST = ["tests/phase1/test_log_crashes.py", "tests/craft2", "tests"]
BROWSER = "tests/browser"  # by itself: a page's patience is its own, and not ours to set
NBVAL = ["-p", "craft2.course.pytest_plugin", "--nbval", "--nbval-current-env"]
NBVAL += ["--nbval-cell-timeout=150"]


def step(name: str, command: Sequence[str]) -> tuple[bool, str]:
    """Run one command in the repository; print how long it took; return (clean?, its output)."""
    print(f"== {name}", flush=True)
    began = time.monotonic()
    lines = []
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            print(line, end="", flush=True)
    clean = process.returncode == 0
    word = "ok" if clean else f"FAILED (exit code {process.returncode})"
    print(f"== {name}: {word}, {time.monotonic() - began:.0f} s\n", flush=True)
    return clean, "".join(lines)


def counts(output: str) -> tuple[int, int]:
    """(passed, failed) from pytest's own last summary line; errors count as failed."""
    summaries = [x for x in output.splitlines() if re.search(r"\d+ \w+.* in [\d.]+s", x)]
    found = {w: int(n) for n, w in re.findall(r"(\d+) (\w+)", summaries[-1] if summaries else "")}
    failed = found.get("failed", 0) + found.get("error", 0) + found.get("errors", 0)
    return found.get("passed", 0), failed


def main(arguments: list[str]) -> int:
    """Run all steps, or pytest with `arguments`; return the exit code."""
    steps: list[tuple[str, list[str]]] = [
        ("lint", [sys.executable, "-m", "ruff", "check", "."]),
        ("format", [sys.executable, "-m", "ruff", "format", "--check", "."]),
        ("types", [sys.executable, "-m", "mypy"]),
        ("tests", [*PYTEST, *PARALLEL, f"--ignore={BROWSER}", *LONGEST_FIRST]),
        ("browser", [*PYTEST, "-q", BROWSER]),
    ]
    found = sorted((ROOT / "notebooks").glob("*.ipynb"))
    found.sort(key=lambda path: "craft2.apps.spark" not in path.read_text())  # the longest first
    notebooks = [str(path.relative_to(ROOT)) for path in found]
    steps.append(("notebooks", [*PYTEST, *NBVAL, *PARALLEL, *notebooks]))
    if arguments:
        steps = [("pytest", [*PYTEST, *arguments])]
    # Hundreds of processes begin here, and each would compile all that it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    clean, passed, failed = True, 0, 0
    for name, command in steps:
        if name == "notebooks" and not notebooks:
            print("== notebooks: FAILED, there is no notebook in notebooks/\n")
            clean = False
            continue
        ok, output = step(name, command)
        clean &= ok
        if "pytest" in command:
            passed, failed = (a + b for a, b in zip((passed, failed), counts(output), strict=True))
    print(f"{passed} passed, {failed} failed")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
