"""A network that delays, loses, doubles and reorders, and can be cut in two, or in one direction.

>>> import random
>>> timeline, arrived = Timeline(), []
>>> network = Network(timeline, random.Random(1), lambda to, message: arrived.append((to, message)))
>>> network.send(1, 2, "hello")
>>> timeline.run(until_ms=10)
>>> network.cut({1}, {2})
>>> network.send(1, 2, "lost")
>>> timeline.run(until_ms=20)
>>> arrived
[(2, 'hello')]
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from craft2.sim.timeline import Timeline


@dataclass
class Weather:
    """How bad the network is; shares of all messages, and ms."""

    lost: float = 0.0
    doubled: float = 0.0
    slow: float = 0.0  # take up to `slow_ms` instead of `delay_ms`: they are overtaken
    delay_ms: tuple[int, int] = (1, 3)
    slow_ms: int = 100


class Network:
    """See the module. deliver: called as `deliver(to, message)` when a message arrives.

    Whoever is cut off from whom is asked when a message is sent and again when it arrives.
    """

    def __init__(
        self, timeline: Timeline, chance: random.Random, deliver: Callable[[int, Any], object]
    ) -> None:
        self.weather = Weather()
        self.sent = self.lost = self.doubled = self.slowed = 0
        self._timeline = timeline
        self._random = chance.random
        self._deliver = deliver
        self._cut: set[tuple[int, int]] = set()

    def send(self, sender: int, to: int, message: Any) -> None:
        """Put a message on its way."""
        self.sent += 1
        weather, chance = self.weather, self._random
        if (sender, to) in self._cut or (weather.lost and chance() < weather.lost):
            self.lost += 1
            return
        least, most = weather.delay_ms
        delay_ms = least + int(chance() * (most - least + 1))
        if weather.doubled and chance() < weather.doubled:
            self.doubled += 1
            self._timeline.after(delay_ms + least, self._arrive, sender, to, message)
        if weather.slow and chance() < weather.slow:
            self.slowed += 1
            delay_ms = int(chance() * weather.slow_ms)
        self._timeline.after(delay_ms, self._arrive, sender, to, message)

    def _arrive(self, sender: int, to: int, message: Any) -> None:
        if (sender, to) in self._cut:
            self.lost += 1
        else:
            self._deliver(to, message)

    def cut(self, some: Iterable[int], others: Iterable[int], one_way: bool = False) -> None:
        """Let nothing from `some` to `others` through, nor (unless one_way) back."""
        for a in some:
            for b in others:
                self._cut.add((a, b))
                if not one_way:
                    self._cut.add((b, a))

    def heal(self) -> None:
        """Everybody reaches everybody."""
        self._cut.clear()
