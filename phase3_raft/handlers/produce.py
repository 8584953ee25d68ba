"""Produce (key 0), versions 3-9: append batches, one for each partition.

Versions 0-2 are advertised and refused: librdkafka before 2.8 would turn compression off if they
were missing (KAFKA-18659). Left out: transactions (their batches are refused), and a look at the
records behind a batch's header: the checksum says that they came as they were sent, and whoever
sends what is no record has it back at his consumers.

acks: 0 gets no reply, and if something is wrong the connection is closed, which is all that can be
said. 1: when it is appended. -1 (all): when all replicas in sync have it, and are as many as the
topic's `min.insync.replicas`; with one replica that is the same. A topic with `flush.messages=1` is
on disk before either.

A reply that waits for replicas, or for the disk, comes later: meanwhile the producer's next
requests are appended, and wait for the same replicas and the same sync (`make bench
ARGS=cluster-latency`). Kafka's own broker takes the next request of a connection only when the one
before is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from craft2.disk import DiskError
from craft2.record_batch import BatchTooShort, CorruptBatch
from phase1_file_queue.log_config import BadBatch, LogError, RecordTooLarge
from phase2_groups.error_codes import ErrorCode
from phase2_groups.producer_sequences import SequenceError
from phase3_raft.broker import Broker
from phase3_raft.codec import BadMessage
from phase3_raft.deadlines import Deadlines
from phase3_raft.dispatch import Asked, Body, Later, Piece
from phase3_raft.groups.coordinator import OFFSETS_TOPIC
from phase3_raft.partition import InvalidTimestamp, NotLeader, Partition
from phase3_raft.produce_messages import Answer, Answers, ProduceRequest, write_reply
from phase3_raft.promises import Promise


def handle(broker: Broker, request: ProduceRequest, asked: Asked) -> list[Piece] | Later | None:
    """The reply, when the records are as safe as they were asked to be."""
    answers: Answers = []
    to_flush: dict[Partition, None] = {}
    to_replicate: list[tuple[Partition, int, int]] = []  # up to where, and the leader epoch
    for topic, batches in request.topics:
        some: list[Answer] = []
        answers.append((topic, some))
        for number, records in batches:
            if request.acks not in (-1, 0, 1):
                words = f"acks={request.acks}"
                some.append(_error(number, ErrorCode.INVALID_REQUIRED_ACKS, words))
                continue
            if topic == OFFSETS_TOPIC:  # groups write there, and nobody else
                words = f"{topic} is written by groups alone: commit offsets instead"
                some.append(_error(number, ErrorCode.INVALID_TOPIC_EXCEPTION, words))
                continue
            partition = broker.partition(topic, number)
            if isinstance(partition, ErrorCode):
                some.append(_error(number, partition, None))
                continue
            if request.acks == -1 and not partition.has_enough_replicas:
                some.append(_error(number, ErrorCode.NOT_ENOUGH_REPLICAS, None))
                continue
            answer = _append(partition, number, records)
            some.append(answer)
            if not answer.error and partition.must_flush:
                to_flush[partition] = None
            if not answer.error and request.acks == -1 and partition.replicas.followers:
                epoch = partition.record.leader_epoch
                to_replicate.append((partition, partition.log.end_offset, epoch))
    if to_flush or to_replicate:
        how = request.acks, asked.version
        waiting = _Waiting(broker.deadlines, how, request.timeout_ms, answers, to_replicate)
        return Later(waiting.flushed(to_flush) if to_flush else waiting.begin())
    return _reply(request.acks, asked.version, answers)


class _Waiting:
    """A request of which something was appended, and not yet as safe as it was asked to be."""

    def __init__(
        self,
        deadlines: Deadlines,
        how: tuple[int, int],  # acks, and the version of the reply
        timeout_ms: int,
        answers: Answers,
        to_replicate: list[tuple[Partition, int, int]],
    ) -> None:
        self._deadlines, self._how, self._timeout_s = deadlines, how, timeout_ms / 1000
        self._answers, self._to_replicate = answers, to_replicate
        self._left: dict[int, Callable[[ErrorCode], None]] = {}  # by place in `_to_replicate`

    async def flushed(self, to_flush: Iterable[Partition]) -> Body:
        """The reply, once it is on disk, and on the replicas."""
        for partition in to_flush:
            try:
                await partition.flushed()
            except (DiskError, LogError) as error:
                _fail(self._answers, partition, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        return await self.begin().wait()

    def begin(self) -> Promise[Body]:
        """The reply, once all replicas in sync have it, or the time is up."""
        self._reply: Promise[Body] = Promise()
        self._deadline = self._deadlines.add(self._timeout_s, self._time_is_up)
        places = range(len(self._to_replicate))
        self._left = {place: partial(self._heard, place) for place in places}
        for tell, (partition, offset, epoch) in zip(
            list(self._left.values()), self._to_replicate, strict=True
        ):
            partition.when_replicated(offset, epoch, tell)
        if not places:
            self._finish()
        return self._reply

    def _heard(self, place: int, error: ErrorCode) -> None:
        del self._left[place]
        if error:
            _fail(self._answers, self._to_replicate[place][0], error, None)
        if not self._left:
            self._finish()

    def _time_is_up(self) -> None:
        for place, tell in self._left.items():
            partition = self._to_replicate[place][0]
            partition.wait_no_more(tell)
            _fail(self._answers, partition, ErrorCode.REQUEST_TIMED_OUT, None)
        self._finish()

    def _finish(self) -> None:
        self._deadline.remove()
        try:
            self._reply.keep(_reply(*self._how, self._answers))
        except BadMessage as error:
            self._reply.fail(error)


def _reply(acks: int, version: int, answers: Answers) -> list[Piece] | None:
    if acks == 0:
        failed = [one for _, some in answers for one in some if one.error]
        if failed:
            raise BadMessage(f"a request with acks=0 failed: {failed[0]}", "")
        return None
    return [write_reply(version, answers)]


def _append(partition: Partition, number: int, records: bytes | None) -> Answer:
    try:
        if not records:
            raise BadBatch("no records", "send one batch for each partition")
        wanted = partition.check(records)
        if len(wanted.batches) > 1:
            raise BadBatch("more than one batch", "send one for each partition")
        header = wanted.batches[0][1]
        if header.is_transactional:
            words = "transactions are not served"
            return _error(number, ErrorCode.INVALID_TXN_STATE, words)
        if header.is_control:
            raise BadBatch("a control batch", "send records: brokers alone write such batches")
        if header.producer_id >= 0 and header.base_sequence < 0:
            raise BadBatch(
                f"sequence {header.base_sequence} of producer {header.producer_id}",
                "number the batches from 0 on, or send them without a producer id",
            )
        partition.check_timestamp(header.max_timestamp)
        result = partition.append_checked(wanted)
    except SequenceError as error:
        return _error(number, error.code, str(error))
    except RecordTooLarge as error:
        return _error(number, ErrorCode.MESSAGE_TOO_LARGE, str(error))
    except (CorruptBatch, BatchTooShort) as error:
        return _error(number, ErrorCode.CORRUPT_MESSAGE, str(error))
    except BadBatch as error:
        return _error(number, ErrorCode.INVALID_RECORD, str(error))
    except InvalidTimestamp as error:
        return _error(number, ErrorCode.INVALID_TIMESTAMP, str(error))
    except NotLeader as error:
        return _error(number, ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))
    except (LogError, DiskError) as error:
        return _error(number, ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    first, stamped = result.first_offset, wanted.append_time_ms
    return Answer(number, ErrorCode.NONE, first, stamped, partition.log.log_start)


def _error(number: int, code: ErrorCode, message: str | None) -> Answer:
    return Answer(number, code, message=message)


def _fail(answers: Answers, partition: Partition, code: ErrorCode, words: str | None) -> None:
    """What was appended to this partition is not as safe as was asked for."""
    for topic, some in answers:
        for place, one in enumerate(some):
            if (topic, one.partition) == (partition.record.topic, partition.record.partition):
                some[place] = _error(one.partition, code, words)
