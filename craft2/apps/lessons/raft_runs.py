"""Thousands of elections, on record: what notebook 24 analyses.

A run is a cluster on a stage whose leader is stopped, until there is the next one. A row says what
it took.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import NamedTuple

from craft2.apps.raft_cluster import RaftCluster
from craft2.apps.simulate.stage import Stage
from craft2.clock import SystemClock
from phase3_raft.raft.messages import RequestVote

AT_MOST_MS = 20_000  # then a run counts as one that took so long
SHORTEST_MS = 150


class Run(NamedTuple):
    """How one cluster got its next leader. All times in ms, of virtual time.

    waited_ms: from the death of the leader to the next one. terms: how many were begun. messages:
    that were sent meanwhile, and requests of votes among them.
    """

    seed: int
    servers: int
    spread_ms: int
    waited_ms: int
    terms: int
    messages: int
    requests: int
    led: bool


def election(seed: int, servers: int, spread_ms: int) -> Run:
    """One run. spread_ms: election timeouts are drawn from 150 to 150 + spread.

    >>> election(1, servers=3, spread_ms=150).led
    True
    """
    timeouts = (SHORTEST_MS, SHORTEST_MS + spread_ms)
    stage = Stage(servers, seed=seed, election_timeout_ms=timeouts)
    stage.time_out(1)
    stage.run(100)
    sent, stopped = len(stage.letters), stage.now_ms
    term = max(looks[-1].term for looks in stage.looks.values())
    stage.stop(1)
    while stage.now_ms - stopped < AT_MOST_MS and stage.leader is None:
        stage.run(1)
    after = stage.letters[sent:]
    return Run(
        seed,
        servers,
        spread_ms,
        stage.now_ms - stopped,
        max(looks[-1].term for looks in stage.looks.values()) - term,
        len(after),
        sum(isinstance(letter.message, RequestVote) for letter in after),
        stage.leader is not None,
    )


def record_elections(
    file: Path, *, servers: Iterable[int], spreads_ms: Iterable[int], runs: int
) -> int:
    """Write `runs` runs of each setting to a file of JSON lines; returns how many there are."""
    count = 0
    with file.open("w") as out:
        for some, spread_ms, seed in product(servers, spreads_ms, range(runs)):
            out.write(json.dumps(election(seed, some, spread_ms)._asdict()) + "\n")
            count += 1
    return count


def real_elections_ms(folder: Path, runs: int, how: str) -> list[float]:
    """The same with three processes: how long there is no leader after the present one was killed
    or paused (`how`), with timeouts from 150 to 300 ms. The victim comes back before the next run.
    """
    options = ("--election-ms", f"{SHORTEST_MS}-300", "--heartbeat-ms", "50", "--no-fsync")
    clock, times = SystemClock(), []
    with RaftCluster(folder, options=options) as cluster:
        for _ in range(runs):
            victim = _leader_of_all(cluster)
            others = [i for i in cluster.ids if i != victim]
            getattr(cluster, how)(victim)
            start_s = clock.monotonic()
            cluster.wait_until(lambda o=others: cluster.leader(o))  # type: ignore[misc]
            times.append(1_000 * (clock.monotonic() - start_s))
            {"kill": cluster.start, "pause": cluster.resume}[how](victim)
    return times


def _leader_of_all(cluster: RaftCluster) -> int:
    """The leader, once all hear it and are heard by it: on a busy machine the first one may have
    been followed by another until then."""
    found: list[int] = []

    def all_follow() -> bool:
        seen = [cluster.status(i) for i in cluster.ids]
        leaders = {one["leader"] for one in seen if one}
        connected = all(one and set(one["connected"]) == everybody - {one["id"]} for one in seen)
        if connected and len(leaders) == 1 and None not in leaders:
            found.extend(leaders)
        return bool(found)

    everybody = set(cluster.ids)
    cluster.wait_until(all_follow)
    return found[0]
