"""A transport in memory, with faults that a test chooses: so far the part that producers need.

`MemoryTopic` is the other side: logs with a producer state, as brokers have them. `Fault` says what
happens to one batch on its way there and back; a list of them makes a bad day.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from enum import Enum

from craft2.record_batch import Record, decode, read_header, stamp, verify
from phase1_file_queue.producer_state import AppendResult
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import TopicPartition
from phase2_groups.producer_sequences import ProducerSequences, SequenceError
from phase2_groups.transport import Produced, ProducerId


class Fault(Enum):
    """What happens to a batch."""

    NONE = "it arrives, and so does the answer"
    REFUSED = "it arrives, and is refused for now"
    BAD = "it arrives, and is refused for ever"
    LOST = "it does not arrive, and there is no answer"
    UNHEARD = "it is stored, and the answer is lost"


class MemoryPartition:
    """A log of batches that refuses duplicates and gaps."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0
        self.producers = ProducerSequences()

    def append(self, batch: bytes) -> AppendResult:
        verify(batch)
        header = read_header(batch)
        duplicate = self.producers.check(header)
        if duplicate is not None:
            return duplicate
        stored = bytes(stamp(batch, self.end_offset, 0))
        self.batches.append(stored)
        self.producers.update(read_header(stored))
        self.end_offset += header.count
        return AppendResult(self.end_offset - header.count, self.end_offset - 1)

    def records(self) -> list[Record]:
        return [record for batch in self.batches for record in decode(batch)]


class MemoryTransport:
    """See the module. Faults are used up one a batch; then all is well.

    at_produce: called first in every `produce`, to look, to wait or to raise.
    """

    def __init__(self, topics: Mapping[str, int], faults: Iterable[Fault] = ()) -> None:
        self.partitions = {
            (topic, number): MemoryPartition()
            for topic, count in topics.items()
            for number in range(count)
        }
        self.faults = iter(faults)
        self.requests: list[dict[TopicPartition, bytes]] = []
        self.at_produce: Callable[[], object] = lambda: None
        self._ids = 0
        self._lock = threading.Lock()

    def records(self, topic: str, partition: int) -> list[Record]:
        return self.partitions[topic, partition].records()

    def add_partition(self, topic: str) -> None:
        self.partitions[topic, self._count(topic)] = MemoryPartition()

    def _count(self, topic: str) -> int:
        return sum(name == topic for name, _ in self.partitions)

    # The transport.

    def metadata(self, topics: Iterable[str] | None = None) -> dict[str, int | ErrorCode]:
        names = {name for name, _ in self.partitions} if topics is None else topics
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {name: self._count(name) or unknown for name in names}

    def init_producer_id(self) -> ProducerId:
        self._ids += 1
        return ProducerId(ErrorCode.NONE, self._ids, 0)

    def produce(
        self, batches: Mapping[TopicPartition, bytes], acks: int, timeout_ms: int
    ) -> dict[TopicPartition, Produced]:
        self.at_produce()
        with self._lock:
            self.requests.append(dict(batches))
            answers = {
                partition: self.produce_one(partition, batch, next(self.faults, Fault.NONE))
                for partition, batch in batches.items()
            }
        return answers if acks else dict.fromkeys(batches, Produced(ErrorCode.NONE))

    def produce_one(self, partition: TopicPartition, batch: bytes, fault: Fault) -> Produced:
        if fault is Fault.REFUSED:
            return Produced(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if fault is Fault.BAD:
            return Produced(ErrorCode.MESSAGE_TOO_LARGE)
        if fault is Fault.LOST:
            return Produced(ErrorCode.REQUEST_TIMED_OUT)
        if partition not in self.partitions:
            return Produced(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        try:
            stored = self.partitions[partition].append(batch)
        except SequenceError as error:
            return Produced(error.code, message=str(error))
        if fault is Fault.UNHEARD:
            return Produced(ErrorCode.NETWORK_EXCEPTION)
        return Produced(ErrorCode.NONE, stored.first_offset)

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass
