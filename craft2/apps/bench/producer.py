"""The producer of phase 2: record by record beside Kafka's clients, and many records at once.

`send`: so many messages of 100 bytes without a key, to a topic of four partitions, from the first
call until the last is acknowledged (acks 1). The work is the same up to the request: choosing a
partition, batching, encoding, waiting for the answer. Then ours appends to files and syncs nothing;
theirs goes through a loopback socket to a broker that keeps it in memory (see `kafka_peers`). "The
calls alone" is the same run until the last call returned: what the application's own thread paid.

`send-many`: such messages as one list, until the last is acknowledged.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Literal

from craft2.apps.bench.disk import VALUE
from craft2.apps.bench.harness import BenchError, Pairs, alternate
from craft2.apps.bench.kafka_peers import (
    BATCH_SIZE,
    LINGER_MS,
    PARTITIONS,
    TOPIC,
    Client,
    kafka_python,
    librdkafka,
    mock_broker,
)
from craft2.apps.bench.scenarios import Bench, scenario
from phase2_groups.file_transport import FileTransport, create_topic
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig
from phase2_groups.transport import LATEST

PEERS = (("kafka-python", kafka_python, 6.0), ("librdkafka", librdkafka, 0.3))
PROMISED_MANY = 2e6  # messages a second of send_many
_WARMUP = 1


@contextmanager
def through_files(folder: Path) -> Iterator[Client]:
    """Our producer, with the settings of its peers."""
    create_topic(folder, TOPIC, PARTITIONS)
    config = ProducerConfig(acks=1, batch_size=BATCH_SIZE, linger_ms=LINGER_MS)
    with FileTransport(folder) as files, Producer(config, files) as producer:

        def stored() -> int:
            asked = dict.fromkeys(((TOPIC, number) for number in range(PARTITIONS)), LATEST)
            return sum(found.offset for found in files.list_offsets(asked).values())

        yield Client(partial(producer.send, TOPIC), producer.flush, stored)


def send_all(bench: Bench, client: Client, count: int) -> tuple[float, float]:
    """Messages a second until all are acknowledged, and until the last call returned.

    Raises `BenchError` if not all of them are stored.
    """
    client.send(VALUE)  # whoever has to get to know the topic does it now
    client.flush()
    before = client.stored()
    start_s = bench.clock.monotonic()
    for value in repeat(VALUE, count):
        client.send(value)
    called_s = bench.clock.monotonic()
    client.flush()
    end_s = bench.clock.monotonic()
    stored = client.stored() - before
    if stored != count:
        raise BenchError(f"{stored} of {count} messages are stored", "see what the client says")
    return count / (end_s - start_s), count / (called_s - start_s)


@scenario(
    "send", "send one by one, 100 bytes, to the acknowledgement: beside two of Kafka's clients"
)
def send(bench: Bench) -> None:
    """A ratio to each peer, with a target, and the same for the calls alone, without one."""
    count = 10_000 if bench.quick else 100_000
    with ExitStack() as stack:
        address = stack.enter_context(mock_broker())
        ours = stack.enter_context(through_files(bench.new_folder("send")))
        for name, peer, target in PEERS:
            theirs = stack.enter_context(peer(address))
            calls: dict[str, list[float]] = {"files": [], name: []}

            def rate(backend: str, client: Client, calls: dict[str, list[float]] = calls) -> float:
                until_acknowledged, until_called = send_all(bench, client, count)
                calls[backend].append(until_called)
                return until_acknowledged

            until_acknowledged = alternate(
                partial(rate, "files", ours), partial(rate, name, theirs), warmup=_WARMUP
            )
            until_called = Pairs(calls["files"][_WARMUP:], calls[name][_WARMUP:])
            _keep(bench, "send", count, name, until_acknowledged, target)
            _keep(bench, "send, the calls alone", count, name, until_called, None)


def _keep(
    bench: Bench, what: str, count: int, peer: str, pairs: Pairs, target: float | None
) -> None:
    """A comparison, and a row with the median of each side."""
    bench.compare("send", f"ours: {what}", peer, pairs, target=target)
    for backend, rates in (("files", pairs.ours), (peer, pairs.peer)):
        bench.add_total(
            count,
            count / statistics.median(rates),
            phase=2,
            backend=backend,
            scenario=what,
            size_bytes=len(VALUE),
            acks="written",
            fsync_policy="never",
            notes=f"medians, in turns with {peer}" if backend == "files" else "",
        )


@scenario("send-many", "send_many, messages of 100 bytes: beside what was promised")
def send_many(bench: Bench) -> None:
    """A list of a million values (100,000 with --quick) in one call; with acks 1, and all."""
    values = [VALUE] * (100_000 if bench.quick else 1_000_000)
    with ExitStack() as stack:

        def rate_with(acks: Literal[1, "all"]) -> Callable[[], float]:
            folder = bench.new_folder("send-many")
            create_topic(folder, TOPIC, PARTITIONS)
            config = ProducerConfig(acks=acks, bootstrap_servers=f"file:{folder}")
            producer = stack.enter_context(Producer(config))

            def rate() -> float:
                start_s = bench.clock.monotonic()
                producer.send_many(TOPIC, values)
                producer.flush()
                return len(values) / (bench.clock.monotonic() - start_s)

            return rate

        written, durable = rate_with(1), rate_with("all")
        promised = bench.promise("send-many", "send_many, acks 1", written, PROMISED_MANY)
        both = alternate(durable, written)
        bench.compare("send-many", "send_many, acks all", "send_many, acks 1", both)
    for acks, policy, rate in (
        ("written", "never", promised.our_rate),
        ("durable", "every batch", statistics.median(both.ours)),
    ):
        bench.add_total(
            len(values),
            len(values) / rate,
            phase=2,
            backend="files",
            scenario="send_many",
            size_bytes=len(VALUE),
            acks=acks,
            fsync_policy=policy,
        )
