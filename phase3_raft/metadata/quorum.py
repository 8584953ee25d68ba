"""The metadata of a cluster: the records that a single broker writes to a log, committed by Raft.

Every broker has a Raft server. What a majority has on disk is committed, and applied everywhere in
the same order, so all brokers come to know the same; the one whose Raft server leads decides what
is proposed (`controller`). Snapshots of the image keep the log short.

Source: KIP-500, KIP-595, KIP-630.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from craft2.clock import Clock
from craft2.disk import Disk
from craft2.events import Emitter
from craft2.net import Address, Net, NetError, parse_address
from phase2_groups.error_codes import ErrorCode
from phase3_raft.cluster_folder import RAFT_FOLDER
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import (
    BrokerId,
    BrokerRecord,
    Record,
    RemoveTopicRecord,
    decode_many,
    encode_many,
)
from phase3_raft.raft.application import (
    MAX_COMMAND_BYTES,
    Busy,
    NodeConfig,
    OutcomeUnknown,
    Stopped,
)
from phase3_raft.raft.driver import RaftNode
from phase3_raft.raft.messages import EntryKind, Members, RaftError
from phase3_raft.raft.state import NotLeader, RaftConfig
from phase3_raft.raft.storage import RaftStorage
from phase3_raft.refused import InDoubt, Refused

FOLDER = RAFT_FOLDER
_LOOKS = 20  # whether another one leads, in the time that a handover may take
_ANYWHERE = Address("127.0.0.1", 0)
Changed = Callable[[Sequence[Record]], object]
_REMEDY = (
    "restore it from this broker's own disk; or, while all other brokers run, empty the broker's "
    "folder and start it: it copies everything from them"
)


@dataclass(frozen=True, kw_only=True)
class QuorumConfig:
    """The Raft servers of a cluster.

    cluster: its name; who has another one is not listened to. voters: the addresses of those that
    found it, the same for all brokers. A broker that is none of them joins: it learns what they
    decide, and does not vote. listen: where this one's server listens, if not there. seeds: brokers
    of the cluster that one which joins can ask.
    """

    cluster: str
    voters: Mapping[BrokerId, Address]
    listen: Address | None = None
    raft: RaftConfig = field(default_factory=RaftConfig)
    compact_every: int = 10_000
    seeds: Sequence[Address] = ()


class _Machine:
    """The image, as what Raft replicates."""

    def __init__(self, image: Image, changed: Changed) -> None:
        self.image, self._changed = image, changed

    def apply(self, command: bytes) -> None:
        records = decode_many(command)
        for record in records:
            self.image.apply(record)
        self._changed(records)

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.image.version, encode_many(self.image.records())))

    def restore(self, data: bytes) -> None:
        version, encoded = msgspec.msgpack.decode(data, type=tuple[int, bytes])
        before = {name: topic.topic_id for name, topic in self.image.topics.items()}
        self.image.clear()
        records = decode_many(encoded)
        for record in records:
            self.image.apply(record)
        self.image.version = version
        there = {(topic.name, topic.topic_id) for topic in self.image.topics.values()}
        gone = [RemoveTopicRecord(name) for name, id_ in before.items() if (name, id_) not in there]
        self._changed([*gone, *records])


class Quorum:
    """See the module. changed: called with records after they are applied, on every broker."""

    def __init__(
        self,
        me: BrokerId,
        data_dir: str,
        config: QuorumConfig,
        changed: Changed,
        *,
        disk: Disk,
        clock: Clock,
        net: Net,
        events: Emitter | None = None,
        chance: Callable[[], float],
        directory: str = "",
    ) -> None:
        """directory: the id of `data_dir`. Raises RaftError for a folder of another cluster or
        broker."""
        self.image = Image()
        self.me, self.config = me, config
        joins = me not in config.voters
        members = Members() if joins else Members(voters=tuple(sorted(config.voters)))
        storage = RaftStorage(
            os.path.join(data_dir, FOLDER),
            config.cluster,
            me,
            members,
            disk=disk,
            clock=clock,
            remedy=_REMEDY,
        )
        node = NodeConfig(
            cluster=config.cluster,
            server_id=me,
            listen=config.listen or config.voters.get(me, _ANYWHERE),
            peers=config.voters,
            raft=config.raft,
            compact_every=config.compact_every,
        )
        self._tell = changed
        self.address = node.listen
        self.node = RaftNode(
            node,
            _Machine(self.image, self._changed),
            storage,
            net=net,
            events=events,
            chance=chance,
        )
        self.node.folder, self.node.folders = directory, self._directories

    def _directories(self) -> dict[BrokerId, str]:
        """Which data directories brokers have, as the log has it, committed or not."""
        found = {one.id: one.directory for one in self.image.brokers.values()}
        for entry in self.node.unapplied():
            if entry.kind == EntryKind.COMMAND:
                for record in decode_many(entry.data):
                    if isinstance(record, BrokerRecord):
                        found[record.id] = record.directory
        return found

    async def open(self) -> None:
        """Read the disk, listen, take part. Raises NetError, RaftError, DiskError."""
        self.address = await self.node.start()

    def _changed(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, BrokerRecord) and record.raft and self._may_join(record.id):
                with contextlib.suppress(NetError):  # nobody is there, and the others go on
                    self.node.meet(record.id, parse_address(record.raft))
        self._tell(records)

    def _may_join(self, broker: BrokerId) -> bool:
        return broker not in self.config.voters

    @property
    def joins(self) -> bool:
        """Whether this broker is none of the voters."""
        return self._may_join(self.me)

    async def keep_members(self) -> Sequence[str]:
        """The voters become those of the configuration; brokers that have joined learn what is
        decided, and who was removed does not any more. Returns what operators should hear.

        To be called by the controller, now and again: one step at a time, and each waits for the
        one before.
        """
        before = self.node.members
        try:
            members = self._next_members(before)
            if members != before:
                await self.node.change_members(members)
        except RaftError:
            return []  # not now: the next call tries again
        gone, come = set(before.voters) - set(members.voters), set(members.voters)
        return [
            *(f"broker {one} votes no more: {self._why_out(one)}" for one in sorted(gone)),
            *(f"broker {one} votes now" for one in sorted(come.difference(before.voters))),
        ]

    def _why_out(self, voter: BrokerId) -> str:
        if voter in self.config.voters:
            return "its folder was emptied, and it has to copy everything first"
        return "it is not among the voters that the controller was started with"

    def _next_members(self, now: Members) -> Members:
        """Out: one who is not to vote, or whose disk was emptied. In: one who has everything."""
        wanted = set(self.config.voters)
        out = [*self.node.emptied, *sorted(set(now.voters) - wanted)]
        come = [one for one in sorted(wanted - set(now.voters)) if self.node.has_all(one)]
        voters = set(now.voters).difference(out[:1]) if out else {*now.voters, *come[:1]}
        joined = {one.id for one in self.image.brokers.values() if one.raft}
        return Members(tuple(sorted(voters)), tuple(sorted((joined | wanted) - voters)))

    @property
    def controller(self) -> BrokerId | None:
        """Who leads, as far as this broker knows."""
        return self.node.leader

    @property
    def term(self) -> int:
        """Of Raft: another one, another controller."""
        return self.node.term

    async def commit(self, records: Sequence[Record]) -> None:
        """Have these committed, all or none, and applied here. Raises Refused.

        NOT_CONTROLLER, POLICY_VIOLATION: nothing has happened. InDoubt: it may have, or will.
        """
        if not records:
            return
        command = encode_many(records)
        if len(command) > MAX_COMMAND_BYTES:
            raise Refused.because(
                ErrorCode.POLICY_VIOLATION,
                f"a change of {len(command)} bytes of metadata, where {MAX_COMMAND_BYTES} may be "
                "committed at once",
                "ask for fewer partitions in one request",
            )
        try:
            await self.node.propose(command)
        except (NotLeader, Busy) as error:
            raise Refused.because(ErrorCode.NOT_CONTROLLER, error.problem, error.fix) from error
        except OutcomeUnknown as error:
            raise InDoubt(error.problem, error.fix, records, error.outcome) from error
        except Stopped as error:
            raise Refused.because(ErrorCode.REQUEST_TIMED_OUT, error.problem, error.fix) from error

    async def catch_up(self) -> None:
        """Wait until this broker, which leads, has applied all that was committed before.

        Raises Refused.
        """
        try:
            await self.node.read()
        except (NotLeader, Stopped) as error:
            raise Refused.because(ErrorCode.NOT_CONTROLLER, error.problem, error.fix) from error

    async def hand_over(self, leaving: Collection[BrokerId]) -> None:
        """If this broker leads, let another one do so that stays, or there would be no controller
        while this one drains, and for an election's time after. Gives up if none takes over.

        One that is fenced will do: often it has just started, and waits for a controller.
        """
        stay = set(self.node.members.voters) - set(leaving) - {self.me}
        for other in sorted(stay.intersection(self.node.status().connected)):
            if self.node.leader != self.me:
                return
            with contextlib.suppress(RaftError):  # it hands over already
                self.node.transfer(other)
            for _ in range(_LOOKS):
                if self.node.leader not in (self.me, None):
                    return
                await asyncio.sleep(self.config.raft.election_timeout_ms[1] / 1000 / _LOOKS)

    def close(self) -> None:
        """Stop."""
        self.node.stop()
