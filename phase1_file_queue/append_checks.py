"""What must be true of bytes before a log appends them.

A batch is checked when it comes in, byte by byte: what is on disk has been whole at least once, so
damage found later happened later.
"""

from __future__ import annotations

from typing import NamedTuple

from craft2.disk import Buffer
from craft2.record_batch import BatchHeader, verify
from phase1_file_queue.log_config import BadBatch, RecordTooLarge
from phase1_file_queue.offset_index import MAX_RELATIVE

Batches = list[tuple[int, BatchHeader]]  # (position within some bytes, header)
_ANY_SIZE = 2**31  # no batch can be larger


class NewBatches(NamedTuple):
    """Batches that a leader may append: checked, but not stamped yet."""

    data: bytes
    batches: Batches
    epoch: int
    append_time_ms: int  # -1: the producer's times hold


def check_new(data: Buffer, max_bytes: int, epoch: int, append_time_ms: int = -1) -> NewBatches:
    """A producer's batches, if a leader may append them, whatever the log holds.

    Raises BatchTooShort, CorruptBatch, BadBatch, RecordTooLarge.
    """
    if not (isinstance(epoch, int) and 0 <= epoch < 2**31):
        raise BadBatch(f"leader epoch {epoch!r}", "give a whole number from 0 to 2,147,483,647")
    whole = bytes(_bytes(data))  # a copy, unless it is bytes already, which nobody can change
    batches = _whole_batches(whole, max_bytes)
    for position, header in batches:
        if header.count != header.last_offset_delta + 1:
            raise BadBatch(
                f"the batch at byte {position} has {header.count} records and a last offset delta "
                f"of {header.last_offset_delta}",
                "a new batch has offsets without gaps, and at least one record",
            )
    return NewBatches(whole, batches, epoch, append_time_ms)


def check_replica(data: Buffer, end_offset: int, epoch: int) -> Batches:
    """The batches of another log, if they continue one that ends at `end_offset` and `epoch`.

    Raises BatchTooShort, CorruptBatch, BadBatch.
    """
    found: Batches = []
    offset = end_offset
    for position, header in _whole_batches(_bytes(data), _ANY_SIZE):
        if header.base_offset < offset or header.leader_epoch < epoch:
            raise BadBatch(
                f"the batch at byte {position} has offset {header.base_offset} and leader epoch "
                f"{header.leader_epoch}; the log continues at offset {offset}, epoch {epoch} or "
                "later",
                "fetch from the log's end offset, after truncating to where the logs agree",
            )
        if header.last_offset - end_offset > MAX_RELATIVE:
            raise BadBatch(
                f"the batch at byte {position} ends at offset {header.last_offset}, more than "
                f"{MAX_RELATIVE} after the log's end, {end_offset}",
                "call reset_to with the batch's first offset, then append it",
            )
        found.append((position, header))
        offset, epoch = header.next_offset, header.leader_epoch
    return found


def _bytes(data: object) -> Buffer:
    if type(data) is not bytes and not isinstance(data, bytes | bytearray | memoryview):
        raise BadBatch(
            f"the batch is a {type(data).__name__}",
            "give bytes, such as craft2.record_batch.encode_values returns",
        )
    return data


def _whole_batches(data: Buffer, max_bytes: int) -> Batches:
    """(position, header) of each batch in `data`, which must hold nothing else."""
    found: Batches = []
    position, end = 0, len(data)
    while position < end or position == 0:
        header = verify(data, position)
        if header.magic != 2:
            raise BadBatch(
                f"the batch at byte {position} has format {header.magic}",
                "encode it again with craft2.record_batch.encode: only format 2 is written",
            )
        size = header.size
        if size > max_bytes:
            raise RecordTooLarge(
                f"a batch of {size} bytes; the limit is {max_bytes}",
                "send smaller batches, or raise max_message_bytes",
            )
        found.append((position, header))
        position += size
    return found
