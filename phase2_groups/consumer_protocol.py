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

A newer version only adds fields at the end, so an older reader reads what it knows.

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
        *map(_string, sorted(subscription.topics)),
        _bytes(user_data),
    ]
    if version >= 1:
        parts.append(_partitions(sorted(subscription.owned)))
    if version >= 2:
        parts.append(struct.pack(">i", subscription.generation))
    if version >= 3:
        parts.append(_string(rack_id))
    return b"".join(parts)


def decode_subscription(data: bytes) -> JoinMetadata:
    """Read a subscription of any version; raises BadConsumerProtocol if it is none."""
    reader = _Reader(data)
    version = reader.number("h")
    topics = tuple(reader.string() or "" for _ in range(reader.number("i")))
    user_data = reader.opaque()
    owned = tuple(reader.partitions()) if version >= 1 else ()
    generation = reader.number("i") if version >= 2 else -1
    rack_id = reader.string() if version >= 3 else None
    return JoinMetadata(version, Subscription(topics, owned, generation), user_data, rack_id)


def encode_assignment(
    partitions: Iterable[TopicPartition], version: int = LATEST, user_data: bytes | None = None
) -> bytes:
    """The assignment of one member; its fields are the same in versions 0 to 3."""
    return struct.pack(">h", version) + _partitions(partitions) + _bytes(user_data)


def decode_assignment(data: bytes) -> SyncAssignment:
    """Read an assignment of any version; raises BadConsumerProtocol if it is none."""
    reader = _Reader(data)
    return SyncAssignment(reader.number("h"), reader.partitions(), reader.opaque())


def encode_sticky_user_data(owned: Iterable[TopicPartition], generation: int) -> bytes:
    """What the sticky assignor adds to a subscription: what its member owned, and since when.

    An eager member owns nothing any more when it joins, so the field of that name would be empty.
    """
    return _partitions(owned) + struct.pack(">i", generation)


def decode_sticky_user_data(data: bytes) -> tuple[list[TopicPartition], int]:
    """(owned, generation) from a sticky assignor's user data; -1 where old clients wrote none."""
    reader = _Reader(data)
    owned = reader.partitions()
    return owned, reader.number("i") if reader.at < len(data) else -1


def _string(text: str | None) -> bytes:
    if text is None:
        return struct.pack(">h", -1)
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _bytes(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    parts = [struct.pack(">i", len(numbers))]
    for topic, several in numbers.items():
        parts += [_string(topic), struct.pack(f">i{len(several)}i", len(several), *several)]
    return b"".join(parts)


class _Reader:
    """Reads one field after the other from `at` on."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def number(self, form: str) -> int:
        return int(struct.unpack(">" + form, self._take(struct.calcsize(">" + form)))[0])

    def string(self) -> str | None:
        length = self.number("h")
        try:
            return None if length < 0 else self._take(length).decode()
        except UnicodeDecodeError:
            raise self._error("text that is not UTF-8") from None

    def opaque(self) -> bytes | None:
        length = self.number("i")
        return None if length < 0 else self._take(length)

    def partitions(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for _ in range(self.number("i")):
            topic = self.string() or ""
            found += [(topic, self.number("i")) for _ in range(self.number("i"))]
        return found

    def _take(self, length: int) -> bytes:
        end = self.at + length
        if end > len(self._data):
            raise self._error(f"{length} more bytes were to come")
        taken, self.at = self._data[self.at : end], end
        return taken

    def _error(self, problem: str) -> BadConsumerProtocol:
        return BadConsumerProtocol(
            f"no consumer protocol message: {problem} at byte {self.at} of {len(self._data)}",
            "let only members of the protocol type 'consumer' join this group",
        )
