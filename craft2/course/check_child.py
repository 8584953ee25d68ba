"""The child process of a check: import the module under test, run the check, write the verdict.

Usage (by `craft2.course.checking` only): python -m craft2.course.check_child ID RESULT SECONDS
"""

from __future__ import annotations

import importlib
import json
import linecache
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from types import FrameType

from craft2.course.exercises import exercise
from craft2.course.exercises.exercise import Exercise
from craft2.course.expect import MismatchError, doing, now_doing
from craft2.course.fallback import UnsolvedError

PATIENCE = 6  # times the limit, on a busy machine
_WAITS = 0.05  # of a processor: who uses less waits, and looks now and then


def main(exercise_id: str, result: str, time_limit_s: str) -> None:
    """Check one exercise and write the verdict's fields as JSON to the file `result`."""
    task = exercise(exercise_id)
    _watch(task, Path(result), float(time_limit_s))
    _write(Path(result), {name: _short(text) for name, text in _verdict(task).items()})
    sys.stdout.flush()
    os._exit(0)  # threads the code under test left behind do not hold the process


def _verdict(task: Exercise) -> dict[str, str]:
    doing(f"import {task.module}")
    try:
        checked = task.check(importlib.import_module(task.module))
    except UnsolvedError:
        return {"status": "not started"}
    except MismatchError as error:
        return {
            "status": "failed",
            "field": error.field,
            "expected": error.expected,
            "got": error.got,
            "difference": error.difference,
        }
    except BaseException as error:
        return {
            "status": "failed",
            "field": now_doing(),
            "expected": "no exception",
            "got": f"{_describe(error)}{_where(task, error)}",
        }
    return {"status": "passed", "checked": checked}


def _short(text: str, limit: int = 400) -> str:
    """`text`, or its two ends if it is longer than a person would read."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 100]} … {text[-60:]} ({len(text)} characters)"


def _describe(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg}, at `{(error.text or '').strip()}`"
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def _where(task: Exercise, error: BaseException) -> str:
    """The line of the module under test that raised, quoted: its number would be the overlay's."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.endswith(task.file):
            return f", at `{frame.line}`"
    return ""


def _watch(task: Exercise, result: Path, time_limit_s: float) -> None:
    """Start the watchdog (time limit) and the lifeline (end when the parent does)."""
    main_thread, began = threading.get_ident(), time.monotonic()

    def stop_after_the_limit() -> None:
        _until_too_long(time_limit_s)
        frame = sys._current_frames().get(main_thread)
        verdict = {
            "status": "failed",
            "field": now_doing(),
            "expected": f"an answer within {time_limit_s:.0f} s",
            "got": f"stopped after {time.monotonic() - began:.0f} s while in {now_doing()}: "
            f"it waited for {_innermost(task, frame)}",
        }
        _write(result, verdict)
        os.killpg(0, signal.SIGKILL)

    def stop_with_the_parent() -> None:
        os.read(0, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=stop_after_the_limit, daemon=True).start()
    threading.Thread(target=stop_with_the_parent, daemon=True).start()


def _until_too_long(limit_s: float) -> None:
    """Return when the limit is over, if this process has worked for so long, or now waits; at the
    latest after PATIENCE times the limit. On a machine with much else to do, code that works gets
    only a part of that time, and is not wrong for it."""
    time.sleep(limit_s)
    latest = time.monotonic() + (PATIENCE - 1) * limit_s
    waits = -1.0  # if no more work than this has been done
    while waits < time.process_time() < limit_s and time.monotonic() < latest:
        waits = time.process_time() + _WAITS * limit_s / 10
        time.sleep(limit_s / 10)


def _innermost(task: Exercise, frame: FrameType | None) -> str:
    """The innermost line of the module under test that the main thread stands in."""
    while frame is not None:
        if frame.f_code.co_filename.endswith(task.file):
            line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
            return f"`{line}` in {frame.f_code.co_qualname}"
        frame = frame.f_back
    return "something outside your module"


def _write(result: Path, verdict: dict[str, str]) -> None:
    partial = result.with_suffix(".partial")
    partial.write_text(json.dumps(verdict))
    partial.replace(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
