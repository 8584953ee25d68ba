"""Messages that take 5 ms, and whatever else is to be done at a moment, on a clock that we turn."""

from __future__ import annotations

import heapq
from collections.abc import Callable

from craft2.apps.lessons.copies_seen import Letter
from craft2.clock import ManualClock

WAY_MS = 5  # of a message


class Post:
    """See the module. cut_off: whose messages do not arrive."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cut_off: set[str] = set()
        self.letters: list[Letter] = []
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    @property
    def now_ms(self) -> int:
        """What the clock says."""
        return self.clock.now_ms()

    def after(self, ms: int, action: Callable[[], None]) -> None:
        """Do this then; of two things at one moment, the one that was asked for first."""
        self._count += 1
        heapq.heappush(self._due, (self.now_ms + ms, self._count, action))

    def send(self, source: str, target: str, words: str, action: Callable[[], None]) -> bool:
        """The message does this when it arrives; returns whether it will."""
        lost = bool({source, target} & self.cut_off)
        now = self.now_ms
        self.letters.append(Letter(now, now + WAY_MS, source, target, words, lost))
        if not lost:
            self.after(WAY_MS, action)
        return not lost

    def run(self, ms: int, look: Callable[[], None]) -> None:
        """Let so much time pass, and look after each thing that was done."""
        until = self.now_ms + ms
        while self._due and self._due[0][0] <= until:
            due, _, action = heapq.heappop(self._due)
            self.clock.advance((due - self.now_ms) / 1000)
            action()
            look()
        self.clock.advance((until - self.now_ms) / 1000)
