"""The rebalance: how a group goes from "somebody came or went" to "everybody has its partitions".

Every change of members ends in `_rebalance`, with its *because*; every rebalance goes through
`_complete_join`, once all have joined or their time is up, and ends when the leader's assignment
is stored. Compare the drawing in `group_state`. `group_machine` puts the requests on top.

Source: Kafka's `GroupCoordinator` (classic protocol); KIP-62, 134 (the delay of the first one).
"""

from __future__ import annotations

from collections import Counter

from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import (
    Because,
    Effect,
    Happened,
    Reply,
    Store,
    Stored,
)
from phase2_groups.group_state import Group, GroupLimits, GroupMember, State, Storing

PREPARING, COMPLETING = State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE
STABLE, EMPTY, DEAD = State.STABLE, State.EMPTY, State.DEAD


class Rebalancing:
    """The half of `GroupMachine` that is about the whole group."""

    def __init__(self, group: Group, limits: GroupLimits | None = None) -> None:
        self.group = group
        self.limits = limits or GroupLimits()
        self._now = 0
        self._effects: list[Effect] = []

    def _reply(
        self, token: str | None, error: ErrorCode = ErrorCode.NONE, **fields: object
    ) -> None:
        if token is not None:
            self._effects.append(Reply(token=token, error=error, **fields))  # type: ignore[arg-type]

    def _happened(
        self, kind: str, because: str, who: str = "", data: Because | None = None
    ) -> None:
        generation = self.group.generation
        self._effects.append(
            Happened(kind=kind, because=because, who=who, generation=generation, data=data or {})
        )

    # The cycle.

    def _rebalance(self, because: str, data: Because) -> None:
        """Share out again, from whatever state the group is in; go on at once if all are there."""
        group = self.group
        if group.state is not PREPARING:
            for member in group.members.values():
                self._reply(member.syncing, ErrorCode.REBALANCE_IN_PROGRESS)
                member.syncing, member.synced = None, False
            delay = self.limits.initial_rebalance_delay_ms
            first, longest = group.state is EMPTY, self._longest_rebalance_ms()
            group.move(PREPARING)
            group.sync_deadline_ms = None
            group.rebalance_deadline_ms = self._now + (min(delay, longest) if first else longest)
            group.initial_until_ms = self._now + longest if first and delay else None
            group.grew = False
            group.because, group.because_data = because, data
            self._happened("rebalance-begins", because, data=data)
        self._complete_if_all_joined()

    def _longest_rebalance_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.group.members.values()), default=0)

    def _complete_if_all_joined(self) -> None:
        group = self.group
        all_here = all(member.joining for member in group.members.values())
        waits = group.initial_until_ms is not None or group.pending
        if group.state is PREPARING and all_here and not waits:
            self._complete_join()

    def _complete_join(self) -> None:
        """Go on with those who have joined: the next generation."""
        group = self.group
        for member in list(group.members.values()):
            if not member.joining and member.group_instance_id is None:
                timeout_s = member.rebalance_timeout_ms / 1000
                self._forget(member, f"{member.name} did not join again within {timeout_s:.1f} s")
        joined = [member for member in group.members.values() if member.joining]
        if group.members and not joined:  # static members only, and none is back yet
            group.rebalance_deadline_ms = self._now + self._longest_rebalance_ms()
            return
        group.rebalance_deadline_ms = group.initial_until_ms = None
        group.generation += 1
        if not group.members:
            group.move(EMPTY)
            group.protocol = None
            self._happened("empty", group.because)
            self._store(Storing(generation=group.generation), "assignment")
            return
        if not group.members[group.leader].joining:
            group.leader = joined[0].member_id
        group.protocol = self._vote()
        group.move(COMPLETING)
        group.sync_deadline_ms = self._now + self._longest_rebalance_ms()
        leader = group.members[group.leader].name
        self._happened("joined", group.because, data={"leader": leader, "protocol": group.protocol})
        for member in joined:
            self._heard_from(member)
            self._tell_generation(member, member.joining)
            member.joining = None

    def _vote(self) -> str:
        """The assignor that most members prefer among those that all of them know."""
        members = list(self.group.members.values())
        common = set.intersection(*({name for name, _ in m.protocols} for m in members))
        votes = Counter(next(name for name, _ in m.protocols if name in common) for m in members)
        return votes.most_common(1)[0][0]

    # What members are told.

    def _tell_generation(
        self, member: GroupMember, token: str | None, *, skip_assignment: bool = False
    ) -> None:
        """Reply to a join: the generation, who leads; to the leader, who is there."""
        group = self.group
        leads = member.member_id == group.leader
        everybody = sorted(group.members.values(), key=lambda m: m.member_id) if leads else []
        self._reply(
            token,
            member_id=member.member_id,
            generation=group.generation,
            leader=group.leader,
            protocol_type=group.protocol_type,
            protocol=group.protocol,
            members=tuple(
                (m.member_id, m.group_instance_id, m.subscription(group.protocol))
                for m in everybody
            ),
            skip_assignment=skip_assignment,
        )

    def _tell_assignment(self, member: GroupMember, token: str | None) -> None:
        self._reply(
            token,
            protocol_type=self.group.protocol_type,
            protocol=self.group.protocol,
            assignment=member.assignment,
        )

    # Who is there.

    def _heard_from(self, member: GroupMember) -> None:
        member.deadline_ms = self._now + member.session_timeout_ms

    def _remove(self, gone: list[tuple[GroupMember, str]]) -> None:
        """Take members out, each with its because; then share out among the rest."""
        for member, because in gone:
            self._forget(member, because)
        if gone and self.group.state is not EMPTY:
            because = "; ".join(because for _, because in gone)
            self._rebalance(because, {"gone": ", ".join(member.name for member, _ in gone)})

    def _forget(self, member: GroupMember, because: str) -> None:
        group = self.group
        del group.members[member.member_id]
        for token in (member.joining, member.syncing):
            self._reply(token, ErrorCode.UNKNOWN_MEMBER_ID)
        if group.leader == member.member_id:
            group.leader = next(iter(group.members), "")
        self._happened("member-gone", because, member.name)

    # Time.

    def _tick(self) -> None:
        group, now = self.group, self._now
        for member_id in [one for one, until in group.pending.items() if until <= now]:
            del group.pending[member_id]
        self._evict()
        deadline = group.sync_deadline_ms
        if deadline is not None and deadline <= now:
            group.sync_deadline_ms = None
            late = [member for member in group.members.values() if not member.synced]
            words = "did not ask for its partitions"
            self._remove([(member, f"{member.name} {words}") for member in late])
        deadline = group.rebalance_deadline_ms
        if deadline is not None and deadline <= now:
            until = group.initial_until_ms
            if until is not None and group.grew and now < until:  # perhaps more are coming
                group.grew = False
                delay = self.limits.initial_rebalance_delay_ms
                group.rebalance_deadline_ms = min(now + delay, until)
            else:
                self._complete_join()
        self._complete_if_all_joined()

    # EXERCISE 10.1 the tick
    def _evict(self) -> None:
        """Take out the members that have not been heard from for their session timeout.

        `self.group.members` maps member ids to members. A member is out as soon as `self._now`, the
        time, has reached its `deadline_ms` (its last sign of life plus its session timeout). But
        one that waits for our answer to its join or its sync cannot speak: its `joining` or its
        `syncing` is not None, and it stays.

        `self._remove([(member, because), ...])` takes members out and starts a rebalance, one for
        all that it is given; it changes `self.group.members`. An empty list is harmless: nothing
        happens. The because is a sentence for the record, such as "consumer-3 sent no heartbeat for
        6.0 s": the member's `name`, and its `session_timeout_ms` in seconds with one decimal.
        """
        # BEGIN SOLUTION
        gone = []
        for member in self.group.members.values():
            if member.deadline_ms <= self._now and not (member.joining or member.syncing):
                silence_s = member.session_timeout_ms / 1000
                gone.append((member, f"{member.name} sent no heartbeat for {silence_s:.1f} s"))
        self._remove(gone)
        # END SOLUTION

    def _mend_deadlines(self) -> None:
        """After the clock went back (a reboot): nobody has longer than its timeout from now."""
        group, now = self.group, self._now
        for member in group.members.values():
            member.deadline_ms = min(member.deadline_ms, now + member.session_timeout_ms)
        longest = now + self._longest_rebalance_ms()
        if group.rebalance_deadline_ms is not None:
            group.rebalance_deadline_ms = min(group.rebalance_deadline_ms, longest)
        if group.sync_deadline_ms is not None:
            group.sync_deadline_ms = min(group.sync_deadline_ms, longest)
        if group.initial_until_ms is not None:
            group.initial_until_ms = min(group.initial_until_ms, longest)
        until = now + self.limits.max_session_timeout_ms
        group.pending = {one: min(at, until) for one, at in group.pending.items()}

    # Storing.

    def _store(self, storing: Storing, what: str, offsets: object = ()) -> None:
        number = self.group.next_number
        self.group.next_number += 1
        self.group.storing[number] = storing
        self._effects.append(
            Store(number=number, what=what, offsets=offsets)  # type: ignore[arg-type]
        )

    def _assignment_is_being_stored(self) -> bool:
        storing = self.group.storing.values()
        return any(s.token is None and s.generation == self.group.generation for s in storing)

    def _stored(self, stored: Stored) -> None:
        group = self.group
        storing = group.storing.pop(stored.number, None)
        if storing is None:
            return
        if storing.token is not None:
            partitions = tuple((*partition, stored.error) for partition in storing.partitions)
            self._reply(storing.token, stored.error, partitions=partitions)
        elif storing.generation == group.generation and group.state is COMPLETING:
            if stored.error:
                self._assignment_was_not_stored(stored.error)
                return
            group.move(STABLE)
            self._happened("stable", group.because, data=group.because_data)
            for member in group.members.values():
                if member.syncing:
                    self._heard_from(member)
                    self._tell_assignment(member, member.syncing)
                    member.syncing = None

    def _assignment_was_not_stored(self, error: ErrorCode) -> None:
        for member in self.group.members.values():
            self._reply(member.syncing, error)
            member.syncing, member.assignment = None, b""
        self._rebalance(f"the assignment could not be stored ({error.name})", {"error": error.name})
