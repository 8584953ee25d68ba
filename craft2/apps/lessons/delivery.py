"""What notebook 13 is about: answers that get lost, and consumers that die at the worst moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from craft2.apps.lessons.processes import acknowledge
from craft2.checker import Report, check
from craft2.history import Message, Operation
from phase2_groups.consumer import Consumer
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.error_codes import ErrorCode
from phase2_groups.fetch_buffer import ConsumerRecord
from phase2_groups.file_transport import FileTransport
from phase2_groups.group_messages import TopicPartition
from phase2_groups.offsets_with_results import EffectivelyOnce, ResultStore
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig
from phase2_groups.send_futures import SendFuture
from phase2_groups.transport import Produced


class BadLine:
    """A transport over a line that misbehaves: what it carries is done, but who hears of it?

    Every `lose`-th answer to a produce request gets lost on the way back (0: none does). While
    `open` is not set, requests do not get through at all.
    """

    def __init__(self, transport: FileTransport, lose: int = 0) -> None:
        self._transport = transport
        self._lose = lose
        self._requests = 0
        self.open = threading.Event()
        self.open.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def produce(
        self, batches: Mapping[TopicPartition, bytes], acks: int, timeout_ms: int
    ) -> Mapping[TopicPartition, Produced]:
        """As the transport does; see the class."""
        self.open.wait()
        answers = self._transport.produce(batches, acks, timeout_ms)
        self._requests += 1
        if self._lose and self._requests % self._lose == 0:
            return {partition: Produced(ErrorCode.NETWORK_EXCEPTION) for partition in answers}
        return answers


def send_over_a_bad_line(root: str, topic: str, values: Iterable[str], **settings: Any) -> Report:
    """Send each value, one a request, until it is acknowledged; then see what is in the topic.

    settings: of the ProducerConfig.
    """
    config = ProducerConfig(retry_backoff_ms=1, linger_ms=0, max_block_ms=5_000, **settings)
    with FileTransport(root) as files, Producer(config, BadLine(files, lose=3)) as producer:
        futures = {}
        for value in values:
            futures[value] = producer.send(topic, value)
            futures[value].result()
    return judge(root, topic, futures)


def judge(root: str, topic: str, futures: Mapping[str, SendFuture]) -> Report:
    """The checker's report on a topic whose records were sent once each, as `futures` (by value)
    tell, and are now read from the start."""
    history = []
    for value, future in futures.items():
        sent = Message(*future.result()[:3], value)
        history.append(Operation("producer", "send", 0, 1, "ok", sent=(sent,)))
    with FileTransport(root) as files, Consumer(ConsumerConfig(), files) as consumer:
        consumer.assign((topic, number) for number in range(files.metadata([topic])[topic]))
        consumer.seek_to_beginning()
        while sum(consumer.lag().values()):
            polled = [
                Message(record.topic, record.partition, record.offset, text(record))
                for record in consumer.poll()
            ]
            history.append(Operation("reader", "poll", 2, 3, "ok", polled=polled))
    return check(history)


def text(record: ConsumerRecord) -> str:
    """The value of a record, as text."""
    return (record.value or b"").decode()


# Three orders of the same three things: poll, have an effect, store how far one is.

Work = Callable[[ConsumerRecord], str]  # record -> its result


def at_most_once(consumer: Consumer, store: ResultStore, work: Work) -> None:
    """Commit, then handle."""
    records = consumer.poll(timeout_ms=100)
    consumer.commit()
    for record in records:
        store.add(work(record))


def at_least_once(consumer: Consumer, store: ResultStore, work: Work) -> None:
    """Handle, then commit."""
    for record in consumer.poll(timeout_ms=100):
        store.add(work(record))
    consumer.commit()


def deliver(root: str, topic: str, style: str, results: str, stop_at: int) -> None:
    """Read a topic to its end, ten records a poll, and store their values as results.

    style: "at most once", "at least once" or "effectively once".
    stop_at: before the result of the record with this offset is stored, stand still until somebody
    kills this process; 0: never. What is being handled is acknowledged by its offset.
    """

    def work(record: ConsumerRecord) -> str:
        acknowledge(record.offset)
        if stop_at and record.offset == stop_at:
            threading.Event().wait()
        return text(record)

    config = ConsumerConfig(
        bootstrap_servers=f"file:{root}",
        group_id=style,
        group_instance_id="the only one",  # whoever comes back under this name need not wait
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=10,
    )
    with Consumer(config) as consumer:
        store = ResultStore(results)
        once = EffectivelyOnce(consumer, store, work)
        steps: dict[str, Callable[[], object]] = {
            "at most once": partial(at_most_once, consumer, store, work),
            "at least once": partial(at_least_once, consumer, store, work),
            "effectively once": partial(once.step, 100),
        }
        consumer.subscribe([topic], once if style == "effectively once" else None)
        while not consumer.assignment() or any(consumer.lag().values()):
            steps[style]()
        store.close()


def effects(results: str) -> Iterable[str]:
    """All results that were stored."""
    store = ResultStore(results)
    try:
        return store.results()
    finally:
        store.close()
