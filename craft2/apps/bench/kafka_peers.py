"""Kafka's clients as peers, and a broker for them that needs no Kafka.

librdkafka carries a mock cluster for its own tests. It speaks the protocol on a loopback socket,
keeps records in memory, and runs in threads of this process that hold no Python lock. Its topics
have four partitions and appear when somebody asks for them.

    with mock_broker() as address, librdkafka(address) as client:
        client.send(b"UA 1545")
        client.flush()

All clients: acks 1, no compression, no idempotence, and the same linger and batch size. What limits
how many records may wait is out of the way: nobody has to wait for room.

Source: librdkafka's `INTRODUCTION.md` and `rdkafka_mock.h` (`test.mock.num.brokers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

TOPIC = "t"
PARTITIONS = 4  # what the mock cluster gives a topic
BATCH_SIZE, LINGER_MS = 16_384, 5
TIMEOUT_S = 60.0


class Client(NamedTuple):
    """A producer, as a benchmark uses it."""

    send: Callable[[bytes], object]  # a value without a key to TOPIC
    flush: Callable[[], object]  # returns when all of it is acknowledged
    stored: Callable[[], int]  # how many records the topic has


@contextmanager
def mock_broker() -> Iterator[str]:
    """The address of a mock cluster of one broker, `host:port`."""
    from confluent_kafka import Producer

    # The addresses of the mock cluster replace the one that has to be given.
    owner = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
    [broker] = owner.list_topics(TOPIC, TIMEOUT_S).brokers.values()
    yield f"{broker.host}:{broker.port}"


def _stored(address: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "stored", "log_level": 0})
    try:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        return sum(consumer.get_watermark_offsets(each, TIMEOUT_S)[1] for each in partitions)
    finally:
        consumer.close()


@contextmanager
def librdkafka(address: str) -> Iterator[Client]:
    """confluent-kafka's `Producer.produce`: a thin layer over librdkafka, which is C."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": 1,
            "batch.size": BATCH_SIZE,
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": 10_000_000,
            "log_level": 0,
        }
    )
    flush = partial(producer.flush, TIMEOUT_S)
    yield Client(partial(producer.produce, TOPIC), flush, partial(_stored, address))


@contextmanager
def kafka_python(address: str) -> Iterator[Client]:
    """kafka-python's `KafkaProducer.send`: Python throughout, like ours.

    It is told the broker's version: it does not understand how the mock cluster says that it does
    not know the newest form of the question.
    """
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=address,
        api_version=(2, 1),
        acks=1,
        enable_idempotence=False,
        batch_size=BATCH_SIZE,
        linger_ms=LINGER_MS,
    )
    try:
        flush = partial(producer.flush, TIMEOUT_S)
        yield Client(partial(producer.send, TOPIC), flush, partial(_stored, address))
    finally:
        producer.close()
