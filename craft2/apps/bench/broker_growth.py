"""How a broker's rate grows, or not: with partitions, with larger requests, with more clients.

- Partitions: the same records, dealt out one by one to more and more partitions, by librdkafka.
  Each batch then has fewer records, and each request more batches.
- Requests: more and more records in each, replayed. What a request costs is shared by its records.
- Clients: each sends ten records and waits for the answer, so one alone uses little of the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from craft2.apps.bench.broker import KAFKA, OURS, both
from craft2.apps.bench.broker_load import Work, bulk, replay, topic, waiting_client
from craft2.apps.bench.harness import closed_loop
from craft2.apps.bench.scenarios import Bench, scenario

PARTITIONS = (1, 4, 16, 64, 256, 1_000)
REQUESTS = (1, 10, 100, 1_000, 8_000)  # records; a batch may have a megabyte
CLIENTS = (1, 4, 16, 64)
SPREAD, WAITING = "partitions", "clients"
BATCHES = "records a request"
_ROUNDS = 3


@scenario("broker-growth", "rates against partitions, records a request and clients")
def broker_growth(bench: Bench) -> None:
    """Rows only; `make pictures` draws them."""
    measure_growth(bench)


def measure_growth(bench: Bench) -> None:
    """Three rounds of everything, in turns. The rows' scenario is "growth: WHAT=NUMBER"."""
    with both(bench) as (ours, peer):
        for _ in range(1 if bench.quick else _ROUNDS):
            _measure(bench, OURS, ours.bootstrap_servers)
            _measure(bench, KAFKA, peer.bootstrap_servers)


def _measure(bench: Bench, backend: str, address: str) -> None:
    add = partial(bench.add_total, phase=3, backend=backend, size_bytes=100, acks="1")

    def once(what: str, number: int, messages: int, rate: Callable[[], float]) -> None:
        add(messages, messages / rate(), scenario=f"growth: {what}={number}")

    messages = round(bench.seconds(400_000))
    for count in PARTITIONS:
        work = Work(messages, partitions=count, spread=True)
        once(SPREAD, count, messages, partial(_produced, address, work))
    seconds = bench.seconds(1.0)
    for records in REQUESTS:
        once(BATCHES, records, records, partial(replay, address, seconds, records=records))
    for clients in CLIENTS:
        with topic(address, 1) as name:
            bench.add(
                closed_loop(
                    partial(_client, address, name),
                    clients=clients,
                    seconds=seconds,
                ),
                phase=3,
                backend=backend,
                scenario=f"growth: {WAITING}={clients}",
                clients=clients,
                size_bytes=100,
                messages_per_call=10,
                acks="1",
            )


def _produced(address: str, work: Work) -> float:
    return bulk(address, work).produced


def _client(address: str, name: str, _: int) -> Callable[[], None]:
    return waiting_client(address, name, 10)
