"""From a run of thousands of actions that breaks a rule to a few that break the same one.

Actions are taken away: half of them, a quarter, ... and at last each alone, from the end on, as
long as what is left still breaks the rule (delta debugging). Whatever then cannot be done any more
goes with them. What remains needs every single action.

A run in which nothing happens that ought to has no action that could be blamed. There, faults are
taken away: the same seed without this one, and that one.

Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input" (2002).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeVar

from msgspec.structs import replace

from craft2.apps.simulate.raft_bugs import Bug, bug_named
from craft2.apps.simulate.raft_nodes import Action
from craft2.apps.simulate.raft_rules import Broken
from craft2.apps.simulate.raft_world import World
from craft2.apps.simulate.trace import Replay, Trace
from craft2.apps.words import counted

Thing = TypeVar("Thing")
Say = Callable[[str], object]
APART_MS = 15  # actions of a trace whose moments do not matter


def less(things: list[Thing], still: Callable[[list[Thing]], list[Thing] | None]) -> list[Thing]:
    """The fewest that `still` accepts, by taking away. still: what remains of them, or None.

    >>> less(list(range(100)), lambda some: some if {7, 42} <= set(some) else None)
    [7, 42]
    """
    size = max(1, len(things) // 2)
    while True:
        before, end = len(things), len(things)
        while end > 0:
            begin = max(0, end - size)
            left = still(things[:begin] + things[end:])
            if left is not None:
                things = left
            end = min(begin, len(things))
        if size == 1 and len(things) == before:
            return things
        size = max(1, size // 2)


class Shrinker:
    """One failure, made small. say: told of progress."""

    def __init__(self, nodes: int, bug: Bug, rule: str, say: Say = lambda text: None) -> None:
        self._nodes, self._bug, self._rule, self._say = nodes, bug, rule, say

    def still(self, actions: list[Action]) -> list[Action] | None:
        """Those of them that can be done, if they break the rule."""
        for in_order in (False, True):
            replay = Replay(self._nodes, self._bug, in_order)
            replay.run(actions, judged=self._rule == "linearizability")
            if replay.broken is not None and replay.broken.rule == self._rule:
                self._say(f"{len(replay.actions):,} actions")
                return replay.actions
        return None

    def shrink(self, actions: list[Action]) -> list[Action]:
        """As few as possible, and as close together."""
        found = self.still(actions)
        if found is None:  # it needs what a trace has not, such as time that passes
            return actions
        before = 0
        while len(found) != before:  # what is needed no more lets other things go
            before = len(found)
            for server in range(1, self._nodes + 1):
                found = self.still([a for a in found if a.server != server]) or found
            found = less(found, self.still)
            found = self.still([_bare(action) for action in found]) or found
        for moments in (_even(found), _close(found)):
            moved = self.still(_at(found, moments))
            if moved is not None and len(moved) == len(found):
                return moved
        return found


def _bare(action: Action) -> Action:
    """Without the entries that mean nothing."""
    if action.what != "ask":
        return action
    return replace(action, arguments=(*action.arguments[:4], 0))


def _even(actions: Sequence[Action]) -> list[int]:
    """Moments at equal distances; servers start together."""
    moments, now = [], 0
    for action in actions:
        now += 0 if action.what == "start" and now == 0 else APART_MS
        moments.append(now)
    return moments


def _close(actions: Sequence[Action]) -> list[int]:
    """The moments as they are, but without long waits."""
    moments = [0]
    for before, after in pairwise(actions):
        moments.append(moments[-1] + min(after.ms - before.ms, 600))
    return moments


def _at(actions: Sequence[Action], moments: Sequence[int]) -> list[Action]:
    """The same actions at other moments, clocks being right; what is asked is accepted at once."""
    moved = []
    for action, ms in zip(actions, moments, strict=True):
        arguments = action.arguments
        if action.what == "ask":
            arguments = (*arguments[:3], ms, *arguments[4:])
        moved.append(replace(action, ms=ms, clock_ms=ms, arguments=arguments))
    return moved


def shrunk(
    seed: int,
    nodes: int = 5,
    bug: str | None = None,
    classes: Bug | None = None,
    say: Say = lambda text: None,
) -> Trace | None:
    """The short trace of a seed that breaks a rule; None if it breaks none.

    classes: of servers and disks, in place of those of the planted bug.
    """
    planted = classes or bug_named(bug)

    def run(without: frozenset[int]) -> tuple[World, Broken | None]:
        world = World(seed, nodes, planted.server, planted.disk, recorded=True, without=without)
        try:
            world.run()
        except Broken as broken:
            return world, broken
        return world, None

    world, broken = run(frozenset())
    if broken is None:
        return None
    rule, actions = broken.rule, world.actions or []
    if rule == "liveness":

        def still(kept: list[int]) -> list[int] | None:
            say(counted(len(kept), "fault"))
            _, other = run(frozenset(every) - frozenset(kept))
            return kept if other is not None and other.rule == rule else None

        every = list(range(world.planned_faults))
        kept = less(every, still)
        world, broken = run(frozenset(every) - frozenset(kept))
        assert broken is not None
        actions = world.actions or []
    else:
        actions = Shrinker(nodes, planted, rule, say).shrink(actions)
    replay = Replay(nodes, planted)
    replay.run(actions)
    broken = replay.broken or broken
    return Trace(
        nodes=nodes, bug=bug, seed=seed, rule=broken.rule, what=broken.what, actions=actions
    )
