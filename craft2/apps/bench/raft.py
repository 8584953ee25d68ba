"""Raft: what the core can do, commits a second beside PySyncObj, and how long an election takes.

- The core: three servers in one process, batches proposed to the leader, messages handed over
  directly, nothing written: what Raft's rules alone cost.
- Three processes (`raft_worker`), the leader keeping 4,000 commands of 100 bytes outstanding,
  against PySyncObj as it comes, but with its journal in a file. Neither syncs, which PySyncObj
  cannot; then ours does. What PySyncObj commits is limited by how often it sends, 10 times a second
  by default; to send more often, larger batches, or each command at once was no faster here.
  Without the journal, in memory alone as is its default, it comes near that limit: 40,000 a second.
- Three processes whose leader is killed (`kill -9`), with the default timeouts: from the signal to
  the moment at which another one leads. Its connections break, and that says it at once. A leader
  that stands still says nothing, so the election timeout has to pass: for comparison.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from array import array
from collections import Counter
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec

from craft2.apps.bench.harness import BenchError, Load, Pairs, alternate
from craft2.apps.bench.raft_worker import Spec
from craft2.apps.bench.scenarios import Bench, scenario
from craft2.apps.raft_cluster import RaftCluster
from craft2.net import free_ports
from phase3_raft.raft.log import RaftLog
from phase3_raft.raft.messages import Members, Snapshot
from phase3_raft.raft.server import RaftServer

OUTSTANDING, SIZE_BYTES = 4_000, 100
LIMIT_S = 0.4  # an election
PEER = "PySyncObj"


def core_rate(seconds: float) -> float:
    """Proposals a second through three cores, in batches of 1,000."""
    founded = Snapshot(members=Members((1, 2, 3)))
    servers = {i: RaftServer(i, RaftLog(founded), now_ms=0) for i in (1, 2, 3)}
    leader = servers[1]
    now_ms = leader.election_at_ms
    leader.tick(now_ms)
    batch, count, begin_s = [b"x" * SIZE_BYTES] * 1_000, 0, time.perf_counter()

    def settle() -> None:
        moving = True
        while moving:
            moving = False
            for server in servers.values():
                while (ready := server.ready()) is not None:
                    moving = True
                    server.advance(ready)
                    for message in (*ready.early, *ready.messages):
                        servers[message.to].step(message, now_ms)

    settle()
    while time.perf_counter() < begin_s + seconds:
        leader.propose(batch)
        settle()
        count += len(batch)
    if min(server.log.applied for server in servers.values()) < count:
        raise BenchError("not everything that was proposed is applied", "run the tests")
    return count / (time.perf_counter() - begin_s)


def commit_rate(bench: Bench, kind: str, fsync: bool = False) -> float:
    """Commits a second through three processes."""
    os.sync()  # or a sync of this round waits for what former rounds have left to write
    folder = bench.new_folder(kind)
    command = [sys.executable, "-P", "-m", "craft2.apps.bench.raft_worker"]
    ports = dict(enumerate(free_ports(3), 1))
    with ExitStack() as stack:
        reports: list[str] = []
        done = threading.Event()
        for number in ports:
            spec = Spec(
                kind=kind,
                number=number,
                ports=ports,
                folder=str(folder / str(number)),
                fsync=fsync,
                outstanding=OUTSTANDING,
                size_bytes=SIZE_BYTES,
                warmup_s=bench.seconds(2.0),
                seconds=bench.seconds(5.0),
            )
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, msgspec.json.encode(spec).decode()],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            stack.callback(process.kill)

            def listen(process: subprocess.Popen[str] = process) -> None:
                assert process.stdout is not None
                if line := process.stdout.readline():
                    reports.append(line)
                    done.set()

            threading.Thread(target=listen, daemon=True).start()
        if not bench.clock.wait(done, 60):
            raise BenchError(f"{kind} has not reported for 60 s", "run one worker by hand and see")
    return float(reports[0])


def elections(folder: Path, runs: int, silent: bool) -> list[float]:
    """Seconds from the end of a leader to the next one; silent: it is stopped, not killed."""
    taken: list[float] = []
    with RaftCluster(folder) as cluster:
        while len(taken) < runs:
            leader = cluster.wait_for_leader()
            cluster.wait_until(partial(_settled, cluster, leader))
            term, begin_s = cluster.status(leader)["term"], time.time()
            (cluster.pause if silent else cluster.kill)(leader)
            others = [i for i in cluster.ids if i != leader]
            cluster.wait_for_leader(others)
            elected_ms = [
                event.when_ms
                for i in others
                for event in cluster.events(i)
                if event.kind == "leads" and (event.term or 0) > term
            ]
            if elected_ms:  # else another one had taken over a moment before, by itself
                taken.append(min(elected_ms) / 1_000 - begin_s)
            (cluster.resume if silent else cluster.start)(leader)
    return taken


def _settled(cluster: RaftCluster, leader: int) -> bool:
    """Whether everybody follows this leader, and is connected to everybody."""
    seen = [cluster.status(i) for i in cluster.ids]
    others = len(cluster.ids) - 1
    return all(s and s["leader"] == leader and len(s["connected"]) == others for s in seen)


@scenario("raft", "the core's proposals/s; commits/s beside PySyncObj; elections after a kill -9")
def raft(bench: Bench) -> None:
    """A promise, two comparisons, and how long elections take."""
    bench.promise(
        "raft: core",
        "three cores in one process",
        lambda: core_rate(bench.seconds(1.0)),
        200_000,
        unit="proposals/s",
    )
    rounds = 1 if bench.quick else 5
    for ours, fsync, target in (("ours, no fsync", False, 5.0), ("ours, with fsync", True, None)):
        pairs = alternate(
            partial(commit_rate, bench, "ours", fsync),
            partial(commit_rate, bench, PEER),
            rounds=rounds,
            warmup=0,
        )
        bench.compare("raft: commits", ours, PEER, pairs, unit="commits/s", target=target)
    for what, runs, silent, target in (
        ("the leader is killed", 10 if bench.quick else 200, False, 1.0),
        ("the leader stands still", 5 if bench.quick else 50, True, None),
    ):
        taken = elections(bench.new_folder("elections"), runs, silent)
        bench.add(
            Load(array("d", [1_000 * each for each in taken]), Counter(), "", sum(taken)),
            phase=3,
            backend=what,
            scenario="election",
            clients=3,
            size_bytes=0,
            notes=f"{runs} runs; the longest took {1_000 * max(taken):.0f} ms",
        )
        pairs = Pairs([1 / statistics.median(taken)], [1 / LIMIT_S])
        bench.compare(
            "raft: election", what, f"promised: in {LIMIT_S:g} s", pairs, unit="1/s", target=target
        )
