"""What becomes of the metadata when somebody asks for a topic to be made, grown, set or deleted.

Functions of the image: they return the records to commit, or raise `Refused`, and change nothing
themselves. So whoever commits them, one broker or a quorum, decides the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from phase2_groups.error_codes import ErrorCode
from phase2_groups.topics import MAX_PARTITIONS, TopicError, check_topic
from phase3_raft.groups.coordinator import OFFSETS_TOPIC
from phase3_raft.metadata.image import Image, TopicImage
from phase3_raft.metadata.metadata_log import METADATA_TOPIC
from phase3_raft.metadata.placement import begin, place
from phase3_raft.metadata.records import (
    BrokerId,
    ConfigRecord,
    PartitionRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from phase3_raft.refused import Refused
from phase3_raft.topic_config import TopicConfig, setting

Assignment = Sequence[Sequence[BrokerId]]  # the replicas of each partition


def existing(image: Image, name: str) -> TopicImage:
    """A topic. Raises Refused if there is none."""
    found = image.topics.get(name)
    if found is None:
        raise Refused.because(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}", "create it"
        )
    return found


def create(
    image: Image,
    name: str,
    topic_id: str,
    partitions: int,
    replicas: int,
    config: Mapping[str, str],
    assignment: Assignment | None = None,
    *,
    found: bool = False,
) -> list[Record]:
    """A new topic. assignment: in place of `partitions` and `replicas`. found: its folders are
    there already, from phase 2, and keep their name.

    Raises Refused.
    """
    try:
        check_topic(name)
    except TopicError as error:
        raise Refused.because(ErrorCode.INVALID_TOPIC_EXCEPTION, error.problem, error.fix) from None
    if name in image.topics:
        raise Refused.because(
            ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already", "use it"
        )
    if name == METADATA_TOPIC:
        raise Refused.because(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{name} is where brokers keep their metadata",
            "choose another name",
        )
    if not found:
        _check_alone(image, name)
    count = len(assignment) if assignment is not None else partitions
    if not 1 <= count <= MAX_PARTITIONS:
        raise Refused.because(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name!r} cannot have {count} partitions",
            f"give a number from 1 to {MAX_PARTITIONS}",
        )
    TopicConfig.of(config)
    records: list[Record] = [TopicRecord(name, topic_id)]
    records += _partitions(image, name, 0, count, replicas, assignment)
    records += [ConfigRecord("topic", name, *item) for item in config.items()]
    return records


def _check_alone(image: Image, name: str) -> None:
    """Metrics write a dot as an underscore: what shares a name there cannot be told apart.

    Source: Kafka's `Topic.hasCollision`. Raises Refused.
    """
    alike = name.replace(".", "_")
    if "_" in alike:
        for other in image.topics:
            if other.replace(".", "_") == alike:
                raise Refused.because(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"topic {name!r} collides with {other!r}: metrics know a dot as an underscore",
                    "choose another name",
                )


def grow(
    image: Image, name: str, partitions: int, assignment: Assignment | None = None
) -> list[Record]:
    """More partitions, `partitions` in all. Raises Refused."""
    there = existing(image, name).partitions
    if not len(there) < partitions <= MAX_PARTITIONS or name == OFFSETS_TOPIC:
        raise Refused.because(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {name!r} has {len(there)} partitions and cannot have {partitions}",
            f"give a number from {len(there) + 1} to {MAX_PARTITIONS}"
            if name != OFFSETS_TOPIC
            else "groups are found by this number",
        )
    new = partitions - len(there)
    replicas = len(there[0].replicas)
    if assignment is not None and [len(one) for one in assignment] != [replicas] * new:
        raise _bad_assignment(
            f"{len(assignment)} assignments of {sorted({len(one) for one in assignment})} replicas "
            f"for {new} new partitions of {replicas} replicas each"
        )
    return _partitions(image, name, len(there), new, replicas, assignment)


def delete(image: Image, name: str) -> list[Record]:
    """No such topic any more. Raises Refused."""
    existing(image, name)
    if name == OFFSETS_TOPIC:
        raise Refused.because(
            ErrorCode.INVALID_REQUEST,
            f"{name} is where groups keep their offsets",
            "delete groups, not this topic",
        )
    return [RemoveTopicRecord(name)]


def configure(image: Image, name: str, changes: Mapping[str, str | None]) -> list[Record]:
    """Other settings; None: the default. Raises Refused."""
    existing(image, name)
    TopicConfig.of({key: value for key, value in changes.items() if value is not None})
    for key in changes:
        setting(key)
    return [ConfigRecord("topic", name, *item) for item in changes.items()]


def _partitions(
    image: Image, name: str, first: int, count: int, replicas: int, assignment: Assignment | None
) -> list[Record]:
    racks = {one: image.brokers[one].rack for one in image.live()}
    if assignment is not None:
        chosen = [tuple(one) for one in assignment]
        for one in chosen:
            if not one or len(set(one)) < len(one) or not set(one) <= set(image.brokers):
                raise _bad_assignment(f"the replicas {list(one)}, brokers {sorted(image.brokers)}")
        if len({len(one) for one in chosen}) > 1:
            raise _bad_assignment("partitions with different numbers of replicas")
    elif not (racks and 1 <= replicas <= len(image.brokers)):
        known = sorted(image.brokers)
        raise Refused.because(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"a replication factor of {replicas}: the cluster has {len(known)} brokers, {known}, "
            f"and {sorted(racks)} run",
            f"give a number from 1 to {len(known)}" if racks else "wait until a broker runs",
        )
    else:
        away = sorted(image.brokers.keys() - racks.keys())
        leads = Counter(one.replicas[0] for one in image.partitions())
        start = begin(racks, leads) - first
        chosen = [place(first + number, replicas, racks, away, start) for number in range(count)]
    return [_new_partition(name, first + n, one, racks) for n, one in enumerate(chosen)]


def _new_partition(
    name: str, number: int, replicas: tuple[BrokerId, ...], live: Mapping[BrokerId, object]
) -> PartitionRecord:
    """Nothing is in it yet, so every replica that is there is in sync."""
    isr = tuple(one for one in replicas if one in live) or replicas
    return PartitionRecord(name, number, replicas, isr, isr[0] if isr[0] in live else -1, 0, 0)


def _bad_assignment(what: str) -> Refused:
    return Refused.because(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        what,
        "name brokers that there are, each once, as many for every new partition",
    )
