"""DeleteRecords (key 21), versions 0-2: a partition begins at a later offset from now on.

The reply comes when all replicas whose brokers live begin there. Otherwise one of them that did not
know it yet could lead next, and what was said to be deleted would be back.

Source: Kafka's `DelayedDeleteRecords`; KIP-107.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from craft2.disk import DiskError
from phase1_file_queue.log_config import LogError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.groups.coordinator import OFFSETS_TOPIC
from phase3_raft.schemas import Fields

_HIGH_WATERMARK = -1  # asked for: everything that consumers can see
_LOOK_S = 0.2  # so often, for brokers that have died meanwhile


class _Deleting:
    """One partition of a request. start: where it is to begin, on all replicas."""

    def __init__(self, broker: Broker, topic: str, one: Any) -> None:
        self._broker, self._number = broker, one.partition_index
        self._error, self._start, self._low = ErrorCode.NONE, -1, -1
        partition = broker.partition(topic, self._number)
        if topic == OFFSETS_TOPIC:  # its log is compacted, and not to be cut
            partition = ErrorCode.INVALID_TOPIC_EXCEPTION
        if isinstance(partition, ErrorCode):
            self._error = partition
            return
        self._partition, self._epoch = partition, partition.record.leader_epoch
        end = partition.high_watermark
        offset = end if one.offset == _HIGH_WATERMARK else one.offset
        if not 0 <= offset <= end:
            self._error = ErrorCode.OFFSET_OUT_OF_RANGE
            return
        try:
            partition.advance_start(offset)
            self._start = offset
        except (LogError, DiskError):
            self._error = ErrorCode.KAFKA_STORAGE_ERROR

    def is_done(self) -> bool:
        """Whether nothing is to be waited for any more."""
        if self._error:
            return True
        partition = self._partition
        if not partition.leads or partition.record.leader_epoch != self._epoch or partition.deleted:
            self._error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return True
        begin, live = partition.log.log_start, self._broker.image.live()
        self._low = partition.replicas.low_watermark(begin, live)
        return self._low >= self._start

    async def wait(self) -> None:
        """Until it is done."""
        news = asyncio.Event()
        self._partition.watch(news.set)
        try:
            while not self.is_done():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await news.wait()
                news.clear()
        finally:
            self._partition.unwatch(news.set)

    def reply(self) -> Fields:
        """What the client is told: where the partition begins everywhere, or why not."""
        error = self._error if self.is_done() else ErrorCode.REQUEST_TIMED_OUT
        return {
            "partition_index": self._number,
            "low_watermark": -1 if self._error else self._low,
            "error_code": error,
        }


def handle(broker: Broker, request: Any, asked: Asked) -> Fields | Coroutine[Any, Any, Fields]:
    """The reply, when the records are deleted everywhere, or the time is up."""
    topics = [
        (topic.name, [_Deleting(broker, topic.name, one) for one in topic.partitions])
        for topic in request.topics
    ]
    waiting = [one for _, some in topics for one in some if not one.is_done()]
    return _later(topics, waiting, request.timeout / 1000) if waiting else _reply(topics)


async def _later(
    topics: list[tuple[str, list[_Deleting]]], waiting: list[_Deleting], limit_s: float
) -> Fields:
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            for one in waiting:
                await one.wait()
    return _reply(topics)


def _reply(topics: list[tuple[str, list[_Deleting]]]) -> Fields:
    return {
        "throttle_time": 0,
        "topics": [
            {"name": name, "partitions": [one.reply() for one in some]} for name, some in topics
        ],
    }
