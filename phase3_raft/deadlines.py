"""Requests that wait are given up when their time comes: thousands of them, and one timer.

Nearly all are answered long before. A timer for each, begun and cancelled, would cost more than the
waiting itself (`make bench ARGS=cluster-latency`). So they are kept in buckets, by the tick in
which their time is up; what is answered is taken out, and what is left in a bucket when its tick
comes is given up together, never early and at most a tick late.

>>> import asyncio
>>> async def main() -> list[str]:
...     given_up: list[str] = []
...     deadlines = Deadlines(tick_s=0.01)
...     deadlines.add(0.02, lambda: given_up.append("too late"))
...     deadlines.add(0.02, lambda: given_up.append("answered")).remove()
...     await asyncio.sleep(0.05)
...     return given_up
>>> asyncio.run(main())
['too late']

Source: Varghese and Lauck, "Hashed and hierarchical timing wheels" (1987); Kafka's `TimingWheel`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

TICK_S = 0.1
_ROUNDING = 1e-6  # of a tick: three times 0.1 s is later than 0.3 s, for a machine


class Deadline(NamedTuple):
    """One of them. give_up: called when the time is up, unless it was removed."""

    bucket: dict[int, Callable[[], object]]
    number: int

    def remove(self) -> None:
        """It is answered; nothing happens if it was given up."""
        self.bucket.pop(self.number, None)


class Deadlines:
    """See the module. Of one event loop.

    Invariant: `_ticks` is a heap of the ticks that have a bucket, and the timer waits for the
    first of them.
    """

    def __init__(self, tick_s: float = TICK_S) -> None:
        self._tick_s = tick_s
        self._buckets: dict[int, dict[int, Callable[[], object]]] = {}
        self._ticks: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._number = 0

    def add(self, after_s: float, give_up: Callable[[], object]) -> Deadline:
        """Call `give_up` in so many seconds, or up to a tick later."""
        loop = asyncio.get_running_loop()
        tick = math.ceil((loop.time() + after_s) / self._tick_s - _ROUNDING)
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._wait(loop)
        self._number += 1
        bucket[self._number] = give_up
        return Deadline(bucket, self._number)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = loop.call_at(self._ticks[0] * self._tick_s, self._tick)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._ticks and self._ticks[0] <= loop.time() / self._tick_s + _ROUNDING:
            bucket = self._buckets.pop(heappop(self._ticks))
            for number in list(bucket):
                give_up = bucket.pop(number, None)  # another may have ended it just now
                if give_up is not None:
                    give_up()
        if self._ticks and self._timer is None:
            self._wait(loop)

    def close(self) -> None:
        """Give nothing up any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._buckets.clear()
        self._ticks.clear()
