"""What goes wrong in a simulated Raft cluster, by name.

Each is a function of the world and of chance; it says in words what it has done, or None if there
was nothing to do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from craft2.sim.network import Weather
from phase3_raft.raft.state import Role

if TYPE_CHECKING:
    from craft2.apps.simulate.raft_world import World

Fault = Callable[["World", random.Random], str | None]
SHORTEST_MS, LONGEST_MS = 50, 1_500  # that a server is down, or stands still
RATES = (0.5, 0.8, 1.0, 1.25, 2.0)  # of clocks


def crash(world: World, chance: random.Random) -> str | None:
    """One server, at once or in its next write; the leader as often as any other."""
    victim = _somebody(world, chance)
    if victim is None:
        return None
    world.timeline.after(chance.randint(SHORTEST_MS, LONGEST_MS), world.boot, victim)
    if chance.random() < 0.7:
        step, share = chance.randint(0, 3), chance.random()
        world.crash_soon(victim, world.clock_ms(victim), step, share)
        when = ("before", "within", "after", "after telling of")[step]
        return f"server {victim} is to crash {when} its next write"
    world.crash(victim, world.clock_ms(victim))
    return f"server {victim} crashes"


def power_cut(world: World, chance: random.Random) -> str | None:
    """All at once, but only now and then; what was not synced is gone everywhere."""
    if chance.random() < 0.6:
        return None
    for victim in sorted(world.servers):
        world.crash(victim, world.clock_ms(victim))
        world.timeline.after(chance.randint(SHORTEST_MS, LONGEST_MS // 3), world.boot, victim)
    return "all servers crash"


def partition(world: World, chance: random.Random) -> str | None:
    """Two halves, or one server from the rest; both ways."""
    some, others = _sides(world, chance)
    for_ms = _cut(world, chance, some, others)
    return f"servers {some} are cut off from {others} for {for_ms} ms"


def one_way(world: World, chance: random.Random) -> str | None:
    """Some can hear the others, and are not heard."""
    some, others = _sides(world, chance)
    if chance.random() < 0.5:
        some, others = others, some
    for_ms = _cut(world, chance, some, others, one_way=True)
    return f"nothing gets from {some} to {others} for {for_ms} ms"


def _cut(
    world: World,
    chance: random.Random,
    some: list[int],
    others: list[int],
    one_way: bool = False,
) -> int:
    if chance.random() < 0.5:
        world.network.heal()  # else it comes on top of the last one
    world.network.cut(some, others, one_way)
    for_ms = chance.randint(100, 2_000)
    world.timeline.after(for_ms, world.network.heal)
    return for_ms


def weather(world: World, chance: random.Random) -> str | None:
    """Messages are lost, doubled, or so slow that others overtake them."""
    world.network.weather = now = Weather(
        lost=chance.choice((0.0, 0.02, 0.2)),
        doubled=chance.choice((0.0, 0.1)),
        slow=chance.choice((0.0, 0.1, 0.5)),
        slow_ms=chance.choice((30, 100, 700)),
    )
    return f"{now.lost:.0%} are lost, {now.doubled:.0%} doubled, {now.slow:.0%} slow"


def pause(world: World, chance: random.Random) -> str | None:
    """A server stands still, and goes on as if nothing had been."""
    victim = _somebody(world, chance)
    if victim is None or victim in world.paused:
        return None
    world.pause(victim)
    for_ms = chance.randint(SHORTEST_MS, LONGEST_MS)
    world.timeline.after(for_ms, world.wake, victim)
    return f"server {victim} stands still for {for_ms} ms"


def clock(world: World, chance: random.Random) -> str | None:
    """A server's clock goes too fast or too slowly from now on."""
    victim, rate = chance.choice(world.members.voters), chance.choice(RATES)
    world.clocks[victim].set_rate(world.now_ms, rate)
    return f"the clock of server {victim} runs at {rate} of its rate"


def slow_disk(world: World, chance: random.Random) -> str | None:
    """A disk takes its time from now on, or is fast again."""
    victim, slow = chance.choice(world.members.voters), chance.random() < 0.7
    if not world.slow_disk(victim, world.clock_ms(victim), slow):
        return None
    return f"the disk of server {victim} is {'slow' if slow else 'fast again'}"


def members(world: World, chance: random.Random) -> str | None:
    """A leader takes a voter out, or in, at once or as a learner; sometimes two in a row."""
    done = [_change(world, chance) for _ in range(chance.choice((1, 1, 2)))]
    return "; ".join(filter(None, done)) or None


def _change(world: World, chance: random.Random) -> str | None:
    leader = _leader(world, chance)
    if leader is None:
        return None
    now, one = world.servers[leader].members, chance.choice(world.members.voters)
    voters, learners = list(now.voters), list(now.learners)
    if one in voters:
        if len(voters) <= len(world.members.voters) // 2 + 1:
            return None
        voters.remove(one)
    elif one in learners or chance.random() < 0.5:
        learners = [each for each in learners if each != one]
        voters.append(one)
    else:
        learners.append(one)
    if not world.change(leader, world.clock_ms(leader), voters, learners):
        return None
    return f"server {leader} makes {voters} the voters, {learners} learners"


def transfer(world: World, chance: random.Random) -> str | None:
    """A leader hands over."""
    leader, to = _leader(world, chance), chance.choice(world.members.voters)
    if leader is None or not world.transfer(leader, world.clock_ms(leader), to):
        return None
    return f"server {leader} hands over to {to}"


def snapshot(world: World, chance: random.Random) -> str | None:
    """A server puts what it has applied into a snapshot, and forgets the entries."""
    who = _somebody(world, chance)
    if who is None or who in world.paused or not world.compact(who, world.clock_ms(who)):
        return None
    return f"server {who} makes a snapshot"


def stall(world: World, chance: random.Random) -> str | None:
    """A leader stands still while it asks whether it leads, and wakes to another read.

    Meanwhile somebody else is elected and writes. The answers that have waited say that it led when
    the first read came; about the second they say nothing.
    """
    leader = _leader(world, chance)
    if leader is None or not world.read_at(leader):
        return None
    for_ms = chance.randint(LONGEST_MS // 2, LONGEST_MS)
    world.pause(leader)
    world.timeline.after(for_ms, _wake_to_a_read, world, leader)
    return f"server {leader} stands still for {for_ms} ms in the middle of a read"


def _wake_to_a_read(world: World, leader: int) -> None:
    """It came by a line of its own, and is looked at before the answers."""
    if leader in world.paused:
        world.read_at(leader)
        world.wake(leader)


def cut_off(world: World, chance: random.Random) -> str | None:
    """A leader is left with one follower and a slow clock, and asked to read again and again.

    So it notices late that no majority hears it. Meanwhile the others elect somebody, who writes.
    """
    leader = _leader(world, chance)
    if leader is None:
        return None
    some = sorted([leader, chance.choice([i for i in world.members.voters if i != leader])])
    others = [i for i in world.members.voters if i not in some]
    world.clocks[leader].set_rate(world.now_ms, RATES[0])
    world.network.cut(some, others)
    world.timeline.after(LONGEST_MS, world.network.heal)
    for wait_ms in range(SHORTEST_MS, LONGEST_MS, SHORTEST_MS):
        world.timeline.after(wait_ms, world.read_at, leader)
    return f"leader {leader} and its slow clock are alone with {some} for {LONGEST_MS} ms, and read"


SWARM: dict[str, Fault] = {  # of these every run draws its own mixture
    "crash": crash,
    "power cut": power_cut,
    "partition": partition,
    "one-way partition": one_way,
    "weather": weather,
    "pause": pause,
    "clock drift": clock,
    "slow disk": slow_disk,
    "change of members": members,
    "transfer": transfer,
    "snapshot": snapshot,
}
RARE: dict[str, Fault] = {"stall in a read": stall, "leader alone with one": cut_off}
FAULTS: dict[str, Fault] = {**SWARM, **RARE}  # the last ones: once in some runs


def _somebody(world: World, chance: random.Random) -> int | None:
    """A running server; the leader more often than its share."""
    leader = _leader(world, chance)
    if leader is not None and chance.random() < 0.3:
        return leader
    return chance.choice(sorted(world.servers)) if world.servers else None


def _leader(world: World, chance: random.Random) -> int | None:
    leaders = [
        i
        for i, server in sorted(world.servers.items())
        if server.role is Role.LEADER and i not in world.paused
    ]
    return chance.choice(leaders) if leaders else None


def _sides(world: World, chance: random.Random) -> tuple[list[int], list[int]]:
    """A leader or another with a minority, or any two sides."""
    everybody = world.members.voters
    one = _somebody(world, chance)
    if one is not None and chance.random() < 0.5:
        friends = [i for i in everybody if i != one]
        some = sorted(
            [one, *chance.sample(friends, chance.randint(0, max(0, (len(everybody) - 3) // 2)))]
        )
    else:
        some = [i for i in everybody if chance.random() < 0.5]
    return some, [i for i in everybody if i not in some]
