"""Fetch (key 1), versions 4-12: records from an offset on, and waiting for them (long poll).

A client says how many bytes are worth a reply (`min_bytes`) and how long it can wait (`max_wait`).
Here a request that finds less watches its partitions, and looks again after each append.

Byte limits as Kafka's (KIP-74): at most `max_bytes` a reply and `partition_max_bytes` a partition,
but the first batch of the first partition that has one comes whole, or a client whose limit is
smaller than a batch would never get on.

In a session (version 7 and later, see `fetch_sessions`) a request names what is new, and so does
its reply. Left out: aborted transactions; topic ids (version 13).

A follower fetches as a consumer does, but up to the log's end, and says which epoch its last record
is of. Where the two logs are not the same it gets no records, but the place to cut at (KIP-595).
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from craft2.disk import DiskError
from phase1_file_queue.log_config import LogError, OffsetOutOfRange
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked, Body, Piece
from phase3_raft.fetch_messages import (
    FINAL_EPOCH,
    FIRST_EPOCH,
    NO_SESSION,
    FetchPartition,
    FetchRequest,
    Found,
    write_reply,
)
from phase3_raft.fetch_sessions import Session
from phase3_raft.partition import Partition
from phase3_raft.promises import Afterwards, Promise


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
    log_start: int = -1  # where its own log begins, if a follower says it


def handle(broker: Broker, request: FetchRequest, asked: Asked) -> list[Piece] | Promise[Body]:
    """The reply, when there is enough, or it has waited long enough."""
    wanted = [_wanted(broker, request, one) for one in request.partitions]
    sessions, epoch = broker.fetch_sessions, request.session_epoch
    session: Session | None = None
    if epoch not in (FIRST_EPOCH, FINAL_EPOCH):
        known = sessions.go_on(request.session_id, epoch)
        if isinstance(known, ErrorCode):
            return write_reply(asked.version, known, NO_SESSION, [], [])
        session = known
        session.change(wanted, request.forgotten)
    else:
        sessions.end(request.session_id)
        if epoch == FIRST_EPOCH:
            session = sessions.begin(wanted, request.replica_id)
    if session is None:
        return _without_session(broker, wanted, request, asked.version)
    waiting = _WaitingForNews(broker.afterwards, session, request, asked.version)
    return waiting.reply() or waiting.begin()


def _without_session(
    broker: Broker, wanted: list[Wanted], request: FetchRequest, version: int
) -> list[Piece] | Promise[Body]:
    limits = request.max_bytes, request.min_bytes, request.max_wait_ms / 1000
    keys = [(one.topic, one.number) for one in wanted]
    there = look(wanted, request.max_bytes)
    if is_enough(there, request.min_bytes) or request.max_wait_ms <= 0:  # no task for that
        return write_reply(version, ErrorCode.NONE, NO_SESSION, keys, there)

    async def reply() -> None:
        try:
            found = await wait_for_bytes(wanted, *limits)
            promise.keep(write_reply(version, ErrorCode.NONE, NO_SESSION, keys, found))
        except Exception as error:
            promise.fail(error)
        broker.afterwards.run()

    promise: Promise[Body] = Promise(broker.tasks.spawn(reply()).cancel)
    return promise


def _wanted(broker: Broker, request: FetchRequest, one: FetchPartition) -> Wanted:
    return Wanted(
        one.topic,
        one.number,
        broker.partition(one.topic, one.number),
        one.offset,
        one.max_bytes,
        one.leader_epoch,
        request.replica_id,
        one.last_epoch,
        one.log_start,
    )


class _WaitingForNews:
    """A request in a session: as `wait_for_bytes`, but the session watches its partitions all the
    time, and who waits is a callback. Followers ask so, once for each batch that they copy: a task
    for each request would cost more than what it is for (`make bench ARGS=cluster-latency`)."""

    def __init__(
        self, afterwards: Afterwards, session: Session, request: FetchRequest, version: int
    ) -> None:
        self._afterwards = afterwards
        self._session, self._request, self._version = session, request, version
        self._looks_soon = False

    def reply(self, *, enough: bool = False) -> list[Piece] | None:
        """What the session has to tell; None: not `enough` yet, and there is time to wait."""
        wanted = self._session.due()
        found = look(wanted, self._request.max_bytes)
        enough = enough or self._request.max_wait_ms <= 0 or not len(self._session)
        enough = enough or bool(found and is_enough(found, self._request.min_bytes))
        if not (enough or self._session.begins_later(wanted, found)):
            return None
        told, news = self._session.news(wanted, found)
        keys = [(one.topic, one.number) for one in told]
        return write_reply(self._version, ErrorCode.NONE, self._session.id, keys, news)

    def begin(self) -> Promise[Body]:
        """The reply, when there is enough, or the time is up."""
        loop = asyncio.get_running_loop()
        self._reply: Promise[Body] = Promise(self._end)
        self._session.watch(self._woken)
        self._timer = loop.call_later(self._request.max_wait_ms / 1000, self._look, True)
        return self._reply

    def _woken(self) -> None:
        if not self._looks_soon:  # after all that is appended just now
            self._looks_soon = True
            self._afterwards.call(self._look)

    def _look(self, enough: bool = False) -> None:
        self._looks_soon = False
        if not self._reply.is_kept:
            reply = self.reply(enough=enough)
            if reply is not None:
                self._end()
                self._reply.keep(reply)

    def _end(self) -> None:
        self._timer.cancel()
        self._session.unwatch(self._woken)


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
            partition.fetched(one.follower, one.offset, one.log_start)
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
