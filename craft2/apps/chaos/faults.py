"""What is done to the brokers, each fault with its undoing.

A fault is a context: entering it breaks something and says what, leaving it mends it. Kinds are
dealt like cards, a shuffled deck at a time, so that each occurs before one occurs again.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeAlias

from craft2.apps.chaos.brokers import Brokers, NotWell
from craft2.apps.chaos.clients import Clients
from craft2.apps.chaos.disks import FULL, SLOW, Disks
from craft2.apps.chaos.links import Links
from craft2.apps.chaos.timeline import Timeline
from craft2.apps.chaos.watcher import Watcher

WELL_S = 90.0  # all must be well again so long after a fault is undone
ROLLING, WIPE = "rolling-restart", "wipe"


@dataclass
class World:
    """What faults act on."""

    brokers: Brokers
    links: Links
    disks: Disks
    watcher: Watcher
    clients: Clients
    timeline: Timeline
    chance: random.Random
    make_topic: Callable[[], None]

    def some(self, count: int) -> list[int]:
        """So many brokers, in an order by chance."""
        return self.chance.sample(self.brokers.numbers, count)

    def leader(self) -> tuple[int, int]:
        """A partition, and who leads it; if nobody does, any broker."""
        leaders = self.watcher.leaders
        number = self.chance.randrange(self.clients.partitions)
        found = leaders.get(number, -1)
        return number, found if found in self.brokers.numbers else self.some(1)[0]

    def wait_well(self) -> None:
        """Start what has ended, until all is well. Raises NotWell."""
        until = self.timeline.now() + WELL_S
        while not self.watcher.wait_well(1.0):
            self.brokers.start(*self.revived())
            if self.timeline.now() > until:
                raise NotWell(
                    f"{WELL_S:.0f} s after all was mended the cluster is not well: "
                    f"{self.watcher.unwell}",
                    "see what the brokers complain about",
                )

    def revived(self) -> list[int]:
        """Those that ended by themselves, which is noted."""
        ended = self.brokers.ended()
        for number, status in ended.items():
            words = f"broker {number} had ended by itself (exit status {status})"
            self.timeline.events.append((self.timeline.now(), words))
        return list(ended)


Fault: TypeAlias = Callable[[World], AbstractContextManager[str]]
FAULTS: dict[str, tuple[str, Fault]] = {}


def _fault(name: str, about: str) -> Callable[[Callable[[World], Iterator[str]]], Fault]:
    def register(function: Callable[[World], Iterator[str]]) -> Fault:
        made = contextlib.contextmanager(function)
        FAULTS[name] = about, made
        return made

    return register


def deal(names: Sequence[str], chance: random.Random) -> Iterator[str]:
    """Names without end: all of them in an order by chance, and again."""
    while True:
        yield from chance.sample(names, len(names))


def _killed(world: World, numbers: Sequence[int], said: str) -> Iterator[str]:
    with world.timeline.struck("kill -9", *numbers):
        world.brokers.kill(*numbers)
        yield f"kill -9 of {said}"
        world.brokers.start(*numbers)


@_fault("kill", "kill -9 of one broker")
def _kill(world: World) -> Iterator[str]:
    [number] = world.some(1)
    yield from _killed(world, [number], f"broker {number}")


@_fault("kill-leader", "kill -9 of a partition's leader")
def _kill_leader(world: World) -> Iterator[str]:
    partition, number = world.leader()
    yield from _killed(world, [number], f"broker {number}, which led partition {partition}")


@_fault("kill-controller", "kill -9 of the controller")
def _kill_controller(world: World) -> Iterator[str]:
    found = world.watcher.controller
    number = found if found in world.brokers.numbers else world.some(1)[0]
    yield from _killed(world, [number], f"broker {number}, the controller")


@_fault("kill-all", "kill -9 of all brokers at once")
def _kill_all(world: World) -> Iterator[str]:
    yield from _killed(world, world.brokers.numbers, "all brokers at once")


@_fault("pause", "SIGSTOP, which is a broker that hangs, and SIGCONT")
def _pause(world: World) -> Iterator[str]:
    _, number = world.leader()
    with world.timeline.struck("paused", number):
        world.brokers.pause(number)
        try:
            yield f"broker {number} stands still"
        finally:
            world.brokers.go_on(number)


@_fault("cut-link", "the link between two brokers, both ways")
def _cut_link(world: World) -> Iterator[str]:
    one, other = world.some(2)
    with world.timeline.struck("cut", one, other):
        world.links.cut(one, other)
        world.links.cut(other, one)
        yield f"the link between brokers {one} and {other} is cut"
        world.links.heal()


@_fault("cut-one-way", "the link from one broker to another, but not back")
def _cut_one_way(world: World) -> Iterator[str]:
    one, other = world.some(2)
    with world.timeline.struck("cut", one):
        world.links.cut(one, other)
        yield f"what broker {one} sends to {other} does not arrive; back it does"
        world.links.heal()


@_fault("cut-from-brokers", "a broker from all others, but not from clients")
def _cut_from_brokers(world: World) -> Iterator[str]:
    number, *others = world.some(len(world.brokers.numbers))
    with world.timeline.struck("cut", number):
        for other in others:
            world.links.cut(number, other)
            world.links.cut(other, number)
        yield f"broker {number} is cut off from the others; clients reach it"
        world.links.heal()


@_fault("unplug", "a broker from everybody")
def _unplug(world: World) -> Iterator[str]:
    _, number = world.leader()
    with world.timeline.struck("unplugged", number):
        world.links.unplug(number)
        yield f"broker {number} is unplugged"
        world.links.heal()


@_fault(SLOW, "a disk that is frozen four fifths of the time")
def _slow_disk(world: World) -> Iterator[str]:
    [number] = world.some(1)
    with world.timeline.struck("slow disk", number), world.disks.slow(number):
        yield f"the disk of broker {number} is slow"


@_fault(FULL, "a disk without space")
def _full_disk(world: World) -> Iterator[str]:
    [number] = world.some(1)
    with world.timeline.struck("full disk", number):
        world.disks.fill(number)
        try:
            yield f"the disk of broker {number} is full"
        finally:
            world.disks.free(number)


@_fault("lose-disk", "kill -9 of one broker, which starts again with an empty folder")
def _lose_disk(world: World) -> Iterator[str]:
    [number] = world.some(1)
    with world.timeline.struck("disk lost", number):
        world.brokers.kill(number)
        world.disks.wipe(number)
        yield f"broker {number} lost its disk"
        world.brokers.start(number)


@_fault(ROLLING, "SIGTERM and a new start, one broker after the other; no send may fail")
def _rolling_restart(world: World) -> Iterator[str]:
    began = world.timeline.now()
    for number in world.some(len(world.brokers.numbers)):
        with world.timeline.struck("restart", number):
            status = world.brokers.stop(number)
            if status:
                raise NotWell(f"broker {number} ended with status {status} after SIGTERM", "")
            world.brokers.start(number)
            world.wait_well()
    yield "one broker after the other was stopped and started again"
    failed = [why for when, why in world.clients.failed if when >= began]
    if failed:
        raise NotWell(f"{len(failed)} sends failed in a rolling restart: {failed[0]}", "")


@_fault(WIPE, "all that all brokers keep is removed: the checker must find it")
def _wipe(world: World) -> Iterator[str]:
    numbers = world.brokers.numbers
    with world.timeline.struck("wiped", *numbers):
        world.brokers.kill(*numbers)
        for number in numbers:
            world.disks.wipe(number)
        world.brokers.start(*numbers)
        world.make_topic()
        yield "the data of all brokers are gone"
