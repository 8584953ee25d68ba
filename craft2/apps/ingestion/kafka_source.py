"""Reading from a cluster that speaks Kafka's protocol, through librdkafka.

A partition's end is an event there (`enable.partition.eof`): a consumer is at its end when each of
its partitions has sent that, and nothing since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from craft2.apps.ingestion.sources import AT_ONCE, Row, SourceError

ANSWER_S = 5.0
MOVED = (  # the partitions are another member's by now, and so are the messages
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError._NO_OFFSET,
)


class KafkaSource:
    """librdkafka's consumer. Raises SourceError when no broker answers, or there is no topic.

    group: None: no group, so all partitions from their start, at once, and nothing is committed.
    """

    def __init__(
        self, bootstrap: str, topic: str, group: str | None, *, answer_s: float = ANSWER_S
    ) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group or "nobody",  # it insists on a name
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        try:
            found = self._consumer.list_topics(topic, answer_s).topics[topic]
        except KafkaException as error:
            self._consumer.close()
            raise SourceError(
                f"no broker answers at {bootstrap} within {answer_s:g} s: {error.args[0].str()}",
                "start it, or correct the address",
            ) from error
        if found.error is not None:
            self._consumer.close()
            raise SourceError(
                f"topic {topic!r} at {bootstrap}: {found.error.str()}", "correct its name"
            )
        self._assigned: set[int] = set()
        self._ended: set[int] = set()
        self._group = group
        if group is not None:
            self._consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke)
            return
        every = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in found.partitions]
        self._assign(None, every)
        self._consumer.assign(every)

    def _assign(self, _: object, partitions: Sequence[Any]) -> None:
        self._assigned = {each.partition for each in partitions}
        self._ended = set()

    def _revoke(self, _: object, partitions: Sequence[Any]) -> None:
        self._assigned = self._ended = set()

    def poll(self, wait_ms: int) -> Sequence[Row]:
        rows = []
        for message in self._consumer.consume(AT_ONCE, wait_ms / 1000):
            error = message.error()
            if error is None:
                self._ended.discard(message.partition())
                time_ms = message.timestamp()[1]
                key, value = message.key(), message.value()
                rows.append(Row(message.partition(), message.offset(), time_ms, key, value))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(message.partition())
            elif not error.retriable():
                raise SourceError(f"the broker says: {error.str()}", "mend that, and start again")
        return rows

    def commit(self) -> None:
        if self._group is None:
            return
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() in MOVED:
                return
            raise SourceError(
                f"what was written could not be committed: {error.args[0].str()}",
                "start again: those messages come once more",
            ) from error

    def at_end(self) -> bool:
        return bool(self._assigned) and self._ended >= self._assigned

    def close(self) -> None:
        self._consumer.close()
