"""Reading what the service has stored: one protocol, a source for each mode.

A source is one member of a group. `poll` gives the next messages, `commit` says that all it gave
are dealt with: whoever writes first and commits then loses nothing, and may see some twice.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from craft2.clock import Clock, SystemClock
from craft2.errors import Craft2Error
from phase1_file_queue.partitioned_queue import PartitionedQueue
from phase1_file_queue.queue_consumer import QueueConsumer
from phase1_file_queue.queue_files import NotAQueue
from phase2_groups.consumer import Consumer
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.consumer_errors import CommitRefused, RebalanceInProgress
from phase2_groups.topics import partition_count

AT_ONCE = 500  # messages of one poll
WAIT_MS = 200
PATIENCE_S = 10.0
LOOK_S = 0.02  # nobody tells that a file has come: it is looked for


class SourceError(Craft2Error):
    """A queue that cannot be read as it was asked for."""


class Row(NamedTuple):
    """One message, whichever queue it comes from."""

    partition: int
    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None


class Source(Protocol):
    """See the module."""

    def poll(self, wait_ms: int) -> Sequence[Row]:
        """The next messages; none if there are none within the time. Raises Craft2Error."""

    def commit(self) -> None:
        """All that `poll` has returned is dealt with.

        If the group has given partitions to others meanwhile, they get those messages once more.
        """

    def at_end(self) -> bool:
        """Whether `poll` has returned all there is for this member of the group."""

    def close(self) -> None:
        """Leave the group."""


def read_to_end(source: Source, clock: Clock | None = None) -> Iterator[Row]:
    """All that is left to read; the source is closed then.

    Raises SourceError when nothing comes for `PATIENCE_S`, though it is not at its end.
    """
    clock = clock or SystemClock()
    until = clock.monotonic() + PATIENCE_S
    try:
        while True:
            rows = source.poll(WAIT_MS)
            yield from rows
            if rows:
                until = clock.monotonic() + PATIENCE_S
            elif source.at_end():
                return
            elif clock.monotonic() > until:
                raise SourceError(
                    f"nothing was read for {PATIENCE_S:g} s, though more is there",
                    "look at what the queue, or its broker, complains about",
                )
    finally:
        source.close()


class FileSource:
    """Phase 1's message files. One consumer a group.

    partitions: how many the queue must have; None: as many as it has.
    Raises NotAQueue, GroupInUse.
    """

    def __init__(
        self, root: Path, group: str, partitions: int | None = None, *, clock: Clock | None = None
    ) -> None:
        if partitions is not None:
            with PartitionedQueue.existing(root) as queue:
                if queue.num_partitions != partitions:
                    raise NotAQueue(
                        f"the queue {str(root)!r} has {queue.num_partitions} partitions, "
                        f"not {partitions}",
                        f"give {queue.num_partitions}, or leave the number out",
                    )
        self._consumer = QueueConsumer(root, group)
        self._at_end = False
        self._clock, self._never = clock or SystemClock(), threading.Event()

    def poll(self, wait_ms: int) -> Sequence[Row]:
        found = self._consumer.poll(AT_ONCE)
        self._at_end = not found
        if not found:
            self._clock.wait(self._never, min(wait_ms / 1000, LOOK_S))
        return [Row(m.partition, m.offset, m.timestamp, m.key, m.value) for m in found]

    def commit(self) -> None:
        self._consumer.commit()

    def at_end(self) -> bool:
        return self._at_end

    def close(self) -> None:
        self._consumer.close()


class LogSource:
    """Phase 2's consumer over the logs in a folder. Raises SourceError."""

    def __init__(self, root: Path, topic: str, group: str) -> None:
        if not partition_count(root, topic):
            raise SourceError(
                f"there is no topic {topic!r} in {str(root)!r}",
                f"give the folder that holds {topic}-0, or the name of a topic that is there",
            )
        config = ConsumerConfig(
            bootstrap_servers=f"file:{root}",
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=AT_ONCE,
        )
        self._consumer = Consumer(config)
        self._consumer.subscribe([topic])

    def poll(self, wait_ms: int) -> Sequence[Row]:
        found = self._consumer.poll(wait_ms)
        return [Row(r.partition, r.offset, r.timestamp, r.key, r.value) for r in found]

    def commit(self) -> None:
        with contextlib.suppress(CommitRefused, RebalanceInProgress):  # others get them once more
            self._consumer.commit()

    def at_end(self) -> bool:
        mine = self._consumer.assignment()
        return bool(mine) and not any(self._consumer.lag().values())

    def close(self) -> None:
        self._consumer.close()
