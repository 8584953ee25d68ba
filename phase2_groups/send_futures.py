"""What `Producer.send` returns at once, for a record whose offset is known later.

All records of a batch share one fate, so they share one promise: a future is a batch and a place in
it, and costs next to nothing until somebody asks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from copy import copy
from typing import NamedTuple

import msgspec

from phase2_groups.accumulator import Batch, Outcome
from phase2_groups.producer_config import ProducerError
from phase2_groups.safe_event import SafeEvent

_log = logging.getLogger(__name__)


class RecordMetadata(NamedTuple):
    """Where a record is. offset: -1 with acks=0, where nobody tells. timestamp_ms: the record's, or
    when it was appended, if the topic stamps records."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


OnDelivery = Callable[[RecordMetadata | None, ProducerError | None], object]


class Promise:
    """That a batch will have an outcome; kept by the sender's thread.

    check_may_wait: raises ProducerError where waiting would never end.
    """

    def __init__(self, check_may_wait: Callable[[], None]) -> None:
        self._check_may_wait = check_may_wait
        self.callbacks: list[Callable[[], object]] = []  # what `keep` will call, in this order
        self._lock = threading.Lock()  # guards: callbacks are for `keep`, or it is kept
        self._kept = SafeEvent()

    def then(self, callback: Callable[[], object]) -> None:
        """Call back when the promise is kept: in the sender's thread, or now if it is already."""
        with self._lock:
            if not self._kept.is_set():
                self.callbacks.append(callback)
                return
        callback()

    def keep(self) -> None:
        """The batch has its outcome: wake those who wait, call back those who asked for it."""
        with self._lock:
            self._kept.set()
        for callback in self.callbacks:
            try:
                callback()
            except BaseException:  # not even sys.exit() may end the sender's thread
                _log.exception("a delivery callback failed")
        self.callbacks = []

    def wait(self, timeout_s: float | None) -> bool:
        """Whether the promise is kept, within the time. Raises ProducerError."""
        self._check_may_wait()
        return self._kept.wait(timeout_s)


def outcome_of(batch: Batch, timeout_s: float | None) -> Outcome:
    """The batch's outcome; raises TimeoutError if it has none within the time, or ProducerError."""
    if batch.outcome is None and not batch.promise.wait(timeout_s):
        raise TimeoutError(
            f"no acknowledgement within {timeout_s} s; the record is still on its way, and its "
            "outcome is certain after delivery_timeout_ms"
        )
    assert batch.outcome is not None
    return batch.outcome


class SendFuture(msgspec.Struct, eq=False, gc=False):
    """One record's future: its batch, and its place in there. Any thread may ask it.

    Such a struct is made in less than half the time of an object with `__init__`, or of a tuple:
    `make bench ARGS=send`. (Nothing is lost by `gc=False`: a promise that is kept forgets its
    callbacks, and so no cycle stays.)
    """

    _batch: Batch
    _place: int

    def done(self) -> bool:
        """Whether the record is acknowledged or failed."""
        return self._batch.outcome is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is, once it is acknowledged.

        timeout: seconds; None waits as long as it takes (at most about `delivery_timeout_ms`).
        Raises the ProducerError for which it failed, TimeoutError, or, in a callback, for a record
        that has no outcome yet, ProducerError.
        """
        outcome = outcome_of(self._batch, timeout)
        if outcome.error is not None:
            raise outcome.error
        return self._metadata(outcome)

    def exception(self, timeout: float | None = None) -> ProducerError | None:
        """Why it failed; None if it is acknowledged. Raises TimeoutError."""
        return outcome_of(self._batch, timeout).error

    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Call `callback(self)` once it is done: in the producer's thread, or at once."""
        self._batch.promise.then(lambda: callback(self))

    def tell(self, on_delivery: OnDelivery) -> None:
        """Call `on_delivery(metadata, None)` or `on_delivery(None, error)` once it is done."""
        outcome = self._batch.outcome
        assert outcome is not None
        known = None if outcome.error is not None else self._metadata(outcome)
        on_delivery(known, outcome.error)

    def _metadata(self, outcome: Outcome) -> RecordMetadata:
        topic, partition = self._batch.lane.name
        offset = outcome.offset + self._place if outcome.offset >= 0 else -1
        timestamp = outcome.append_time_ms
        if timestamp < 0:
            timestamp = self._batch.timestamps[self._place]
        return RecordMetadata(topic, partition, offset, timestamp)


class Placed(NamedTuple):
    """Where `count` records in a row are; first_offset -1: nobody told (acks=0)."""

    partition: int
    first_offset: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody needs here


class BulkResult(NamedTuple):
    """Where many records are: in the order they were given, with keys so in each partition."""

    count: int  # type: ignore[assignment]  # as above
    placed: list[Placed]


class BulkFuture:
    """The future of many records. Some may fail while others are acknowledged.

    rejected: why the last of them were not taken in at all, if so.
    """

    def __init__(
        self, batches: Sequence[Batch], rejected: ProducerError | None, total: int
    ) -> None:
        """total: of the records, those taken in (`batches`) and those rejected."""
        self.rejected = rejected
        self._batches = batches
        self._left = total - sum(batch.count for batch in batches)

    @classmethod
    def joined(cls, parts: Sequence[BulkFuture], total: int) -> BulkFuture:
        """One future for all; of the records after these parts none was taken in."""
        batches = [batch for part in parts for batch in part._batches]
        return cls(batches, parts[-1].rejected if parts else None, total)

    def done(self) -> bool:
        """Whether every record is acknowledged or failed."""
        return all(batch.outcome is not None for batch in self._batches)

    def result(self, timeout: float | None = None) -> BulkResult:
        """Where the records are, once all are acknowledged.

        Raises the first error, with a note of how many failed; or TimeoutError (of one batch).
        """
        error = copy(self.exception(timeout))  # the note is for this call alone
        if error is not None:
            error.add_note(f"{self.failed} records failed, {self.acknowledged} are acknowledged")
            raise error
        return BulkResult(self.acknowledged, self.placed)

    def exception(self, timeout: float | None = None) -> ProducerError | None:
        """The first error, None if all are acknowledged. Raises TimeoutError (of one batch)."""
        errors = [outcome_of(batch, timeout).error for batch in self._batches]
        return next((error for error in [*errors, self.rejected] if error is not None), None)

    @property
    def acknowledged(self) -> int:
        """How many records are acknowledged by now."""
        return sum(placed.count for placed in self.placed)

    @property
    def failed(self) -> int:
        """How many records have failed by now."""
        outcomes = [(batch.count, batch.outcome) for batch in self._batches]
        return self._left + sum(count for count, one in outcomes if one and one.error)

    @property
    def placed(self) -> list[Placed]:
        """Where those are that are acknowledged by now."""
        return [
            Placed(batch.lane.partition, batch.outcome.offset, batch.count)
            for batch in self._batches
            if batch.outcome is not None and batch.outcome.error is None
        ]
