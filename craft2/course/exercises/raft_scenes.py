"""What the checks of the Raft exercises share: servers with given logs, and seeds of the simulator.

The modules come from the package of the module under test, so it is the learner's code that runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from craft2.course.expect import doing, that

SEEDS = 50


def part(module: ModuleType, name: str) -> Any:
    """Another module of the same package."""
    return importlib.import_module(f"{module.__package__}.{name}")


def entries(module: ModuleType, terms: Sequence[int], first: int = 1) -> list[Any]:
    """Entries with these terms, as the paper's figures show a log; each has data of its own."""
    entry = part(module, "messages").Entry
    return [entry(term, first + i, b"%d" % (first + i)) for i, term in enumerate(terms)]


def server(
    module: ModuleType,
    number: int,
    terms: Sequence[int],
    term: int,
    *,
    voters: Sequence[int] = (1, 2, 3, 4, 5),
    voted_for: int | None = None,
    committed: int = 0,
) -> Any:
    """A follower with this log on its disk."""
    messages = part(module, "messages")
    members = messages.Members(voters=tuple(voters))
    log = part(module, "log").RaftLog(messages.Snapshot(members=members), entries(module, terms))
    log.committed = log.applied = committed
    hard_state = messages.HardState(term, voted_for)
    make = part(module, "server").RaftServer
    return make(number, log, hard_state, random=lambda: 0.5, now_ms=0)


def terms_of(one: Any) -> list[int]:
    """The terms of a server's log."""
    return [entry.term for entry in one.log.entries]


def run_seeds(module: ModuleType, count: int = SEEDS, first: int = 0) -> str:
    """Clusters of three with crashes, cuts and losses; no rule may break. Returns what was done."""
    world: Any = importlib.import_module("craft2.apps.simulate.raft_world")
    rules: Any = importlib.import_module("craft2.apps.simulate.raft_rules")
    for seed in range(first, first + count):
        doing(f"seed {seed} of the simulator, three servers")
        one = world.World(seed, 3, server=part(module, "server").RaftServer)
        try:
            one.run()
        except rules.Broken as broken:
            that(
                f"seed {seed} of the simulator (three servers, {one.timeline.now_ms} ms)",
                False,
                expected="every rule of the paper's figure 3 holds",
                got=str(broken),
                difference=f"see it: craft2 raft simulate --first-seed {seed} --seeds 1 --nodes 3, "
                f"or craft2.apps.lessons.raft_failures.show_failure({seed}, nodes=3) in a notebook",
            )
    return f"{count} seeds of the simulator"
