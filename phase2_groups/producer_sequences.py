"""A batch that is sent twice is stored once: what a partition remembers of its producers.

A producer that hears nothing must send its batch again, and cannot know whether the first one
arrived. So it numbers its records: under its producer id and epoch, each batch carries the
*sequence* of its first record, and the next batch goes on where this one ends.

    in the log:  7:0-9  7:10-14           producer 7, sequences 0 to 14
    7:10-14      the last one again:      answered with its old offsets, not appended
    7:20-24      15 to 19 are missing:    refused, else they could never be put in their place
    7:15-19      what comes next:         appended

The last five batches of each producer are kept, since a producer has at most five on the way. A
producer that the partition knows nothing of may begin with any sequence: all it ever wrote may have
been deleted since (KIP-360; Kafka before 2.5 refused it, and idle producers failed for good). That
leaves a hole, which the client has to close: until its first batch is acknowledged, it must not
send a second one (`producer_core`).

Kafka forgets a producer a day after its last batch. This state knows no clock, since every process
that reads the log must come to the same result; it forgets who has been silent the longest when
there are more than `max_producers`.

>>> from craft2.record_batch import encode_values, read_header
>>> state = ProducerSequences()
>>> batch = encode_values([b"UA 1545", b"UA 1714"], producer_id=7, producer_epoch=0,
...                       base_sequence=0)
>>> state.check(read_header(batch))               # None: append it
>>> state.update(read_header(batch)._replace(base_offset=40))
>>> state.check(read_header(batch))
AppendResult(first_offset=40, last_offset=41, duplicate=True)

Source: KIP-98; Kafka's ProducerStateManager, ProducerAppendInfo and ProducerStateEntry.
"""

from __future__ import annotations

import msgspec

from craft2.batch_header import NO_PRODUCER
from craft2.record_batch import BatchHeader
from phase1_file_queue.log_config import LogError
from phase1_file_queue.producer_state import AppendResult
from phase2_groups.error_codes import ErrorCode

KEPT_BATCHES = 5
_SEQUENCE_MASK = 2**31 - 1  # after 2,147,483,647 comes 0


class SequenceError(LogError):
    """A batch that its producer's sequence does not allow; `code` is what its sender is told."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class OutOfOrderSequence(SequenceError):
    """Batches before this one are missing."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(SequenceError):
    """Somebody goes on under this producer id with a later epoch."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


def sequence_after(sequence: int, count: int) -> int:
    """The sequence `count` records later.

    >>> sequence_after(2**31 - 2, 3)
    1
    """
    return (sequence + count) & _SEQUENCE_MASK


class Stored(msgspec.Struct, frozen=True, array_like=True):
    """A batch in the log: its first sequence, its offsets."""

    sequence: int
    first_offset: int
    last_offset: int

    @property
    def next_sequence(self) -> int:
        return sequence_after(self.sequence, self.last_offset - self.first_offset + 1)


class Known(msgspec.Struct, array_like=True):
    """What is known of one producer.

    Invariant: the batches are of this epoch, oldest first, at least 1 and at most KEPT_BATCHES.
    """

    epoch: int
    batches: list[Stored]


class ProducerSequences:
    """The `ProducerState` of a partition whose producers are idempotent. See the module."""

    def __init__(self, max_producers: int = 10_000) -> None:
        self.max_producers = max_producers
        self._known: dict[int, Known] = {}  # by producer id, who wrote last comes last

    def check(self, header: BatchHeader) -> AppendResult | None:
        """None: append the batch; a result: it is there already. Raises SequenceError."""
        known = self._known.get(header.producer_id)
        if known is None:  # not idempotent, or unknown here
            return None
        return self._check_sequence(known, header)

    # EXERCISE 13.1 a batch that comes twice
    def _check_sequence(self, known: Known, header: BatchHeader) -> AppendResult | None:
        """What to do with a batch of a producer that has batches in this log.

        known: its `epoch`, and its last `batches` there, oldest first, of that epoch only. Each has
            a `sequence`, a `next_sequence` (where it ends, and what comes must begin),
            `first_offset` and `last_offset`.
        header: of the batch: `producer_epoch`, `base_sequence`, `count` (of records).

        Returns None if it is what comes next, an AppendResult with duplicate=True and the offsets
        of the first time if it is one of `known.batches` again: the same first sequence, and as
        many records. Raises InvalidProducerEpoch for an epoch older than the known one. A newer
        epoch begins again, and it begins with sequence 0. Raises OutOfOrderSequence for all else.
        An error takes two texts: what is wrong (with the sequence that was expected), what to do.

        Nothing is changed here: `update` comes when the batch is in the log.
        """
        # BEGIN SOLUTION
        if header.producer_epoch < known.epoch:
            raise InvalidProducerEpoch(
                f"producer {header.producer_id} has epoch {header.producer_epoch} in this batch, "
                f"and {known.epoch} in the log",
                "make a new Producer: another one goes on under this id",
            )
        expected = known.batches[-1].next_sequence
        if header.producer_epoch > known.epoch:
            expected = 0
        else:
            end = sequence_after(header.base_sequence, header.count)
            for batch in known.batches:
                if (batch.sequence, batch.next_sequence) == (header.base_sequence, end):
                    return AppendResult(batch.first_offset, batch.last_offset, duplicate=True)
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {header.producer_id}, epoch {header.producer_epoch}: got sequence "
                f"{header.base_sequence}, expected {expected}",
                "send the batches before this one first",
            )
        return None
        # END SOLUTION

    def update(self, header: BatchHeader) -> None:
        """A batch, with its final offsets, is in the log."""
        if header.producer_id == NO_PRODUCER:
            return
        known = self._known.pop(header.producer_id, None)
        if known is None or known.epoch != header.producer_epoch:
            known = Known(header.producer_epoch, [])
        stored = Stored(header.base_sequence, header.base_offset, header.last_offset)
        known.batches = [*known.batches, stored][-KEPT_BATCHES:]
        self._known[header.producer_id] = known
        if len(self._known) > self.max_producers:
            del self._known[next(iter(self._known))]

    def snapshot(self) -> bytes:
        """The state after the last `update`, in the order of the last batches."""
        return msgspec.msgpack.encode(self._known)

    def restore(self, data: bytes) -> None:
        """Go back to a snapshot; empty bytes mean the empty state."""
        self._known = msgspec.msgpack.decode(data, type=dict[int, Known]) if data else {}
