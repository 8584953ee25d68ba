"""A consumer group as data: who is in it, in which state, and what it waits for.

    Empty --join--> PreparingRebalance --all have joined--> CompletingRebalance --the leader has
      ^                |      ^   ^                              |                 shared out-->
      |   nobody left  |      |   '---- somebody came or went ---'                        Stable
      '----------------'      '------------------- somebody came or went --------------------'

In PreparingRebalance the group waits until every member has said (again) that it is there; in
CompletingRebalance each has been told who leads, and waits for the leader's assignment. Each pass
is a *generation*; whatever a member of an older generation asks is refused.

This file holds the state; `group_machine` moves it. All of it can be written to a file and read
back: a deadline is a number, and whoever waits for a reply is in here by the token of its request.

Source: Kafka's `GroupMetadata` (the state names and allowed moves), KIP-345 (static members).
"""

from __future__ import annotations

from enum import Enum

import msgspec

from craft2.errors import Craft2Error
from phase2_groups.group_messages import Because


class State(Enum):
    """Kafka's names, as `kafka-consumer-groups.sh --state` shows them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


MOVES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset(
        {State.STABLE, State.PREPARING_REBALANCE, State.DEAD},
    ),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}


class IllegalMove(Craft2Error):
    """A state change that the table does not list: a bug of the machine, never of a member."""


class GroupLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a coordinator allows. Names as Kafka's broker settings `group.*`."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1


class GroupMember(msgspec.Struct, kw_only=True):
    """One member."""

    member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    group_instance_id: str | None = None
    deadline_ms: int = 0  # gone if nothing is heard until then, unless it waits for a reply
    assignment: bytes = b""
    joining: str | None = None  # the token of a join that has no reply yet
    syncing: str | None = None  # the token of a sync that has no reply yet
    synced: bool = False  # it has asked for its assignment in this generation

    @property
    def name(self) -> str:
        """What to call it in a sentence."""
        return self.group_instance_id or self.client_id or self.member_id

    def subscription(self, protocol: str | None) -> bytes:
        """What it said to this protocol; empty if it does not know it."""
        return dict(self.protocols).get(protocol or "", b"")


class Storing(msgspec.Struct, kw_only=True):
    """A `Store` that was asked for and has not been answered by `Stored`."""

    token: str | None = None  # of the commit to reply to; None: it is an assignment
    generation: int = -1
    partitions: tuple[tuple[str, int], ...] = ()


class Group(msgspec.Struct, kw_only=True):
    """See the module. Times are ms of one clock that all callers of the machine share.

    Invariant: generation never falls, and grows with each completed join.
    Invariant: leader is a member, or "" in a group without members.
    Invariant: in Stable nobody is joining; in Empty there is nobody.
    Invariant: rebalance_deadline_ms is set exactly in PreparingRebalance.
    """

    group_id: str
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None  # the assignor of this generation
    leader: str = ""
    members: dict[str, GroupMember] = {}
    pending: dict[str, int] = {}  # ids given to new members, and until when they may come back
    rebalance_deadline_ms: int | None = None
    initial_until_ms: int | None = None  # first rebalance: newcomers are waited for until here
    grew: bool = False  # somebody came since the initial delay began
    sync_deadline_ms: int | None = None  # members that have not synced by then are removed
    because: str = ""  # why the last rebalance began
    because_data: Because = {}
    storing: dict[int, Storing] = {}
    next_number: int = 1  # of the next Store

    def move(self, to: State) -> None:
        """Change state. Raises IllegalMove if the table does not list the move."""
        if to not in MOVES[self.state]:
            raise IllegalMove(
                f"group {self.group_id!r} cannot go from {self.state.value} to {to.value}",
                "this is a bug in the state machine: report the events that led here",
            )
        self.state = to

    @property
    def instances(self) -> dict[str, str]:
        """Static members: instance id -> member id."""
        found = ((m.group_instance_id, m.member_id) for m in self.members.values())
        return {instance: member_id for instance, member_id in found if instance is not None}

    def owes(self, token: str) -> bool:
        """Whether the request with this token has no reply yet."""
        owed = [one.token for one in self.storing.values()]
        for member in self.members.values():
            owed += [member.joining, member.syncing]
        return token in owed

    def next_deadline_ms(self) -> int | None:
        """When the next `Tick` is due; None if nothing depends on time."""
        deadlines = [*self.pending.values()]
        deadlines += [m.deadline_ms for m in self.members.values() if not (m.joining or m.syncing)]
        deadlines += [
            at for at in (self.rebalance_deadline_ms, self.sync_deadline_ms) if at is not None
        ]
        return min(deadlines, default=None)
