"""What a producer does with answers: retries, numbers, errors. Pure, as the accumulator below it.

The driver (a thread in `producer`, a simulator elsewhere) goes round like this:

    core.append(...)           a record comes in
    core.take(now)             -> batches for one request; send them, each under its `number`
    core.answer(batch, ...)    what came back for each of them: exactly once
    core.finished              batches that are done, for the driver to tell those who wait
    core.next_moment(now)      when to look again if nothing happens

*Retries.* A batch that may succeed later goes again after a pause that doubles each time, with some
chance in it so that producers that failed together do not come back together (KIP-580). Nothing
overtakes it in its partition.

*Numbers.* An idempotent producer numbers the batches of each partition (`producer_sequences`), so a
batch may be sent again without being stored twice, and several may be in flight: the other side
refuses a batch whose predecessor is missing, and it is simply sent again. That ends in trouble
when the predecessor is never to come, since it was given up. It shows when the *first* of a lane is
out of order: nothing before it is on its way, so it is not stored, and none behind it can be. Once
all answers are in, its batches are numbered from 0 under the next epoch (KIP-360; Kafka's client
raises its epoch for all partitions, here each has its own).

Kafka shares this flaw: a request that was given up for lost, and still lies in somebody's queue,
may be carried out between those two steps. Its records are then stored twice.

>>> core = ProducerCore(ProducerConfig(linger_ms=0), random=lambda: 0.5)
>>> core.identify(7, 0)
>>> batch = core.append(core.topic("flights", 1), None, b"departed", None, 0, (), now_ms=0)
>>> core.take(0) == [batch], batch.sequence
(True, 0)
>>> core.answer(batch, Produced(ErrorCode.REQUEST_TIMED_OUT), now_ms=30)
>>> core.take(129), core.take(130) == [batch], batch.sequence  # 100 ms later, the same number
([], True, 0)

Source: KIP-98, KIP-360, KIP-580; Kafka's Sender and TransactionManager.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from phase2_groups.accumulator import Accumulator, Batch, Lane, Outcome
from phase2_groups.error_codes import ErrorCode
from phase2_groups.producer_config import (
    DeliveryTimeout,
    ProducerConfig,
    ProducerError,
    ProducerFailed,
    Refused,
)
from phase2_groups.producer_sequences import sequence_after
from phase2_groups.transport import Produced

MAX_EPOCH = 2**15 - 1
_DONE = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
_FATAL = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED)
# After these nobody knows whether the batch was stored.
_UNCERTAIN = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)
_FIXES = {
    ErrorCode.MESSAGE_TOO_LARGE: "make batch_size smaller, or raise the topic's max_message_bytes",
    ErrorCode.UNKNOWN_SERVER_ERROR: "see what the other side has logged",
}


@dataclass
class Counts:
    """What a producer has done so far. A record that failed may never have been sent."""

    records_sent: int = 0
    records_acknowledged: int = 0
    records_failed: int = 0
    records_retried: int = 0  # as often as they were
    batches_sent: int = 0
    bytes_sent: int = 0  # before compression
    queue_time_ms: int = 0  # of all batches together: from the first record to the first attempt


class ProducerMetrics(NamedTuple):
    """What a producer has done so far, and holds now."""

    records_sent: int
    records_acknowledged: int
    records_failed: int
    records_retried: int
    batches_sent: int
    bytes_sent: int  # before compression
    average_batch_bytes: float
    average_queue_ms: float  # of a batch, from its first record to its first attempt
    buffered_bytes: int


class ProducerCore(Accumulator):
    """See the module. Not thread-safe.

    failed: why this producer cannot go on, if so. Invariant: then no lane has batches.
    finished: batches with an outcome that the driver has not fetched yet.
    """

    def __init__(
        self,
        config: ProducerConfig,
        random: Callable[[], float],
        new_promise: Callable[[], Any] = lambda: None,
    ) -> None:
        super().__init__(config, random, new_promise)
        self._idempotent = config.idempotent
        self.counts = Counts()
        self.finished: list[Batch] = []
        self.failed: ProducerFailed | None = None
        self.producer_id = -1
        self._first_epoch = -1

    @property
    def needs_id(self) -> bool:
        """Whether nothing can be sent before `identify`."""
        return self._idempotent and self.producer_id < 0

    def identify(self, producer_id: int, epoch: int) -> None:
        """From now on number batches under this id."""
        self.producer_id, self._first_epoch = producer_id, epoch

    def metrics(self) -> ProducerMetrics:
        """What was done so far, and is held now."""
        counts, batches = self.counts, max(self.counts.batches_sent, 1)
        return ProducerMetrics(
            counts.records_sent,
            counts.records_acknowledged,
            counts.records_failed,
            counts.records_retried,
            counts.batches_sent,
            counts.bytes_sent,
            counts.bytes_sent / batches,
            counts.queue_time_ms / batches,
            self.buffered,
        )

    # Batches go out.

    def take(self, now_ms: int) -> list[Batch]:
        """The batches of the next request; those that are too old are given up."""
        for batch in self.expired(now_ms):
            limit = f"delivery_timeout_ms={self.config.delivery_timeout_ms} has passed"
            self._give_up(batch, limit)
        if self.needs_id:
            return []
        request = self.drain(now_ms)
        for batch in request:
            if self._idempotent and batch.sequence < 0:
                self._number(batch)
            if batch.attempts > 1:
                self.counts.records_retried += batch.count
                continue
            self.counts.records_sent += batch.count
            self.counts.batches_sent += 1
            self.counts.bytes_sent += batch.size
            self.counts.queue_time_ms += now_ms - batch.created_ms
        return request

    def _number(self, batch: Batch) -> None:
        lane = batch.lane
        batch.epoch = self._first_epoch + lane.bumps
        batch.sequence = lane.next_sequence
        lane.next_sequence = sequence_after(lane.next_sequence, batch.count)

    def _number_anew(self, lane: Lane) -> None:
        """Let the lane's batches begin with 0 in a new epoch, once nothing is in flight."""
        lane.bumps += 1
        lane.next_sequence = 0
        lane.max_in_flight = 1
        for batch in lane.batches:
            batch.sequence = -1
        if self._first_epoch + lane.bumps > MAX_EPOCH:
            self.fail(
                f"partition {lane.name[0]}-{lane.partition} has used up the epochs of producer "
                f"{self.producer_id}"
            )

    # Answers come in.

    def answer(self, batch: Batch, answer: Produced, now_ms: int) -> None:
        """What the other side said to a batch that `take` returned."""
        lane, error = batch.lane, answer.error
        batch.in_flight = False
        lane.in_flight -= 1
        if batch.outcome is not None:  # given up meanwhile
            return
        out_of_order = self._idempotent and error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        batch.maybe_stored = not out_of_order and (batch.maybe_stored or error in _UNCERTAIN)
        batch.last_answer = answer
        first = batch is lane.batches[0]
        if error in _DONE:
            # The other side knows us now, and refuses gaps: see producer_sequences.
            if self._idempotent:
                lane.max_in_flight = self.config.max_in_flight_requests_per_connection
            self._finish(batch, Outcome(None, answer.offset, answer.timestamp_ms))
        elif self._idempotent and error in _FATAL:
            self.fail(f"another producer goes on under id {self.producer_id} ({error.name})")
        elif not (error.retriable or out_of_order):
            self._refuse(batch)
        elif batch.attempts > self.config.retries:
            self._give_up(batch, f"retries={self.config.retries} are used up")
        else:
            batch.retry_at_ms = now_ms + self._backoff_ms(batch.attempts)
        if out_of_order and first:
            self._number_anew(lane)

    def _backoff_ms(self, attempts: int) -> int:
        doubled = self.config.retry_backoff_ms * 2 ** min(attempts - 1, 30)
        most = self.config.retry_backoff_max_ms
        return int(min(doubled * (0.8 + 0.4 * self._random()), most))

    # The end of a batch.

    def fail(self, why: str) -> None:
        """Nothing can be sent any more, and nothing that waits will be."""
        self.failed = ProducerFailed(f"the producer cannot go on: {why}", "make a new Producer")
        self.give_up_all(ProducerFailed, why)

    def give_up_all(self, kind: type[ProducerError], why: str) -> None:
        """Fail all batches that have no outcome yet."""
        for batch in list(self.unfinished()):
            self._give_up(batch, why, kind)

    def _give_up(self, batch: Batch, why: str, kind: type[ProducerError] = DeliveryTimeout) -> None:
        unsure = batch.maybe_stored or batch.in_flight
        if not batch.attempts:
            fate = "it was never sent"
        elif unsure:
            fate = f"it was sent (attempts: {batch.attempts}), and may or may not be stored"
        else:
            fate = f"it was sent (attempts: {batch.attempts}), refused each time, and is not stored"
        if batch.last_answer is not None:
            fate += f"; the last answer was {_words(batch.last_answer)}"
        fix = "look in the topic before you send it again" if unsure else "send it again"
        self._finish(batch, Outcome(kind(f"{_records(batch)}: {why}; {fate}", fix)))

    def _refuse(self, batch: Batch) -> None:
        answer = batch.last_answer
        assert answer is not None
        problem = f"{_records(batch)} cannot be stored: {_words(answer)}"
        self._finish(batch, Outcome(Refused(problem, _FIXES.get(answer.error, ""))))

    def _finish(self, batch: Batch, outcome: Outcome) -> None:
        self.remove(batch)
        batch.outcome = outcome
        if outcome.error is None:
            self.counts.records_acknowledged += batch.count
        else:
            self.counts.records_failed += batch.count
        self.finished.append(batch)


def _words(answer: Produced) -> str:
    return answer.error.name + (f" ({answer.message})" if answer.message else "")


def _records(batch: Batch) -> str:
    topic, partition = batch.lane.name
    return f"{batch.count or len(batch.timestamps)} records for partition {topic}-{partition}"
