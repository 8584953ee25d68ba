"""The consumer's side of a group: what a member asks, and what it makes of the answers.

                 .---------------------- REBALANCE_IN_PROGRESS ----------------------.
                 v                                                                   |
    unjoined --Join--> joining --its reply--> syncing --Sync's reply--> stable --Heartbeat

Pure, as the coordinator is: the shell (`consumer`) asks what to do, does it, and says what came of
it. Two threads share that work. One sends requests (`next_ask`, `heartbeat`), which may take long.
The application's own, in `poll`, calls its listener (`next_tell`): partitions are *revoked* before
others may have them, *assigned* when they are ours, and *lost* when they have long been somebody
else's.

An eager member gives everything up before it joins; a cooperative one (KIP-429) keeps reading,
gives up only what the new assignment takes from it, and then joins once more, so that what it gave
up can be given to others.

Source: Kafka's `ConsumerCoordinator` and `AbstractCoordinator`; KIP-62 (max poll interval).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import msgspec

from craft2.errors import Craft2Error
from phase2_groups.assignors import ASSIGNORS, Assignor, Subscription
from phase2_groups.consumer_protocol import (
    decode_assignment,
    decode_sticky_user_data,
    decode_subscription,
    encode_assignment,
    encode_sticky_user_data,
    encode_subscription,
)
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import (
    Commit,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    Reply,
    Request,
    Sync,
    TopicPartition,
)


class GroupError(Craft2Error):
    """The group does not want this member; trying again would not help."""


class FencedInstance(GroupError):
    """Another consumer runs under the same `group_instance_id`."""


class MemberState(Enum):
    """See the drawing."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    SYNCING = "syncing"
    STABLE = "stable"


@dataclass(frozen=True)
class MemberConfig:
    """What a member tells the group about itself; names as in `ConsumerConfig`."""

    group_id: str
    client_id: str
    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    retry_backoff_ms: int
    assignors: Sequence[str]  # in order of preference


class Ask(NamedTuple):
    """Send this request and hand the reply to `received`."""

    request: Request
    timeout_ms: int


class Tell(NamedTuple):
    """Call the application's listener, then `told`. kind: "revoked", "assigned" or "lost"."""

    kind: str
    partitions: tuple[TopicPartition, ...]


@dataclass
class Membership:
    """One member. Not thread-safe: the shell holds a lock round every call.

    new_token, new_member_id: give strings that nobody had before.
    Invariant: `owned` holds what the listener was last told, or is being told, to be ours.
    Invariant: while the generation is -1, what is `owned` is lost, and we do not join.
    """

    config: MemberConfig
    new_token: Callable[[], str]
    new_member_id: Callable[[], str]
    topics: tuple[str, ...] = ()
    owned: frozenset[TopicPartition] = frozenset()
    state: MemberState = MemberState.UNJOINED
    member_id: str = ""
    generation: int = -1
    protocol: str | None = None
    because: str = ""  # why we join (again), for the coordinator's record
    _rejoin: bool = True
    _tells: list[Tell] = field(default_factory=list)
    _shares: tuple[tuple[str, bytes], ...] = ()  # the leader's decision, to be sent with Sync
    _counted: dict[str, int] | None = None  # the leader's: partitions when it was decided
    _not_before_ms: int = 0
    _members: tuple[tuple[str, str | None, bytes], ...] = ()  # the leader's: who subscribes to what
    _beat_ms: int = 0  # when the last heartbeat was sent
    _polled_ms: int = 0
    # What an eager member had, for the sticky assignor: by the time it joins it owns nothing.
    _last_owned: tuple[TopicPartition, ...] = ()
    _last_generation: int = -1

    def subscribe(self, topics: Sequence[str]) -> None:
        """Ask for these topics from now on."""
        if tuple(topics) != self.topics:
            first, self.topics = not self.topics, tuple(topics)
            wants = f"{self.config.client_id} now subscribes to {', '.join(topics)}"
            self._join_again("" if first else wants)

    def poll(self, now_ms: int, partitions: Mapping[str, int]) -> None:
        """The application has called poll. partitions: how many each topic has now.

        The leader notices here that a topic has grown.
        """
        self._polled_ms = now_ms
        if self._counted is not None and self.state is MemberState.STABLE:
            for topic, count in self._counted.items():
                now = partitions.get(topic, count)
                if now != count:
                    self._join_again(f"{topic} grew from {count} to {now} partitions")
                    return

    def watched(self) -> set[str]:
        """The topics whose growth matters: our own, and for the leader those of all members."""
        return {*self.topics, *(self._counted or ())}

    def next_tell(self) -> Tell | None:
        """What the listener is to be told now, in the thread that polls; again, if it has raised.

        The group may go on without us while the listener runs. Whatever it has been told by then to
        be ours, and has not given up, is lost.
        """
        if self._is_lost():
            return Tell("lost", tuple(sorted(self.owned)))
        if not self._tells and self.state is MemberState.STABLE and self._rejoin:
            given_up = self._before_joining()
            if given_up:
                self._tells.append(Tell("revoked", given_up))
            else:
                self.state = MemberState.UNJOINED
        tell = self._tells[0] if self._tells else None
        if tell is not None and tell.kind == "assigned":
            self.owned |= set(tell.partitions)
        return tell

    def _is_lost(self) -> bool:
        return self.generation < 0 and bool(self.owned)

    def next_ask(self, now_ms: int) -> Ask | None:
        """The join or sync to send now. None: nothing to send, or the listener must know first.

        Who is silent does not join: it would leave at once, and the others would have to share out
        twice. Its next poll ends that (KIP-62).
        """
        if self._tells or self._is_lost() or not self.topics or now_ms < self._not_before_ms:
            return None
        if self.state is MemberState.UNJOINED and self._silent_ms(now_ms):
            return None
        patience_ms = self.config.max_poll_interval_ms + 5_000  # as long as the others may take
        if self.state is MemberState.UNJOINED:
            self.state, self._rejoin = MemberState.JOINING, False
            return Ask(self._join(), patience_ms)
        if self.state is MemberState.SYNCING:
            return Ask(self._sync(), patience_ms)
        return None

    def told(self, tell: Tell) -> None:
        """The listener has returned from this call, perhaps after `_lose` has crossed it out."""
        if self._tells and self._tells[0] is tell:
            del self._tells[0]
        if tell.kind != "assigned":
            self.owned -= set(tell.partitions)

    def _silent_ms(self, now_ms: int) -> int:
        """For how long there was no poll, if that is too long; else 0."""
        silent_ms = now_ms - self._polled_ms
        return silent_ms if silent_ms > self.config.max_poll_interval_ms else 0

    def heartbeat(self, now_ms: int, moved: bool) -> Ask | None:
        """A heartbeat, if one is due, or if a look at the group has shown that it `moved`.

        Or the goodbye of a member whose application has not polled for too long (KIP-62).
        """
        if self.state is not MemberState.STABLE or not self.member_id:
            return None
        if silent_ms := self._silent_ms(now_ms):
            ask = self.leave(f"poll was not called for {silent_ms / 1000:.1f} s")
            self._lose()
            return ask
        due = now_ms - self._beat_ms >= self.config.heartbeat_interval_ms
        if not due and not (moved and not self._rejoin):
            return None
        self._beat_ms = now_ms
        heartbeat = Heartbeat(
            token=self.new_token(),
            member_id=self.member_id,
            generation=self.generation,
            group_instance_id=self.config.group_instance_id,
        )
        return Ask(heartbeat, self.config.session_timeout_ms)

    def leave(self, reason: str) -> Ask | None:
        """The request with which to go; None for a static member, who may come back (KIP-345)."""
        if not self.member_id or self.config.group_instance_id is not None:
            return None
        leaver = Leaver(member_id=self.member_id, reason=reason)
        return Ask(Leave(token=self.new_token(), members=(leaver,)), self.config.session_timeout_ms)

    def give_up_all(self) -> Tell | None:
        """What the listener is to be told before this member closes."""
        kind = "lost" if self._is_lost() else "revoked"
        return Tell(kind, tuple(sorted(self.owned))) if self.owned else None

    def received(self, request: Request, reply: Reply | None, now_ms: int) -> None:
        """The reply to a request; None: there was none in time.

        Raises GroupError if the group refuses this member for good.
        """
        error = ErrorCode.REQUEST_TIMED_OUT if reply is None else reply.error
        if error is ErrorCode.FENCED_INSTANCE_ID:
            raise FencedInstance(
                f"another consumer has joined group {self.config.group_id!r} with "
                f"group_instance_id {self.config.group_instance_id!r}",
                "give each consumer an instance id of its own",
            )
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            if not isinstance(request, Leave) and self._is_current(request):
                self._lose(keep_id=error is ErrorCode.ILLEGAL_GENERATION)
            return
        match request:
            case Join() if self.state is MemberState.JOINING:  # else we have lost all meanwhile
                self._joined(reply, error, now_ms)
            case Sync() if self.state is MemberState.SYNCING:
                self._synced(reply, error, now_ms)
            case Heartbeat() if error is ErrorCode.REBALANCE_IN_PROGRESS:
                self._join_again("")

    def _is_current(self, request: Request) -> bool:
        """Not about a generation that we have left behind ourselves meanwhile."""
        return not isinstance(request, Heartbeat) or request.generation == self.generation

    def commit_refused(self, commit: Commit, error: ErrorCode) -> ErrorCode:
        """A commit was refused: perhaps the group has gone on without us. What to tell who asked.

        It has not if we are joining: then the next generation has begun, and the answer to our join
        is still on its way, or came after this commit was sent. A cooperative member keeps what it
        has meanwhile, and commits later.
        """
        joins = self.state is not MemberState.STABLE or commit.generation != self.generation
        if error is ErrorCode.ILLEGAL_GENERATION and joins:
            return ErrorCode.REBALANCE_IN_PROGRESS
        if commit.generation == self.generation and error in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
        ):
            self._lose(keep_id=error is ErrorCode.ILLEGAL_GENERATION)
        return error

    # Joining.

    def _join_again(self, because: str) -> None:
        self._rejoin = True
        self.because = because

    def _before_joining(self) -> tuple[TopicPartition, ...]:
        """What must be given up before we join: all of it, or what we do not subscribe to."""
        if self._cooperative():
            return tuple(sorted(tp for tp in self.owned if tp[0] not in self.topics))
        return tuple(sorted(self.owned))

    def _cooperative(self) -> bool:
        """Whether every assignor that may be chosen is cooperative."""
        return all(ASSIGNORS[name].cooperative for name in self.config.assignors)

    def _join(self) -> Join:
        config = self.config
        claim = Subscription(
            self.topics,
            tuple(sorted(self.owned)),
            self.generation if self.owned else -1,
            config.group_instance_id,
        )
        protocols = []
        for name in config.assignors:
            mine = encode_sticky_user_data(self._last_owned, self._last_generation)
            user_data = mine if name == "sticky" and self._last_owned else None
            protocols.append((name, encode_subscription(claim, user_data=user_data)))
        return Join(
            token=self.new_token(),
            member_id=self.member_id,
            new_member_id=self.new_member_id(),
            group_instance_id=config.group_instance_id,
            client_id=config.client_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            protocols=tuple(protocols),
            reason=self.because,
        )

    def _sync(self) -> Sync:
        return Sync(
            token=self.new_token(),
            member_id=self.member_id,
            generation=self.generation,
            group_instance_id=self.config.group_instance_id,
            protocol_type="consumer",
            protocol=self.protocol,
            assignments=self._shares,
        )

    def _joined(self, reply: Reply | None, error: ErrorCode, now_ms: int) -> None:
        if reply is not None and error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id, self.state = reply.member_id, MemberState.UNJOINED
            return
        self._refuse(error)
        if reply is None or error is not ErrorCode.NONE:
            self._try_later(now_ms)
            return
        self.member_id, self.generation = reply.member_id, reply.generation
        self.protocol, self.because = reply.protocol, ""
        self._shares, self._counted = (), None
        self._members = reply.members
        self.state = MemberState.SYNCING

    def leads(self) -> tuple[str, ...]:
        """The topics to count the partitions of before `share_out`, if this member leads."""
        if self.state is not MemberState.SYNCING or not self._members or self._shares:
            return ()
        topics = {
            t for *_, data in self._members for t in decode_subscription(data).subscription.topics
        }
        return tuple(sorted(topics))

    def share_out(self, partitions: Mapping[str, int]) -> None:
        """As the leader, decide who reads what. partitions: how many each topic has.

        A leader that came back to a stable group decides too, and is not heeded (KIP-814). So that
        it finds out what has grown while it was away, its own assignment says what was counted.
        """
        self._counted = dict.fromkeys(self.leads(), 0) | dict(partitions)
        counts = {self.member_id: msgspec.json.encode(self._counted)}
        chosen: Assignor = ASSIGNORS[self.protocol or ""]
        subscriptions = {}
        for member_id, instance_id, data in self._members:
            joined = decode_subscription(data)
            claim = joined.subscription._replace(group_instance_id=instance_id)
            if chosen.name == "sticky" and joined.user_data:
                owned, generation = decode_sticky_user_data(joined.user_data)
                claim = claim._replace(owned=tuple(owned), generation=generation)
            subscriptions[member_id] = claim
        shares = chosen.assign(partitions, subscriptions)
        self._shares = tuple(
            (one, encode_assignment(share, user_data=counts.get(one)))
            for one, share in shares.items()
        )

    def _synced(self, reply: Reply | None, error: ErrorCode, now_ms: int) -> None:
        self._refuse(error)
        if reply is None or error is not ErrorCode.NONE:
            self._try_later(now_ms)
            return
        self.state = MemberState.STABLE
        self._beat_ms = now_ms
        mine: frozenset[TopicPartition] = frozenset()
        if reply.assignment:
            _, partitions, counts = decode_assignment(reply.assignment)
            mine = frozenset(partitions)
            if counts and self._counted is not None:
                self._counted = msgspec.json.decode(counts, type=dict[str, int])
        self._last_owned, self._last_generation = tuple(sorted(mine)), self.generation
        given_up, new = sorted(self.owned - mine), sorted(mine - self.owned)
        if given_up:
            self._tells.append(Tell("revoked", tuple(given_up)))
            self._join_again(f"{self.config.client_id} gave up {_words(given_up)}")
        self._tells.append(Tell("assigned", tuple(new)))

    def _try_later(self, now_ms: int) -> None:
        self.state = MemberState.UNJOINED
        self._not_before_ms = now_ms + self.config.retry_backoff_ms

    def _lose(self, *, keep_id: bool = False) -> None:
        """The group has gone on without us: what we had may be another's by now."""
        self._tells = []
        if not keep_id:
            self.member_id = ""
        self.generation, self.state, self._rejoin = -1, MemberState.UNJOINED, True

    def _refuse(self, error: ErrorCode) -> None:
        config = self.config
        fixes = {
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
                f"its assignors {list(config.assignors)} are not those of the other members",
                "give all members of a group the same partition_assignment_strategy",
            ),
            ErrorCode.INVALID_SESSION_TIMEOUT: (
                f"session_timeout_ms {config.session_timeout_ms} is outside of what is allowed",
                "choose one between group.min and group.max.session.timeout.ms",
            ),
            ErrorCode.GROUP_MAX_SIZE_REACHED: ("it is full", "end another member first"),
            ErrorCode.INVALID_GROUP_ID: ("its name is not allowed", "choose another group_id"),
        }
        if error in fixes:
            problem, fix = fixes[error]
            raise GroupError(f"group {config.group_id!r} refuses this consumer: {problem}", fix)


def _words(partitions: Sequence[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in partitions)
