"""What notebook 15 asks of the ingestion service: a request, a `kill -9`, two ways to count."""

from __future__ import annotations

import http.client
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import Producer

from craft2.apps.ingestion.audit import Audit, audit, open_source, stored_batches
from craft2.apps.ingestion.kafka_sink import make_topic
from craft2.apps.ingestion.load import LoadFailed, Outcome, run_load
from craft2.apps.ingestion.local_service import LocalService
from craft2.apps.ingestion.sinks import QueueMode
from craft2.net import Address

_NO_LIMIT = ("--rate-limit", "0")


def post(address: Address, body: object) -> tuple[int, Any]:
    """POST a body (an object as JSON, bytes as they are) to /metrics; (status, what it says)."""
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    connection = http.client.HTTPConnection(*address, timeout=30)
    try:
        connection.request("POST", "/metrics", data)
        reply = connection.getresponse()
        return reply.status, msgspec.json.decode(reply.read())
    finally:
        connection.close()


def place_of(mode: QueueMode, folder: Path, bootstrap: str) -> dict[str, Any]:
    """Where the queue of a mode is, as keywords for `LocalService` and `open_source`."""
    if mode is QueueMode.KAFKA:
        return {"mode": mode, "bootstrap": bootstrap}
    return {"mode": mode, "root": folder / mode.value}


def kill_under_load(place: dict[str, Any], topic: str, *, enough: int = 100) -> Audit:
    """`kill -9` the service once it has acknowledged `enough` batches of 20 clients.

    Then it is started again, which repairs what there is to repair, and its queue is read.
    """
    options = (*_NO_LIMIT, "--topic", topic)
    with LocalService(**place, options=options) as service:

        def told(outcome: Outcome) -> None:
            if len(outcome.acknowledged) >= enough:
                service.process.send_signal(signal.SIGKILL)

        outcome = run_load(service.address, clients=20, requests=10 * enough, told=told)
    if len(outcome.acknowledged) < enough:
        raise LoadFailed(f"there is nothing to kill for: {outcome.first_error}", "see there")
    LocalService(**place, options=options).stop()
    return audit(outcome.acknowledged, stored_batches(open_source(**place, topic=topic)))


class Rates(NamedTuple):
    """Messages a second: handed to librdkafka, acknowledged by the broker, and one by one."""

    handed_over: float
    acknowledged: float
    one_by_one: float


def three_rates(bootstrap: str, topic: str, count: int = 50_000) -> Rates:
    """The same producer and broker, counted at three places.

    one_by_one: each message is acknowledged before the next is sent; a hundredth of `count`.
    """
    make_topic(bootstrap, topic, 4)
    settings = {
        "acks": "all",
        "delivery.timeout.ms": 10_000,
        "queue.buffering.max.messages": 2 * count,
        "log_level": 0,
    }
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1} | settings)
    producer.produce(topic, b"the first one waits for the connection")
    producer.flush()
    began = time.perf_counter()
    for _ in range(count):
        producer.produce(topic, b"x" * 100)
    handed_over = time.perf_counter()
    producer.flush()
    acknowledged = time.perf_counter()
    for _ in range(count // 100):
        producer.produce(topic, b"x" * 100)
        producer.flush()
    ended = time.perf_counter()
    return Rates(
        count / (handed_over - began),
        count / (acknowledged - began),
        count // 100 / (ended - acknowledged),
    )
