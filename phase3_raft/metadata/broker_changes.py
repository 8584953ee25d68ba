"""What becomes of the metadata when a broker comes, goes, or a partition's replicas change.

Functions of the image, as in `topic_changes`. What becomes of many partitions may be committed in
parts (`Controller.change_in_parts`): so the broker's record, which says that all is done, is last.
The rules that keep acknowledged records:

    a leader comes from the ISR   only its members have all that was acknowledged; if none of them
                                  is there, there is no leader (unless the topic allows an unclean
                                  one, and so the loss)
    the last one stays            a broker that goes leaves the ISR, but not if nobody else is in it
    without its disk it is new    a broker that comes back with another data directory has nothing,
                                  and leaves the ISR; was it the only one, whoever left last takes
                                  its place: nobody has more
    epochs                        a new leader has a new leader epoch; whoever speaks of an older
                                  partition epoch does not know the latest, and is refused

Source: Kafka's `ReplicationControlManager`, `PartitionChangeBuilder`; KIP-841 (fenced brokers),
KIP-858 (directories), KIP-966 (the last known leaders).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker_settings import FOR_ALL, SETTINGS
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import (
    BrokerId,
    BrokerRecord,
    ConfigRecord,
    PartitionRecord,
    Record,
    RemoveBrokerRecord,
)
from phase3_raft.refused import Refused
from phase3_raft.topic_config import TopicConfig

NOBODY = -1


def fence(image: Image, broker: BrokerId) -> list[Record]:
    """The broker is not there any more: others lead what it led."""
    about = image.brokers.get(broker)
    if about is None or about.fenced:
        return []
    live = set(image.live()) - {broker}
    return [*_without(image, broker, live), replace(about, fenced=True)]


def unfence(image: Image, broker: BrokerId) -> list[Record]:
    """It is there: it can lead what nobody leads."""
    about = image.brokers.get(broker)
    if about is None or not about.fenced:
        return []
    live = {*image.live(), broker}
    led = (new for one in image.partitions() if (new := _led(image, one, live)))
    return [*led, replace(about, fenced=False)]


def register(image: Image, broker: BrokerRecord) -> list[Record]:
    """A broker has been started; it is fenced until it says that it has caught up."""
    before = image.brokers.get(broker.id)
    changes: list[Record] = []
    others = set(image.live()) - {broker.id}
    if is_emptied(before, broker):
        changes = [*_without_disk(image, broker.id, others)]
    elif before is not None and not before.fenced:
        changes = _without(image, broker.id, others)
    epoch = image.version + len(changes) + 1
    return [*changes, replace(broker, fenced=True, epoch=epoch)]


def is_emptied(before: BrokerRecord | None, now: BrokerRecord) -> bool:
    """Whether a broker has come back without what it had."""
    return before is not None and before.directory not in ("", now.directory)


def losses(image: Image, broker: BrokerRecord) -> list[str]:
    """What operators should hear of a broker that is about to be registered."""
    if not is_emptied(image.brokers.get(broker.id), broker):
        return []
    who = f"broker {broker.id}"
    lines = [f"{who} has come with an empty folder, or another one: it copies what it had"]
    alone = [one for one in image.partitions() if one.isr == (broker.id,)]
    if alone:
        more = f" and {len(alone) - 1} more" if len(alone) > 1 else ""
        lines.append(
            f"{who} alone was in sync for {alone[0].topic}-{alone[0].partition}{more}: who was in "
            "sync before it, if somebody was, takes its place, and what that one lacks is lost"
        )
    return lines


def unregister(image: Image, broker: BrokerId) -> list[Record]:
    """A broker that is no more is forgotten. Raises Refused: it is there, or partitions need it."""
    about = image.brokers.get(broker)
    if about is None:
        raise Refused.because(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker}", f"name one of {image.live()}"
        )
    if not about.fenced:
        raise Refused.because(
            ErrorCode.INVALID_REQUEST, f"broker {broker} runs", "stop it, and try again"
        )
    kept = [one for one in image.partitions() if broker in one.replicas]
    if kept:
        raise Refused.because(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker} has replicas of {len(kept)} partitions, such as "
            f"{kept[0].topic}-{kept[0].partition}",
            "move them to other brokers first",
        )
    return [RemoveBrokerRecord(broker)]


def configure(image: Image, name: str, changes: Mapping[str, str | None]) -> list[Record]:
    """Other settings of a broker, "" for all; None: the default. Raises Refused."""
    if name != FOR_ALL and name not in map(str, image.brokers):
        raise Refused.because(
            ErrorCode.INVALID_REQUEST, f"there is no broker {name!r}", f"take one of {image.live()}"
        )
    for key, value in changes.items():
        if value is None:
            continue
        if key not in SETTINGS:
            raise Refused.because(
                ErrorCode.INVALID_REQUEST,
                f"{key} of a broker cannot be changed while it runs",
                f"change one of {', '.join(SETTINGS)}, or start the broker with another value",
            )
        SETTINGS[key].check(value)
    return [ConfigRecord("broker", name, *item) for item in changes.items() if item[0] in SETTINGS]


def shut_down(image: Image, broker: BrokerId) -> list[Record]:
    """It is about to go: where others can lead they do already when it does (controlled
    shutdown)."""
    live = set(image.live()) - {broker}
    return _without(image, broker, live, only_if_others=True)


def _without(
    image: Image,
    broker: BrokerId,
    live: Collection[BrokerId],
    *,
    only_if_others: bool = False,
) -> list[Record]:
    changes: list[Record] = []
    for one in image.partitions():
        if broker not in one.isr or (only_if_others and not set(one.isr) & set(live)):
            continue
        without = _with_isr(one, tuple(who for who in one.isr if who != broker) or one.isr)
        new = _led(image, without, live)
        if new is not None:
            changes.append(new)
        elif without.isr != one.isr:
            changes.append(_later(without))
    return changes


def _with_isr(one: PartitionRecord, isr: tuple[BrokerId, ...]) -> PartitionRecord:
    left = [*(who for who in one.left if who in one.replicas), *one.isr]
    return replace(one, isr=isr, left=tuple(who for who in left if who not in isr))


def _without_disk(
    image: Image, broker: BrokerId, live: Collection[BrokerId]
) -> list[PartitionRecord]:
    """The partitions of which this broker has nothing any more. live: the others."""
    changes = []
    for one in image.partitions():
        if broker not in (*one.isr, *one.left):
            continue
        isr = tuple(who for who in one.isr if who != broker) or heir(one)
        new = _with_isr(one, isr)
        if broker not in isr:
            new = replace(new, left=tuple(who for who in new.left if who != broker))
        if new != one:
            changes.append(_led(image, new, live) or _later(new))
    return changes


def heir(one: PartitionRecord) -> tuple[BrokerId, ...]:
    """The ISR of a partition whose only replica in sync has lost its disk: the other one that was
    in sync last. It is as it was if there is no other one."""
    others = [who for who in one.replicas if who not in one.isr]
    order = {who: place for place, who in enumerate(one.left)}
    return (max(others, key=lambda who: order.get(who, -1)),) if others else one.isr


def _later(one: PartitionRecord) -> PartitionRecord:
    return replace(one, partition_epoch=one.partition_epoch + 1)


def _led(
    image: Image,
    one: PartitionRecord,
    live: Collection[BrokerId],
    *,
    preferred: bool = False,
    unclean: bool = False,
) -> PartitionRecord | None:
    """The partition with another leader, if it needs one (or would rather have one)."""
    able = [who for who in one.replicas if who in live and who in one.isr]
    if one.leader in able and (not preferred or one.leader == able[0]):
        return None
    isr = one.isr
    leader = able[0] if able else NOBODY
    if leader == NOBODY and (unclean or _may_lose(image, one.topic)):
        left = [who for who in one.replicas if who in live]
        if left:
            leader, isr = left[0], (left[0],)
    if leader == one.leader and isr == one.isr:
        return None
    return replace(
        _with_isr(one, isr),
        leader=leader,
        leader_epoch=one.leader_epoch + 1,
        partition_epoch=one.partition_epoch + 1,
    )


def _may_lose(image: Image, topic: str) -> bool:
    return TopicConfig(image.topics[topic].config)["unclean.leader.election.enable"] == "true"


def prefer(image: Image) -> list[Record]:
    """The first replica of each partition leads again, where it can."""
    live = image.live()
    changed = (_led(image, one, live, preferred=True) for one in image.partitions())
    return [one for one in changed if one is not None]


def elect(
    image: Image, topic: str, number: int, *, unclean: bool = False
) -> PartitionRecord | ErrorCode:
    """The first replica leads again; or, unclean, one that is there if none in sync is."""
    one = image.partition(topic, number)
    if one is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    live = image.live()
    if unclean:
        if one.leader >= 0:
            return ErrorCode.ELECTION_NOT_NEEDED
        new = _led(image, one, live, unclean=True)
        return new or ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if one.leader == one.replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED
    if one.replicas[0] not in live or one.replicas[0] not in one.isr:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return _led(image, one, live, preferred=True) or ErrorCode.ELECTION_NOT_NEEDED


def change_isr(
    image: Image,
    broker: BrokerId,
    topic: str,
    number: int,
    leader_epoch: int,
    partition_epoch: int,
    isr: Sequence[BrokerId],
    leaving: Collection[BrokerId] = (),
) -> PartitionRecord | ErrorCode:
    """A leader says who is in sync: the partition as it is then, or why not. One that cannot write
    leaves itself out: another one leads then.

    leaving: who is about to go: taken in again, they would be waited for when they are gone.
    """
    one = image.partition(topic, number)
    if one is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if one.leader != broker or one.leader_epoch != leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if one.partition_epoch != partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    able = set(image.live()) - set(leaving)
    if not set(isr) <= set(one.replicas) or not (broker in isr or set(isr) & set(one.isr) & able):
        return ErrorCode.INVALID_REQUEST
    if not set(isr) - set(one.isr) <= able:
        return ErrorCode.INELIGIBLE_REPLICA
    ordered = tuple(who for who in one.replicas if who in isr)
    return _next(image, _moved(_with_isr(one, ordered)))


def move(
    image: Image, topic: str, number: int, target: Sequence[BrokerId] | None
) -> PartitionRecord | ErrorCode:
    """Let a partition move to other brokers; None: call a move off."""
    one = image.partition(topic, number)
    if one is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if target is None:
        if not (one.adding or one.removing):
            return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        kept = tuple(who for who in one.replicas if who not in one.adding)
        isr = tuple(who for who in one.isr if who in kept)
        if not isr:  # only a replica that was to be new has everything
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        return _next(image, replace(one, replicas=kept, isr=isr, adding=(), removing=()))
    wanted = tuple(target)
    if not wanted or len(set(wanted)) < len(wanted) or not set(wanted) <= set(image.brokers):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    now = tuple(who for who in one.replicas if who not in one.adding)
    both = (*wanted, *(who for who in now if who not in wanted))
    adding = tuple(who for who in wanted if who not in now)
    removing = tuple(who for who in now if who not in wanted)
    isr = tuple(who for who in both if who in one.isr)
    if not isr:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    changed = replace(one, replicas=both, isr=isr, adding=adding, removing=removing)
    return _next(image, _moved(changed))


def _moved(one: PartitionRecord) -> PartitionRecord:
    """With the replicas that it was to have, once the new ones are in sync. One that it keeps may
    be away meanwhile: a move must not wait for it."""
    wanted = tuple(who for who in one.replicas if who not in one.removing)
    isr = tuple(who for who in wanted if who in one.isr)
    if not (one.adding or one.removing) or not isr or not set(one.adding) <= set(isr):
        return one
    return replace(one, replicas=wanted, isr=isr, adding=(), removing=())


def _next(image: Image, one: PartitionRecord) -> PartitionRecord:
    return _led(image, one, image.live()) or _later(one)
