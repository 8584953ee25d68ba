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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from craft2.apps.simulate.raft_bugs import bug_named
from craft2.apps.simulate.raft_rules import Broken
from craft2.apps.simulate.raft_world import World

Result = TypeVar("Result")
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
    return spread(partial(run_seed, nodes=nodes, bug=bug), seeds, jobs, until=_is_broken)


def _is_broken(outcome: Outcome) -> bool:
    return outcome.broken is not None


def spread(
    run: Callable[[int], Result],
    seeds: Sequence[int],
    jobs: int,
    *,
    until: Callable[[Result], bool],
) -> Iterator[Result]:
    """What `run` makes of each seed, in order, by so many processes.

    run, until: to be pickled. until: whoever takes the results will stop at one of which this is
    true, so that a process need not go on behind it.
    """
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
        for results in pool.map(partial(_run_some, run, until), some):
            yield from results
    finally:
        pool.shutdown(cancel_futures=True)


def _run_some(
    run: Callable[[int], Result], until: Callable[[Result], bool], seeds: Sequence[int]
) -> list[Result]:
    results = []
    for seed in seeds:
        results.append(run(seed))
        if until(results[-1]):
            break
    return results
