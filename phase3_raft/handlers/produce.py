"""Produce (key 0), versions 3-9: append batches, one for each partition.

Versions 0-2 are advertised and refused: librdkafka before 2.8 would turn compression off if they
were missing (KAFKA-18659). Left out: transactions (their batches are refused).

acks: 0 gets no reply, and if something is wrong the connection is closed, which is all that can be
said. 1: when it is appended. -1 (all): when all replicas in sync have it; with one, that is the
same. A topic with `flush.messages=1` is on disk before either.
"""

from __future__ import annotations

from typing import Any

from craft2.disk import DiskError
from craft2.record_batch import BatchTooShort, CorruptBatch, read_header
from phase1_file_queue.log_config import BadBatch, LogError, RecordTooLarge
from phase2_groups.error_codes import ErrorCode
from phase2_groups.producer_sequences import SequenceError
from phase3_raft.broker import Broker
from phase3_raft.codec import BadMessage
from phase3_raft.dispatch import Asked
from phase3_raft.partition import Partition
from phase3_raft.schemas import Fields


async def handle(broker: Broker, request: Any, asked: Asked) -> Fields | None:
    """The reply, when the records are as safe as they were asked to be."""
    answers: list[tuple[str, list[dict[str, Any]]]] = []
    to_flush: dict[Partition, None] = {}
    for topic in request.topic_data:
        answers.append((topic.name, []))
        for data in topic.partition_data:
            answer: dict[str, Any] = {"index": data.index, "base_offset": -1}
            answers[-1][1].append(answer)
            if request.acks not in (-1, 0, 1):
                answer |= _error(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}")
                continue
            partition = broker.partition(topic.name, data.index)
            if isinstance(partition, ErrorCode):
                answer |= _error(partition, None)
                continue
            answer |= _append(partition, data.records)
            if not answer["error_code"] and partition.must_flush:
                to_flush[partition] = None
    for partition in to_flush:
        try:
            await partition.flushed()
        except (DiskError, LogError) as error:
            _fail(answers, partition, error)
    if request.acks == 0:
        failed = [one for _, parts in answers for one in parts if one["error_code"]]
        if failed:
            raise BadMessage(f"a request with acks=0 failed: {failed[0]}", "")
        return None
    return {
        "responses": [
            {"name": name, "partition_responses": partitions} for name, partitions in answers
        ],
        "throttle_time": 0,
    }


def _append(partition: Partition, records: bytes | None) -> dict[str, Any]:
    try:
        if not records:
            raise BadBatch("no records", "send one batch for each partition")
        header = read_header(records)
        if header.magic == 2 and header.is_transactional:
            return _error(ErrorCode.INVALID_TXN_STATE, "transactions are not served")
        if header.size != len(records):
            raise BadBatch("more than one batch", "send one for each partition")
        result, stamped = partition.append(records)
    except SequenceError as error:
        return _error(error.code, str(error))
    except RecordTooLarge as error:
        return _error(ErrorCode.MESSAGE_TOO_LARGE, str(error))
    except (CorruptBatch, BatchTooShort) as error:
        return _error(ErrorCode.CORRUPT_MESSAGE, str(error))
    except BadBatch as error:
        return _error(ErrorCode.INVALID_RECORD, str(error))
    except (LogError, DiskError) as error:
        return _error(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return {
        "error_code": ErrorCode.NONE,
        "base_offset": result.first_offset,
        "log_append_time": stamped,
        "log_start_offset": partition.log.log_start,
        "record_errors": (),
        "error_message": None,
    }


def _error(code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "error_code": code,
        "log_append_time": -1,
        "log_start_offset": -1,
        "record_errors": (),
        "error_message": message,
    }


def _fail(
    answers: list[tuple[str, list[dict[str, Any]]]], partition: Partition, error: Exception
) -> None:
    """What was appended to this partition is not on disk, and nobody knows what is."""
    for name, partitions in answers:
        for one in partitions:
            if (name, one["index"]) == (partition.record.topic, partition.record.partition):
                one |= _error(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) | {"base_offset": -1}
