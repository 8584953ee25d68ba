"""A clock that runs too fast or too slowly, as every computer's does, only more so.

>>> clock = DriftingClock()
>>> clock.set_rate(1_000, 2.0)  # from the true moment 1,000 on it is twice as fast
>>> clock.read(1_500), clock.when(2_000)
(2000, 1500)
"""

from __future__ import annotations

from math import ceil


class DriftingClock:
    """See the module. Invariant: it never goes back, as a monotonic clock does not."""

    def __init__(self) -> None:
        self.rate = 1.0
        self._since_ms = self._then_ms = 0  # true moment, and what the clock said at it

    def set_rate(self, now_ms: int, rate: float) -> None:
        """How many of its ms it counts in a true one, from now on."""
        self._then_ms, self._since_ms, self.rate = self.read(now_ms), now_ms, rate

    def read(self, now_ms: int) -> int:
        """What it says at a true moment."""
        return self._then_ms + int((now_ms - self._since_ms) * self.rate)

    def when(self, says_ms: int) -> int:
        """The true moment at which it will say this."""
        return self._since_ms + ceil((says_ms - self._then_ms) / self.rate)
