"""Mode file: a synced file for each message, in phase 1's queue.

A sync blocks, so it is done by threads. As many as there are partitions are of use, since each
partition takes one message at a time; a few more keep them busy. What waits for a thread is
bounded: beyond that a client is told to come back, before the wait gets longer than its patience.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from craft2.apps.ingestion.sinks import PARTITIONS, NoSink, SinkUnavailable, Stored
from craft2.disk import Disk
from craft2.errors import Craft2Error
from phase1_file_queue.partitioned_queue import PartitionedQueue

MAX_WAITING = 1_000  # messages


class FileSink:
    """See the module. Raises NotAQueue, NoSink for a root that holds something else."""

    def __init__(
        self,
        root: Path,
        partitions: int = PARTITIONS,
        *,
        disk: Disk | None = None,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        if root.is_dir() and any(root.glob("*-0/*.log")):
            raise NoSink(f"{str(root)!r} holds logs, no message files", "use --mode log")
        if (root / "queue.json").exists():  # it has its number of partitions
            self._queue = PartitionedQueue.existing(root, disk=disk)
        else:
            self._queue = PartitionedQueue(root, partitions, disk=disk)
        self._threads = ThreadPoolExecutor(2 * self._queue.num_partitions, "file-sink")
        self._waiting, self._max_waiting = 0, max_waiting

    async def store(self, key: str, message: bytes) -> Stored:
        if self._waiting >= self._max_waiting:
            raise SinkUnavailable(
                f"{self._waiting} messages wait for the disk, as many as may", "send again later"
            )
        self._waiting += 1
        loop = asyncio.get_running_loop()
        try:
            produce = self._queue.produce
            return Stored(*await loop.run_in_executor(self._threads, produce, key, message))
        except Craft2Error as error:
            raise SinkUnavailable(
                f"the queue {self._queue.root!r} did not take the message: {error}",
                "send it again once the cause is mended",
            ) from error
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)
        self._queue.close()
