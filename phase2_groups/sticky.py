"""Sticky assignment: as even as can be, and among all even ones the one that moves the least.

To move a partition is dear: its old reader commits and forgets what it knew, its new one starts
cold. So who owns a partition keeps it, unless somebody has two fewer:

>>> from phase2_groups.assignors import Subscription, assignor
>>> group = {"a": Subscription(("t",), (("t", 0), ("t", 1), ("t", 2))), "new": Subscription(("t",))}
>>> assignor("sticky").assign({"t": 3}, group)
{'a': [('t', 0), ('t', 1)], 'new': [('t', 2)]}

In an *eager* group all members stop reading before they join, and that is the answer. In a
*cooperative* group they keep reading, so 'a' still reads ('t', 2) while it is given away. Two
readers of one partition must never be, so the move takes two rounds: in the first, 'a' alone learns
that it has lost it; it lets go and joins again, and the second round gives it away.

>>> assignor("cooperative-sticky").assign({"t": 3}, group)
{'a': [('t', 0), ('t', 1)], 'new': []}
>>> group["a"] = Subscription(("t",), (("t", 0), ("t", 1)), generation=1)
>>> assignor("cooperative-sticky").assign({"t": 3}, group)
{'a': [('t', 0), ('t', 1)], 'new': [('t', 2)]}

Source: KIP-54 (sticky), KIP-429 (cooperative), KIP-792 (generations of claims), and Kafka's
AbstractStickyAssignor. Groups whose members subscribe to different topics: see `even_out.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from phase2_groups.even_out import assign_unequal

if TYPE_CHECKING:
    from phase2_groups.assignors import Assignment, Subscription, TopicPartition


class StickyAssignor:
    """Even and with few moves, for groups that stop reading while they rebalance."""

    name = "sticky"
    cooperative = False

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Assignment:
        """See `phase2_groups.assignors.Assignor.assign`."""
        return _assign(partitions, members, _rightly_owned(partitions, members))


class CooperativeStickyAssignor:
    """The same for groups that keep reading: a partition that moves is free for one round."""

    name = "cooperative-sticky"
    cooperative = True

    def assign(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> Assignment:
        """See `phase2_groups.assignors.Assignor.assign`.

        What must be let go first is in nobody's list. Who loses a partition joins again at once.
        """
        owned = _rightly_owned(partitions, members)
        claimed = {claim for member in members.values() for claim in member.owned}
        return _revoke_first(_assign(partitions, members, owned), owned, claimed)


def _assign(
    partitions: Mapping[str, int],
    members: Mapping[str, Subscription],
    owned: Mapping[str, Sequence[TopicPartition]],
) -> Assignment:
    subscriptions = {frozenset(member.topics) for member in members.values()}
    if len(subscriptions) > 1:
        assignment = assign_unequal(partitions, members, owned)
    else:
        topics = sorted({topic for topics in subscriptions for topic in topics} & set(partitions))
        everything = [(topic, number) for topic in topics for number in range(partitions[topic])]
        assignment = _assign_equal(everything, owned) if members else {}
    return {member: sorted(mine) for member, mine in assignment.items()}


def _rightly_owned(
    partitions: Mapping[str, int], members: Mapping[str, Subscription]
) -> dict[str, list[TopicPartition]]:
    """member, in order -> what it owns and may keep, in order. No partition has two owners.

    A member that missed a rebalance still claims what others were given since: of two claims the
    one of the newer generation holds. Two equally new ones should not be; then neither holds.
    A claim on a partition that does not exist, or is not subscribed to, is none.
    """
    newest: dict[TopicPartition, tuple[int, str | None]] = {}  # (generation, owner)
    for member in sorted(members):
        subscription = members[member]
        topics = set(subscription.topics)
        for claim in set(subscription.owned):
            if claim[0] in topics and 0 <= claim[1] < partitions.get(claim[0], 0):
                generation = newest[claim][0] if claim in newest else -2
                if subscription.generation > generation:
                    newest[claim] = (subscription.generation, member)
                elif subscription.generation == generation:
                    newest[claim] = (generation, None)
    owned: dict[str, list[TopicPartition]] = {member: [] for member in sorted(members)}
    for claim, (_, owner) in sorted(newest.items(), key=lambda item: item[0]):
        if owner is not None:
            owned[owner].append(claim)
    return owned


# EXERCISE 11.1 even, with few moves
def _assign_equal(
    everything: Sequence[TopicPartition], owned: Mapping[str, Sequence[TopicPartition]]
) -> Assignment:
    """Give every partition to one member: as even as possible, then with as few moves as possible.

    everything: all partitions there are, in order; every member may read each of them.
    owned: member -> the partitions it owns now, perhaps none. At least one member. What is owned is
        in `everything`, and no partition has two owners; some have none.

    Returns member -> list of its partitions, in any order, for every member. With 10 partitions and
    4 members, two members have 3 and two have 2: any two differ by at most one. Among all
    assignments that are so, this one leaves the most partitions with the member that owns them.
    `owned` stays as it is. The answer depends on the arguments alone (no sets in a random order).
    """
    # BEGIN SOLUTION
    share, extra = divmod(len(everything), len(owned))
    quota = dict.fromkeys(owned, share)
    # One more for `extra` of them, and first for those who have it already.
    for member in sorted(owned, key=lambda member: len(owned[member]) <= share)[:extra]:
        quota[member] += 1
    assignment = {member: list(mine[: quota[member]]) for member, mine in owned.items()}
    kept = {partition for mine in assignment.values() for partition in mine}
    in_turn = deque(member for member in owned if len(assignment[member]) < quota[member])
    for partition in everything:
        if partition not in kept:
            member = in_turn.popleft()
            assignment[member].append(partition)
            if len(assignment[member]) < quota[member]:
                in_turn.append(member)
    return assignment
    # END SOLUTION


# EXERCISE 11.2 revoke first
def _revoke_first(
    wanted: Mapping[str, Sequence[TopicPartition]],
    owned: Mapping[str, Collection[TopicPartition]],
    claimed: Collection[TopicPartition],
) -> Assignment:
    """Take out of `wanted` what may not be given away in this round.

    wanted: member -> the partitions it is to have in the end. No partition is there twice.
    owned: member -> the partitions it rightly owns now, and goes on reading. For every member.
    claimed: every partition that any member says it owns, rightly or not. All that is owned is
        claimed, and perhaps more: whoever missed a rebalance may still be reading a partition that
        it does not own any more, and will, until this answer tells it to stop.

    Returns member -> list of its partitions for this round, in the order of `wanted`, for every
    member of `wanted`. A member keeps what it owns and is to have. It is given a partition that it
    does not own only if that is certain to have no reader. Everything else waits for the next
    round: nobody has it in this one.
    """
    # BEGIN SOLUTION
    return {
        member: [each for each in mine if each in owned[member] or each not in claimed]
        for member, mine in wanted.items()
    }
    # END SOLUTION
