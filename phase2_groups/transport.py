"""The seam under `Producer` and `Consumer`: what they may ask, whoever answers.

Here files answer (`file_transport`); later a network client that speaks Kafka's protocol does. An
answer carries Kafka's error codes; it never raises for what the other side decided, and it never
retries: both are up to the client above. Methods may block for as long as they are told to; any
thread may call them.

Topics are named, partitions are numbers from 0, offsets count records, times are ms since 1970
unless they end in `timeout_ms` or `wait_ms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from craft2.disk import Buffer
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import OffsetToCommit, Reply, Request, TopicPartition

EARLIEST, LATEST = -2, -1  # in place of a timestamp, as in ListOffsets


class Produced(NamedTuple):
    """What became of one batch. offset: of its first record, -1 if unknown or refused.

    timestamp_ms: the append time if the topic stamps records, else -1. log_start: the
    partition's, -1 if nobody tells.
    """

    error: ErrorCode
    offset: int = -1
    timestamp_ms: int = -1
    log_start: int = -1
    message: str = ""  # what a person should know about the error


class Fetched(NamedTuple):
    """Batches from one partition: whole ones, perhaps starting before the asked offset."""

    error: ErrorCode
    data: Buffer = b""
    high_watermark: int = -1  # records from here on are not to be read yet
    log_start: int = -1


class Listed(NamedTuple):
    """The offset for a timestamp; offset -1: no record is that late."""

    error: ErrorCode
    offset: int = -1
    timestamp_ms: int = -1


class ProducerId(NamedTuple):
    """Under which number a producer counts its batches (KIP-98)."""

    error: ErrorCode
    producer_id: int = -1
    epoch: int = -1


class Transport(Protocol):
    """See the module."""

    def metadata(self, topics: Iterable[str] | None = None) -> Mapping[str, int | ErrorCode]:
        """How many partitions each topic has, or why that is not known; None asks for all."""

    def produce(
        self, batches: Mapping[TopicPartition, bytes], acks: int, timeout_ms: int
    ) -> Mapping[TopicPartition, Produced]:
        """Append one batch to each partition. acks 0: answered at once, whatever happens; 1: when
        written; -1 (all): when safe."""

    def init_producer_id(self) -> ProducerId:
        """A number that no producer had before."""

    def fetch(
        self,
        offsets: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024**2,
        max_partition_bytes: int = 1024**2,
    ) -> Mapping[TopicPartition, Fetched]:
        """Batches from each offset on; waits up to `max_wait_ms` until there are `min_bytes`."""

    def list_offsets(self, asked: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Listed]:
        """For each partition the first record at or after a timestamp, or EARLIEST, or LATEST."""

    def ask_group(self, group_id: str, request: Request, timeout_ms: int) -> Reply | None:
        """Put a request (join, sync, heartbeat, leave, commit) to the group's coordinator.

        None: no reply within `timeout_ms`; it may still be carried out.
        """

    def group_moved(self, group_id: str, generation: int) -> bool:
        """Whether a look that costs next to nothing shows that a member of this generation should
        send a heartbeat now. False if there is no such look."""

    def committed(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetToCommit | ErrorCode]:
        """The group's committed offsets; a partition without one is left out."""

    def wake(self) -> None:
        """End a `fetch` that waits in another thread."""

    def close(self) -> None:
        """Give back what is open."""
