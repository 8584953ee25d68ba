"""What happened when, as all threads of a run note it: seconds since it began.

>>> from craft2.clock import ManualClock
>>> clock = ManualClock()
>>> timeline = Timeline(clock)
>>> with timeline.struck("pause", 2):
...     clock.advance(3)
>>> timeline.faults
[Struck(kind='pause', broker=2, start_s=0.0, end_s=3.0)]
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from craft2.clock import Clock


@dataclass
class Struck:
    """What a broker suffered, and from when to when."""

    kind: str
    broker: int
    start_s: float
    end_s: float


@dataclass
class Timeline:
    """See the module.

    events: what to tell, in words. acknowledged, consumed: messages, by whole second. leaders: when
    which partition was led by whom from then on. ready_s: when it was time for the first fault.
    """

    clock: Clock
    faults: list[Struck] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    acknowledged: Counter[int] = field(default_factory=Counter)
    consumed: Counter[int] = field(default_factory=Counter)
    leaders: list[tuple[float, int, int]] = field(default_factory=list)
    ack_times: list[float] = field(default_factory=list)
    end_s: float = 0.0

    def __post_init__(self) -> None:
        self._zero = self.clock.monotonic()

    def now(self) -> float:
        """Seconds since the run began."""
        return self.clock.monotonic() - self._zero

    @contextlib.contextmanager
    def struck(self, kind: str, *brokers: int) -> Iterator[None]:
        """While it lasts, these brokers suffer something."""
        found = [Struck(kind, broker, self.now(), -1.0) for broker in brokers]
        self.faults += found
        try:
            yield
        finally:
            for one in found:
                one.end_s = self.now()

    def note_acknowledged(self, now: float) -> None:
        """One message more."""
        self.acknowledged[int(now)] += 1
        self.ack_times.append(now)

    def longest_gap(self, until_s: float) -> tuple[float, float]:
        """(when it began, how long it was): the longest time without an acknowledgement, from the
        first one on."""
        times = [*sorted(self.ack_times), until_s]
        gaps = ((a, b - a) for a, b in zip(times, times[1:], strict=False) if b > a)
        return max(gaps, key=lambda gap: gap[1], default=(0.0, 0.0))
