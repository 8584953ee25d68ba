"""What an application gives a consumer, checked before anything is done with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from phase2_groups.consumer_errors import ConsumerError
from phase2_groups.group_messages import OffsetToCommit, TopicPartition
from phase2_groups.kafka_fields import is_text

_MAX_INT32, _MAX_INT64 = 2**31 - 1, 2**63 - 1
_MAX_METADATA = 4096  # bytes, as a broker's offset.metadata.max.bytes


def checked_topics(topics: object) -> tuple[str, ...]:
    """The topics' names, if that is what they are. Raises ConsumerError.

    >>> checked_topics(["flights"])
    ('flights',)
    """
    if isinstance(topics, Collection) and not isinstance(topics, str | bytes) and topics:
        names = tuple(one for one in topics if isinstance(one, str) and one)
        if len(names) == len(topics):
            return names
    raise ConsumerError(f"topics is {topics!r:.60}", 'give a list of names: ["flights"]')


def checked_partitions(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions, if that is what they are. Raises ConsumerError.

    >>> checked_partitions([("flights", 0)])
    [('flights', 0)]
    """
    fix = 'give pairs of topic and number: [("flights", 0)]'
    if isinstance(partitions, str | bytes) or not isinstance(partitions, Iterable):
        raise ConsumerError(f"partitions is {partitions!r}", fix)
    found = []
    for one in partitions:
        if not (isinstance(one, tuple) and len(one) == 2):
            raise ConsumerError(f"{one!r} is no partition", fix)
        topic, number = one
        if not isinstance(topic, str) or type(number) is not int:
            raise ConsumerError(f"{one!r} is no partition", fix)
        found.append((topic, number))
    return found


def checked_number(name: str, value: object, least: int, most: int = _MAX_INT64) -> int:
    """A whole number in a range. Raises ConsumerError.

    >>> checked_number("timeout_ms", 100, 0)
    100
    """
    if type(value) is not int or not least <= value <= most:
        raise ConsumerError(f"{name} is {value!r}", f"give a whole number from {least} to {most}")
    return value


def checked_commit(partition: TopicPartition, offset: int | OffsetToCommit) -> OffsetToCommit:
    """What to commit for a partition. Raises ConsumerError."""
    topic, number = partition
    wanted = offset if isinstance(offset, OffsetToCommit) else OffsetToCommit(offset=offset)
    of = f"of {topic}-{number}"
    checked_number(f"offset {of} (the next one to read)", wanted.offset, 0)
    checked_number(f"leader_epoch {of}", wanted.leader_epoch, -1, _MAX_INT32)
    if not is_text(wanted.metadata) or len(wanted.metadata.encode()) > _MAX_METADATA:
        raise ConsumerError(
            f"metadata {of} is {wanted.metadata!r:.60}", f"give text of up to {_MAX_METADATA} bytes"
        )
    return wanted
