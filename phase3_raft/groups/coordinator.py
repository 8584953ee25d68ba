"""The coordinator of consumer groups: phase 2's state machine, driven by requests and the clock.

    request --> GroupMachine.handle --> effects, in order:
                                          Reply     the answer to some request, perhaps an older one
                                          Store     records for __consumer_offsets; then `Stored`
                                          Happened  an event, with its because

Nothing about groups is decided here. A group belongs to one partition of `__consumer_offsets`, by a
hash of its name, and to whichever broker leads that: so all its members find the same coordinator,
and its commits are where the next one will look for them. While that one still reads them, whoever
asks for a group is told so, and asks again.

After a restart a group has its commits and its generation, and no members: these are told that
nobody knows them, and join again.

Source: Kafka's `GroupCoordinator`, `GroupMetadataManager`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from craft2.clock import Clock
from craft2.disk import DiskError
from craft2.tasks import Tasks
from phase1_file_queue.log_config import LogError
from phase2_groups.consumer_protocol import topics_of
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_machine import GroupMachine
from phase2_groups.group_messages import (
    Commit,
    Happened,
    Heartbeat,
    Input,
    Join,
    Leave,
    OffsetToCommit,
    Reply,
    Store,
    Stored,
    Sync,
    Tick,
    TopicPartition,
)
from phase2_groups.group_state import Group, GroupLimits, State
from phase2_groups.offset_records import (
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group,
)
from phase3_raft.groups.offsets import OffsetsPartition

OFFSETS_TOPIC = "__consumer_offsets"
_AGAIN_S = 0.5  # before what could not be forgotten, or read, is tried again
Asking = Join | Sync | Heartbeat | Commit | Leave
# Java's consumer knows no way on from another answer to these, and Kafka gives it none: a heartbeat
# is early, and who waits for its part has to join again, since it is not stored who joins.
_WHILE_LOADING: dict[type[Asking], ErrorCode] = {
    Heartbeat: ErrorCode.NONE,
    Sync: ErrorCode.REBALANCE_IN_PROGRESS,
}

OffsetsOf = Callable[[int], OffsetsPartition | ErrorCode]


class _Group:
    """A group at work: its machine, who waits for a reply, and the clock's next ring."""

    def __init__(self, group: Group, limits: GroupLimits, offsets: OffsetsPartition) -> None:
        self.machine = GroupMachine(group, limits)
        self.offsets = offsets
        self.waiting: dict[str, asyncio.Future[Reply]] = {}
        self.timer: asyncio.TimerHandle | None = None

    def has_nothing(self) -> bool:
        """Whether it is as it would be if it were made anew: a name that somebody asked for."""
        state = self.machine.group
        stored = self.offsets.table.generations.get(state.group_id, 0)
        return (
            state.state in (State.EMPTY, State.DEAD)
            and not (state.members or state.pending or state.storing or self.waiting)
            and state.generation == stored
        )


class Coordinator:
    """See the module.

    partitions: how many `__consumer_offsets` has. offsets_of: the one of this number, or why it
    cannot be had. need_topic: have that topic made, if there is none.
    """

    def __init__(
        self,
        partitions: Callable[[], int],
        offsets_of: OffsetsOf,
        need_topic: Callable[[], Awaitable[ErrorCode]],
        limits: GroupLimits,
        clock: Clock,
        tasks: Tasks,
        happened: Callable[[str, Happened], object] = lambda group, event: None,
    ) -> None:
        self._partitions = partitions
        self._offsets_of, self._need_topic, self._limits = offsets_of, need_topic, limits
        self._clock, self._tasks, self._happened = clock, tasks, happened
        self._groups: dict[str, _Group] = {}
        self._tokens = 0
        # Those that are being read, or wait for it, with the topics that have been there since.
        # Invariant: there is a task that reads them if there are any.
        self._to_load: dict[OffsetsPartition, set[str]] = {}

    # What members ask.

    def new_token(self) -> str:
        """How a reply finds back to its request."""
        self._tokens += 1
        return str(self._tokens)

    async def ask(self, group_id: str, request: Asking) -> Reply:
        """The reply to a member's request, when the group has one."""
        group = await self._group(group_id)
        if isinstance(group, ErrorCode):
            if group == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                group = _WHILE_LOADING.get(type(request), group)
            return Reply(token=request.token, error=group)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        group.waiting[request.token] = future
        self._handle(group, request)
        try:
            return await future
        finally:
            group.waiting.pop(request.token, None)
            if group.has_nothing():
                self._groups.pop(group_id, None)

    async def _group(self, group_id: str) -> _Group | ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        offsets = await self._offsets(group_id)
        if isinstance(offsets, ErrorCode):
            return offsets
        found = self._groups.get(group_id)
        if found is None:
            group = self._stored_group(group_id, offsets)
            found = self._groups[group_id] = _Group(group, self._limits, offsets)
            self._set_timer(found)
        return found

    def _stored_group(self, group_id: str, offsets: OffsetsPartition) -> Group:
        """As its last coordinator, here or elsewhere, has left it."""
        value = offsets.table.latest.get(group_key(group_id))
        return (
            Group(group_id=group_id)
            if value is None
            else read_group(group_id, value, self._now_ms())
        )

    async def _offsets(self, group_id: str) -> OffsetsPartition | ErrorCode:
        error = await self._need_topic()
        if error:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self._of_group(group_id)

    def _of_group(self, group_id: str) -> OffsetsPartition | ErrorCode:
        return self._loaded(partition_of(group_id, self._partitions()))

    def _loaded(self, number: int) -> OffsetsPartition | ErrorCode:
        offsets = self._offsets_of(number)
        if isinstance(offsets, ErrorCode) or offsets.is_loaded:
            return offsets
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _handle(self, group: _Group, event: Input) -> None:
        """Let the machine move, and carry out what comes of it.

        Nothing comes of a group that is not here any more, whatever was under way: what it stored
        would be in the log of a broker that does not lead it.
        """
        if not self._is_here(group):
            return
        for effect in group.machine.handle(event, self._now_ms()):
            match effect:
                case Reply():
                    waiting = group.waiting.get(effect.token)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(effect)
                case Store():
                    self._tasks.spawn(self._store(group, effect, self._records(group, effect)))
                case Happened():
                    self._happened(group.machine.group.group_id, effect)
        self._set_timer(group)

    def _is_here(self, group: _Group) -> bool:
        return self._groups.get(group.machine.group.group_id) is group

    def _records(self, group: _Group, store: Store) -> list[tuple[bytes, bytes | None]]:
        state, now = group.machine.group, self._clock.now_ms()
        if store.what == "assignment":
            return [(group_key(state.group_id), group_value(state, now))]
        return [
            (offset_key(state.group_id, topic, number), offset_value(offset, now))
            for topic, number, offset in store.offsets
        ]

    async def _store(
        self, group: _Group, store: Store, records: Sequence[tuple[bytes, bytes | None]]
    ) -> None:
        error = ErrorCode.NONE
        try:
            await group.offsets.append(records)
        except (LogError, DiskError):
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self._handle(group, Stored(number=store.number, error=error))

    def _set_timer(self, group: _Group) -> None:
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        due = group.machine.group.next_deadline_ms()
        if due is not None:
            wait_s = max(0, due - self._now_ms()) / 1000
            loop = asyncio.get_running_loop()
            group.timer = loop.call_later(wait_s, self._handle, group, Tick())

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # What anybody may ask.

    async def committed(self, group_id: str) -> dict[TopicPartition, OffsetToCommit] | ErrorCode:
        """A group's committed offsets."""
        offsets = await self._offsets(group_id)
        if isinstance(offsets, ErrorCode):
            return offsets
        return offsets.table.offsets.get(group_id, {})

    def groups(self) -> tuple[dict[str, Group], ErrorCode]:
        """All groups that are known here, and why these may not be all."""
        found = [self._loaded(number) for number in range(self._partitions())]
        groups = {name: one.machine.group for name, one in self._groups.items()}
        for offsets in found:
            if not isinstance(offsets, ErrorCode):
                for name in offsets.table.groups():
                    if name not in groups:
                        groups[name] = self._stored_group(name, offsets)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return dict(sorted(groups.items())), loading if loading in found else ErrorCode.NONE

    def describe(self, group_id: str) -> Group | ErrorCode:
        """A group as it is, Dead if there is none; or why that is not known here."""
        there = self._of_group(group_id)
        if isinstance(there, ErrorCode):
            return there
        found = self._groups.get(group_id)
        if found is not None:
            return found.machine.group
        if group_id not in there.table.offsets and group_id not in there.table.generations:
            return Group(group_id=group_id, state=State.DEAD)
        return self._stored_group(group_id, there)

    async def delete(self, group_id: str) -> ErrorCode:
        """Forget a group without members, and its commits."""
        group = await self._group(group_id)
        if isinstance(group, ErrorCode):
            return group
        keys = group.offsets.table.keys_of(group_id)
        state = group.machine.group
        if state.members or state.pending:
            return ErrorCode.NON_EMPTY_GROUP
        if not keys:
            if group.has_nothing():  # else its first commit is on its way
                del self._groups[group_id]
            return ErrorCode.GROUP_ID_NOT_FOUND
        return await self._forget(group, keys, last=True)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> ErrorCode:
        """Forget what a group has committed for these partitions."""
        group = await self._group(group_id)
        if isinstance(group, ErrorCode):
            return group
        keys = [offset_key(group_id, *partition) for partition in partitions]
        return await self._forget(group, keys, last=False)

    def forget_topic(self, topic: str) -> None:
        """Forget, soon, what groups have committed for a topic that is no more."""
        for number in range(self._partitions()):
            offsets = self._offsets_of(number)
            if isinstance(offsets, ErrorCode):
                continue
            if offsets.is_loaded:
                self._forget_topics(offsets, lambda name: name == topic)
            else:
                self._to_load[offsets].discard(topic)

    def begin(self, offsets: OffsetsPartition, topics: Iterable[str]) -> None:
        """This broker coordinates the groups of a partition from now on. Those commits go, soon,
        that are of none of the `topics` there are: who was coordinator had no time for it."""
        self._to_load[offsets] = set(topics)
        if offsets.is_loaded:
            self._begun(offsets)
        elif len(self._to_load) == 1:
            self._tasks.spawn(self._load())

    async def _load(self) -> None:
        """One after the other: a broker that takes over from another has many to read at once."""
        while self._to_load:
            offsets = next(iter(self._to_load))
            await offsets.load()
            if offsets.is_loaded:
                self._begun(offsets)
            elif offsets.leads:  # it could not be read: it comes after the others
                self._to_load[offsets] = self._to_load.pop(offsets)
                await asyncio.sleep(_AGAIN_S)
            else:
                del self._to_load[offsets]

    def _begun(self, offsets: OffsetsPartition) -> None:
        """In the same turn in which it is loaded: what is committed later stays."""
        there = self._to_load.pop(offsets)
        self._forget_topics(offsets, lambda name: name not in there)

    def _forget_topics(self, offsets: OffsetsPartition, gone: Callable[[str], bool]) -> None:
        committed = offsets.of_topics(gone)
        if committed:
            self._tasks.spawn(self._forget_commits(offsets, committed))

    async def _forget_commits(
        self, offsets: OffsetsPartition, committed: dict[bytes, bytes]
    ) -> None:
        """Tried until it is done: a topic that is made anew must not begin where groups were in the
        old one. What was committed since, for the new one, stays."""
        while offsets.leads and committed:
            try:
                await offsets.append([(key, None) for key in committed])
                return
            except (LogError, DiskError):
                await asyncio.sleep(_AGAIN_S)
            committed = offsets.unchanged(committed)

    async def _forget(self, group: _Group, keys: Sequence[bytes], *, last: bool) -> ErrorCode:
        try:
            await group.offsets.append([(key, None) for key in keys])
        except (LogError, DiskError):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        state = group.machine.group
        joined_meanwhile = state.members or state.pending or group.waiting
        if last and self._is_here(group) and not joined_meanwhile:
            del self._groups[state.group_id]
        return ErrorCode.NONE

    def resign(self, number: int) -> None:
        """Another broker leads this partition of `__consumer_offsets`: its groups are there now."""
        for name in [n for n in self._groups if partition_of(n, self._partitions()) == number]:
            group = self._groups.pop(name)
            if group.timer is not None:
                group.timer.cancel()
            for token, future in group.waiting.items():
                if not future.done():
                    future.set_result(Reply(token=token, error=ErrorCode.NOT_COORDINATOR))

    def close(self) -> None:
        """No more timers."""
        for group in self._groups.values():
            if group.timer is not None:
                group.timer.cancel()


def subscribed(group: Group) -> set[str]:
    """The topics that members of a group read at present."""
    joined = [member.subscription(group.protocol) for member in group.members.values()]
    found = [topics for topics in map(topics_of, joined) if isinstance(topics, tuple)]
    return {topic for topics in found for topic in topics}


def partition_of(group_id: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that has a group, as Kafka finds it.

    Java's hash of a string, of its UTF-16 units: that of "abc" is 96,354.

    >>> partition_of("abc", 50)
    4
    """
    value = 0
    data = group_id.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return 0 if signed == -(2**31) else abs(signed) % partitions
