"""What members and their leader say to each other, in the bytes of Kafka's own consumers.

To the coordinator these are opaque: it hands the leader every member's *subscription*, and every
member its part of the leader's *assignment*. Whoever writes them byte for byte as Kafka's clients
do can be in one group with them.

    subscription: version topics user_data     assignment: version partitions user_data
                  [owned]      from version 1
                  [generation] from version 2
                  [rack_id]    from version 3

    version, length of a string: int16    array, bytes: int32 and the elements    generation: int32
    partitions: array of (topic, array of int32)                   no bytes, no string: length -1

A newer version only adds fields at the end, so an older fields reads what it knows.

>>> encode_subscription(Subscription(("t",)), version=0).hex(" ")
'00 00 00 00 00 01 00 01 74 ff ff ff ff'
>>> decode_assignment(encode_assignment([("t", 0), ("t", 2)])).partitions
[('t', 0), ('t', 2)]

Source: Kafka's ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json and
StickyAssignor; KIP-429 (owned), KIP-792 (generation), KIP-881 (rack).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

from craft2.errors import Craft2Error
from phase2_groups.assignors import Subscription, TopicPartition
from phase2_groups.kafka_fields import Fields, opaque, string

LATEST = 3  # the newest version of both


class BadConsumerProtocol(Craft2Error):
    """Bytes that are no subscription, assignment or user data."""


class JoinMetadata(NamedTuple):
    """A subscription as read. `group_instance_id` is not in it: the coordinator knows that."""

    version: int
    subscription: Subscription
    user_data: bytes | None  # the assignor's own
    rack_id: str | None


class SyncAssignment(NamedTuple):
    """An assignment as read."""

    version: int
    partitions: list[TopicPartition]
    user_data: bytes | None


def encode_subscription(
    subscription: Subscription,
    version: int = LATEST,
    user_data: bytes | None = None,
    rack_id: str | None = None,
) -> bytes:
    """The subscription in a version from 0 to 3; what that version has no field for is left out."""
    parts = [
        struct.pack(">hi", version, len(subscription.topics)),
        *map(string, sorted(subscription.topics)),
        opaque(user_data),
    ]
    if version >= 1:
        parts.append(_partitions(sorted(subscription.owned)))
    if version >= 2:
        parts.append(struct.pack(">i", subscription.generation))
    if version >= 3:
        parts.append(string(rack_id))
    return b"".join(parts)


def decode_subscription(data: bytes) -> JoinMetadata:
    """Read a subscription of any version; raises BadConsumerProtocol if it is none."""
    fields = _fields(data)
    version = fields.number("h")
    topics = tuple(fields.string() or "" for _ in range(fields.number("i")))
    user_data = fields.opaque()
    owned = tuple(_read_partitions(fields)) if version >= 1 else ()
    generation = fields.number("i") if version >= 2 else -1
    rack_id = fields.string() if version >= 3 else None
    return JoinMetadata(version, Subscription(topics, owned, generation), user_data, rack_id)


def topics_of(data: bytes) -> tuple[str, ...] | bytes:
    """The topics of a subscription; bytes that are none as they are (what others may join with)."""
    try:
        return decode_subscription(data).subscription.topics
    except BadConsumerProtocol:
        return data


def encode_assignment(
    partitions: Iterable[TopicPartition], version: int = LATEST, user_data: bytes | None = None
) -> bytes:
    """The assignment of one member; its fields are the same in versions 0 to 3."""
    return struct.pack(">h", version) + _partitions(partitions) + opaque(user_data)


def decode_assignment(data: bytes) -> SyncAssignment:
    """Read an assignment of any version; raises BadConsumerProtocol if it is none."""
    fields = _fields(data)
    return SyncAssignment(fields.number("h"), _read_partitions(fields), fields.opaque())


def encode_sticky_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """What the sticky assignor adds to a subscription: what its member owned, and since when.

    An eager member owns nothing any more when it joins, so the field of that name would be empty.
    """
    return _partitions(owned) + struct.pack(">i", generation)


def decode_sticky_user_data(data: bytes) -> tuple[list[TopicPartition], int]:
    """(owned, generation) from a sticky assignor's user data; -1 where old clients wrote none."""
    fields = _fields(data)
    owned = _read_partitions(fields)
    return owned, fields.number("i") if fields.at < len(data) else -1


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    parts = [struct.pack(">i", len(numbers))]
    for topic, several in numbers.items():
        parts += [string(topic), struct.pack(f">i{len(several)}i", len(several), *several)]
    return b"".join(parts)


def _fields(data: bytes) -> Fields:
    def error(problem: str) -> BadConsumerProtocol:
        return BadConsumerProtocol(
            f"no consumer protocol message: {problem}",
            "let only members of the protocol type 'consumer' join this group",
        )

    return Fields(data, error)


def _read_partitions(fields: Fields) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    for _ in range(fields.number("i")):
        topic = fields.string() or ""
        found += [(topic, fields.number("i")) for _ in range(fields.number("i"))]
    return found
