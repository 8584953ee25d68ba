"""The broker beside Apache Kafka: both on this machine, the same client, in turn.

Both are warmed up first, since Java is slow until it has compiled what runs often. In pairs, one
broker works while the other one is stopped (SIGSTOP), or what that tidies up after its own turn
would be measured as well. `broker` measures bulk work,
`broker-requests` what a single request costs, `broker-cost` what the broker takes of the machine.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import psutil

from craft2.apps.bench.broker_load import (
    Rates,
    Work,
    bulk,
    connected,
    latencies,
    refetch,
    replay,
    requests,
)
from craft2.apps.bench.harness import Load, Pairs, alternate
from craft2.apps.bench.scenarios import Bench, scenario
from craft2.apps.kafka_peer import VERSION, KafkaPeer
from craft2.net import raise_file_limit
from phase3_raft.local_broker import LocalBroker

OURS, KAFKA = "ours", f"Apache Kafka {VERSION}"
EVEN = 0.95  # where the client is the limit
WARM_UP_S = 30.0
ROUNDS = 7
_FSYNC = {"flush.messages": "1"}


@contextmanager
def both(bench: Bench) -> Iterator[tuple[LocalBroker, KafkaPeer]]:
    """The two, warmed up."""
    with (
        LocalBroker(bench.new_folder("ours")) as ours,
        KafkaPeer(bench.new_folder("kafka")) as peer,
    ):
        for broker, seconds in ((peer, bench.seconds(WARM_UP_S)), (ours, bench.seconds(5.0))):
            until = time.perf_counter() + seconds
            while time.perf_counter() < until:
                bulk(broker.bootstrap_servers, Work(200_000))
                requests(broker.bootstrap_servers, 5_000)
            bench.say(f"{broker.bootstrap_servers} is warm")
        yield ours, peer


@contextmanager
def stopped(process_id: int) -> Iterator[None]:
    """Meanwhile this process does not run. Not for long: a Kafka that was stopped for 9 s takes
    itself for dead."""
    os.kill(process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process_id, signal.SIGCONT)


def rounds(bench: Bench) -> int:
    """How many pairs."""
    return 2 if bench.quick else ROUNDS


@scenario("broker", "bulk produce and consume beside Apache Kafka, by size and codec")
def broker(bench: Bench) -> None:
    """Twelve comparisons."""
    with both(bench) as (ours, peer):

        def of_ours(work: Work) -> Rates:
            with stopped(peer.pid):
                return bulk(ours.bootstrap_servers, work)

        def of_peer(work: Work) -> Rates:
            with stopped(ours.pid):
                return bulk(peer.bootstrap_servers, work)

        for size, messages in ((100, 1_000_000), (1_000, 300_000)):
            for codec in ("none", "lz4", "zstd"):
                work = Work(round(bench.seconds(messages)), size, codec)
                compare_bulk(bench, of_ours, of_peer, work, "broker", f", {codec}")


def compare_bulk(
    bench: Bench,
    ours: Callable[[Work], Rates],
    peer: Callable[[Work], Rates],
    work: Work,
    what: str,
    kind: str = "",
) -> None:
    """Produce and consume the same with both, in turns; `what` and `kind` name it."""
    measured = [(ours(work), peer(work)) for _ in range(rounds(bench))]
    for way in Rates._fields:
        pairs = Pairs(*([getattr(r, way) for r in side] for side in zip(*measured, strict=True)))
        for backend, rates in ((OURS, pairs.ours), (KAFKA, pairs.peer)):
            bench.add_total(
                work.messages,
                work.messages / statistics.median(rates),
                phase=3,
                backend=backend,
                scenario=f"{what}: {way}{kind}",
                size_bytes=work.size_bytes,
                acks=work.acks,
            )
        words = f"{what}: {way}, {work.size_bytes} B{kind}"
        bench.compare(words, OURS, KAFKA, pairs, target=EVEN)


@scenario("broker-requests", "one message a request, end to end, and fsync, beside Apache Kafka")
def broker_requests(bench: Bench) -> None:
    """Requests, replayed bytes, latencies."""
    with both(bench) as (ours, peer):

        def in_turn(
            what: str, rate: Callable[[str], float], *, unit: str, target: float | None = 1.0
        ) -> None:
            def alone(one: LocalBroker | KafkaPeer, other: LocalBroker | KafkaPeer) -> float:
                with stopped(other.pid):
                    return rate(one.bootstrap_servers)

            pairs = alternate(
                lambda: alone(ours, peer), lambda: alone(peer, ours), rounds=rounds(bench)
            )
            bench.compare(f"broker: {what}", OURS, KAFKA, pairs, unit=unit, target=target)

        count = round(bench.seconds(50_000))
        in_turn("one message a request", lambda at: requests(at, count), unit="requests/s")
        in_turn(
            "the same, each on disk",
            lambda at: requests(at, count // 10, acks="all", **_FSYNC),
            unit="requests/s",
        )
        for records in (1, 1_000):
            run = partial(replay, seconds=bench.seconds(2.0), records=records)
            in_turn(f"replayed, {records} a request", run, unit="msg/s", target=None)
        run = partial(refetch, seconds=bench.seconds(2.0), records=1_000)
        in_turn("fetched and thrown away", run, unit="msg/s", target=None)
        _latency(bench, ours, peer)


def _latency(bench: Bench, ours: LocalBroker, peer: KafkaPeer, rate: int = 10_000) -> None:
    tails: dict[str, list[float]] = {OURS: [], KAFKA: []}
    for _ in range(rounds(bench)):
        for backend, one, other in ((OURS, ours, peer), (KAFKA, peer, ours)):
            with stopped(other.pid):
                taken = latencies(one.bootstrap_servers, rate, bench.seconds(5.0))
            load = Load(taken, Counter(), "", len(taken) / rate)
            bench.add(
                load,
                phase=3,
                backend=backend,
                scenario="broker: end to end",
                size_bytes=100,
                acks="1",
                notes=f"{rate} messages a second",
            )
            tails[backend].append(load.percentile(99) or 0.0)
    inverse = {backend: [1_000 / ms for ms in some] for backend, some in tails.items()}
    for against, rates, target in (
        (KAFKA, inverse[KAFKA], 1.0),
        ("promised: 2 ms", [500.0] * len(inverse[OURS]), 1.0),
    ):
        pairs = Pairs(inverse[OURS], rates)
        bench.compare("broker: p99 end to end", OURS, against, pairs, unit="1/s", target=target)


@scenario(
    "broker-cost", "the broker's processor time, memory and start; many partitions and clients"
)
def broker_cost(bench: Bench) -> None:
    """What it takes, beside Apache Kafka where Kafka has the same."""
    bench.within("broker: from launch to ready", OURS, _launch, 0.5, rounds=rounds(bench))
    with both(bench) as (ours, peer):
        work = Work(round(bench.seconds(2_000_000)))
        costs: dict[str, list[float]] = {OURS: [], KAFKA: []}
        peak = 0.0
        for _ in range(rounds(bench)):
            for backend, one in ((OURS, ours), (KAFKA, peer)):
                process = psutil.Process(one.pid)
                before = _cpu_s(process)
                bulk(one.bootstrap_servers, work)
                costs[backend].append((_cpu_s(process) - before) / work.messages * 1e6)
                if backend == OURS:
                    peak = max(peak, process.memory_info().rss / 1e6)
        per_second = [[1 / cost for cost in costs[backend]] for backend in (OURS, KAFKA)]
        bench.compare(
            "broker: a million messages in and out", OURS, KAFKA, Pairs(*per_second),
            unit="millions for a CPU second", target=1.0,
        )  # fmt: skip
        bench.compare(
            "broker: memory after bulk work", f"ours, {peak:.0f} MB", "promised: 200 MB",
            Pairs([1 / peak], [1 / 200]), unit="1/MB", target=1.0,
        )  # fmt: skip
        _idle_connections(bench, ours, peer)
        _partitions(bench, ours.bootstrap_servers, peer.bootstrap_servers)


def _idle_connections(bench: Bench, ours: LocalBroker, peer: KafkaPeer) -> None:
    """What 5,000 connections that nobody uses take of memory, and of others' latency."""
    process, count = psutil.Process(ours.pid), 5_000
    p99: dict[bool, list[float]] = {False: [], True: []}
    taken = 0.0
    raise_file_limit()
    for _ in range(rounds(bench)):
        for crowded in (False, True):
            with ExitStack() as stack:
                before = process.memory_info().rss
                for _ in range(count if crowded else 0):
                    stack.enter_context(connected(ours.bootstrap_servers))
                with stopped(peer.pid):
                    some = sorted(latencies(ours.bootstrap_servers, 2_000, bench.seconds(3.0)))
                p99[crowded].append(1 / some[int(0.99 * len(some))])
                if crowded:
                    taken = max(taken, (process.memory_info().rss - before) / 1e6)
    bench.compare(
        "broker: memory of 5,000 idle connections", f"ours, {taken:.0f} MB", "promised: 100 MB",
        Pairs([1 / max(taken, 1.0)], [1 / 100]), unit="1/MB", target=1.0,
    )  # fmt: skip
    bench.compare(
        "broker: p99 at 2,000 messages/s", "beside 5,000 idle connections", "beside none",
        Pairs(p99[True], p99[False]), unit="1/ms", target=0.8,
    )  # fmt: skip


def _partitions(bench: Bench, ours: str, peer: str) -> None:
    """2,000 partitions beside 4, record by record, for both brokers."""
    few = Work(round(bench.seconds(400_000)), spread=True)
    many = few._replace(partitions=2_000)

    def kept(address: str) -> float:
        return bulk(address, many).produced / bulk(address, few).produced

    pairs = alternate(
        lambda: kept(ours), lambda: kept(peer), rounds=min(3, rounds(bench)), warmup=0
    )
    bench.compare(
        "broker: 2,000 partitions / 4", OURS, KAFKA, pairs, unit="of the rate", target=1.0
    )


def _launch() -> float:
    began = time.perf_counter()
    with LocalBroker():
        return time.perf_counter() - began


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
