"""Virtual time: events in the order of their moments, on one heap, as fast as they can be handled.

Nothing waits. The next event is taken, the time is its time, and what it does may plan more. Among
events of one moment the order is that in which they were planned, so a run depends on its seed
alone.

>>> timeline = Timeline()
>>> timeline.after(20, print, "second")
>>> timeline.after(10, print, "first")
>>> timeline.run(until_ms=15)
first
>>> timeline.now_ms, timeline.count
(15, 1)
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Timeline:
    """See the module. Invariant: now_ms never falls."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.count = 0  # of events handled
        self._planned = 0
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []

    def at(self, moment_ms: int, act: Callable[..., object], *arguments: object) -> None:
        """Plan `act(*arguments)` for a moment; for now, if that is past."""
        self._planned += 1
        moment_ms = max(moment_ms, self.now_ms)
        heappush(self._heap, (moment_ms, self._planned, act, arguments))

    def after(self, delay_ms: int, act: Callable[..., object], *arguments: object) -> None:
        """Plan it for so many ms from now."""
        self._planned += 1
        heappush(self._heap, (self.now_ms + delay_ms, self._planned, act, arguments))

    def run(self, until_ms: int) -> None:
        """Handle everything that is planned up to a moment, and what that plans."""
        heap = self._heap
        while heap and heap[0][0] <= until_ms:
            self.now_ms, _, act, arguments = heappop(heap)
            self.count += 1
            act(*arguments)
        self.now_ms = max(self.now_ms, until_ms)
