"""The consumer: subscribe, poll, handle, commit.

    with Consumer(ConsumerConfig(bootstrap_servers="file:queue", group_id="billing")) as consumer:
        consumer.subscribe(["flights"])
        for record in consumer:
            handle(record)

Two threads. The application's own calls everything here; records, listener calls and commits
happen inside its `poll`. A second one, started by `subscribe`, keeps the membership alive (see
`group_member`), so that a handler that takes long does not look like a dead process.

A *rebalance* reaches the application as calls of its listener, always from within `poll` or
`close`: `on_partitions_revoked` before others may have the partitions (the last chance to commit),
`on_partitions_assigned` once some are ours, `on_partitions_lost` when they were given to others
while we were silent.

Source: Kafka's `KafkaConsumer`; KIP-62 (the second thread).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, TypeVar
from uuid import uuid4

from craft2.clock import Clock, SystemClock
from craft2.events import Emitter
from phase2_groups.connect import connect
from phase2_groups.consumer_checks import (
    checked_commit,
    checked_number,
    checked_partitions,
    checked_topics,
)
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.consumer_errors import (
    ConsumerClosed,
    ConsumerError,
    GroupBlocked,
    InvalidTopic,
    NobodyAnswers,
    NotAssigned,
    UnknownTopic,
    raise_commit_error,
)
from phase2_groups.error_codes import ErrorCode
from phase2_groups.fetch_buffer import ConsumerRecord, FetchBuffer, one_table
from phase2_groups.group_member import GroupMember, commit_error
from phase2_groups.group_messages import Commit, OffsetToCommit, TopicPartition
from phase2_groups.membership import Tell
from phase2_groups.positions import Positions
from phase2_groups.safe_event import SafeEvent
from phase2_groups.transport import EARLIEST, LATEST, Transport

if TYPE_CHECKING:
    import pyarrow as pa

Offsets = Mapping[TopicPartition, int | OffsetToCommit]
_MOVING = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_MISSING = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
Found = TypeVar("Found")


class RebalanceListener:
    """What an application may do when its partitions change; override what you need."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """They are to be given up, and are still ours: commit what has been handled."""

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """They are ours as of now; `seek` works."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """They have been somebody else's for a while: commits would be refused."""


class Consumer:
    """See the module. Not for several threads at once, but `wakeup` may come from any.

    transport: the one that `config.bootstrap_servers` names, if None. events: gets "assigned",
    "revoked" and "lost", an event a partition; "blocked" when the group's files cannot be had for
    the session timeout: another process holds their lock.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        transport: Transport | None = None,
        *,
        clock: Clock | None = None,
        events: Emitter | None = None,
    ) -> None:
        self.config = config
        self._owns_transport = transport is None
        self._transport = transport or connect(config.bootstrap_servers)
        self._clock = clock or SystemClock()
        self._events = events
        self._buffer = FetchBuffer(check_crcs=config.check_crcs)
        self._positions = Positions(config, self._transport, self._buffer, self._committed)
        self._listener = RebalanceListener()
        self._member: GroupMember | None = None  # set by `subscribe`
        self._news = SafeEvent()  # `poll` has to look at more than records
        self._woken = False
        self._before: dict[TopicPartition, int] = {}  # positions when records were last taken
        self._in_hand: ConsumerRecord | None = None  # what the body of a loop is busy with
        self._telling = False  # the listener runs
        self._closed = False
        self._look_at_metadata_ms = self._commit_due_ms = 0
        self._counts: dict[str, int] = {}
        self._answered = False  # some broker, at some time
        self._unanswered_ms: int | None = None  # since when nobody does

    # Which partitions.

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener | None = None) -> None:
        """Read these topics together with the other members of the group, from the next poll on."""
        self._check_open()
        names = checked_topics(topics)
        if self.config.group_id is None:
            raise ConsumerError("subscribe without a group_id", "give one, or use assign")
        if self._member is None and self._buffer.partitions():
            raise ConsumerError("subscribe after assign", "make another consumer for it")
        self._listener = listener or self._listener
        if self._member is None:
            self._commit_due_ms = self._now_ms() + self.config.auto_commit_interval_ms
            self._member = GroupMember(
                self.config, self._transport, self._clock, self._interrupt_fetch, self._blocked
            )
        self._look_at_metadata_ms = 0
        self._member.subscribe(names)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, whatever others do: no group shares them out.

        Raises UnknownTopic, NobodyAnswers.
        """
        self._check_open()
        if self._member is not None:
            raise ConsumerError("assign after subscribe", "make another consumer for it")
        wanted = set(checked_partitions(partitions))
        counts = self._transport.metadata(sorted({topic for topic, _ in wanted}))
        if ErrorCode.NETWORK_EXCEPTION in counts.values():
            raise self._nobody_answers()
        for topic, number in wanted:
            self._check_exists(topic, number, counts)
        self._buffer.remove(self._buffer.partitions() - wanted)
        self._buffer.add(sorted(wanted))

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are this consumer's now."""
        return self._buffer.partitions()

    @property
    def generation(self) -> int:
        """Of the group, as this member knows it; -1: it is in none."""
        return -1 if self._member is None else self._member.generation

    @property
    def member_id(self) -> str:
        """What the group calls this member; "" before it has joined."""
        return "" if self._member is None else self._member.member_id

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these for now; they stay ours. All, if none is named."""
        for partition in self._mine(partitions):
            self._buffer.pause(partition, True)

    def resume(self, *partitions: TopicPartition) -> None:
        """End a pause."""
        for partition in self._mine(partitions):
            self._buffer.pause(partition, False)

    def paused(self) -> set[TopicPartition]:
        return self._buffer.paused()

    # Records.

    def poll(self, timeout_ms: int = 1_000) -> list[ConsumerRecord]:
        """Up to `max_poll_records` records; waits up to `timeout_ms` for the first.

        With `enable_auto_commit`, the next poll commits what this one has returned, and so does
        `close`, whether it was handled or not (as Kafka's client does): `seek` back before you
        close after an error, or iterate, or commit by hand.

        A poll that raises, be it KeyboardInterrupt, skips nothing: the next one returns it.
        Raises what the listener raises, UnknownTopic, NoOffset, GroupError, CorruptBatch,
        NobodyAnswers, and ConsumerError without a topic or partition to read.
        """
        found = self._poll(timeout_ms, lambda: self._buffer.take(self.config.max_poll_records))
        self._woken = False
        return found

    def poll_arrow(self, timeout_ms: int = 1_000) -> pa.Table | None:
        """A whole fetch as one Arrow table, or None; parsed at once, however many its records.

        Columns: topic (dictionary of string), partition (int32), then as
        `craft2.record_arrow.decode_arrow`: offset, timestamp, key, value, headers.
        """
        tables = self._poll(timeout_ms, lambda: one_table(self._buffer.take_arrow()))
        self._woken = False
        return tables[0] if tables else None

    def __iter__(self) -> Iterator[ConsumerRecord]:
        """Records for ever, one at a time; `wakeup` from another thread ends it.

        A record counts as handled when the next one is asked for, here or with `poll`, or when
        `commit` is called. So what is committed automatically, in the body of the loop or after it
        was left by `break` or an exception, is what came before the record in hand.
        """
        while not self._woken:
            for record in self._poll(1_000, lambda: self._buffer.take(1)):
                self._in_hand = record
                yield record
        self._woken = False

    def wakeup(self) -> None:
        """End the `poll` or the iteration that is under way, or else the next; from any thread."""
        self._woken = True
        self._interrupt_fetch()

    def _interrupt_fetch(self) -> None:
        self._news.set()
        self._transport.wake()

    def _poll(self, timeout_ms: int, take: Callable[[], list[Found]]) -> list[Found]:
        self._check_open()
        self._check_not_telling("poll")
        if self._member is None and not self._buffer.partitions():
            raise ConsumerError("poll before subscribe or assign", 'subscribe(["flights"]) first')
        self._in_hand, self._before = None, {}
        until = self._now_ms() + checked_number("timeout_ms", timeout_ms, 0)
        try:
            return self._poll_until(until, take)
        except BaseException:  # nobody gets what was taken: do not commit it either
            self._buffer.go_back(self._before)
            raise

    def _poll_until(self, until: int, take: Callable[[], list[Found]]) -> list[Found]:
        while True:
            self._news.clear()
            self._look_after_group()
            self._positions.find()
            self._before = self._buffer.positions()
            found = take()
            left = until - self._now_ms()
            if found or self._woken:
                return found
            wanted = self._buffer.to_fetch()
            if wanted:
                self._fetch(wanted, max(0, min(left, self.config.fetch_max_wait_ms)))
                self._before = self._buffer.positions()
                found = take()
            elif left > 0:
                self._clock.wait(self._news, min(left, 100) / 1000)
            if found or left <= 0:
                return found

    def _fetch(self, wanted: Mapping[TopicPartition, int], wait_ms: int) -> None:
        config = self.config
        answers = self._transport.fetch(
            wanted,
            max_wait_ms=wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            max_partition_bytes=config.max_partition_fetch_bytes,
        )
        for partition, answer in answers.items():
            if answer.error is ErrorCode.NONE:
                asked = wanted[partition]
                self._buffer.put(partition, asked, answer.data, answer.high_watermark)
            elif answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                there = f"it holds {answer.log_start} to {answer.high_watermark - 1}"
                self._positions.reset(partition, f"offset {wanted[partition]} is gone: {there}")
            elif answer.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(
                    f"{partition[0]}-{partition[1]} does not exist any more",
                    "subscribe to another topic",
                )
            elif not answer.error.retriable:
                raise ConsumerError(f"reading {partition[0]}-{partition[1]}: {answer.error.name}")

    # The group.

    def _look_after_group(self) -> None:
        member, now, missing = self._member, self._now_ms(), None
        if member is None:
            return
        if now >= self._look_at_metadata_ms:
            counts = self._transport.metadata(sorted(member.watched()))
            self._check_answered(counts)
            self._counts = {t: n for t, n in counts.items() if not isinstance(n, ErrorCode)}
            missing = next((t for t in member.topics if counts[t] in _MISSING), None)
            if missing is None:  # else the next poll looks again
                self._look_at_metadata_ms = now + self.config.metadata_max_age_ms
        member.polled(self._counts)
        while (tell := member.next_tell()) is not None:
            self._tell(tell)
            member.told(tell)
        if self.config.enable_auto_commit and now >= self._commit_due_ms:
            self._commit_automatically()
        if missing is not None:  # only now: the others need not wait for what we have to give up
            self._raise_no_topic(missing, counts[missing])

    def _check_answered(self, counts: Mapping[str, int | ErrorCode]) -> None:
        """A wrong address is an error after a while; brokers that were there may come back."""
        if self._answered or ErrorCode.NETWORK_EXCEPTION not in counts.values():
            self._answered = True
            return
        if self._unanswered_ms is None:
            self._unanswered_ms = self._now_ms()
        if self._now_ms() - self._unanswered_ms >= self.config.default_api_timeout_ms:
            raise self._nobody_answers(
                f" (default_api_timeout_ms={self.config.default_api_timeout_ms})"
            )

    def _nobody_answers(self, limit: str = "") -> NobodyAnswers:
        return NobodyAnswers(
            f"no broker answers at {self.config.bootstrap_servers}{limit}",
            "give the address of one that runs",
        )

    def _raise_no_topic(self, topic: str, error: int | ErrorCode) -> NoReturn:
        if error is ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise InvalidTopic(
                f"{topic!r} is not the name of a topic",
                "use up to 249 of the characters a-z A-Z 0-9 . _ -",
            )
        raise UnknownTopic(f"there is no topic {topic!r}", f"create it; there are {self._topics()}")

    def _topics(self) -> str:
        return ", ".join(self._transport.metadata()) or "none"

    def _tell(self, tell: Tell) -> None:
        self._telling = True
        try:
            self._call_listener(tell)
        finally:
            self._telling = False

    def _call_listener(self, tell: Tell) -> None:
        if tell.kind == "assigned":
            self._buffer.add(tell.partitions)
            self._record(tell)
            if not self._buffer.partitions() and self._events is not None:
                group, because = self.config.group_id, "there is no partition for this member"
                self._events.emit("idle", group=group, generation=self.generation, because=because)
            self._listener.on_partitions_assigned(tell.partitions)
            return
        if tell.kind == "revoked":
            if self.config.enable_auto_commit:
                self._commit_automatically()
            self._listener.on_partitions_revoked(tell.partitions)
        else:
            self._listener.on_partitions_lost(tell.partitions)
        self._record(tell)
        self._buffer.remove(tell.partitions)

    def _record(self, tell: Tell) -> None:
        for topic, number in tell.partitions if self._events is not None else ():
            self._events.emit(  # type: ignore[union-attr]
                tell.kind,
                topic=topic,
                partition=number,
                group=self.config.group_id,
                generation=self.generation,
                because=f"partitions {tell.kind}",
                data={"member": self.member_id},
            )

    # Positions.

    def position(self, partition: TopicPartition) -> int:
        """The next offset that `poll` would return."""
        [partition] = self._mine([partition])
        self._positions.find()
        position = self._buffer.position(partition)
        assert position is not None
        return position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on from this offset with the next poll."""
        [partition] = self._mine([partition])
        checked_number("offset", offset, 0)
        self._buffer.seek(partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on from the first record there is. All partitions, if none is named."""
        self._positions.seek_to_timestamp(self._mine(partitions), EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record there is."""
        self._positions.seek_to_timestamp(self._mine(partitions), LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on from the first record at or after a time; at the end, if there is none."""
        checked_number("timestamp_ms", timestamp_ms, 0)
        self._positions.seek_to_timestamp(self._mine(partitions), timestamp_ms)

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each partition of ours has beyond our position."""
        self._check_open()
        return self._positions.lag()

    # Commits.

    def commit(self, offsets: Offsets | None = None) -> None:
        """Store how far this group is; returns when that is safe.

        offsets: for each partition the *next* offset to read; the positions, if None.
        Raises NotAssigned, CommitRefused, RebalanceInProgress, GroupBlocked, ConsumerError.
        """
        self._check_open()
        if self.config.group_id is None:
            raise ConsumerError("commit without a group_id", "give one in ConsumerConfig")
        given = self._buffer.positions() if offsets is None else offsets
        if not isinstance(given, Mapping):
            raise ConsumerError(
                f"offsets is {given!r}", 'give a dict: {("flights", 0): the next offset to read}'
            )
        mine = self._mine(list(given)) if given else []
        wanted = [(*each, checked_commit(each, given[each])) for each in mine]
        if wanted:
            raise_commit_error(
                self._commit(wanted, self.config.default_api_timeout_ms),
                self.config.group_id,
                self.config.group_instance_id,
            )
        record = self._in_hand
        if record and any(
            (topic, number) == record[:2] and commit.offset > record.offset
            for topic, number, commit in wanted
        ):
            self._in_hand = None  # what is committed automatically must not go back behind that

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetToCommit]:
        """The group's committed offsets of these partitions (ours, if None); some may have none."""
        self._check_open()
        if self.config.group_id is None:
            raise ConsumerError("committed offsets without a group_id", "give one")
        mine = self._buffer.partitions()
        wanted = sorted(mine if partitions is None else checked_partitions(partitions))
        answers = self._transport.committed(self.config.group_id, wanted)
        return {p: found for p, found in answers.items() if isinstance(found, OffsetToCommit)}

    def _committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetToCommit]:
        return {} if self.config.group_id is None else self.committed(partitions)

    def _commit(
        self, offsets: Sequence[tuple[str, int, OffsetToCommit]], timeout_ms: int
    ) -> ErrorCode:
        """What became of a commit; asked again while the group's coordinator is being moved."""
        until_ms = self._now_ms() + timeout_ms
        while True:
            left_ms = max(1, until_ms - self._now_ms())
            error = self._commit_once(offsets, left_ms)
            if error not in _MOVING or left_ms <= self.config.retry_backoff_ms:
                return error
            self._clock.wait(threading.Event(), self.config.retry_backoff_ms / 1000)

    def _commit_once(
        self, offsets: Sequence[tuple[str, int, OffsetToCommit]], timeout_ms: int
    ) -> ErrorCode:
        if self._member is not None:
            return self._member.commit(offsets, timeout_ms)
        request = Commit(token=uuid4().hex, member_id="", generation=-1, offsets=tuple(offsets))
        assert self.config.group_id is not None
        return commit_error(self._transport.ask_group(self.config.group_id, request, timeout_ms))

    def _commit_automatically(self) -> None:
        """Commit the positions; a refusal is no error here: the records come again elsewhere.

        Nor is it one if others hold the group's files: after the session timeout we go on.
        """
        self._commit_due_ms = self._now_ms() + self.config.auto_commit_interval_ms
        handled = self._handled()
        offsets = [(*p, OffsetToCommit(offset=at)) for p, at in handled.items()]
        config = self.config
        try:
            if offsets:
                limit_ms = min(config.default_api_timeout_ms, config.session_timeout_ms)
                self._commit_once(offsets, limit_ms)  # the next one is soon
        except GroupBlocked as error:
            self._blocked(error)

    def _blocked(self, error: GroupBlocked) -> None:
        if self._events is not None:
            self._events.emit("blocked", group=self.config.group_id, because=str(error))

    def _handled(self) -> dict[TopicPartition, int]:
        """The positions; where a record is in hand, not beyond it."""
        positions, record = self._buffer.positions(), self._in_hand
        if record is not None and (record.topic, record.partition) in positions:
            partition = record.topic, record.partition
            positions[partition] = min(positions[partition], record.offset)
        return positions

    # The end.

    def close(self) -> None:
        """Commit (if that is automatic: all that `poll` has returned, and of an iteration what came
        before the record in hand), give the partitions back, leave the group.

        Raises GroupBlocked if others hold the group's files all the while: nothing is left to do,
        the group notices by itself. The records since the last commit will come again.
        """
        if self._closed:
            return
        self._check_not_telling("close")
        until_ms = self._now_ms() + self.config.default_api_timeout_ms
        try:
            tell = self._member.give_up_all() if self._member is not None else None
            if tell is not None:
                self._tell(tell)
        finally:
            self._closed = True
            try:
                if self._member is not None:
                    left_ms = max(0, until_ms - self._now_ms())
                    self._member.close("the consumer was closed", left_ms)
            finally:
                if self._owns_transport:
                    self._transport.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    # Checks.

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _check_open(self) -> None:
        if self._closed:
            raise ConsumerClosed("this consumer is closed", "make a new one")

    def _check_not_telling(self, call: str) -> None:
        if self._telling:
            raise ConsumerError(
                f"{call} was called while the listener runs", f"{call} when it has returned"
            )

    def _check_exists(self, topic: str, number: int, counts: Mapping[str, int | ErrorCode]) -> None:
        count = counts.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if isinstance(count, ErrorCode):
            self._raise_no_topic(topic, count)
        if not 0 <= number < count:
            raise UnknownTopic(
                f"topic {topic!r} has no partition {number}", f"give one from 0 to {count - 1}"
            )

    def _mine(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """These partitions (all of ours, if none is named). Raises NotAssigned."""
        self._check_open()
        for partition in checked_partitions(partitions):
            if partition not in self._buffer:
                mine = ", ".join(f"{t}-{n}" for t, n in sorted(self._buffer.partitions()))
                raise NotAssigned(
                    f"{partition!r} is not assigned to this consumer",
                    f"name one of its own, as (topic, number): {mine or 'it has none yet'}",
                )
        return list(partitions) or sorted(self._buffer.partitions())
