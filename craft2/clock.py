"""Time, as an argument.

Everything here that reads the time or waits for it takes a `Clock`, so that a test (and, later,
a whole simulated cluster) decides what time it is. Two clocks: the machine's, and one that moves
only when told.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What the packages may ask of time."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since 1970, for timestamps in records."""

    def monotonic(self) -> float:
        """Seconds that never go back, for durations and deadlines."""

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Wait until `event` is set or `timeout_s` has passed; True if it is set."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        return event.wait(timeout_s)


class ManualClock:
    """A clock that stands still until `advance`; waiting on it advances it.

    >>> clock = ManualClock(start_ms=1_000)
    >>> clock.advance(2.5)
    >>> clock.now_ms()
    3500
    """

    def __init__(self, start_ms: int = 0) -> None:
        self._ms = float(start_ms)

    def advance(self, seconds: float) -> None:
        self._ms += seconds * 1000

    def now_ms(self) -> int:
        return int(self._ms)

    def monotonic(self) -> float:
        return self._ms / 1000

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        if not event.is_set():
            self.advance(timeout_s)
        return event.is_set()
