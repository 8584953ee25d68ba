"""Who of a group reads which partition? The seam, and Kafka's two simplest answers.

The members of a group elect nobody: the coordinator names one of them the leader, hands it what
everybody subscribes to, and passes on what it decides. An *assignor* is that decision, a function
of what the leader was told and of nothing else:

    range       every topic by itself, in runs of neighbours: partition 3 of `orders` and partition
                3 of `payments` go to one member, so that it can join them. The first members get
                the rest of every division, topic after topic
    roundrobin  all partitions of all topics dealt like cards: even, but one member more or less
                and nearly every partition changes hands
    sticky, cooperative-sticky    even *and* who has a partition keeps it: see `sticky.py`

>>> group = {"a": Subscription(("t", "u")), "b": Subscription(("t", "u"))}
>>> assignor("range").assign({"t": 3, "u": 3}, group)
{'a': [('t', 0), ('t', 1), ('u', 0), ('u', 1)], 'b': [('t', 2), ('u', 2)]}
>>> assignor("roundrobin").assign({"t": 3, "u": 3}, group)
{'a': [('t', 0), ('t', 2), ('u', 1)], 'b': [('t', 1), ('u', 0), ('u', 2)]}

Source: `org.apache.kafka.clients.consumer` has RangeAssignor and RoundRobinAssignor (here without
racks); KIP-345 for static members, KIP-429 for owned partitions, KIP-792 for their generation.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from craft2.errors import Craft2Error
from phase2_groups.sticky import CooperativeStickyAssignor, StickyAssignor

TopicPartition = tuple[str, int]
Assignment = dict[str, list[TopicPartition]]  # member id -> its partitions, in order


class UnknownAssignor(Craft2Error):
    """A group's configuration names an assignor that does not exist."""


class Subscription(NamedTuple):
    """What the leader is told about one member."""

    topics: tuple[str, ...]  # no topic twice
    owned: tuple[TopicPartition, ...] = ()  # what the member says it owns
    generation: int = -1  # of the group, when it was given that; -1: it was never given any
    group_instance_id: str | None = None  # the name of a static member, kept over restarts


class Assignor(Protocol):
    """Decides who reads what. Pure: the same question has the same answer on every machine."""

    @property
    def name(self) -> str:
        """What the protocol calls it; a group uses one that all members name."""

    @property
    def cooperative(self) -> bool:
        """Whether members keep reading what they own while the group rebalances."""

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Assignment:
        """Return for each of `members` the partitions it is to read, sorted.

        partitions: topic -> how many partitions it has; a subscribed topic that is missing here
            does not exist (yet) and has none.
        """


class RangeAssignor:
    """Topic by topic, runs of neighbouring partitions; the first members get one more."""

    name = "range"
    cooperative = False

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Assignment:
        """See `Assignor.assign`."""
        assignment: Assignment = {member: [] for member in members}
        for topic, readers in subscribers(partitions, members).items():
            share, extra = divmod(partitions[topic], len(readers))
            first = 0
            for place, member in enumerate(readers):
                end = first + share + (place < extra)
                assignment[member] += [(topic, number) for number in range(first, end)]
                first = end
        return assignment


class RoundRobinAssignor:
    """Deals all partitions to the members in turn; who does not subscribe is passed over."""

    name = "roundrobin"
    cooperative = False

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Assignment:
        """See `Assignor.assign`."""
        assignment: Assignment = {member: [] for member in members}
        order = _in_order(members)
        place = {member: number for number, member in enumerate(order)}
        turn = 0  # whose turn it is, in `order`
        for topic, readers in subscribers(partitions, members).items():
            places = [place[member] for member in readers]
            # Of this topic's readers, the first from `turn` on; past the last comes the first.
            nth = sum(number < turn for number in places)
            for number in range(partitions[topic]):
                member = readers[(nth + number) % len(readers)]
                assignment[member].append((topic, number))
                turn = (place[member] + 1) % len(order)
        return assignment


def subscribers(
    partitions: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, list[str]]:
    """topic -> who subscribes to it, for the topics that exist; both in order."""
    readers: dict[str, list[str]] = {}
    for member in _in_order(members):
        for topic in members[member].topics:
            if topic in partitions:
                readers.setdefault(topic, []).append(member)
    return dict(sorted(readers.items()))


def _in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Static members first, by their instance ids, then the others by their member ids.

    A member id is new after every restart, an instance id is not: so a static member that comes
    back finds its place, and its partitions, again.
    """

    def place(member: str) -> tuple[bool, str]:
        instance = members[member].group_instance_id
        return (True, member) if instance is None else (False, instance)

    return sorted(members, key=place)


ASSIGNORS: dict[str, Assignor] = {
    each.name: each
    for each in (
        RangeAssignor(),
        RoundRobinAssignor(),
        StickyAssignor(),
        CooperativeStickyAssignor(),
    )
}


def assignor(name: str) -> Assignor:
    """The assignor that the protocol calls `name`; raises UnknownAssignor if there is none."""
    try:
        return ASSIGNORS[name]
    except KeyError:
        near = difflib.get_close_matches(name.lower(), ASSIGNORS, n=1, cutoff=0)
        raise UnknownAssignor(
            f"there is no assignor {name!r}: there are {', '.join(ASSIGNORS)}",
            f"perhaps {near[0]!r} was meant",
        ) from None
