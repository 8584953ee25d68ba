"""What goes wrong in a simulated cluster: a list, decided from the seed before anything runs.

Every fault ends by itself, and draws what it needs from a number of its own. So one can be left
out, and the others are what they were. Which kinds come, and how often, differs from seed to seed:
some see nothing but cuts, some everything at once.

Source: Groce and others, "Swarm Testing" (2012).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from craft2.sim.machine import Machine
from craft2.sim.net import Wires
from craft2.sim.timeline import Timeline

FIRST_MS = 1_500  # by then there is a topic
# From one to the next, at least and at most: on top of each other, or with time to take effect.
PACES = ((50, 600), (300, 1_500), (1_000, 3_000), (1_500, 3_500))


class Fault(NamedTuple):
    """Something that goes wrong. number: in the plan. seed: of what it draws."""

    number: int
    ms: int
    kind: str
    seed: float


class Stage(Protocol):
    """What a fault can do something to. names: of the brokers' machines."""

    timeline: Timeline
    wires: Wires
    machines: dict[str, Machine]
    names: list[str]

    def leader(self, chance: random.Random) -> str:
        """The machine that leads some partition."""

    def boot(self, name: str, fast: float = 1.0) -> None:
        """Start a machine that is down."""

    def spares(self, name: str) -> bool:
        """Whether a broker's disk may be lost: all others run, and have what it has."""

    def leave(self, name: str) -> None:
        """Have a broker shut down as it does when it is asked to."""

    def elect(self) -> None:
        """Somebody asks for the preferred leaders."""


def _crash(stage: Stage, name: str, chance: random.Random, *, power: bool, most_ms: int) -> str:
    down_ms = chance.randint(20, most_ms)
    stage.machines[name].crash(power=power)
    fast = chance.choice((1.0, 1.0, 1.0, 0.95, 1.05))
    stage.timeline.after(down_ms, stage.boot, name, fast)
    return f"{name} {'loses power' if power else 'is killed'}, and is back {down_ms} ms later"


def _kill(stage: Stage, chance: random.Random) -> str:
    return _crash(stage, chance.choice(stage.names), chance, power=False, most_ms=2_500)


def _power(stage: Stage, chance: random.Random) -> str:
    return _crash(stage, chance.choice(stage.names), chance, power=True, most_ms=2_500)


def _leader(stage: Stage, chance: random.Random) -> str:
    return _crash(stage, stage.leader(chance), chance, power=chance.random() < 0.7, most_ms=400)


def _blackout(stage: Stage, chance: random.Random) -> str:
    return "; ".join(_crash(stage, name, chance, power=True, most_ms=1_500) for name in stage.names)


def _midway(stage: Stage, chance: random.Random) -> str | None:
    name, steps, down_ms = chance.choice(stage.names), chance.randint(0, 25), 1_500
    machine = stage.machines[name]
    if machine.loop is None:
        return None
    machine.crash_after(steps)
    stage.timeline.after(chance.randint(50, down_ms), stage.boot, name)
    return f"{name} will lose power at {_nth_step(steps + 1)}"


def _relapse(stage: Stage, chance: random.Random) -> str | None:
    """Back before anybody has noticed, and without what it was just writing."""
    name, steps = stage.leader(chance), chance.randint(0, 8)
    machine = stage.machines[name]
    if machine.loop is None:
        return None
    machine.crash_after(steps)

    def back(left: int) -> None:
        if machine.loop is None:
            stage.boot(name)
        elif left:
            stage.timeline.after(20, back, left - 1)

    stage.timeline.after(40, back, 50)
    return f"{name} will lose power at {_nth_step(steps + 1)}, and be back at once"


def _disk(stage: Stage, chance: random.Random) -> str | None:
    name = chance.choice(stage.names)
    if not stage.spares(name):
        return None
    stage.machines[name].lose_disk()
    down_ms = chance.randint(20, 1_500)
    stage.timeline.after(down_ms, stage.boot, name)
    return f"{name} loses its disk, and is back with an empty one {down_ms} ms later"


def _heal_later(stage: Stage, chance: random.Random, least_ms: int, most_ms: int) -> int:
    cut_ms = chance.randint(least_ms, most_ms)
    stage.timeline.after(cut_ms, stage.wires.heal)
    return cut_ms


def _cut(stage: Stage, chance: random.Random) -> str:
    name = chance.choice(stage.names)
    others = [one for one in stage.machines if one != name and chance.random() < 0.7]
    one_way = chance.random() < 0.3
    stage.wires.cut([name], others, one_way=one_way)
    words = f"{name} {'reaches' if one_way else 'and'} {_listed(others)}"
    cut_ms = _heal_later(stage, chance, 100, 2_500)
    return f"{words} {'no more' if one_way else 'are cut off'}, for {cut_ms} ms"


def _alone(stage: Stage, chance: random.Random) -> str:
    name = stage.leader(chance)
    others = [one for one in stage.names if one != name]
    stage.wires.cut([name], others)
    cut_ms = _heal_later(stage, chance, 1_500, 3_500)  # long enough for somebody else to lead
    return f"{name} is cut off from the other brokers, for {cut_ms} ms"


def _pause(stage: Stage, chance: random.Random) -> str | None:
    name = stage.leader(chance) if chance.random() < 0.5 else chance.choice(stage.names)
    loop, stopped_ms = stage.machines[name].loop, chance.randint(50, 2_500)
    if loop is None:
        return None
    loop.pause()
    stage.timeline.after(stopped_ms, loop.resume)
    return f"{name} stands still for {stopped_ms} ms"


def _weather(stage: Stage, chance: random.Random) -> str:
    stage.wires.slow, stage.wires.slow_ms = chance.choice((0.05, 0.3)), 200

    def better() -> None:
        stage.wires.slow = 0.0

    ends_ms = chance.randint(200, 2_000)
    stage.timeline.after(ends_ms, better)
    return f"{stage.wires.slow:.0%} of what is sent is up to 200 ms late, for {ends_ms} ms"


def _reset(stage: Stage, chance: random.Random) -> str:
    name = chance.choice(list(stage.machines))
    stage.wires.reset(name)
    return f"every connection of {name} is reset"


def _shutdown(stage: Stage, chance: random.Random) -> str | None:
    name = chance.choice(stage.names)
    if stage.machines[name].loop is None:
        return None
    stage.leave(name)
    return f"{name} is asked to end"


def _election(stage: Stage, chance: random.Random) -> str:
    stage.elect()
    return "somebody asks for the preferred leaders"


def _nth_step(number: int) -> str:
    teens = 11 <= number % 100 <= 13
    ending = "th" if teens else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"its disk's {number}{ending} write or sync from now"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nobody"


KINDS: dict[str, Callable[[Stage, random.Random], str | None]] = {
    "kill": _kill,
    "power": _power,
    "leader": _leader,
    "blackout": _blackout,
    "midway": _midway,
    "relapse": _relapse,
    "cut": _cut,
    "alone": _alone,
    "pause": _pause,
    "weather": _weather,
    "reset": _reset,
    "shutdown": _shutdown,
    "election": _election,
    "disk": _disk,
}


def plan(seed: int, until_ms: int) -> list[Fault]:
    """The faults of a seed, in order.

    >>> plan(7, 8_000) == plan(7, 8_000), plan(7, 8_000) == plan(8, 8_000)
    (True, False)
    """
    chance = random.Random(f"faults {seed}")
    weights = [chance.choice((0, 0, 1, 3)) for _ in KINDS]
    if not any(weights):
        weights = [1] * len(KINDS)
    least_ms, most_ms = chance.choice(PACES)
    faults: list[Fault] = []
    now_ms = FIRST_MS + chance.randint(0, most_ms // 2)
    while now_ms < until_ms:
        (kind,) = chance.choices(list(KINDS), weights)
        faults.append(Fault(len(faults), now_ms, kind, chance.random()))
        now_ms += chance.randint(least_ms, most_ms)
    return faults
