"""The simulator: events a second, and how long a thousand seeds take.

An event is a message that arrives, a timer that rings, a client that asks; after each every rule is
checked. A thousand seeds of five servers are shared out over two processes.
"""

from __future__ import annotations

import time

from craft2.apps.bench.harness import BenchError
from craft2.apps.bench.scenarios import Bench, scenario
from craft2.apps.simulate.node_world import NodeWorld
from craft2.apps.simulate.seeds import run_seed, run_seeds

PROMISED, PROMISED_NODES, LIMIT_S = 60_000, 8_000, 300.0
NODES = 5


def events_a_second(seeds: int) -> float:
    """Of one process, in its own seconds."""
    outcomes = [run_seed(seed, NODES) for seed in range(seeds)]
    return sum(o.counts["events"] for o in outcomes) / sum(o.seconds for o in outcomes)


def events_of_nodes(seeds: int) -> float:
    """The same of whole nodes: the asyncio code on simulated network, disks and time."""
    events, begun_s = 0, time.perf_counter()
    for seed in range(seeds):
        world = NodeWorld(seed, 3)
        world.run()
        events += world.timeline.count
    return events / (time.perf_counter() - begun_s)


def seconds_for(seeds: int) -> float:
    """With two processes, by the clock on the wall."""
    begun_s = time.perf_counter()
    for outcome in run_seeds(range(seeds), NODES, jobs=2):
        if outcome.broken is not None:
            raise BenchError(
                f"seed {outcome.seed} breaks {outcome.broken[0]}",
                f"see craft2 raft simulate --seeds 1 --first-seed {outcome.seed}",
            )
    return time.perf_counter() - begun_s


@scenario("simulate", "the simulator's events/s, and the time for 1,000 seeds of five servers")
def simulate(bench: Bench) -> None:
    """Three promises. With --quick a tenth of the seeds, in a tenth of the time."""
    share = 10 if bench.quick else 1
    bench.promise(
        "simulate: cores",
        f"{NODES} cores, one process",
        lambda: events_a_second(100 // share),
        PROMISED,
        unit="events/s",
    )
    bench.promise(
        "simulate: nodes",
        "3 whole nodes, one process",
        lambda: events_of_nodes(20 // min(share, 5)),
        PROMISED_NODES,
        unit="events/s",
    )
    bench.within(
        "simulate: seeds",
        f"{1_000 // share:,} seeds, two processes",
        lambda: seconds_for(1_000 // share),
        LIMIT_S / share,
        rounds=1,
        warmup=0,
    )
