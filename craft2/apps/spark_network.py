"""A topic of a cluster, for the Spark source: by Kafka's protocol, from whoever leads it.

Only what is before the high watermark is served, so what Spark has read does not go away when a
leader dies. While there is no leader a reader waits, for `PATIENCE_S` at most.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from craft2.apps.spark_options import SourceError
from craft2.batch_header import iter_headers, verify
from craft2.clock import SystemClock
from phase1_file_queue.log_config import OffsetOutOfRange
from phase2_groups.error_codes import ErrorCode
from phase2_groups.transport import EARLIEST, LATEST, Fetched, Listed
from phase3_raft.client.network_transport import NetworkTransport

Answer = TypeVar("Answer")
PATIENCE_S, _PAUSE_S, _WAIT_MS = 60.0, 0.1, 100


class RemoteLog:
    """What `spark_ranges` needs of a `PartitionLog`, for a partition of a cluster."""

    def __init__(self, bootstrap: str, topic: str, partition: int) -> None:
        self._bootstrap, self._partition = bootstrap, (topic, partition)

    @property
    def bounds(self) -> tuple[int, int]:
        """(first offset, high watermark). Raises SourceError."""
        return self._listed(EARLIEST).offset, self.end_offset

    @property
    def end_offset(self) -> int:
        """The high watermark. Raises SourceError."""
        return self._listed(LATEST).offset

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record not earlier than that; None if there is none."""
        found = self._listed(timestamp)
        return None if found.offset < 0 else (found.offset, found.timestamp_ms)

    def batches(self, offset: int, max_bytes: int) -> Iterator[bytes]:
        """Whole batches, checked, from the one with `offset` to the end.

        Raises OffsetOutOfRange, CorruptBatch, SourceError.
        """
        while True:
            before, data = offset, self._fetched(offset, max_bytes).data
            for position, header in iter_headers(data):
                verify(data, position)
                offset = header.next_offset
                yield bytes(memoryview(data)[position : position + header.size])
            if offset == before and offset >= self.end_offset:
                return

    def close(self) -> None:
        """Nothing: the connections are kept for the next reader."""

    def _listed(self, timestamp: int) -> Listed:
        def ask(transport: NetworkTransport) -> tuple[ErrorCode, Listed]:
            found = transport.list_offsets({self._partition: timestamp})[self._partition]
            return found.error, found

        return _patiently(self._bootstrap, "{}-{}".format(*self._partition), ask)

    def _fetched(self, offset: int, max_bytes: int) -> Fetched:
        def ask(transport: NetworkTransport) -> tuple[ErrorCode, Fetched]:
            limits = {"max_bytes": max_bytes, "max_partition_bytes": max_bytes}
            asked = {self._partition: offset}
            found = transport.fetch(asked, max_wait_ms=_WAIT_MS, **limits)[self._partition]
            if found.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise OffsetOutOfRange(
                    f"offset {offset} is not there any more", "read from the start"
                )
            return found.error, found

        return _patiently(self._bootstrap, "{}-{}".format(*self._partition), ask)


def partitions_of(bootstrap: str, topic: str) -> int:
    """How many partitions it has. Raises SourceError: there is no such topic, or nobody answers."""

    def ask(transport: NetworkTransport) -> tuple[ErrorCode, int]:
        found = transport.metadata([topic])[topic]
        return (found, 0) if isinstance(found, ErrorCode) else (ErrorCode.NONE, found)

    return _patiently(bootstrap, topic, ask)


def _patiently(
    bootstrap: str, what: str, ask: Callable[[NetworkTransport], tuple[ErrorCode, Answer]]
) -> Answer:
    """Ask until there is an answer, or none is to be hoped for. Raises SourceError."""
    clock, never = SystemClock(), threading.Event()
    until = clock.monotonic() + PATIENCE_S
    while True:
        error, answer = ask(_transport(bootstrap, os.getpid()))
        if not error:
            return answer
        gone = error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if gone or not error.retriable or clock.monotonic() > until:
            raise SourceError(
                f"{what} cannot be read at {bootstrap!r}: {error.name}",
                "see whether the cluster runs, and has that topic",
            )
        clock.wait(never, _PAUSE_S)


@functools.cache
def _transport(bootstrap: str, process: int) -> NetworkTransport:
    """One for all readers of a process; a fork has to have its own."""
    return NetworkTransport(bootstrap, client_id="craft2-spark")
