"""Where records wait for company: the accumulator of a producer.

A request costs the same for one record as for a thousand, so records of a partition travel in
batches. `append` puts a record into its partition's open batch. A batch is *sealed*, so that it
takes no more records, when the next one would not fit (`batch_size`), when it has waited long
enough (`linger_ms`), when somebody flushes, or when memory is short. `drain` picks what goes next:

    lane flights-0   [retry 3x][sealed][sealed][open]     oldest first; new records go in at the end
    lane flights-1   [in flight][open]

A record without a key may go anywhere. It goes where the last one went until that batch is sealed,
since one full batch is better than four that linger (KIP-480, KIP-794: the sticky partition).

No thread, clock or randomness in here: the time comes in as `now_ms`, chance as a function.

>>> accumulator = Accumulator(ProducerConfig(linger_ms=5), random=lambda: 0.5)
>>> flights = accumulator.topic("flights", 2)
>>> batch = accumulator.append(flights, None, b"departed", b"UA", 0, (), now_ms=100)
>>> accumulator.drain(104), accumulator.drain(105) == [batch], batch.lane.partition
([], True, 0)

Source: Kafka's RecordAccumulator and BuiltInPartitioner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import takewhile
from struct import Struct
from typing import Any, NamedTuple

from crc32c import crc32c

from craft2.batch_header import CRC, CRC_POSITION, CRC_START, HEADER_SIZE
from craft2.record_batch import BatchFields, Record, encode, encode_values
from craft2.records import Headers
from phase1_file_queue.partitioner import partition_for
from phase2_groups.group_messages import TopicPartition
from phase2_groups.producer_config import ProducerConfig, ProducerError, RecordTooLarge
from phase2_groups.transport import Produced

RECORD_OVERHEAD = 21  # bytes around key and value at most, as Kafka reckons
Number = tuple[int, int, int]  # producer id, epoch, sequence of the first record
_NO_NUMBER: Number = (-1, -1, -1)
_NUMBER = Struct(">qhi")
_NUMBER_POSITION = 43  # in a batch: see craft2.batch_header
_partition_for = lru_cache(2**16)(partition_for)  # keys come again, and murmur2 is slow in Python


class Outcome(NamedTuple):
    """What became of a batch: an error, or the offset of its first record (-1: not told)."""

    error: ProducerError | None
    offset: int = -1
    append_time_ms: int = -1  # if the topic stamps records, else -1


class Batch:
    """Records of one partition that travel together, and what happens to them.

    Invariant: once `outcome` is set it stays, and the batch is in no lane.
    """

    __slots__ = (
        "_data", "_number", "attempts", "count", "created_ms", "epoch", "headers", "in_flight",
        "keys", "lane", "last_answer", "maybe_stored", "outcome", "promise", "retry_at_ms",
        "sequence", "size", "timestamps", "values",
    )  # fmt: skip

    def __init__(self, lane: Lane, now_ms: int, promise: Any = None) -> None:
        self.lane = lane
        self.created_ms = now_ms
        self.promise = promise  # the shell's: how it wakes those who wait for this batch
        self.values: list[bytes | None] = []
        self.keys: list[bytes | None] = []
        self.timestamps: list[int] = []
        self.headers: dict[int, Headers] = {}  # of the records that have any, by index
        self._data: bytes | None = None  # once encoded,
        self._number = _NO_NUMBER  # and the number in there
        self.count = 0  # of records, once sealed
        self.size = HEADER_SIZE  # bytes, at most
        self.attempts = 0
        self.in_flight = False
        self.retry_at_ms = 0
        self.sequence = -1  # of the first record; -1: not numbered (yet)
        self.epoch = -1
        self.last_answer: Produced | None = None  # the last answer, if it was not the end
        self.maybe_stored = False  # it was sent, and nobody said that it was refused
        self.outcome: Outcome | None = None

    def encode(self, codec: str, producer_id: int = -1) -> bytes:
        """The batch's bytes, under its present number. Raises InvalidRecord."""
        number = (producer_id, self.epoch, self.sequence) if self.sequence >= 0 else _NO_NUMBER
        if self._data is None:
            self._data = self._encode(codec, number)
            self.values = self.keys = []
        elif self._number != number:  # it was numbered anew, or encoded before it had a number
            self._data = _numbered(self._data, number)
        self._number = number
        return self._data

    def _encode(self, codec: str, number: Number) -> bytes:
        fields = BatchFields(
            codec=codec, producer_id=number[0], producer_epoch=number[1], base_sequence=number[2]
        )
        times = self.timestamps
        if self.headers:
            rows = zip(times, self.keys, self.values, strict=True)
            records = [Record(i, *row, self.headers.get(i, ())) for i, row in enumerate(rows)]
            return encode(records, **fields)
        keys = None if self.keys.count(None) == len(self.keys) else self.keys
        one_time = times[0] if times.count(times[0]) == len(times) else times
        return encode_values(self.values, keys=keys, timestamps=one_time, **fields)


def _numbered(data: bytes, number: Number) -> bytes:
    """The encoded batch with another number in its header, and the checksum that goes with it."""
    copy = bytearray(data)
    _NUMBER.pack_into(copy, _NUMBER_POSITION, *number)
    with memoryview(copy) as view:
        crc = crc32c(view[CRC_START:])
    CRC.pack_into(copy, CRC_POSITION, crc)
    return bytes(copy)


class Lane:
    """One partition's batches.

    batches: oldest first. Invariant: what was ever sent comes before what was not.
    open: the one that takes records. Invariant: None, or the last of `batches`.
    """

    __slots__ = (
        "batches", "bumps", "in_flight", "max_in_flight", "name",
        "next_sequence", "open", "partition", "topic",
    )  # fmt: skip

    def __init__(self, topic: Topic, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.name: TopicPartition = (topic.name, partition)
        self.batches: deque[Batch] = deque()
        self.open: Batch | None = None
        self.in_flight = 0
        self.max_in_flight = 1
        self.next_sequence = 0
        self.bumps = 0  # how often the epoch was raised for this partition


class Topic:
    """A topic's lanes, and which of them records without a key go to at present."""

    __slots__ = ("lanes", "name", "sticky")

    def __init__(self, name: str, partitions: int, sticky: int) -> None:
        self.name = name
        self.lanes: list[Lane] = []
        self.sticky = sticky
        self.grow(partitions)

    def grow(self, partitions: int) -> None:
        """The topic has more partitions now."""
        self.lanes += [Lane(self, number) for number in range(len(self.lanes), partitions)]


class Accumulator:
    """See the module. Not thread-safe.

    buffered: Invariant: the sizes of all batches in all lanes together.
    busy: the lanes that have batches; who was served goes to the end.
    """

    def __init__(
        self,
        config: ProducerConfig,
        random: Callable[[], float],
        new_promise: Callable[[], Any] = lambda: None,
    ) -> None:
        self.config = config
        self._random = random  # 0 <= random() < 1
        self._new_promise = new_promise
        self._by_key = config.partitioner == "murmur2_random"
        self._batch_size = config.batch_size
        self._buffer_memory = config.buffer_memory
        self._room = config.buffer_memory - HEADER_SIZE  # for a record: it may need a new batch
        self.buffered = 0
        self.busy: dict[TopicPartition, Lane] = {}

    def topic(self, name: str, partitions: int) -> Topic:
        """Lanes for a topic."""
        return Topic(name, partitions, int(self._random() * partitions))

    # Records come in.

    def append(
        self,
        topic: Topic,
        partition: int | None,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        now_ms: int,
    ) -> Batch | None:
        """Put a record into a batch: its last one, so far. None: there is no memory for it.

        Raises RecordTooLarge.
        """
        size = RECORD_OVERHEAD
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += sum(len(name) * 3 + len(data or b"") + 10 for name, data in headers)
        if self.buffered + size > self._room:
            self._check_size(size)
            self.seal_all()
            return None
        if partition is None and (key is None and self._by_key):
            lane = topic.lanes[topic.sticky]  # as `choose` does: `make bench ARGS=send`
        else:
            lane = self.choose(topic, partition, key)
        batch = lane.open
        if batch is None or batch.size + size > self._batch_size:
            batch = self._next_batch(lane, partition, key, size, now_ms)
        try:
            if headers:
                batch.headers[len(batch.timestamps)] = headers
            batch.values.append(value)
            batch.keys.append(key)
            batch.timestamps.append(timestamp_ms)
        except BaseException:  # an interrupt: what is there of half a record is not for the next
            count = len(batch.timestamps)
            del batch.values[count:], batch.keys[count:]
            batch.headers.pop(count, None)
            raise
        batch.size += size
        self.buffered += size
        return batch

    def _next_batch(
        self, lane: Lane, partition: int | None, key: bytes | None, size: int, now_ms: int
    ) -> Batch:
        """A batch with room for the record, now that the lane's has none, or that it has none."""
        self._check_size(size)
        while (batch := lane.open) is not None and batch.size + size > self._batch_size:
            self.seal(lane)
            lane = self.choose(lane.topic, partition, key)
        return batch or self._new_batch(lane, now_ms)

    def _check_size(self, size: int) -> None:
        for name in ("max_request_size", "buffer_memory"):
            most = getattr(self.config, name)
            if size + HEADER_SIZE > most:
                raise RecordTooLarge(
                    f"a record needs {size + HEADER_SIZE} bytes, more than {name}={most}",
                    f"send it in parts, or raise {name}; and the topic's max_message_bytes",
                )

    def append_encoded(self, lane: Lane, data: bytes, count: int, now_ms: int) -> Batch | None:
        """Queue a batch that is encoded already. None: there is no memory for it."""
        if self.buffered + len(data) > self._buffer_memory:
            self.seal_all()
            return None
        if lane.open is not None:
            self.seal(lane)  # what was sent before goes before
        batch = self._new_batch(lane, now_ms)
        self.seal(lane)
        batch._data, batch.count = data, count
        batch.size += len(data) - HEADER_SIZE
        self.buffered += len(data) - HEADER_SIZE
        return batch

    def choose(self, topic: Topic, partition: int | None, key: bytes | None) -> Lane:
        """The lane of a record with this partition or key, or with neither."""
        if partition is not None:
            return topic.lanes[partition]
        if not self._by_key:
            topic.sticky = (topic.sticky + 1) % len(topic.lanes)
        elif key is not None:
            return topic.lanes[_partition_for(key, len(topic.lanes))]
        return topic.lanes[topic.sticky]

    def _new_batch(self, lane: Lane, now_ms: int) -> Batch:
        batch = Batch(lane, now_ms, self._new_promise())
        self.buffered += batch.size
        self.busy[lane.name] = lane
        lane.batches.append(batch)
        lane.open = batch  # at last: an interrupt must not leave it open and in no lane
        return batch

    def seal(self, lane: Lane) -> None:
        """Let the open batch take no more; records without a key go on to another partition."""
        assert lane.open is not None
        lane.open.count = len(lane.open.timestamps)
        lane.open = None
        topic = lane.topic
        others = len(topic.lanes) - 1
        if topic.sticky == lane.partition and others and self._by_key:
            topic.sticky = (topic.sticky + 1 + int(self._random() * others)) % (others + 1)

    def seal_all(self) -> None:
        """Let nothing linger: somebody flushes, or memory is short."""
        for lane in self.busy.values():
            if lane.open is not None:
                self.seal(lane)

    # Batches go out.

    # EXERCISE 12.1 the drain
    def drain(self, now_ms: int) -> list[Batch]:
        """The batches of the next request: at most one of each partition, in the order of the turn.

        `self.busy` maps `lane.name` to lane: all lanes with batches, whose turn it is first. The
        next batch of a lane is the first one in `lane.batches` that is not `in_flight` (it may have
        been sent before, and failed). It goes, unless

        - the lane has `lane.max_in_flight` batches in flight already (`lane.in_flight`);
        - the batch backs off: it must not be sent again before `retry_at_ms`. What is behind it
          waits too, or records would change places;
        - it is `lane.open`, and `self.config.linger_ms` have not passed since its `created_ms`.
          Once they have, `self.seal(lane)` comes first.

        All batches together have at most `self.config.max_request_size` bytes (`batch.size`), but
        the first one goes in any case. The first one that does not fit ends the request. So that
        it comes first next time, the lanes in the request move to the end of `self.busy`.

        A batch that goes is `in_flight`, counts in `lane.in_flight`, has one more of `attempts`.
        """
        # BEGIN SOLUTION
        request: list[Batch] = []
        room = self.config.max_request_size
        for lane in list(self.busy.values()):
            batch = next((one for one in lane.batches if not one.in_flight), None)
            if batch is None or lane.in_flight >= lane.max_in_flight:
                continue
            if now_ms < batch.retry_at_ms:
                continue
            if batch is lane.open:
                if now_ms < batch.created_ms + self.config.linger_ms:
                    continue
                self.seal(lane)
            if request and batch.size > room:
                break
            room -= batch.size
            request.append(batch)
            batch.in_flight = True
            batch.attempts += 1
            lane.in_flight += 1
            self.busy[lane.name] = self.busy.pop(lane.name)
        return request
        # END SOLUTION

    def next_moment(self, now_ms: int) -> int | None:
        """When `drain` or `expired` may find more than now, if nothing else happens until then."""
        moments: list[int] = []
        for lane in self.busy.values():
            batch = next((one for one in lane.batches if not one.in_flight), None)
            if batch is not None:
                moments.append(batch.created_ms + self.config.delivery_timeout_ms)
                moments.append(batch.retry_at_ms)
                if batch is lane.open:
                    moments.append(batch.created_ms + self.config.linger_ms)
        return min((moment for moment in moments if moment > now_ms), default=None)

    def expired(self, now_ms: int) -> list[Batch]:
        """The batches whose `delivery_timeout_ms` is over. (Who is in flight has an answer due.)"""
        oldest = now_ms - self.config.delivery_timeout_ms
        found: list[Batch] = []
        for lane in self.busy.values():
            old = takewhile(lambda batch: batch.created_ms <= oldest, lane.batches)
            found += [batch for batch in old if not batch.in_flight]
        return found

    def unfinished(self) -> Iterable[Batch]:
        """All batches."""
        return [batch for lane in self.busy.values() for batch in lane.batches]

    def remove(self, batch: Batch) -> None:
        """A batch is done, one way or another: give back its memory."""
        lane = batch.lane
        if batch is lane.open:
            self.seal(lane)
        lane.batches.remove(batch)
        if not lane.batches:
            del self.busy[lane.name]
        self.buffered -= batch.size
