"""Mode kafka: librdkafka, through confluent-kafka; any cluster that speaks Kafka's protocol.

librdkafka has threads of its own for the network, and calls nobody back by itself: what became of a
message is told from within `poll`, so a thread here does nothing but poll. Three rules keep what
was acknowledged, and each of them is one of the bugs of notebook 15, the other way round:

- a full queue (BufferError) is waited for, a little, and then told to the client;
- a message counts when its delivery report says so, never when `produce` has returned;
- at the end: `flush` until nothing is left, then stop polling, then let go of the producer.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from craft2.apps.ingestion.sinks import (
    PARTITIONS,
    Deliveries,
    NoSink,
    SinkUnavailable,
    Stored,
)

ANSWER_S = 5.0  # for the first answer of a broker
DELIVERY_MS = 10_000  # a message that is not acknowledged by then is given up
QUEUE_MESSAGES = 100_000
ROOM_TRIES, ROOM_PAUSE_S = 10, 0.05  # how long a full queue is waited for
_POLL_S = 0.1


class KafkaSink:
    """See the module. Raises NoSink when no broker answers, or the topic cannot be made."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int = PARTITIONS,
        *,
        answer_s: float = ANSWER_S,
        delivery_ms: int = DELIVERY_MS,
        queue_messages: int = QUEUE_MESSAGES,
    ) -> None:
        self._topic, self._bootstrap = topic, bootstrap
        make_topic(bootstrap, topic, partitions, answer_s)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,  # sent again is stored once, and in order
                "linger.ms": 1,
                "delivery.timeout.ms": delivery_ms,
                "queue.buffering.max.messages": queue_messages,
                "reconnect.backoff.max.ms": 500,  # one that is back is soon found
                "partitioner": "murmur2_random",  # as phases 1 and 2: the same key, the same place
                "log_level": 0,  # it would write to standard error; a failure reaches the client
            }
        )
        self._deliveries: Deliveries | None = None
        self._closing = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="kafka-poll", daemon=True)
        self._poller.start()

    async def store(self, key: str, message: bytes) -> Stored:
        deliveries = self._deliveries = self._deliveries or Deliveries()
        future = deliveries.new()

        def told(error: Any, record: Any) -> None:
            if error is None:
                deliveries.settle(future, Stored(record.partition(), record.offset()))
            else:
                deliveries.settle(future, self._refused(error.str()))

        for _ in range(ROOM_TRIES):
            try:
                self._producer.produce(self._topic, message, key, on_delivery=told)
            except BufferError:  # full: what the poller is told of makes room
                await asyncio.sleep(ROOM_PAUSE_S)
            except KafkaException as error:
                raise self._refused(error.args[0].str()) from error
            else:
                return await future
        raise self._refused(f"{len(self._producer)} messages wait for it, as many as may")

    def _refused(self, why: str) -> SinkUnavailable:
        return SinkUnavailable(
            f"the topic {self._topic!r} at {self._bootstrap} did not take the message: {why}",
            "send it again later; look whether the broker is well",
        )

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(_POLL_S)

    async def close(self) -> None:
        # Every message has an outcome after DELIVERY_MS at the latest, so this ends.
        while await asyncio.to_thread(self._producer.flush, 1.0):
            pass
        self._closing.set()
        await asyncio.to_thread(self._poller.join)


def make_topic(bootstrap: str, topic: str, partitions: int, answer_s: float = ANSWER_S) -> None:
    """See that the topic is there. Raises NoSink within about `answer_s` seconds."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        if topic in admin.list_topics(timeout=answer_s).topics:
            return
    except KafkaException as error:
        raise NoSink(
            f"no broker answers at {bootstrap} within {answer_s:g} s: {error.args[0].str()}",
            "start one (craft2 broker --data-dir my-data), or correct --bootstrap",
        ) from error
    try:
        admin.create_topics([NewTopic(topic, partitions)], request_timeout=answer_s)[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # somebody was quicker
            raise NoSink(
                f"the topic {topic!r} cannot be made at {bootstrap}: {error.args[0].str()}",
                "correct --topic, or make it yourself",
            ) from error
