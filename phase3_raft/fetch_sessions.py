"""Fetch sessions (KIP-227): a client that fetches again and again says only what is new.

A client of a hundred partitions, of which one is written to, would name a hundred each time, and be
told of a hundred. In a session this broker remembers what the client asks of each partition and
what it was told: a request names those that it asks something else of, a reply those of which there
is news. Each request of a session has a number, so both know of a lost one: the client then begins
a new session, with all its partitions.

    session id, epoch of the request   what it is
    0, -1                              no session: all partitions are named, and told of
    0 or an older one, 0               the same, and a session is to begin; the older one ends
    n, -1                              session n ends; for the rest, no session
    n, 1 or 2 or ...                   session n goes on

Kafka's broker looks at all partitions of a session at each request. Here only those that are *due*
are looked at: the client has named them, or something happened (`Partition.watch`), or there was
more to say than there was room. So a fetch costs what is new, however many partitions there are
(`make bench ARGS="cluster-latency cluster-growth"`).

A follower that has everything need not say so for each partition, either: when there is more, it is
noted that it had everything when it last asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import TopicPartition
from phase3_raft.fetch_messages import LARGEST_EPOCH, next_epoch
from phase3_raft.partition import Partition

if TYPE_CHECKING:
    from phase3_raft.fetch_messages import Found
    from phase3_raft.handlers.fetch import Wanted

MOST_SESSIONS, MOST_PARTITIONS = 1_000, 200_000  # of all sessions together
IDLE_MS = 120_000  # a session that is not used for so long may end for another one

Resolve: TypeAlias = Callable[[str, int], "Partition | ErrorCode"]


class _Said(NamedTuple):
    """What a client was told of a partition last."""

    high_watermark: int
    log_start: int


class Session:
    """One client's partitions. Invariant: those that are not due have nothing that it was not
    given, and we watch each that is a Partition."""

    def __init__(self, session_id: int, resolve: Resolve, follower: int) -> None:
        self.id = session_id
        self.epoch = 1  # of the next request
        self.follower = follower
        self.used_ms = 0  # when it last asked
        self._resolve = resolve
        self._wanted: dict[TopicPartition, Wanted] = {}
        self._said: dict[TopicPartition, _Said] = {}
        self._due: dict[TopicPartition, None] = {}  # who was named, or served, last is last
        self._watching: dict[TopicPartition, tuple[Partition, Callable[..., None]]] = {}
        self._woken: dict[Callable[[], object], None] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    def change(self, wanted: Iterable[Wanted], forgotten: Iterable[TopicPartition]) -> None:
        """The client says what it asks for from now on, less what it forgets."""
        for one in wanted:
            key = one.topic, one.number
            self._wanted[key] = one
            self._due.pop(key, None)
            self._due[key] = None
        for key in forgotten:
            if self._wanted.pop(key, None) is not None:
                self._due.pop(key, None)
                self._said.pop(key, None)
                self._unwatch(key)

    def due(self) -> list[Wanted]:
        """What has to be looked at."""
        some = []
        for key in self._due:
            one = self._wanted[key]
            partition = self._resolve(*key)
            if partition is not one.partition:
                if self.follower >= 0 and isinstance(one.partition, Partition):
                    # A topic of this name was made again: what it has is of the old one.
                    partition = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                one = self._wanted[key] = one._replace(partition=partition)
            watched = self._watching.get(key)
            if watched is None or watched[0] is not partition:
                self._unwatch(key)
                if isinstance(partition, Partition):
                    self._watch(key, partition)
            some.append(one)
        return some

    def _watch(self, key: TopicPartition, partition: Partition) -> None:
        happened = partial(self._happened, key)
        self._watching[key] = partition, happened
        if self.follower >= 0:
            partition.watch_log(happened)
        else:
            partition.watch(happened)

    def _unwatch(self, key: TopicPartition) -> None:
        if key in self._watching:
            partition, happened = self._watching.pop(key)
            partition.unwatch(happened)
            partition.unwatch_log(happened)

    def _happened(self, key: TopicPartition, more: bool = True) -> None:
        if key not in self._due:
            self._due[key] = None
            partition = self._wanted[key].partition
            if self.follower >= 0 and isinstance(partition, Partition):
                partition.had_all(self.follower, self.used_ms)
        if more:
            for wake in list(self._woken):
                wake()

    def watch(self, wake: Callable[[], object]) -> None:
        """Call back when something happens to a partition, until `unwatch`."""
        self._woken[wake] = None

    def unwatch(self, wake: Callable[[], object]) -> None:
        """No more."""
        self._woken.pop(wake, None)

    def begins_later(self, wanted: Sequence[Wanted], found: Sequence[Found]) -> bool:
        """Whether a follower has to be told that a partition begins later: somebody waits until
        the records are deleted everywhere."""
        return self.follower >= 0 and any(
            self._said[key].log_start < here.log_start
            for key, here in zip(((one.topic, one.number) for one in wanted), found, strict=True)
            if key in self._said
        )

    def news(
        self, wanted: Sequence[Wanted], found: Sequence[Found]
    ) -> tuple[list[Wanted], list[Found]]:
        """What the client is told of all that was looked at. From here on it knows that."""
        told: tuple[list[Wanted], list[Found]] = [], []
        for one, here in zip(wanted, found, strict=True):
            key = one.topic, one.number
            if key not in self._wanted:  # forgotten meanwhile, on another connection
                continue
            has_records = here.records is not None and here.records.size > 0
            wrong = bool(here.error) or here.diverging is not None
            said = _Said(here.high_watermark, here.log_start)
            if has_records or wrong or self._said.get(key) != said:
                told[0].append(one)
                told[1].append(here)
            if wrong:
                self._said.pop(key, None)  # so that it is told when all is well again
            else:
                self._said[key] = said
            if not (has_records or wrong or _has_more(one)):
                self._due.pop(key, None)
        return told

    def close(self) -> None:
        """It is no more: who still waits hears of nothing."""
        for key in list(self._watching):
            self._unwatch(key)
        self._wanted.clear()
        self._due.clear()


def _has_more(wanted: Wanted) -> bool:
    """Whether there is something that found no room in this reply, or came after the last look."""
    partition = wanted.partition
    assert isinstance(partition, Partition)
    if partition.deleted:
        return True
    end = partition.log.end_offset if wanted.follower >= 0 else partition.high_watermark
    return wanted.offset < end


class FetchSessions:
    """The sessions of a broker. is_broker: whether an id is one of the cluster's. now_ms: a
    monotonic clock. chance: from 0 to 1; ids are drawn, so that after a restart no client goes on
    with a session that is another's by now.

    Other brokers always get one, as without it a follower is not told at once of what is new, and
    one each: whoever begins anew may not know the last one, whose id was in a reply that it did not
    wait for.
    """

    def __init__(
        self,
        resolve: Resolve,
        is_broker: Callable[[int], bool],
        now_ms: Callable[[], int],
        chance: Callable[[], float],
    ) -> None:
        self._resolve, self._is_broker = resolve, is_broker
        self._now_ms, self._chance = now_ms, chance
        self._sessions: dict[int, Session] = {}  # the one that was used last is last

    def __len__(self) -> int:
        return len(self._sessions)

    def go_on(self, session_id: int, epoch: int) -> Session | ErrorCode:
        """The session of a request that goes on with one."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch = next_epoch(epoch)
        self._used(session)
        return session

    def begin(self, wanted: Sequence[Wanted], follower: int) -> Session | None:
        """A new session; None: there are too many, and the client has to name all each time."""
        is_broker = self._is_broker(follower)
        if is_broker:
            self.end_of(follower)
        if not wanted or not (self._make_room(len(wanted), is_broker) or is_broker):
            return None
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = int(self._chance() * LARGEST_EPOCH)
        session = self._sessions[session_id] = Session(session_id, self._resolve, follower)
        session.change(wanted, ())
        self._used(session)
        return session

    def end(self, session_id: int) -> None:
        """The client does not go on with it."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def end_of(self, follower: int) -> None:
        """A broker's sessions end: it says anew what it has."""
        for session in [one for one in self._sessions.values() if one.follower == follower]:
            self.end(session.id)

    def _used(self, session: Session) -> None:
        session.used_ms = self._now_ms()
        self._sessions[session.id] = self._sessions.pop(session.id)

    def _make_room(self, partitions: int, is_broker: bool) -> bool:
        """Whether there is, once idle sessions have ended; brokers go before clients."""
        while (
            len(self._sessions) >= MOST_SESSIONS
            or sum(map(len, self._sessions.values())) + partitions > MOST_PARTITIONS
        ):
            idle_since = self._now_ms() - IDLE_MS
            for session in self._sessions.values():
                before_it = is_broker and not self._is_broker(session.follower)
                if session.used_ms < idle_since or before_it:
                    self.end(session.id)
                    break
            else:
                return False
        return True
