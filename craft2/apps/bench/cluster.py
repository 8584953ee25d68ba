"""Three brokers beside three nodes of Apache Kafka, all on this machine, one cluster at a time.

Topics have three replicas. The machine is the same for both and small for six: what is measured is
what a copy on every broker costs here, not what six machines could do.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import psutil

from craft2.apps.bench.broker import KAFKA, OURS, WARM_UP_S, compare_bulk, rounds
from craft2.apps.bench.broker_load import Work, bulk, latencies, topic
from craft2.apps.bench.harness import BenchError, Load, Pairs
from craft2.apps.bench.scenarios import Bench, scenario
from craft2.apps.kafka_peer import KafkaNodes
from phase3_raft.local_cluster import LocalCluster

REPLICAS = 3
ACKS = ("0", "1", "all")
RATES = ((1_000, 4.0), (5_000, 10.0))  # messages a second, and the longest p99 in ms
KILLS = 20
BROKERS, PARTITIONS = (1, 3, 5), (1, 10, 100, 1_000)
_READY_S, _MEMORY_MB = 2.0, 600.0
_FAILOVER_S, _WORST_S = 1.5, 3.0


@contextmanager
def both(bench: Bench) -> Iterator[tuple[LocalCluster, KafkaNodes]]:
    """The two clusters, warmed up."""
    with (
        LocalCluster(data_dir=bench.new_folder("ours")) as ours,
        KafkaNodes(folder=bench.new_folder("kafka")) as peer,
    ):
        for cluster, seconds in ((peer, WARM_UP_S), (ours, 5.0)):
            until = time.perf_counter() + bench.seconds(seconds)
            while time.perf_counter() < until:
                bulk(cluster.bootstrap_servers, Work(100_000, replicas=REPLICAS, acks="all"))
                latencies(cluster.bootstrap_servers, 1_000, 1.0, "all", REPLICAS)
            bench.say(f"{cluster.bootstrap_servers} is warm")
        yield ours, peer


@scenario("cluster", "three brokers beside three of Apache Kafka: bulk work with acks=all")
def cluster(bench: Bench) -> None:
    """Rates, and what the brokers take of memory."""
    bench.within("cluster: three brokers ready", OURS, _launch, _READY_S, rounds=rounds(bench))
    with both(bench) as (ours, peer):
        for size, messages in ((100, 1_000_000), (1_000, 400_000)):
            work = Work(round(bench.seconds(messages)), size, acks="all", replicas=REPLICAS)
            here, there = (partial(bulk, one.bootstrap_servers) for one in (ours, peer))
            compare_bulk(bench, here, there, work, "cluster")
        memory = sum(psutil.Process(pid).memory_info().rss for pid in ours.pids.values()) / 1e6
        bench.compare(
            "cluster: memory of three brokers",
            f"ours, {memory:.0f} MB",
            f"promised: {_MEMORY_MB:.0f} MB",
            Pairs([1 / memory], [1 / _MEMORY_MB]),
            unit="1/MB",
            target=1.0,
        )


def _launch() -> float:
    began = time.perf_counter()
    with LocalCluster():
        return time.perf_counter() - began


@scenario("cluster-latency", "end to end by acks and rate, beside three nodes of Apache Kafka")
def cluster_latency(bench: Bench) -> None:
    """The table by acks, and the promises for acks=all."""
    with both(bench) as (ours, peer):
        for acks in ACKS:
            for rate, limit_ms in RATES:
                measure_latency(bench, ours, peer, acks, rate, limit_ms)


def measure_latency(
    bench: Bench, ours: LocalCluster, peer: KafkaNodes, acks: str, rate: int, limit_ms: float
) -> None:
    """In turns; the rows' scenario is "cluster: end to end"."""
    tails: dict[str, list[float]] = {OURS: [], KAFKA: []}
    for _ in range(rounds(bench)):
        for backend, address in ((OURS, ours.bootstrap_servers), (KAFKA, peer.bootstrap_servers)):
            taken = latencies(address, rate, bench.seconds(4.0), acks, REPLICAS)
            load = Load(taken, Counter(), "", len(taken) / rate)
            bench.add(
                load,
                phase=3,
                backend=backend,
                scenario="cluster: end to end",
                size_bytes=100,
                acks=acks,
                notes=f"{rate} messages a second",
            )
            tails[backend].append(1_000 / (load.percentile(99) or 0.0))
    promised = [1_000 / limit_ms] * len(tails[OURS])
    what = f"cluster: p99, acks={acks}, {rate:,}/s"
    bench.compare(what, OURS, KAFKA, Pairs(tails[OURS], tails[KAFKA]), unit="1/s", target=1.0)
    if acks == "all":
        pairs = Pairs(tails[OURS], promised)
        bench.compare(what, OURS, f"promised: {limit_ms:g} ms", pairs, unit="1/s", target=1.0)


@scenario("cluster-failover", "from kill -9 of a leader to the next acknowledgement; a restart")
def cluster_failover(bench: Bench) -> None:
    """With librdkafka as it comes, acks=all."""
    gaps_s: list[float] = []
    with LocalCluster(data_dir=bench.new_folder("ours")) as ours:
        for _ in range(2 if bench.quick else KILLS):
            gaps_s.append(failover(ours))
            bench.say(f"acknowledged again after {gaps_s[-1]:.2f} s")
        failed, restart_s = _rolling_restart(ours)
    for what, limit_s, gap_s in (
        ("median", _FAILOVER_S, statistics.median(gaps_s)),
        (f"worst of {len(gaps_s)}", _WORST_S, max(gaps_s)),
    ):
        bench.compare(
            f"cluster: leader killed, {what}",
            f"ours, {gap_s:.2f} s",
            f"promised: {limit_s:g} s",
            Pairs([1 / gap_s], [1 / limit_s]),
            unit="1/s",
            target=1.0,
        )
    if failed:
        raise BenchError(f"{failed} sends failed in a rolling restart", "see what brokers say")
    bench.say(f"no send failed in a rolling restart; the longest gap was {restart_s:.2f} s")


class Sending:
    """A producer that sends all the time, as librdkafka comes but for acks=all.

    acknowledged_s: when each of its messages was; failed: how many were not.
    """

    def __init__(self, bootstrap: str, name: str, acks: str = "all") -> None:
        from confluent_kafka import Producer

        self.acknowledged_s: list[float] = []
        self.failed = 0
        self._name, self._ending = name, threading.Event()
        settings = {"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0, "log_level": 0}
        self._producer = Producer({**settings, "error_cb": lambda error: None})
        self._producer.list_topics(name, 30)
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        while not self._ending.wait(0.005):
            self._producer.produce(self._name, b"x", on_delivery=self._delivered)
            self._producer.poll(0)

    def _delivered(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged_s.append(time.perf_counter())
        else:
            self.failed += 1

    def wait_for(self, count: int) -> None:
        """Until so many more are acknowledged. Raises BenchError."""
        wanted, until = len(self.acknowledged_s) + count, time.perf_counter() + 60
        while len(self.acknowledged_s) < wanted:
            if time.perf_counter() > until:
                raise BenchError("nothing was acknowledged for a minute", "see the brokers")
            time.sleep(0.01)

    def close(self) -> None:
        """Send no more, and wait for what is on its way."""
        self._ending.set()
        self._thread.join()
        self.failed += self._producer.flush(60)


@contextmanager
def sending(bootstrap: str, name: str, acks: str = "all") -> Iterator[Sending]:
    """A `Sending` at work."""
    one = Sending(bootstrap, name, acks)
    try:
        one.wait_for(20)
        yield one
    finally:
        one.close()


def leader_of(bootstrap: str, name: str) -> int:
    """Of partition 0 of a topic."""
    from confluent_kafka.admin import AdminClient

    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics(name, 30)
    return int(found.topics[name].partitions[0].leader)


def failover(cluster: LocalCluster) -> float:
    """Kill the leader of a partition under load; the seconds until something is acknowledged that
    was not before. The killed one comes back. Raises BenchError."""
    with topic(cluster.bootstrap_servers, 1, REPLICAS, **{"min.insync.replicas": "2"}) as name:
        with sending(cluster.bootstrap_servers, name) as load:
            leader = leader_of(cluster.bootstrap_servers, name)
            killed_s = time.perf_counter()
            cluster.kill(leader)
            load.wait_for(100)
            moments = [killed_s, *(at for at in load.acknowledged_s if at > killed_s)]
            gap_s = max(after - before for before, after in pairwise(moments))
            cluster.start(leader)
        if load.failed:
            raise BenchError(f"{load.failed} sends failed", "see what the brokers say")
        return gap_s


def _rolling_restart(cluster: LocalCluster) -> tuple[int, float]:
    """How many sends fail while each broker is stopped in good order, and started again; and the
    longest time, in seconds, in which nothing was acknowledged."""
    with topic(cluster.bootstrap_servers, 1, REPLICAS, **{"min.insync.replicas": "2"}) as name:
        with sending(cluster.bootstrap_servers, name) as load:
            load.wait_for(100)
            for number in list(cluster.addresses):
                cluster.stop(number)
                cluster.start(number)
                load.wait_for(200)
        return load.failed, max(b - a for a, b in pairwise(load.acknowledged_s))


@scenario("cluster-growth", "bulk rates by partitions and by brokers")
def cluster_growth(bench: Bench) -> None:
    """Rows only; `make pictures` draws them."""
    measure_growth(bench)


def measure_growth(bench: Bench) -> None:
    """The rows' scenario is "cluster growth: partitions=N" or "...: brokers=N"."""
    messages = round(bench.seconds(300_000))

    def once(address: str, what: str, number: int, work: Work) -> None:
        for _ in range(1 if bench.quick else 3):
            bench.add_total(
                messages,
                messages / bulk(address, work).produced,
                phase=3,
                backend=OURS,
                scenario=f"cluster growth: {what}={number}",
                size_bytes=100,
                acks="all",
            )

    for count in BROKERS:
        with LocalCluster(count, replicas=min(count, REPLICAS)) as running:
            address, copies = running.bootstrap_servers, min(count, REPLICAS)
            once(address, "brokers", count, Work(messages, acks="all", replicas=copies))
            for partitions in PARTITIONS if count == REPLICAS else ():
                work = Work(messages, partitions=partitions, acks="all", replicas=copies)
                once(address, "partitions", partitions, work)
