"""A computer in virtual time: a loop, a disk and a network card, which fail together.

    boot(machine) -> what it runs, begun anew after every crash with what its disk holds

A crash comes from outside (`crash`), or from the disk in the middle of a call (`crash_after`):
then the call never returns, and nothing after it happens.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from craft2.faulty_disk import FaultyDisk
from craft2.sim.loop import SimLoop
from craft2.sim.net import SimNet, Wires
from craft2.sim.timeline import Timeline


class SimClock:
    """A machine's clock, for what asks a `craft2.clock.Clock`."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def now_ms(self) -> int:
        return int(self._loop.time() * 1_000)

    def monotonic(self) -> float:
        return self._loop.time()

    def wait(self, event: threading.Event, timeout_s: float) -> bool:
        """Nothing else can set the event meanwhile: there is one thread."""
        if timeout_s > 0 and not event.is_set():
            raise RuntimeError("a thread would wait here, and the whole world with it")
        return event.is_set()


class Machine:
    """See the module. looked: called after everything that happens in it.

    Invariant: `loop` is None while it is down.
    """

    def __init__(
        self,
        name: str,
        timeline: Timeline,
        wires: Wires,
        chance: random.Random,
        program: Callable[[Machine], Coroutine[Any, Any, object]],
    ) -> None:
        self.name = name
        self.disk = FaultyDisk()
        self.loop: SimLoop | None = None
        self.net: SimNet
        self.clock: SimClock
        self.crashes = 0
        self.looked: Callable[[], object] = lambda: None
        self._timeline, self._wires, self._chance = timeline, wires, chance
        self._program = program

    def boot(self, fast: float = 1.0) -> None:
        """Start it. fast: see SimLoop."""
        self.loop = SimLoop(  # type: ignore[abstract]  # the rest touches the world outside
            self._timeline, self.name, fast=fast, after=self._look
        )
        self.net = self._wires.machine(self.loop)
        self.clock = SimClock(self.loop)
        self._running = self.loop.create_task(self._program(self))

    @property
    def failure(self) -> BaseException | None:
        """What its program ended with, if with an error."""
        return self._running.exception() if self.done else None

    def _look(self) -> None:
        if self.disk.dead:
            self.crash(power=True)
        self.looked()

    def crash_after(self, steps: int) -> None:
        """Crash before the disk's next step but `steps`."""
        self.disk.crash_at = self.disk.steps + 1 + steps

    def crash(self, *, power: bool) -> None:
        """It is gone. power: with everything that was not synced, as chance will have it; else the
        process alone has died, and the system has what was written."""
        loop, self.loop = self.loop, None
        if loop is None:
            return
        self.crashes += 1
        self.disk.die()
        self._wires.crash(loop)
        loop.die()
        self.disk = (
            self.disk.power_loss(seed=self._chance.randrange(2**32)) if power else self.disk.kill()
        )

    def lose_disk(self) -> None:
        """It is gone, and begins with an empty disk when it is booted again."""
        self.crash(power=True)
        self.disk = FaultyDisk()

    @property
    def done(self) -> bool:
        """Whether its program has ended."""
        return self.loop is not None and self._running.done()

    @property
    def up(self) -> bool:
        """Whether it is running, and not paused."""
        return self.loop is not None and not self.loop.paused
