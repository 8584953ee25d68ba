"""The controller: decides what becomes of the metadata, and has it committed.

A decision is a function of the image (`topic_changes`, `broker_changes`). Two decisions must not be
made from one image, or both may give the same partition a leader; so one waits for the other. In a
cluster the broker whose Raft server leads is the controller. Its decisions are committed by the
quorum in its term or not at all: one that leads no more, and does not know it, changes nothing.

Brokers say several times a second that they are there. One that has not for `session_ms` is
*fenced*: others lead its partitions. One that is silent for `doubt_ms`, or has hung up, is called:
if nobody accepts connections where it was, its process is gone, and there is nothing to wait for.

Source: Kafka's `QuorumController`, `ClusterControlManager`; KIP-631.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from craft2.clock import Clock
from craft2.disk import DiskError
from craft2.net import Address
from craft2.tasks import Tasks
from phase2_groups.error_codes import ErrorCode
from phase2_groups.topics import MAX_PARTITIONS
from phase3_raft.metadata import broker_changes
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import BrokerId, BrokerRecord, ProducerIdsRecord, Record
from phase3_raft.refused import InDoubt, Refused

PART = 1_000  # records of a change that need not be committed together
PRODUCER_IDS = 1_000  # given to a broker at a time
_LEARN_S = 5.0  # what became of a change: an election's time, and some
Decide = Callable[[Image], Sequence[Record]]


class Metadata(Protocol):
    """Who commits records: a log of one broker (`metadata_log`), or a quorum (`quorum`)."""

    image: Image

    @property
    def controller(self) -> BrokerId | None: ...

    @property
    def term(self) -> int: ...

    async def commit(self, records: Sequence[Record]) -> None: ...

    async def catch_up(self) -> None: ...

    async def keep_members(self) -> Sequence[str]: ...


class Controller:
    """See the module. Every broker has one; it decides only where Raft leads.

    prefer_ms: so often the first replica of each partition leads again, if it can.
    leaving: the brokers that are about to go, as far as they have told this controller.
    accepts: whether somebody accepts connections at an address; False only if that is certain.
    """

    def __init__(
        self,
        me: BrokerId,
        metadata: Metadata,
        clock: Clock,
        *,
        session_ms: int,
        doubt_ms: int,
        prefer_ms: int,
        accepts: Callable[[Address], Awaitable[bool]],
        trouble: Callable[[str], object],
    ) -> None:
        self.me, self.metadata = me, metadata
        self._clock, self._accepts, self._trouble = clock, accepts, trouble
        self._session_ms, self._doubt_ms = session_ms, doubt_ms
        self._prefer_ms, self._preferred_ms = prefer_ms, 0
        self._turn, self._tasks = asyncio.Lock(), Tasks()
        self._heard_ms: dict[BrokerId, int] = {}
        self.leaving: set[BrokerId] = set()
        self._term = -1

    @property
    def is_here(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self.metadata.controller == self.me

    async def change(self, decide: Decide) -> Sequence[Record]:
        """Commit what `decide` makes of the image; returns it.

        One that is the controller no more before it knows whether that is committed waits until it
        learns it from the next one, so that who asked is told nothing wrong.

        Raises Refused: NOT_CONTROLLER if another broker is, and nothing has happened;
        REQUEST_TIMED_OUT if it is not known in time; and what `decide` raises.
        """
        try:
            return await self._change(decide)
        except InDoubt as doubt:
            await asyncio.wait([doubt.outcome], timeout=_LEARN_S)
            outcome = doubt.outcome.result() if doubt.outcome.done() else None
            if outcome is None:
                raise
            if not outcome:
                raise self._not_controller() from None
            return doubt.records

    async def change_in_parts(self, decide: Decide) -> bool:
        """As `change`, in as many commits as it takes; whether there was anything to do.

        For changes of many partitions, which together may be more than what is committed at once.
        After each part `decide` is asked for the rest, and others may decide something in between.
        """
        return await self._in_parts(self.change, decide)

    async def _in_parts(
        self, change: Callable[[Decide], Awaitable[Sequence[Record]]], decide: Decide
    ) -> bool:
        done = await change(lambda image: decide(image)[:PART])
        some = bool(done)
        while len(done) == PART:
            done = await change(lambda image: decide(image)[:PART])
        return some

    async def change_each(
        self, decisions: Sequence[Decide], *, only_check: bool = False
    ) -> list[Refused | None]:
        """Commit together what each of these decides, one after the other; returns why one cannot
        be done, in their order; None: it is.

        In one commit, so that a controller that leads no more has not done the half of it: then
        none is done, or all that could be. only_check: commit nothing.
        """
        refused: list[Refused | None] = []

        def decide(image: Image) -> Sequence[Record]:
            refused.clear()
            draft = image.copy() if len(decisions) > 1 else image
            records: list[Record] = []
            for one in decisions:
                if len(records) > MAX_PARTITIONS:  # it would hold this broker up for many seconds
                    raise Refused.because(
                        ErrorCode.POLICY_VIOLATION,
                        f"more than {MAX_PARTITIONS} changes of the metadata in one request",
                        "ask for fewer topics or partitions in one request",
                    )
                try:
                    decided = one(draft)
                except Refused as error:
                    refused.append(error)
                    continue
                refused.append(None)
                records += decided
                if draft is not image:
                    for record in decided:
                        draft.apply(record)
            return [] if only_check else records

        try:
            await self.change(decide)
        except Refused as error:
            return [error] * len(decisions)
        except DiskError as error:
            code = ErrorCode.KAFKA_STORAGE_ERROR
            return [Refused.because(code, error.problem, error.fix)] * len(decisions)
        return refused

    async def _change(self, decide: Decide) -> Sequence[Record]:
        """As `change`. It is a task, since whoever asks may be gone before it is committed: the
        next decision must not be made before that all the same."""
        return await asyncio.shield(self._tasks.spawn(self._decided(decide)))

    async def _decided(self, decide: Decide) -> Sequence[Record]:
        async with self._turn:
            await self._begin_term()
            records = decide(self.metadata.image)
            await self.metadata.commit(records)
            return records

    async def _begin_term(self) -> None:
        """A new controller knows all that was committed before it decides anything."""
        if not self.is_here:
            raise self._not_controller()
        term = self.metadata.term
        if term != self._term:
            await self.metadata.catch_up()
            doubtful = self._now_ms() - self._doubt_ms
            self._heard_ms = dict.fromkeys(self.metadata.image.live(), doubtful)
            self._term, self._preferred_ms = term, self._now_ms()

    def _not_controller(self) -> Refused:
        other = self.metadata.controller
        return Refused.because(
            ErrorCode.NOT_CONTROLLER,
            f"broker {self.me} is not the controller",
            "wait until one is elected" if other is None else f"ask broker {other}",
        )

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    # Brokers.

    async def register(self, broker: BrokerRecord) -> int:
        """A broker has started; returns its epoch. Raises Refused: another one has this number."""

        lines: list[str] = []

        def decide(image: Image) -> Sequence[Record]:
            before = image.brokers.get(broker.id)
            if before is not None and before.incarnation == broker.incarnation:
                return []  # it has asked before, and the reply was lost
            moved = before is not None and (before.host, before.port) != (broker.host, broker.port)
            # Two processes cannot listen at one address: there, the other one is no more.
            if before is not None and moved and not before.fenced and self._is_heard(broker.id):
                raise Refused.because(
                    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                    f"broker {broker.id} runs already, at {before.host}:{before.port}",
                    "start this one with another --broker-id, or end that one and wait a moment",
                )
            lines[:] = lines or broker_changes.losses(image, broker)
            return broker_changes.register(image, broker)

        await self.change_in_parts(decide)
        for line in lines:
            self._trouble(line)
        return self.metadata.image.brokers[broker.id].epoch

    def _is_heard(self, broker: BrokerId) -> bool:
        return self._now_ms() - self._heard_ms.get(broker, -self._session_ms) < self._session_ms

    async def heartbeat(
        self, broker: BrokerId, epoch: int, version: int, *, leaving: bool, gone: bool = False
    ) -> bool:
        """A broker is there, and knows the metadata up to `version`; returns whether it is fenced.

        leaving: it would like to go; when nothing is led by it any more it may. gone: it serves
        nobody any more. Raises Refused.
        """
        async with self._turn:
            await self._begin_term()
        image = self.metadata.image
        about = image.brokers.get(broker)
        if about is None or about.epoch != epoch:
            raise Refused.because(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {broker} is not registered with {epoch}"
            )
        self._heard_ms[broker] = self._now_ms()
        (self.leaving.add if leaving else self.leaving.discard)(broker)
        decide = None
        if gone:
            decide = broker_changes.fence
        elif leaving:
            decide = broker_changes.shut_down
        elif about.fenced and version >= about.epoch:
            decide = broker_changes.unfence
        if decide is not None:
            await self._in_parts(self._change, partial(decide, broker=broker))
        return image.brokers[broker].fenced

    async def fence(self, broker: BrokerId, why: str) -> None:
        """It is not there any more. Raises Refused."""
        if await self.change_in_parts(lambda image: broker_changes.fence(image, broker)):
            self._trouble(f"broker {broker} is fenced: {why}")

    async def look_after(self) -> None:
        """Fence who was not heard of, and now and then give leaders their partitions back; to be
        called every `heartbeat_ms`."""
        if not self.is_here:
            return
        try:
            async with self._turn:
                await self._begin_term()
            for broker in self.metadata.image.live():
                if broker != self.me:
                    await self._look_after(broker)
            for line in await self.metadata.keep_members():
                self._trouble(line)
            if self._now_ms() - self._preferred_ms > self._prefer_ms:
                self._preferred_ms = self._now_ms()
                await self.change_in_parts(broker_changes.prefer)
        except Refused:
            pass  # another one is the controller by now

    async def _look_after(self, broker: BrokerId) -> None:
        silent_ms = self._now_ms() - self._heard_ms.setdefault(broker, self._now_ms())
        if silent_ms > self._session_ms:
            await self.fence(broker, f"it was not heard of for {silent_ms} ms")
        elif silent_ms > self._doubt_ms:
            await self._call(broker)

    async def _call(self, broker: BrokerId) -> None:
        about = self.metadata.image.brokers[broker]
        if not await self._accepts(Address(about.host, about.port)):
            await self.fence(broker, f"nobody listens at {about.host}:{about.port} any more")

    async def hung_up(self, broker: BrokerId) -> None:
        """A connection to it broke: it may have died, and then nobody need wait for its silence."""
        try:
            if self.is_here and broker in self.metadata.image.live():
                await self._call(broker)
        except Refused:
            pass  # another one is the controller by now

    def close(self) -> None:
        """Nothing more is decided."""
        self._tasks.cancel()

    # What brokers ask for.

    async def producer_ids(self) -> range:
        """Ids that nobody else gets. Raises Refused."""
        [record] = await self.change(
            lambda image: [ProducerIdsRecord(image.next_producer_id + PRODUCER_IDS)]
        )
        assert isinstance(record, ProducerIdsRecord)
        return range(record.next_id - PRODUCER_IDS, record.next_id)
