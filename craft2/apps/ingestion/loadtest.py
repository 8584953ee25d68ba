"""The comparison: the same load on the same service, once for each queue behind it.

Every run has a service process of its own, on an empty queue (for Kafka: on a topic of its own),
and is audited: after the load the queue is read, and every acknowledged batch has to be there.

The rows go to the results store. Phase 3 stands for Kafka's protocol, whoever speaks it.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from craft2.apps.bench.results import Result
from craft2.apps.bench.scenarios import Bench
from craft2.apps.ingestion.audit import Audit, audit, open_source, stored_batches
from craft2.apps.ingestion.load import CLIENTS, REQUESTS, LoadFailed, Outcome, batch_of, run_load
from craft2.apps.ingestion.local_service import LocalService
from craft2.apps.ingestion.sinks import QueueMode
from phase3_raft.local_broker import LocalBroker

SCENARIO = "ingest"
BACKENDS = {QueueMode.FILE: "file", QueueMode.LOG: "log", QueueMode.KAFKA: "kafka"}
_PHASES = {QueueMode.FILE: 1, QueueMode.LOG: 2, QueueMode.KAFKA: 3}
_FSYNCS = {QueueMode.FILE: "every message", QueueMode.LOG: "every batch", QueueMode.KAFKA: "broker"}


@dataclass(frozen=True)
class Run:
    """One line of the comparison."""

    row: Result
    audit: Audit


@contextlib.contextmanager
def a_broker(bootstrap: str | None) -> Iterator[str]:
    """The broker at `bootstrap`; a broker of ours while the block runs, if None."""
    if bootstrap is not None:
        yield bootstrap
        return
    with LocalBroker() as broker:
        yield broker.bootstrap_servers


def compare_modes(
    bench: Bench,
    *,
    modes: Sequence[QueueMode] = tuple(QueueMode),
    clients: Sequence[int] = CLIENTS,
    requests: int = REQUESTS,
    metrics: int = 10,
    bootstrap: str | None = None,
    best_of: int = 1,
) -> list[Run]:
    """A run for each number of clients and each mode, in this order.

    requests: of each client. metrics: of each request. bootstrap: see `a_broker`. best_of: how many
    loads a run has, one after the other; the fastest is kept, and all are audited.
    """
    runs = []
    with contextlib.ExitStack() as stack:
        if QueueMode.KAFKA in modes:
            bootstrap = stack.enter_context(a_broker(bootstrap))
        for count in clients:  # the modes in turn: they share the machine's good and bad minutes
            for mode in modes:
                runs.append(_run(bench, mode, bootstrap, count, requests, metrics, best_of))
    return runs


def _run(
    bench: Bench,
    mode: QueueMode,
    bootstrap: str | None,
    clients: int,
    requests: int,
    metrics: int,
    best_of: int,
) -> Run:
    topic = f"loadtest-{uuid.uuid4().hex[:8]}"
    if mode is QueueMode.KAFKA:
        root = None
        opened = partial(open_source, mode, bootstrap=bootstrap, topic=topic)
    else:
        root, bootstrap = bench.new_folder(mode.value), None
        opened = partial(open_source, mode, root=root, topic=topic)
    total = clients * requests

    def told(outcome: Outcome) -> None:
        done = len(outcome.latencies_ms) + outcome.failed.total()
        if done % max(1, total // 10) == 0:
            bench.say(f"{mode.value}, {clients} clients: {done:,} of {total:,}")

    options = ("--rate-limit", "0", "--topic", topic)
    with LocalService(mode, root=root, bootstrap=bootstrap, options=options) as service:
        # Not counted: before its first message librdkafka may wait half a second for an id.
        first = run_load(service.address, clients=clients, requests=1, prefix="first")
        if not first.acknowledged:
            raise LoadFailed(f"mode {mode.value} stores nothing: {first.first_error}", "see there")
        outcomes = [
            run_load(
                service.address,
                clients=clients,
                requests=requests,
                metrics=metrics,
                told=told,
                prefix=f"take-{take}",
            )
            for take in range(best_of)
        ]
    outcome = max(outcomes, key=lambda one: len(one.latencies_ms) / one.seconds)
    acknowledged = first.acknowledged.union(*(one.acknowledged for one in outcomes))
    row = bench.add(
        outcome.load(),
        phase=_PHASES[mode],
        backend=BACKENDS[mode],
        scenario=SCENARIO,
        size_bytes=len(batch_of("client-0", 0, metrics)),
        clients=clients,
        acks="all" if mode is QueueMode.KAFKA else "durable",
        fsync_policy=_FSYNCS[mode],
        notes=f"{metrics} metrics a request",
    )
    return Run(row, audit(acknowledged, stored_batches(opened())))
