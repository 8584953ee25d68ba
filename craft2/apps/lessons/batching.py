"""What notebook 12 uses: a producer under a steady load, and its batches as the log holds them."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from craft2.apps.ingestion.flights import flights
from craft2.clock import SystemClock
from craft2.record_batch import iter_headers
from phase2_groups.file_transport import FileTransport, create_topic
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig


class Sent(NamedTuple):
    """What a run came to."""

    seconds: float  # from the first send to the last acknowledgement
    latencies_ms: list[float]  # of each record, from its send to its acknowledgement
    batches: int

    @property
    def p50_ms(self) -> float:
        """The latency that half of the records stayed below."""
        return sorted(self.latencies_ms)[len(self.latencies_ms) // 2]


def send_flights(
    root: str,
    topic: str,
    count: int,
    per_second: float | None = None,
    wait_for_each: bool = False,
    **settings: Any,
) -> Sent:
    """Send flights without keys to a new topic of four partitions, acks=1.

    per_second: None: as fast as possible. wait_for_each: for its acknowledgement before the next.
    settings: of the ProducerConfig.
    """
    create_topic(root, topic, 4)
    config = ProducerConfig(
        bootstrap_servers=f"file:{root}", acks=1, max_block_ms=5_000, **settings
    )
    clock, never = SystemClock(), threading.Event()
    latencies: list[float] = []
    values = [flight.value for flight in flights(count)]
    with Producer(config) as producer:
        began = clock.monotonic()
        for number, value in enumerate(values):
            if per_second is not None:
                clock.wait(never, began + number / per_second - clock.monotonic())
            sent = clock.monotonic()

            def acknowledged(_: object, error: object, sent: float = sent) -> None:
                latencies.append((clock.monotonic() - sent) * 1000)

            future = producer.send(topic, value, on_delivery=acknowledged)
            if wait_for_each:
                future.result()
        producer.flush()
        seconds = clock.monotonic() - began
        return Sent(seconds, latencies, producer.metrics().batches_sent)


def batches_of(root: str, topic: str) -> list[tuple[int, int, int]]:
    """(partition, records, bytes) of each batch in a topic."""
    found = []
    with FileTransport(root) as files:
        count = files.metadata([topic])[topic]
        offsets = {(topic, number): 0 for number in range(count)}
        most = 2**30
        answers = files.fetch(offsets, max_wait_ms=0, max_bytes=most, max_partition_bytes=most)
        for (_, number), answer in answers.items():
            found += [
                (number, header.count, header.size) for _, header in iter_headers(answer.data)
            ]
    return found


def bytes_in(root: str, topic: str) -> int:
    """The bytes of all batches of a topic."""
    return sum(size for _, _, size in batches_of(root, topic))
