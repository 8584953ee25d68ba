"""What a broker does all the time in a cluster: be there, follow its leaders, look after the ISR.

    every heartbeat    tell the controller that this broker is there (registered at first), and if
                       it is the controller itself, look after the others
    every change       of the metadata: open what it has, and fetch what it follows
    twice a lag limit  for what it leads: ask the controller to change the ISR

Source: Kafka's `BrokerLifecycleManager`, `ReplicaManager`, `AlterPartitionManager`; KIP-631.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from uuid import UUID

from craft2.clock import Clock
from craft2.net import Address, parse_address
from craft2.tasks import Tasks
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import TopicPartition
from phase3_raft.broker_settings import follower_rate
from phase3_raft.codec import BadMessage
from phase3_raft.metadata import broker_changes
from phase3_raft.metadata.controller import PART, Controller
from phase3_raft.metadata.records import BrokerId, BrokerRecord, PartitionRecord
from phase3_raft.partition import Partition
from phase3_raft.partitions import Partitions
from phase3_raft.peers import Peers
from phase3_raft.refused import Refused
from phase3_raft.replication.fetcher import PARTITION_BYTES, Fetchers
from phase3_raft.replication.replicas import Replicas
from phase3_raft.schemas import Fields, Message

# The controller has changed the partition, perhaps as we asked before: the metadata will say how.
_OLD_NEWS = (ErrorCode.INVALID_UPDATE_VERSION, ErrorCode.FENCED_LEADER_EPOCH)
_CONTROLLER = "controller"  # a lane
TOLD_S = 0.2  # a client that sends all the time has sent by then, and was told who leads


def _listener(name: str, at: Address) -> Fields:
    return {"name": name, "host": at.host, "port": at.port, "security_protocol": 0}


class Replication:
    """See the module. seeds: who is asked while this broker knows of no controller."""

    def __init__(
        self,
        me: BrokerRecord,
        cluster_id: str,
        seeds: Sequence[Address],
        controller: Controller,
        partitions: Partitions,
        peers: Peers,
        tasks: Tasks,
        clock: Clock,
        *,
        heartbeat_ms: int,
        max_lag_ms: int,
        trouble: Callable[[str], object],
        partition_bytes: int = PARTITION_BYTES,
    ) -> None:
        self.me = me
        self._cluster_id, self._seeds, self._controller = cluster_id, seeds, controller
        self._partitions, self._peers, self._tasks = partitions, peers, tasks
        self._clock, self._trouble = clock, trouble
        self._heartbeat_s, self._isr_s = heartbeat_ms / 1000, max_lag_ms / 2000
        self._fetchers = Fetchers(
            me.id,
            peers,
            tasks,
            trouble,
            lambda: follower_rate(controller.metadata.image, me.id),
            partition_bytes,
        )
        self._epoch = -1
        self._changed = asyncio.Event()
        self._isr_due = asyncio.Event()
        self._leaving = self._gone = False
        self.refused = False  # another one has this broker's number
        self._left, self._parted = asyncio.Event(), asyncio.Event()
        self.unfenced = asyncio.Event()

    def start(self) -> None:
        """Begin."""
        self._changed.set()
        self._tasks.spawn(self._follow())
        self._tasks.spawn(self._be_there())
        self._tasks.spawn(self._keep_isr())

    def changed(self) -> None:
        """The metadata have."""
        self._changed.set()
        if not self._is_known():
            return
        self._partitions.let_lead()
        if not self._controller.metadata.image.brokers[self.me.id].fenced:
            self.unfenced.set()
        elif self._gone:
            self._parted.set()

    def _is_known(self) -> bool:
        """Whether the metadata know of this life of the broker. Before, they may be old: who leads
        by them may have been deposed since, and whoever followed it would cut what it must keep."""
        about = self._controller.metadata.image.brokers.get(self.me.id)
        return about is not None and about.incarnation == self.me.incarnation

    def led_by(self, controller: BrokerId | None) -> None:
        """There is another controller, or none. The last one may hang, and whoever waits for its
        reply would tell the new one too late that he is there."""
        self._peers.hang_up_on_others(controller, _CONTROLLER)

    def isr_changes(self) -> None:
        """A follower may have caught up, or a leader cannot write: the ISR is looked at soon."""
        self._isr_due.set()

    async def leave(self, limit_s: float) -> None:
        """Have others lead what this broker leads, before it goes.

        Clients that send to it are told so for a moment: whoever is hung up on instead has to find
        out who leads now, and may take a second for it (`make bench ARGS=cluster-failover`).
        """
        self._leaving = True
        led = any(partition.leads for _, partition in self._partitions.all())
        try:
            async with asyncio.timeout(limit_s):
                await self._left.wait()
        except TimeoutError:
            if self.unfenced.is_set():  # else it was never taken in
                self._trouble("nobody could take over; the cluster will find out by itself")
        if led:
            await asyncio.sleep(TOLD_S)

    async def goodbye(self, limit_s: float) -> None:
        """This broker serves nobody any more: clients need not be told of it any longer, and no
        leader has to wait for it. Until they know that, it goes on copying."""
        self._gone = True
        controller = self._controller
        try:
            async with asyncio.timeout(limit_s):
                if controller.is_here:
                    await controller.change_in_parts(
                        lambda image: broker_changes.fence(image, self.me.id)
                    )
                elif self._epoch >= 0:
                    await self._ask("broker_heartbeat", 0, self._heartbeat(fence=True))
                    await self._parted.wait()  # we hear of it when the others do
        except (OSError, BadMessage, Refused):
            pass  # the controller finds out by itself

    # Be there.

    async def _be_there(self) -> None:
        while not self._gone:
            try:
                await self._controller.look_after()
                if self._epoch < 0:
                    await self._register()
                else:
                    await self._beat()
            except (OSError, BadMessage):
                pass  # there is no controller at the moment, or another one
            await asyncio.sleep(self._heartbeat_s)

    async def _register(self) -> None:
        me = self.me
        listeners = [_listener("PLAINTEXT", Address(me.host, me.port))]
        if me.raft:
            listeners.append(_listener("RAFT", parse_address(me.raft)))
        reply = await self._ask(
            "broker_registration",
            2,
            {
                "broker_id": me.id,
                "cluster_id": self._cluster_id,
                "incarnation_id": UUID(me.incarnation),
                "listeners": listeners,
                "features": [],
                "rack": me.rack,
                "log_dirs": [UUID(me.directory)],
            },
        )
        if reply.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            if not self.refused:
                self.refused = True
                self._trouble(
                    f"another broker {me.id} runs already: end that one, or start this one with "
                    "another --broker-id"
                )
        elif not reply.error_code:
            self._epoch = reply.broker_epoch

    async def _beat(self) -> None:
        reply = await self._ask("broker_heartbeat", 0, self._heartbeat())
        if reply.error_code == ErrorCode.STALE_BROKER_EPOCH:
            self._epoch = -1
        elif not reply.error_code and reply.should_shut_down:
            self._left.set()

    def _heartbeat(self, *, fence: bool = False) -> Fields:
        return {
            "broker_id": self.me.id,
            "broker_epoch": self._epoch,
            "current_metadata_offset": self._controller.metadata.image.version,
            "want_fence": fence,
            "want_shut_down": self._leaving,
        }

    async def _ask(self, name: str, version: int, fields: Fields) -> Message:
        """The controller's reply. Raises OSError, BadMessage."""
        controller = self._controller.metadata.controller
        if controller is None:
            return await self._peers.ask_first(self._seeds, name, version, fields)
        return await self._peers.ask(controller, name, version, fields, _CONTROLLER)

    # Follow.

    async def _follow(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):  # what cannot be opened is tried again
                async with asyncio.timeout(self._isr_s if self._partitions.shut() else None):
                    await self._changed.wait()
            self._changed.clear()
            if not self._is_known():
                continue
            followed: dict[TopicPartition, Partition] = {}
            image = self._controller.metadata.image
            mine = [one for one in image.partitions() if self.me.id in one.replicas]
            for key in [(one.topic, one.partition) for one in mine]:
                if not self._partitions.is_open(*key):
                    await asyncio.sleep(0)  # to open many takes long: others have their turn
                record = image.partition(*key)  # as it is by now
                if record is None or self.me.id not in record.replicas:
                    continue
                partition = self._partitions.replica(record)
                if record.leader != self.me.id and isinstance(partition, Partition):
                    followed[key] = partition
            self._fetchers.follow(followed)

    # Who is in sync.

    async def _keep_isr(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._isr_s):
                    await self._isr_due.wait()
            except TimeoutError:
                pass
            self._isr_due.clear()
            try:
                await self._ask_for_isr()
            except (OSError, BadMessage):
                await asyncio.sleep(self._heartbeat_s)

    async def _ask_for_isr(self) -> None:
        now_ms = int(self._clock.monotonic() * 1000)
        image = self._controller.metadata.image
        fenced = image.brokers.keys() - set(image.live())
        wanted: dict[TopicPartition, tuple[PartitionRecord, tuple[BrokerId, ...]]] = {}
        proposing: dict[TopicPartition, Replicas] = {}
        for key, partition in self._partitions.all():
            if partition.leads and len(wanted) < PART:  # the others the next time, soon
                (begin, end), writes = partition.log.bounds, partition.writes
                isr = partition.replicas.wanted_isr(end, now_ms, fenced, begin=begin, writes=writes)
                if isr is not None:
                    wanted[key], proposing[key] = (partition.record, isr), partition.replicas
        for record in self._partitions.shut():
            others = tuple(who for who in record.isr if who != self.me.id)
            if record.leader == self.me.id and others and len(wanted) < PART:
                wanted[record.topic, record.partition] = record, others
        if not wanted:
            return
        if len(wanted) == PART:
            self._isr_due.set()
        topics: dict[str, list[Fields]] = {}
        for (topic, number), (record, isr) in wanted.items():
            if (topic, number) in proposing:
                proposing[topic, number].propose(isr)
            topics.setdefault(topic, []).append(
                {
                    "partition_index": number,
                    "leader_epoch": record.leader_epoch,
                    "new_isr_with_epochs": [
                        {"broker_id": who, "broker_epoch": image.brokers[who].epoch}
                        for who in isr
                        if who in image.brokers
                    ],
                    "leader_recovery_state": 0,
                    "partition_epoch": record.partition_epoch,
                }
            )
        asked = [
            {"topic_id": UUID(image.topics[name].topic_id), "partitions": some}
            for name, some in topics.items()
            if name in image.topics
        ]
        fields = {"broker_id": self.me.id, "broker_epoch": self._epoch, "topics": asked}
        try:
            reply = await self._ask("alter_partition", 3, fields)
        except BaseException:
            for replicas in proposing.values():
                replicas.answered(refused=False)
            raise
        names = {topic.topic_id: topic.name for topic in image.topics.values()}
        outcomes = {
            (names.get(topic.topic_id.hex, ""), one.partition_index): one.error_code
            for topic in reply.topics
            for one in topic.partitions
        }
        for key, replicas in proposing.items():
            error = outcomes.get(key, reply.error_code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if error:
                refused = key in outcomes and error not in _OLD_NEWS
                replicas.answered(refused=refused)
