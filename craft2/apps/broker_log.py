"""What a broker says to the people who run it: lines on standard error, each with its time, and not
a thousand alike.

>>> log = BrokerLog(print, now=lambda: 0.0)
>>> for number in range(7):
...     log(f"t-{number}: a batch was not written")
t-0: a batch was not written
t-1: a batch was not written
t-2: a batch was not written
t-3: a batch was not written
t-4: a batch was not written
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime

LINES, WINDOW_S = 5, 10.0  # lines that differ in numbers alone: so many, in so long a time


_STDERR = 2


def dated(words: str) -> str:
    """With the time before it, UTC, such as 2026-01-31T18:05:09.120Z."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return f"{now.removesuffix('+00:00')}Z {words}"


def say(words: str) -> bool:
    """A line on standard error, dated; whether there was room for it, such as on a full disk.

    Not by `print`: what could not be written would be tried again at the end, and be its status.
    """
    line = f"{dated(words)}\n".encode(errors="backslashreplace")
    try:
        return os.write(_STDERR, line) == len(line)
    except OSError:
        return False


class BrokerLog:
    """Says what it is called with, up to LINES alike within WINDOW_S; what was left out is counted,
    and told with the first line after that."""

    def __init__(
        self, say: Callable[[str], object] = say, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._now = say, now
        self._began_s, self._counts = 0.0, dict[str, int]()
        self._last = dict[str, str]()  # of each kind

    def __call__(self, words: str) -> None:
        """One line."""
        if self._now() - self._began_s > WINDOW_S:
            self.tell_left_out()
            self._began_s = self._now()
        kind = re.sub(r"\d+", "#", words)
        self._counts[kind] = self._counts.get(kind, 0) + 1
        self._last[kind] = words
        if self._counts[kind] <= LINES:
            self._say(words)

    def tell_left_out(self) -> None:
        """How many lines there would have been."""
        for kind, count in self._counts.items():
            if count > LINES:
                self._say(f"{self._last[kind]} ({count - LINES} like it were left out)")
        self._counts.clear()
        self._last.clear()
