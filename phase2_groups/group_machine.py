"""The group coordinator's state machine: requests and time in, effects out, no clock and no I/O.

>>> from phase2_groups.group_state import Group, GroupLimits
>>> machine = GroupMachine(Group(group_id="billing"), GroupLimits(initial_rebalance_delay_ms=0))
>>> join = Join(token="a", member_id="", new_member_id="m-1", client_id="consumer-1",
...             protocols=(("range", b"flights"),), require_known_member_id=False)
>>> [reply] = replies(machine.handle(join, now_ms=0))
>>> reply.token, reply.generation, reply.leader, machine.group.state.value
('a', 1, 'm-1', 'CompletingRebalance')

This file answers requests; what happens to the whole group is in `group_rebalance`.

Source: Kafka's `GroupCoordinator` (classic protocol); KIP-62, 345, 394, 800, 814.
"""

from __future__ import annotations

from collections.abc import Iterable

from phase2_groups.consumer_protocol import topics_of
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import (
    Commit,
    Effect,
    Heartbeat,
    Input,
    Join,
    Leave,
    Leaver,
    Member,
    Reply,
    Stored,
    Sync,
    Tick,
)
from phase2_groups.group_rebalance import Rebalancing
from phase2_groups.group_state import GroupMember, State, Storing

PREPARING, COMPLETING = State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE
STABLE, EMPTY, DEAD = State.STABLE, State.EMPTY, State.DEAD


def replies(effects: Iterable[Effect]) -> list[Reply]:
    """The replies among some effects."""
    return [effect for effect in effects if isinstance(effect, Reply)]


class GroupMachine(Rebalancing):
    """Moves one `Group`. Whoever calls it carries out the effects in order, and calls it again
    with a `Tick` when `group.next_deadline_ms()` has come.
    """

    def handle(self, event: Input, now_ms: int) -> list[Effect]:
        """The effects of one request, answer or tick at `now_ms`.

        now_ms may jump back: no deadline is ever further away than its timeout.
        """
        self._now, self._effects = now_ms, []
        self._mend_deadlines()
        match event:
            case Join():
                self._join(event)
            case Sync():
                self._sync(event)
            case Heartbeat():
                self._heartbeat(event)
            case Commit():
                self._commit(event)
            case Leave():
                self._leave(event)
            case Stored():
                self._stored(event)
            case Tick():
                self._tick()
        return self._effects

    # Joining.

    def _join(self, join: Join) -> None:
        group, limits = self.group, self.limits
        shortest, longest = limits.min_session_timeout_ms, limits.max_session_timeout_ms
        if group.state is DEAD:
            self._reply(join.token, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not shortest <= join.session_timeout_ms <= longest:
            self._reply(join.token, ErrorCode.INVALID_SESSION_TIMEOUT)
        elif join.member_id and join.member_id not in group.pending:
            self._join_again(join)
        elif not self._understands(join):
            self._reply(join.token, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif join.member_id:
            del group.pending[join.member_id]
            self._add(join, join.member_id)
        elif old := group.instances.get(join.group_instance_id or ""):
            self._replace_static(join, group.members[old])
        elif len(group.members) + len(group.pending) >= limits.max_size:
            self._reply(join.token, ErrorCode.GROUP_MAX_SIZE_REACHED)
        elif join.require_known_member_id and join.group_instance_id is None:
            # KIP-394: a client that gives up and tries again must not leave a ghost behind it.
            group.pending[join.new_member_id] = self._now + join.session_timeout_ms
            self._reply(join.token, ErrorCode.MEMBER_ID_REQUIRED, member_id=join.new_member_id)
        else:
            self._add(join, join.new_member_id)

    def _understands(self, join: Join) -> bool:
        """Whether the others and this one have an assignor in common."""
        group = self.group
        others = [m for m in group.members.values() if m.member_id != join.member_id]
        if not join.protocols or not join.protocol_type:
            return False
        if not others:
            return True
        common = set.intersection(*({name for name, _ in m.protocols} for m in others))
        return group.protocol_type == join.protocol_type and any(
            name in common for name, _ in join.protocols
        )

    def _add(self, join: Join, member_id: str) -> None:
        group = self.group
        member = GroupMember(
            member_id=member_id,
            group_instance_id=join.group_instance_id,
            client_id=join.client_id,
            client_host=join.client_host,
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            protocols=join.protocols,
            joining=join.token,
        )
        if not group.members:
            group.leader, group.protocol_type = member_id, join.protocol_type
        group.members[member_id] = member
        group.grew = True
        self._rebalance(join.reason or f"{member.name} joined", {"joined": member.name})

    def _join_again(self, join: Join) -> None:
        group = self.group
        error = self._unknown(join.member_id, join.group_instance_id)
        if not error and not self._understands(join):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error:
            self._reply(join.token, error)
            return
        member = group.members[join.member_id]
        changed = member.protocols != join.protocols
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        member.session_timeout_ms = join.session_timeout_ms
        member.protocols = join.protocols
        self._heard_from(member)
        leads = member.member_id == group.leader
        if group.state is PREPARING or changed or (leads and group.state is STABLE):
            member.joining = join.token
            words = "leads and joined again" if leads else "joined again with a new subscription"
            because = join.reason or f"{member.name} {words}"
            self._rebalance(because, {"joined again": member.name})
        else:  # a reply got lost: the same again
            self._tell_generation(member, join.token)

    def _replace_static(self, join: Join, member: GroupMember) -> None:
        """A static member is back under a new id; its old self, if it still lives, is fenced.

        Nothing is shared out again, unless it reads other topics now, or the group's next assignor
        would be another. (Kafka asks only for the assignor.) The rest of its subscription, such as
        what it owned, is a wish for the next time.
        """
        group = self.group
        for token in (member.joining, member.syncing):
            self._reply(token, ErrorCode.FENCED_INSTANCE_ID)
        member.joining = member.syncing = None
        old_id, subscribed = member.member_id, topics_of(member.subscription(group.protocol))
        group.members = {  # in the same place
            join.new_member_id if key == old_id else key: value
            for key, value in group.members.items()
        }
        member.member_id = join.new_member_id
        member.client_id, member.client_host = join.client_id, join.client_host
        member.protocols = join.protocols
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = join.rebalance_timeout_ms
        leads = group.leader == old_id
        if leads:
            group.leader = member.member_id
        self._heard_from(member)
        same = subscribed == topics_of(member.subscription(group.protocol))
        if group.state is STABLE and same and self._vote() == group.protocol:
            # KIP-345: it finds its partitions as it left them, and nobody else notices.
            self._happened("static-member-returned", f"{member.name} is back", member.name)
            self._store(Storing(generation=group.generation), "assignment")
            self._tell_generation(member, join.token, skip_assignment=leads)
            return
        member.joining = join.token
        self._rebalance(join.reason or f"{member.name} is back", {"returned": member.name})

    # What a member says.

    def _sync(self, sync: Sync) -> None:
        group = self.group
        error = self._fence(sync)
        for given, agreed in (
            (sync.protocol_type, group.protocol_type),
            (sync.protocol, group.protocol),
        ):
            if not error and given is not None and given != agreed:
                error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if error or group.state is PREPARING:
            self._reply(sync.token, error or ErrorCode.REBALANCE_IN_PROGRESS)
            return
        member = group.members[sync.member_id]
        self._heard_from(member)
        member.synced = True
        if group.state is STABLE:
            self._tell_assignment(member, sync.token)
            return
        member.syncing = sync.token
        if sync.member_id == group.leader and not self._assignment_is_being_stored():
            assignments = dict(sync.assignments)
            for each in group.members.values():
                each.assignment = assignments.get(each.member_id, b"")
            self._store(Storing(generation=group.generation), "assignment")

    def _heartbeat(self, heartbeat: Heartbeat) -> None:
        error = self._fence(heartbeat)
        if not error:
            self._heard_from(self.group.members[heartbeat.member_id])
            if self.group.state is PREPARING:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        self._reply(heartbeat.token, error)

    def _commit(self, commit: Commit) -> None:
        group = self.group
        error = ErrorCode.NONE
        if group.state is DEAD:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif commit.generation >= 0 or commit.member_id or group.state is not EMPTY:
            error = self._fence(commit)
            if not error:
                self._heard_from(group.members[commit.member_id])
                if group.state is COMPLETING:  # it may not know yet what it has lost
                    error = ErrorCode.REBALANCE_IN_PROGRESS
        partitions = tuple((topic, number) for topic, number, _ in commit.offsets)
        if error:
            self._reply(commit.token, error, partitions=tuple((*p, error) for p in partitions))
            return
        storing = Storing(token=commit.token, partitions=partitions)
        self._store(storing, "offsets", commit.offsets)

    # EXERCISE 13.3 a stale commit
    def _fence(self, request: Member) -> ErrorCode:
        """What is wrong with a request that only a member of this generation may send; else NONE.

        request: with a `member_id`, a `generation` and a `group_instance_id` (None: not static).

        First comes the question whether the sender is anybody at all. `self._unknown(member_id,
        group_instance_id)` answers it with an ErrorCode: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID if
        another has come in the place of this static member, or NONE.

        A member that does exist may still speak for a generation other than that of `self.group`:
        it slept through a rebalance, and what was its own may by now be another's. The answer to it
        is ILLEGAL_GENERATION. Nothing is changed here, and the state of the group plays no part.
        """
        # BEGIN SOLUTION
        error = self._unknown(request.member_id, request.group_instance_id)
        if not error and request.generation != self.group.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return error
        # END SOLUTION

    def _unknown(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        group = self.group
        if group.state is DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group_instance_id is not None:
            registered = group.instances.get(group_instance_id)
            if registered is not None and registered != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID

    def _leave(self, leave: Leave) -> None:
        left = []
        gone: list[tuple[GroupMember, str]] = []
        for leaver in leave.members:
            member_id, error = self._who_leaves(leaver)
            left.append((leaver.member_id, leaver.group_instance_id, error))
            if not error and self.group.pending.pop(member_id, None) is None:
                member = self.group.members[member_id]
                gone.append(
                    (member, f"{member.name} left" + f": {leaver.reason}" * bool(leaver.reason))
                )
        self._reply(leave.token, left=tuple(left))
        self._remove(gone)
        self._complete_if_all_joined()

    def _who_leaves(self, leaver: Leaver) -> tuple[str, ErrorCode]:
        group = self.group
        member_id = leaver.member_id
        if leaver.group_instance_id is not None and not member_id:  # an operator removes it
            member_id = group.instances.get(leaver.group_instance_id, "")
        if member_id in group.pending:
            return member_id, ErrorCode.NONE
        return member_id, self._unknown(member_id, leaver.group_instance_id)
