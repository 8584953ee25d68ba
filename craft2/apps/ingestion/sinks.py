"""Where the service puts what it accepts: one small protocol, and a mode that picks who keeps it.

`store` returns when the message is durable *in the sense of the mode*, and not before:

    file    the message's file and its name are synced                        (phase 1)
    log     the batch that it travelled in is appended and synced             (phases 1 and 2)
    kafka   the broker has acknowledged it for all in-sync replicas: acks=all (any Kafka)

A message that is refused with `SinkUnavailable` may have been stored all the same, if it was on its
way when the error came: who sends it again may find it twice. Acknowledged and not there: never.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from craft2.errors import Craft2Error

PARTITIONS = 4
Found = TypeVar("Found")


class QueueMode(StrEnum):
    """Which queue is behind the service; chosen when it starts."""

    FILE = "file"
    LOG = "log"
    KAFKA = "kafka"


class SinkUnavailable(Craft2Error):
    """The message cannot be made durable now; it may be worth another try."""


class NoSink(Craft2Error):
    """A queue that cannot be opened as it was asked for."""


class Stored(NamedTuple):
    """Where a message is."""

    partition: int
    offset: int


class Sink(Protocol):
    """A queue as the service sees it. For one event loop; `close` is called at the end of it."""

    async def store(self, key: str, message: bytes) -> Stored:
        """Return when the message is durable. Raises SinkUnavailable."""

    async def close(self) -> None:
        """Finish what was taken in, then give everything back."""


def open_sink(
    mode: QueueMode,
    *,
    root: Path | None = None,
    bootstrap: str | None = None,
    topic: str = "metrics",
    partitions: int = PARTITIONS,
) -> Sink:
    """The sink of a mode. Raises NoSink, or the error of the queue that cannot be opened.

    root: of the modes file and log. bootstrap: of the mode kafka. partitions: of a new queue.
    """
    if mode is QueueMode.KAFKA:
        from craft2.apps.ingestion.kafka_sink import KafkaSink

        given = _required(bootstrap, mode, "--bootstrap HOST:PORT")
        return KafkaSink(given, topic, partitions)
    folder = _required(root, mode, "--root FOLDER")
    if mode is QueueMode.FILE:
        from craft2.apps.ingestion.file_sink import FileSink

        return FileSink(folder, partitions)
    from craft2.apps.ingestion.log_sink import LogSink

    return LogSink(folder, topic, partitions)


def _required(value: Found | None, mode: QueueMode, option: str) -> Found:
    if value is None:
        raise NoSink(f"mode {mode.value} does not know where its queue is", f"give {option}")
    return value


class Deliveries:
    """Futures of an event loop that other threads settle.

    Each hand-over between threads costs as much as storing a message: what is settled until the
    loop looks is handed over at once.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._settled: deque[tuple[asyncio.Future[Stored], Stored | Exception]] = deque()
        self._called = False  # the loop will look

    def new(self) -> asyncio.Future[Stored]:
        """A future to give to `settle`."""
        return self._loop.create_future()

    def settle(self, future: asyncio.Future[Stored], outcome: Stored | Exception) -> None:
        """Give it its outcome; from any thread."""
        self._settled.append((future, outcome))
        if not self._called:
            self._called = True
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._called = False  # before the first look: who comes after the last one calls again
        while self._settled:
            future, outcome = self._settled.popleft()
            if future.done():  # cancelled: nobody waits any more
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
