"""The thread that keeps a consumer in its group, whatever its application is busy with.

It sends what `membership` says: heartbeats, joins, syncs. What the application must be told waits
for its next `poll`, which the thread wakes. And it looks, many times a second and at next to no
cost, whether the group has moved on; so a rebalance is noticed long before a heartbeat is due.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence

from craft2.clock import Clock
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.consumer_errors import GroupBlocked
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import Commit, OffsetToCommit, Reply
from phase2_groups.membership import Ask, MemberConfig, Membership, MemberState, Tell
from phase2_groups.safe_event import SafeEvent
from phase2_groups.transport import Transport

_LOOK_EVERY_S = 0.03
_ENDS_BY_ITSELF_S, _ENDS_WITH_GOODBYE_S = 0.2, 1.0  # the longest that `close` waits


class GroupMember:
    """One consumer's membership, with its thread.

    news: called when `poll` has to look. blocked: called when the group's files cannot be had.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        transport: Transport,
        clock: Clock,
        news: Callable[[], None],
        blocked: Callable[[GroupBlocked], None],
    ) -> None:
        assert config.group_id is not None
        self._group_id = config.group_id
        self._transport = transport
        self._clock = clock
        self._news, self._blocked = news, blocked
        self._lock = threading.Lock()  # guards the core
        self._closing = SafeEvent()
        self._failure: BaseException | None = None
        member = MemberConfig(
            group_id=config.group_id,
            client_id=config.client_id,
            group_instance_id=config.group_instance_id,
            session_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            retry_backoff_ms=config.retry_backoff_ms,
            assignors=config.partition_assignment_strategy,
        )
        self._core = Membership(member, _unique, lambda: f"{config.client_id}-{_unique()}")
        self._core.poll(self._now_ms(), {})
        self._thread = threading.Thread(
            target=self._run, name=f"{config.client_id}-membership", daemon=True
        )
        self._thread.start()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def subscribe(self, topics: Sequence[str]) -> None:
        with self._lock:
            self._core.subscribe(topics)

    @property
    def topics(self) -> tuple[str, ...]:
        return self._core.topics

    def watched(self) -> set[str]:
        """The topics whose numbers of partitions `polled` wants to know."""
        with self._lock:
            return self._core.watched()

    @property
    def generation(self) -> int:
        return self._core.generation

    @property
    def member_id(self) -> str:
        return self._core.member_id

    def polled(self, counts: Mapping[str, int]) -> None:
        """The application polls. Raises what ended the thread, if something did."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            self._core.poll(self._now_ms(), counts)

    def next_tell(self) -> Tell | None:
        with self._lock:
            return self._core.next_tell()

    def told(self, tell: Tell) -> None:
        with self._lock:
            self._core.told(tell)

    def commit(
        self, offsets: Sequence[tuple[str, int, OffsetToCommit]], timeout_ms: int
    ) -> ErrorCode:
        """Commit for this member and its generation; what became of it.

        Who has no generation is not asked about: without one, a group that has become empty would
        take the commit as that of an application which does not use groups.
        """
        with self._lock:
            core = self._core
            if core.generation < 0:
                return ErrorCode.UNKNOWN_MEMBER_ID
            request = Commit(
                token=_unique(),
                member_id=core.member_id,
                generation=core.generation,
                group_instance_id=core.config.group_instance_id,
                offsets=tuple(offsets),
            )
        reply = self._transport.ask_group(self._group_id, request, timeout_ms)
        error = commit_error(reply)
        if error:
            with self._lock:
                error = self._core.commit_refused(request, error)
        return error

    def close(self, reason: str, timeout_ms: int) -> None:
        """End the thread and leave the group (a static member stays in it until its timeout).

        Raises GroupBlocked if the goodbye could not be said for `timeout_ms`.

        The thread may be waiting for the reply to a join, and that for members that are busy. The
        goodbye ends such a join. A static member says none: its thread ends with the reply, and
        nobody waits for it.
        """
        self._closing.set()
        self._transport.wake()
        for patience_s in (_ENDS_BY_ITSELF_S, _ENDS_WITH_GOODBYE_S):
            self._thread.join(patience_s)
            with self._lock:
                ask = self._core.leave(reason)
            if ask is not None:
                limit_ms = min(ask.timeout_ms, timeout_ms)
                self._transport.ask_group(self._group_id, ask.request, limit_ms)
            if not self._thread.is_alive():
                return

    def give_up_all(self) -> Tell | None:
        with self._lock:
            return self._core.give_up_all()

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                ask = self._next()
                if ask is None:
                    self._clock.wait(self._closing, _LOOK_EVERY_S)
                    continue
                reply = self._ask(ask)
                with self._lock:
                    self._core.received(ask.request, reply, self._now_ms())
                self._news()
        except BaseException as error:
            self._failure = error
            self._news()

    def _ask(self, ask: Ask) -> Reply | None:
        """The reply; None: there was none in time, or the request could not even be put."""
        try:
            return self._transport.ask_group(self._group_id, ask.request, ask.timeout_ms)
        except GroupBlocked as error:
            self._blocked(error)
            return None

    def _next(self) -> Ask | None:
        """What to send now, if anything."""
        core = self._core
        moved = False
        if core.state is MemberState.STABLE:
            moved = self._transport.group_moved(self._group_id, core.generation)
        with self._lock:
            leads = core.leads()
        if leads:
            counts = self._transport.metadata(leads)
            known = {t: n for t, n in counts.items() if not isinstance(n, ErrorCode)}
            with self._lock:
                core.share_out(known)
        with self._lock:
            now = self._now_ms()
            return core.heartbeat(now, moved) or core.next_ask(now)


def commit_error(reply: Reply | None) -> ErrorCode:
    """The one error of a commit: of all of it, or of its first partition that has one."""
    if reply is None:
        return ErrorCode.REQUEST_TIMED_OUT
    return next((error for *_, error in reply.partitions if error), reply.error)


def _unique() -> str:
    return uuid.uuid4().hex
