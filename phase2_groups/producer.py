"""The producer an application uses: `send` returns at once, a thread of its own does the rest.

    send -> partition -> open batch ... sealed -> request -> transport -> answer -> future, callback
    your thread, under one lock         the sender's thread

All decisions are in `producer_core`, which is pure; here are the lock, the thread, the clock and
the waiting. `send` blocks only if the buffer is full, or to learn a topic's number of partitions.

>>> from phase2_groups.file_transport import create_topic
>>> import tempfile
>>> root = tempfile.mkdtemp()
>>> create_topic(root, "flights", 4)
>>> with Producer(ProducerConfig(bootstrap_servers=f"file:{root}")) as producer:
...     producer.send("flights", "departed", key="UA").result()[:3]
('flights', 2, 0)

Source: Kafka's KafkaProducer and Sender.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from craft2.clock import Clock, SystemClock
from craft2.process import process_id
from craft2.record_batch import encode_values
from phase2_groups import bulk_send
from phase2_groups.accumulator import Batch, Topic
from phase2_groups.connect import connect
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import TopicPartition
from phase2_groups.producer_config import (
    BadRecord,
    BufferFull,
    NobodyAnswers,
    ProducerClosed,
    ProducerConfig,
    ProducerError,
    ProducerFailed,
    UnknownTopic,
)
from phase2_groups.producer_core import ProducerCore, ProducerMetrics
from phase2_groups.record_checks import (
    as_bytes,
    check_callback,
    check_name,
    check_timestamps,
    checked_headers,
)
from phase2_groups.safe_event import SafeEvent
from phase2_groups.send_futures import BulkFuture, OnDelivery, Promise, SendFuture
from phase2_groups.transport import Produced, ProducerId, Transport

if TYPE_CHECKING:
    import pyarrow as pa


_LONGEST_S = 1.0  # that the sender waits: an interrupt may have swallowed the call that wakes it


class Producer:
    """See the module. Any thread may use it, but no forked child: the sender's thread is not there.
    Close it, or records that still wait are lost.

    After a KeyboardInterrupt it goes on. Whether the record of the `send` that was interrupted is
    queued is not known; the call may also have left a batch to its `linger_ms` and a second more.
    (One moment is left in which an interrupt does harm: as `send` begins to wait for memory.)

    A topic that has grown is noticed when `partition` names one that is new.

    transport: where to, and it stays open when the producer closes; the one that
        `config.bootstrap_servers` names, if None.
    random: chance, for the sticky partition and the backoff; 0 <= random() < 1.
    """

    def __init__(
        self,
        config: ProducerConfig,
        transport: Transport | None = None,
        *,
        clock: Clock | None = None,
        random: Callable[[], float] = random.random,
    ) -> None:
        self.config = config
        self._owns_transport = transport is None
        self._transport = transport or connect(config.bootstrap_servers)
        self._clock = clock or SystemClock()
        self._wall_ms = self._clock.now_ms
        self._lock = threading.RLock()  # guards what follows; never held while anything is sent
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._room = threading.Condition(self._lock)  # memory was given back
        self._process = process_id()
        self._core = ProducerCore(config, random, partial(Promise, self._check_may_wait))
        self._append = self._core.append
        self._topics: dict[str, Topic] = {}
        self._refusal: ProducerError | None = None  # why `send` takes nothing any more
        self._closing = SafeEvent()
        self._wake = SafeEvent()  # there may be something to send
        self._looked_ms = 0  # when the sender looked last; set when a batch begins, too
        self._most = min(config.max_request_size, config.buffer_memory)
        self._sender = threading.Thread(
            target=self._run, name=f"{config.client_id}-sender", daemon=True
        )
        self._sender.start()

    # One record.

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | str | None]] = (),
        on_delivery: OnDelivery | None = None,
    ) -> SendFuture:
        """Queue a record; the future says where it is stored, or why it is not.

        value, key: bytes, text (sent as UTF-8) or None. Records with the same key are in the same
            partition, in the order of their sending.
        partition: overrules the key's choice. timestamp_ms: since 1970; now if None.
        on_delivery: called as `on_delivery(metadata, error)`, one of them None, in the producer's
            thread: be quick there, and wait for no other record. In a partition in order.

        Raises BadRecord, RecordTooLarge, UnknownTopic, NobodyAnswers, BufferFull, ProducerClosed,
        ProducerFailed; then the record was not queued.
        """
        if self._process != process_id():
            raise self._forked()
        if on_delivery is not None:
            check_callback(on_delivery)
        if type(value) is not bytes and value is not None:
            value = as_bytes("value", value)
        if type(key) is not bytes and key is not None:
            key = as_bytes("key", key)
        pairs = checked_headers(headers) if headers else ()
        if timestamp_ms is None:
            timestamp_ms = self._wall_ms()
        else:
            check_timestamps({timestamp_ms})
        try:
            lanes = self._topics.get(topic) or self._learn(topic)
        except TypeError:  # it cannot even be looked up
            check_name(topic)
            raise
        if partition is not None:
            self._check_partition(lanes, partition)
        # `with self._lock` in half its time (`make bench ARGS=send`). As there, no interrupt leaves
        # the lock held; after one that came before it was ours, `release` refuses.
        try:
            self._acquire()
            if self._refusal is not None:
                raise self._refusal
            batch = self._append(lanes, partition, value, key, timestamp_ms, pairs, self._looked_ms)
            if batch is None:
                batch = self._once_there_is_room(
                    partial(self._append, lanes, partition, value, key, timestamp_ms, pairs)
                )
            place = len(batch.timestamps) - 1
            future = SendFuture(batch, place)
            if on_delivery is not None:
                batch.promise.callbacks.append(partial(future.tell, on_delivery))
            if not place:  # the clock is asked once a batch
                batch.created_ms = self._now_ms()
        finally:
            try:  # noqa: SIM105  # `suppress` would cost what is saved
                self._release()
            except RuntimeError:  # it was not ours
                pass
        if not place:  # the batch before it is full, or this one begins to linger
            self._wake.set()
        return future

    def _once_there_is_room(self, append: Callable[[int], Batch | None]) -> Batch:
        """What `append(now_ms)` returns when it is not None; the lock is held."""
        until = self._clock.monotonic() + self.config.max_block_ms / 1000
        while True:
            now = self._clock.monotonic()
            batch = append(int(now * 1000))
            if batch is not None:
                return batch
            self._wake.set()  # everything is sealed now
            if now >= until or threading.current_thread() is self._sender:
                raise BufferFull(
                    f"no room for one more record in max_block_ms={self.config.max_block_ms}: "
                    f"{self._core.buffered} bytes of buffer_memory={self.config.buffer_memory} "
                    "wait to be acknowledged",
                    "send more slowly, or raise buffer_memory; if nothing is acknowledged at all, "
                    "look at the other side",
                )
            self._room.wait(until - now)
            if self._refusal is not None:
                raise self._refusal

    # Topics.

    def _learn(self, name: str) -> Topic:
        """Find out how many partitions a topic has, for the first time or again."""
        check_name(name)
        until = self._clock.monotonic() + self.config.max_block_ms / 1000
        while True:
            found = self._transport.metadata([name]).get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            left = until - self._clock.monotonic()
            if not isinstance(found, ErrorCode):
                break
            if not found.retriable or left <= 0 or self._refusal is not None:
                if found is ErrorCode.NETWORK_EXCEPTION:
                    raise NobodyAnswers(
                        f"no broker answers at {self.config.bootstrap_servers} "
                        f"(max_block_ms={self.config.max_block_ms})",
                        "give the address of one that runs",
                    )
                raise UnknownTopic(
                    f"topic {name!r} cannot be found (max_block_ms={self.config.max_block_ms}): "
                    f"{found.name}",
                    "create it, or correct its name",
                )
            self._clock.wait(self._closing, min(self.config.retry_backoff_ms / 1000, left))
        with self._lock:
            topic = self._topics.get(name)
            if topic is None:
                topic = self._topics[name] = self._core.topic(name, found)
            topic.grow(found)
            return topic

    def _check_partition(self, topic: Topic, partition: int) -> None:
        if type(partition) is int and partition >= len(topic.lanes):
            self._learn(topic.name)  # it may have grown
        if type(partition) is not int or not 0 <= partition < len(topic.lanes):
            raise BadRecord(
                f"partition {partition!r} does not exist: topic {topic.name!r} has "
                f"{len(topic.lanes)}, from 0 on",
                "leave partition out to let the key choose",
            )

    # Many records.

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        timestamps: Sequence[int] | int | None = None,
        partition: int | None = None,
    ) -> BulkFuture:
        """Queue many records, encoded column by column: several times as fast as `send` for each.

        keys, timestamps (ms since 1970; one for all, or now): as long as `values`. The batches are
        as large as `max_request_size` allows; without keys each may go to another partition.
        Blocks while the buffer is full.

        Raises BadRecord and RecordTooLarge before anything is queued, UnknownTopic, NobodyAnswers,
        ProducerClosed, ProducerFailed. If the buffer stays full, the future says how far it came.
        """
        check_name(topic)
        lanes = self._topics.get(topic) or self._learn(topic)
        if partition is not None:
            self._check_partition(lanes, partition)
        times = self._clock.now_ms() if timestamps is None else timestamps
        columns = bulk_send.checked(values, keys, times)
        parts: Iterable[tuple[int | None, bulk_send.Columns]] = [(partition, columns)]
        if keys and partition is None and self.config.partitioner == "murmur2_random":
            parts = bulk_send.deal(columns, len(lanes.lanes))
        cut = [(number, bulk_send.cut(part, self._most)) for number, part in parts]
        if self._process != process_id():
            raise self._forked()
        if self._refusal is not None:
            raise self._refusal
        queued: list[Batch] = []
        rejected: ProducerError | None = None
        try:
            for number, pieces in cut:
                for piece in pieces:  # no comprehension: what was queued before an error counts
                    queued.append(self._queue(lanes, number, piece))
        except (BufferFull, ProducerClosed, ProducerFailed) as error:
            rejected = error
        return BulkFuture(queued, rejected, len(values))

    def send_table(
        self,
        topic: str,
        values: pa.Array | pa.ChunkedArray,
        keys: pa.Array | pa.ChunkedArray | None = None,
        timestamps: pa.Array | pa.ChunkedArray | int | None = None,
        partition: int | None = None,
    ) -> BulkFuture:
        """`send_many` of Arrow columns (binary or string; timestamps or whole ms), in portions.

        Raises as that does; what is wrong with a later portion is found when it is its turn.
        """
        parts: list[BulkFuture] = []
        for portion in bulk_send.portions(values, keys, timestamps):
            parts.append(self.send_many(topic, *portion, partition=partition))
            if parts[-1].rejected is not None:  # what comes after it must not overtake it
                break
        return BulkFuture.joined(parts, len(values))

    def _queue(self, topic: Topic, partition: int | None, piece: bulk_send.Columns) -> Batch:
        """Encode one batch of many and queue it; records without a partition may go anywhere."""
        codec = self.config.compression_type
        data = encode_values(
            piece.values, keys=piece.keys, timestamps=piece.timestamps, codec=codec
        )
        count = len(piece.values)

        def append(now_ms: int) -> Batch | None:
            lane = self._core.choose(topic, partition, None)
            return self._core.append_encoded(lane, data, count, now_ms)

        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            batch = self._once_there_is_room(append)
        self._wake.set()
        return batch

    # The end, and what happened.

    def flush(self, timeout: float | None = None) -> int:
        """Send everything now and wait until each record is acknowledged or failed.

        timeout: seconds. Returns how many records still have no outcome: 0 unless it has passed.
        """
        self._check_may_wait()
        until = None if timeout is None else self._clock.monotonic() + timeout
        with self._lock:
            self._core.seal_all()
            batches = list(self._core.unfinished())
        self._wake.set()
        for batch in batches:
            left = None if until is None else max(0.0, until - self._clock.monotonic())
            if not batch.promise.wait(left):
                break
        return sum(batch.count for batch in batches if batch.outcome is None)

    def close(self, timeout: float | None = None) -> None:
        """Flush for up to `timeout` seconds, then end. What has no outcome by then fails with
        ProducerClosed, which says whether it may be stored. May be called again."""
        self._check_may_wait()
        with self._lock:
            self._refusal = self._refusal or ProducerClosed(
                "the producer is closed", "make a new one"
            )
        left = self.flush(timeout)
        with self._lock:
            self._core.give_up_all(ProducerClosed, f"the producer was closed after {timeout} s")
        self._tell()
        self._closing.set()
        self._wake.set()
        if not left:
            self._sender.join()
            if self._owns_transport:
                self._transport.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_may_wait(self) -> None:
        """Raise ProducerError if it would be for ever."""
        if self._process != process_id():
            raise self._forked()
        if threading.current_thread() is self._sender:
            raise ProducerError(
                "waiting in a callback, in the thread that is waited for", "do it in another thread"
            )

    def _forked(self) -> ProducerError:
        return ProducerError(
            f"this producer belongs to process {self._process}: its thread is not in this child",
            "make a producer in the child",
        )

    def metrics(self) -> ProducerMetrics:
        """What the producer has done so far, and holds now."""
        with self._lock:
            return self._core.metrics()

    # The sender's thread.

    def _run(self) -> None:
        try:
            self._send_until_closed()
        except BaseException as error:  # whoever waits for a record must hear of it
            with self._lock:  # in one step: what came in between would never be sent
                self._core.fail(f"its thread ended with {error!r}")
                self._refusal = self._refusal or self._core.failed
            self._tell()
            raise

    def _send_until_closed(self) -> None:
        while True:
            now_ms = self._looked_ms = self._now_ms()
            with self._lock:
                wants_id = self._core.needs_id and bool(self._core.busy)
                request = self._core.take(now_ms)
                moment = self._core.next_moment(now_ms)
            self._tell()
            if request:
                self._send(request)
            elif self._closing.is_set():
                return
            elif wants_id:
                self._identify()
            else:
                pause_s = _LONGEST_S if moment is None else (moment - now_ms) / 1000
                self._clock.wait(self._wake, min(pause_s, _LONGEST_S))
                self._wake.clear()

    def _send(self, request: list[Batch]) -> None:
        """Send a request, and hand in the answers."""
        deadline = min(batch.created_ms for batch in request) + self.config.delivery_timeout_ms
        timeout_ms = max(1, min(self.config.request_timeout_ms, deadline - self._now_ms()))
        codec, producer_id = self.config.compression_type, self._core.producer_id
        data: dict[TopicPartition, bytes] = {}
        answers: dict[TopicPartition, Produced] = {}
        for batch in request:
            try:
                data[batch.lane.name] = batch.encode(codec, producer_id)
            except Exception as error:  # its own fault alone
                answers[batch.lane.name] = Produced(ErrorCode.INVALID_RECORD, message=repr(error))
        try:
            if data:
                answers |= self._transport.produce(data, self.config.required_acks, timeout_ms)
            silent = Produced(ErrorCode.NETWORK_EXCEPTION, message="there was no answer")
        except Exception as error:  # the transport is broken: its caller must hear of it
            silent = Produced(ErrorCode.UNKNOWN_SERVER_ERROR, message=repr(error))
        now_ms = self._now_ms()
        with self._lock:
            for batch in request:
                self._core.answer(batch, answers.get(batch.lane.name, silent), now_ms)

    def _tell(self) -> None:
        """Tell those who wait for batches that are done; and `send`, if there is no more to do."""
        with self._lock:
            finished, self._core.finished = self._core.finished, []
            self._refusal = self._refusal or self._core.failed
            if finished:
                self._room.notify_all()
        for batch in finished:
            batch.promise.keep()

    def _identify(self) -> None:
        """Ask for a producer id."""
        try:
            found = self._transport.init_producer_id()
            problem = found.error.name
        except Exception as error:  # as in _send
            found, problem = ProducerId(ErrorCode.UNKNOWN_SERVER_ERROR), repr(error)
        with self._lock:
            if found.error is ErrorCode.NONE:
                self._core.identify(found.producer_id, found.epoch)
            elif not found.error.retriable:
                self._core.fail(f"it got no producer id: {problem}")
        if found.error.retriable:
            self._clock.wait(self._closing, self.config.retry_backoff_ms / 1000)

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
