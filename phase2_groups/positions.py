"""Where a consumer goes on reading in each of its partitions.

A partition that was just assigned has no position. It gets the group's committed offset; without
one, what `auto_offset_reset` says. `seek` overrules both.

Source: Kafka's `OffsetFetcher` and `SubscriptionState`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.consumer_errors import ConsumerError, NoOffset, UnknownTopic
from phase2_groups.error_codes import ErrorCode
from phase2_groups.fetch_buffer import FetchBuffer
from phase2_groups.group_messages import OffsetToCommit, TopicPartition
from phase2_groups.transport import EARLIEST, LATEST, Transport


class Positions:
    """See the module. The positions themselves are in the buffer, which moves them on.

    committed: the group's committed offsets of some partitions; nothing without a group.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        transport: Transport,
        buffer: FetchBuffer,
        committed: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, OffsetToCommit]],
    ) -> None:
        self._config = config
        self._transport = transport
        self._buffer = buffer
        self._committed = committed

    def find(self) -> None:
        """Give every partition that has no position one. Raises NoOffset, UnknownTopic."""
        unknown = self._buffer.unknown()
        if not unknown:
            return
        found = self._committed(unknown)
        for partition in unknown:
            if partition in found:
                self._buffer.seek(partition, found[partition].offset)
            else:
                group = self._config.group_id
                self.reset(partition, f"group {group!r} has no committed offset")

    def reset(self, partition: TopicPartition, problem: str) -> None:
        """Do as `auto_offset_reset` says, since there is a problem with the position."""
        policy = self._config.auto_offset_reset
        if policy == "none":
            raise NoOffset(
                f"{partition[0]}-{partition[1]}: {problem}",
                'seek, or set auto_offset_reset to "earliest" or "latest"',
            )
        where = EARLIEST if policy == "earliest" else LATEST
        self._buffer.seek(partition, self._list({partition: where})[partition])

    def seek_to_timestamp(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> None:
        """Go on from the first record at or after a time; at the end, if there is none."""
        listed = self._list(dict.fromkeys(partitions, timestamp_ms))
        ends = self._list({p: LATEST for p, offset in listed.items() if offset < 0})
        for partition, offset in {**listed, **ends}.items():
            self._buffer.seek(partition, offset)

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each partition has beyond its position."""
        self.find()
        positions = self._buffer.positions()
        ends = self._list(dict.fromkeys(positions, LATEST))
        return {partition: ends[partition] - positions[partition] for partition in positions}

    def _list(self, asked: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        listed = self._transport.list_offsets(asked) if asked else {}
        for (topic, number), answer in listed.items():
            if answer.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(f"{topic}-{number} does not exist", "check topic and number")
            if answer.error:
                raise ConsumerError(f"offsets of {topic}-{number}: {answer.error.name}")
        return {partition: answer.offset for partition, answer in listed.items()}
