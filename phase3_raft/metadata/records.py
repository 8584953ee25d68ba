"""What there is to know about a cluster, as a log of small facts.

    TopicRecord("flights", id)   PartitionRecord("flights", 0, leader=1, ...)   ConfigRecord(...)

Nobody changes the cluster's metadata in place. A change is one or more records at the end of a log,
all of them or none, and the metadata is what these records say, one after the other (`image`). Who
has read the log up to the same offset knows the same, and a newcomer needs nothing but the log.

>>> encode(RemoveTopicRecord("flights"))
b'\\x92\\xb1RemoveTopicRecord\\xa7flights'
>>> decode(_)
RemoveTopicRecord(name='flights')

Source: KIP-500, KIP-631 (Kafka's own records have these names, and more fields).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from craft2.errors import Craft2Error

BrokerId = int


class BadRecord(Craft2Error):
    """A record that this version does not know."""


class _Record(msgspec.Struct, frozen=True, array_like=True, tag=True):
    pass


class BrokerRecord(_Record, frozen=True):
    """A broker, and where clients reach it.

    fenced: it has not been heard of for a while, so it leads nothing, and soon clients are told of
    it no more (`known_brokers`). incarnation: another one each time that it starts. epoch: grows
    with each of these.
    raft: host:port of its Raft server, if it is none of the voters that founded the cluster.
    directory: the id of its data directory, another one if that was emptied (`data_directory`).
    """

    id: BrokerId
    host: str
    port: int
    rack: str | None = None
    fenced: bool = False
    incarnation: str = ""
    epoch: int = 0
    raft: str = ""
    directory: str = ""


class RemoveBrokerRecord(_Record, frozen=True):
    """The broker is no part of the cluster any more."""

    id: BrokerId


class TopicRecord(_Record, frozen=True):
    """A topic without partitions, yet. topic_id: a UUID as 32 hexadecimal digits."""

    name: str
    topic_id: str


class PartitionRecord(_Record, frozen=True):
    """A partition of a topic, new or changed.

    leader: -1 if there is none. leader_epoch: grows with each change of the leader, so that one
    that was deposed is recognised. partition_epoch: grows with each change. adding, removing:
    replicas that come and go, while the partition moves. left: who left the ISR, the latest last:
    if all that are in it lose their disks, that one has most.
    """

    topic: str
    partition: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    leader: BrokerId
    leader_epoch: int
    partition_epoch: int
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    left: tuple[BrokerId, ...] = ()


class RemoveTopicRecord(_Record, frozen=True):
    """The topic with its partitions and settings is no more."""

    name: str


class RemovedTopicsRecord(_Record, frozen=True):
    """Ids of topics that are no more (in a snapshot, where nothing else speaks of them)."""

    topic_ids: tuple[str, ...]


class ConfigRecord(_Record, frozen=True):
    """A setting of a topic, or of a broker (its number as text; "" is all brokers). value None:
    the default again."""

    kind: Literal["topic", "broker"]
    resource: str
    name: str
    value: str | None


class ProducerIdsRecord(_Record, frozen=True):
    """Producer ids below `next_id` are given away, or reserved by a broker that gives them away."""

    next_id: int


Record = (
    BrokerRecord
    | RemoveBrokerRecord
    | TopicRecord
    | PartitionRecord
    | RemoveTopicRecord
    | RemovedTopicsRecord
    | ConfigRecord
    | ProducerIdsRecord
)
_decoder = msgspec.msgpack.Decoder(Record)
_decoder_of_many = msgspec.msgpack.Decoder(list[Record])


def encode(record: Record) -> bytes:
    """As bytes."""
    return msgspec.msgpack.encode(record)


def decode(data: bytes) -> Record:
    """The opposite. Raises BadRecord."""
    record: Record = _decode(_decoder, data)
    return record


def encode_many(records: Sequence[Record]) -> bytes:
    """Several, as one."""
    return msgspec.msgpack.encode(records)


def decode_many(data: bytes) -> list[Record]:
    """The opposite. Raises BadRecord."""
    records: list[Record] = _decode(_decoder_of_many, data)
    return records


def _decode(decoder: msgspec.msgpack.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise BadRecord(
            f"{data[:60]!r} is no metadata record: {error}",
            "open this directory with the version that wrote it, or a later one",
        ) from error
