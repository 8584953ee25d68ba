"""Fetch (key 1), versions 4-12: records from an offset on, and waiting for them (long poll).

A client says how many bytes are worth a reply (`min_bytes`) and how long it can wait (`max_wait`).
Here a request that finds less watches its partitions, and looks again after each append.

Byte limits as Kafka's (KIP-74): at most `max_bytes` a reply and `partition_max_bytes` a partition,
but the first batch of the first partition that has one comes whole, or a client whose limit is
smaller than a batch would never get on.

Left out: fetch sessions (KIP-227). A reply with session 0 says so, and the client names all its
partitions each time; a request that goes on with a session is told that there is none. Aborted
transactions; topic ids (version 13).

A follower fetches as a consumer does, but up to the log's end, and says which epoch its last record
is of. Where the two logs are not the same it gets no records, but the place to cut at (KIP-595).
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, NamedTuple

from craft2.disk import DiskError, FileSlice
from phase1_file_queue.log_config import LogError, OffsetOutOfRange
from phase2_groups.error_codes import ErrorCode
from phase3_raft import codec
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked, Piece
from phase3_raft.partition import Partition

_NO_SESSION = 0


class Wanted(NamedTuple):
    """One partition of a request: its place in the reply, and what is asked of it."""

    topic: str
    number: int
    partition: Partition | ErrorCode
    offset: int
    max_bytes: int
    leader_epoch: int
    follower: int = -1  # the broker that asks, to copy; -1: a consumer does
    last_epoch: int = -1  # of the record before `offset`, if a follower says it


class Found(NamedTuple):
    """What there is for it."""

    error: ErrorCode
    high_watermark: int = -1
    log_start: int = -1
    records: FileSlice | None = None
    diverging: tuple[int, int] | None = None  # an epoch, and where it ends here: see `truncation`


async def handle(broker: Broker, request: Any, asked: Asked) -> list[Piece]:
    """The reply, when there is enough, or it has waited long enough."""
    if request.session_id != _NO_SESSION and request.session_epoch > 0:
        return _encode(asked.version, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [], [])
    wanted = [
        Wanted(
            topic.topic,
            one.partition,
            broker.partition(topic.topic, one.partition),
            one.fetch_offset,
            one.partition_max_bytes,
            one.current_leader_epoch,
            request.replica_id,
            one.last_fetched_epoch,
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    wait_s = request.max_wait / 1000
    found = await wait_for_bytes(wanted, request.max_bytes, request.min_bytes, wait_s)
    return _encode(asked.version, ErrorCode.NONE, wanted, found)


# EXERCISE 21.2 a long poll
async def wait_for_bytes(
    wanted: list[Wanted], max_bytes: int, min_bytes: int, wait_s: float
) -> list[Found]:
    """What `look(wanted, max_bytes)` finds, once that is worth a reply: `is_enough(found,
    min_bytes)`, or `wait_s` seconds have passed.

    `partition.watch(callback)` has the callback called after each append to a partition, until
    `partition.unwatch(callback)`, which must not be forgotten. In `wanted`, `.partition` may be an
    ErrorCode instead of a Partition.

    An append may come at any `await`. One that comes after the last look, and before anybody
    watches, must not be waited for in vain.
    """
    # BEGIN SOLUTION
    found = look(wanted, max_bytes)
    if is_enough(found, min_bytes) or wait_s <= 0:
        return found
    appended = asyncio.Event()
    partitions = [one.partition for one in wanted if isinstance(one.partition, Partition)]
    for partition in partitions:
        partition.watch(appended.set)
    try:
        async with asyncio.timeout(wait_s):
            while not is_enough(found, min_bytes):
                await appended.wait()
                appended.clear()
                found = look(wanted, max_bytes)
    except TimeoutError:
        pass
    finally:
        for partition in partitions:
            partition.unwatch(appended.set)
    return found
    # END SOLUTION


def is_enough(found: list[Found], min_bytes: int) -> bool:
    """Whether to reply at once: there are so many bytes, or an error."""
    size = sum(one.records.size for one in found if one.records is not None)
    return size >= min_bytes or any(one.error or one.diverging for one in found) or not found


# EXERCISE 21.1 answer within limits
def look(wanted: list[Wanted], max_bytes: int) -> list[Found]:
    """What there is now for each partition of `wanted`, in their order, within the limits.

    `read(one, limit)` is the Found for one of them, with whole batches of at most `limit` bytes;
    but if its first batch is larger than that, it has this batch. With a limit of 0 it has none.

    All records together have at most `max_bytes`, those of one partition at most `one.max_bytes`.
    The first partition that has records at all gets its first batch whatever the limits say, or a
    client could not get past a large one. No other partition may: a batch that is larger than what
    is left for it has to wait for the next request.
    """
    # BEGIN SOLUTION
    found: list[Found] = []
    left, has_some = max_bytes, False
    for one in wanted:
        limit = min(left, one.max_bytes)
        here = read(one, max(limit, 1) if not has_some else limit)
        if here.records is not None and here.records.size > limit and has_some:
            here = read(one, 0)
        size = here.records.size if here.records is not None else 0
        has_some = has_some or size > 0
        left = max(0, left - size)
        found.append(here)
    return found
    # END SOLUTION


def read(one: Wanted, limit: int) -> Found:
    """See `look`."""
    partition = one.partition
    if isinstance(partition, ErrorCode):
        return Found(partition)
    if partition.deleted:
        return Found(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = partition.check_epoch(one.leader_epoch)
    if error:
        return Found(error)
    if not partition.leads:
        return Found(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    try:
        start, end = partition.log.bounds
        watermark = partition.high_watermark
        if one.follower >= 0 and one.last_epoch >= 0 and start <= one.offset:
            there = partition.log.epoch_end_offset(one.last_epoch)
            if there[0] < one.last_epoch or there[1] < one.offset:  # perhaps beyond our end, too
                there = there if there[0] >= 0 else (-1, start)
                return Found(ErrorCode.NONE, watermark, start, diverging=there)
        if not start <= one.offset <= end:
            return Found(ErrorCode.OFFSET_OUT_OF_RANGE, watermark, start)
        if one.follower < 0:
            end = watermark
        else:
            partition.fetched(one.follower, one.offset)
            watermark = partition.high_watermark
        if limit <= 0 or one.offset >= end:
            return Found(ErrorCode.NONE, watermark, start)
        records = partition.read(one.offset, limit, follower=one.follower >= 0)
    except OffsetOutOfRange:  # retention was quicker
        return Found(ErrorCode.OFFSET_OUT_OF_RANGE)
    except (LogError, DiskError) as error:
        partition.trouble(f"{partition.name} cannot be read at offset {one.offset}: {error}")
        return Found(ErrorCode.KAFKA_STORAGE_ERROR)
    return Found(ErrorCode.NONE, watermark, start, records)


# The bytes of the reply: by hand, as the records are slices of files that stay where they are.

_PARTITION = struct.Struct(">ihqq")  # number, error, high watermark, last stable offset
_DIVERGING = struct.Struct(">BBBiqB")  # one tagged field, number 0, its size; the epoch, its end
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")


def _encode(
    version: int, error: ErrorCode, wanted: list[Wanted], found: list[Found]
) -> list[Piece]:
    flexible = version >= 12
    topics: dict[str, list[int]] = {}
    for place, one in enumerate(wanted):
        topics.setdefault(one.topic, []).append(place)
    pieces: list[Piece] = []
    data = bytearray(_INT32.pack(0))  # throttle time
    if version >= 7:
        data += struct.pack(">hi", error, _NO_SESSION)
    data += _length(len(topics), flexible)
    for topic, places in topics.items():
        name = topic.encode()
        data += _length(len(name), flexible) if flexible else struct.pack(">h", len(name))
        data += name + _length(len(places), flexible)
        for place in places:
            here = found[place]
            watermark = here.high_watermark
            data += _PARTITION.pack(wanted[place].number, here.error, watermark, watermark)
            if version >= 5:
                data += _INT64.pack(here.log_start)
            data += b"\0" if flexible else _INT32.pack(-1)  # no list of aborted transactions
            if version >= 11:
                data += _INT32.pack(-1)  # no other replica is nearer
            size = here.records.size if here.records is not None else 0
            data += _length(size, flexible)
            if here.records is not None and size:
                pieces += [bytes(data), here.records]
                data = bytearray()
            if flexible:
                data += (
                    b"\0"
                    if here.diverging is None
                    else _DIVERGING.pack(1, 0, 13, *here.diverging, 0)
                )
        if flexible:
            data += b"\0"
    if flexible:
        data += b"\0"
    return [*pieces, bytes(data)]


def _length(count: int, flexible: bool) -> bytes:
    """How many there are, as this version has it."""
    out = bytearray()
    (codec.write_compact_length if flexible else codec.write_int32)(out, count)
    return bytes(out)
