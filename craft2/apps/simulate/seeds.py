"""Many seeds: runs spread over processes, and what they add up to.

>>> outcome = run_seed(1, nodes=3)
>>> outcome.broken, outcome.counts["elections"] > 0
(None, True)
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from craft2.apps.simulate.raft_bugs import bug_named
from craft2.apps.simulate.raft_rules import Broken
from craft2.apps.simulate.raft_world import World

AT_ONCE = 5  # seeds that a process is given at a time


class Outcome(NamedTuple):
    """What one seed came to. broken: (rule, what), or None. counts: of what, how often."""

    seed: int
    broken: tuple[str, str] | None
    counts: Counter[str]
    seconds: float  # of a processor


def run_seed(seed: int, nodes: int = 5, bug: str | None = None) -> Outcome:
    """One run, from its seed."""
    begun = time.process_time()
    planted = bug_named(bug)
    world = World(seed, nodes, server=planted.server, disk=planted.disk)
    broken = None
    try:
        world.run()
    except Broken as error:
        broken = error.rule, error.what
    return Outcome(seed, broken, world.summary(), time.process_time() - begun)


def run_seeds(
    seeds: Sequence[int], nodes: int = 5, bug: str | None = None, jobs: int = 2
) -> Iterator[Outcome]:
    """Their outcomes, in order. Whoever has seen enough may stop taking."""
    run = partial(run_seed, nodes=nodes, bug=bug)
    if jobs == 1:
        yield from map(run, seeds)
        return
    pool = ProcessPoolExecutor(
        jobs,
        multiprocessing.get_context("spawn"),
        initializer=signal.signal,
        initargs=(signal.SIGINT, signal.SIG_IGN),  # Ctrl-C is for us: the pool then ends
    )
    some = [seeds[place : place + AT_ONCE] for place in range(0, len(seeds), AT_ONCE)]
    try:
        for outcomes in pool.map(partial(_run_some, nodes, bug), some):
            yield from outcomes
    finally:
        pool.shutdown(cancel_futures=True)


def _run_some(nodes: int, bug: str | None, seeds: Sequence[int]) -> list[Outcome]:
    outcomes = []
    for seed in seeds:
        outcomes.append(run_seed(seed, nodes, bug))
        if outcomes[-1].broken is not None:
            break
    return outcomes
