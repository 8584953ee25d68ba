"""Mode log: phase 2's producer, over the logs in a folder.

A log takes one writer at a time, and a sync takes as long for a hundred messages as for one. While
one request is synced, the messages that come in gather in the producer's open batches, and the next
request takes them all: group commit, without a timer. So nothing lingers here.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from craft2.apps.ingestion.sinks import (
    PARTITIONS,
    Deliveries,
    NoSink,
    SinkUnavailable,
    Stored,
)
from craft2.clock import Clock
from craft2.disk import Disk
from phase2_groups.file_transport import FileTransport
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig, ProducerError
from phase2_groups.send_futures import RecordMetadata
from phase2_groups.topics import create_topic, partition_count

DELIVERY_MS = 5_000  # a message that is not durable by then is given up
DRAIN_S = 10.0
_SETTINGS = {
    "acks": "all",
    "linger_ms": 0,
    "max_block_ms": 0,  # a full buffer is the client's to hear of, not the event loop's to wait for
    "enable_idempotence": False,  # no answer of a file gets lost, so nothing is sent twice
}


class LogSink:
    """See the module. Raises NoSink for a root that holds something else, TopicError."""

    def __init__(
        self,
        root: Path,
        topic: str,
        partitions: int = PARTITIONS,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        delivery_ms: int = DELIVERY_MS,
    ) -> None:
        if (root / "queue.json").exists():
            raise NoSink(f"{str(root)!r} holds message files, no logs", "use --mode file")
        if root.exists() and not root.is_dir():
            raise NoSink(f"{str(root)!r} is a file", "give the path of a folder")
        self._topic, self._root = topic, root
        self._transport = FileTransport(root, disk=disk, clock=clock)
        if not partition_count(root, topic, disk=disk):  # it has its number of partitions
            create_topic(root, topic, partitions, disk=disk)
        config = ProducerConfig(
            delivery_timeout_ms=delivery_ms,
            request_timeout_ms=delivery_ms,
            **_SETTINGS,  # type: ignore[arg-type]
        )
        self._producer = Producer(config, self._transport, clock=clock)
        self._deliveries: Deliveries | None = None

    async def store(self, key: str, message: bytes) -> Stored:
        deliveries = self._deliveries = self._deliveries or Deliveries()
        future = deliveries.new()

        def told(record: RecordMetadata | None, error: ProducerError | None) -> None:
            stored = error if record is None else Stored(record.partition, record.offset)
            assert stored is not None
            deliveries.settle(future, stored)

        try:
            self._producer.send(self._topic, message, key, on_delivery=told)
            return await future
        except ProducerError as error:
            raise SinkUnavailable(
                f"the log {self._topic!r} in {str(self._root)!r} did not take the message: {error}",
                "send it again once the cause is mended",
            ) from error

    async def close(self) -> None:
        await asyncio.to_thread(self._producer.close, DRAIN_S)
        self._transport.close()
