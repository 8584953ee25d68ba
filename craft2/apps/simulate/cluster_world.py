"""Three brokers and their clients in virtual time: they die, are cut off, stand still, and agree.

The brokers are those that `craft2 broker` runs, each on a simulated machine, with the metadata in a
quorum and every partition on all three. Idempotent producers send with acks=all until they are
told; at the end everything is read, and the checker compares what they were told. After every
event that changes something:

    one leader an epoch       no two brokers lead a partition in one leader epoch
    logs agree                what is below the high watermark of two replicas is the same in both
    watermarks do not fall    of one leader, in one life

>>> world = ClusterWorld(seed=1)
>>> report = world.run()
>>> report.ok(), world.crashes > 0
(True, True)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from zlib import crc32

from craft2.apps.simulate.raft_rules import Broken
from craft2.checker import Report, check
from craft2.history import Message, Operation
from craft2.net import Address
from craft2.record_batch import decode_all, encode_values
from craft2.sim.machine import Machine
from craft2.sim.net import Wires
from craft2.sim.timeline import Timeline
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.client.broker_connection import BrokerConnection
from phase3_raft.metadata.quorum import QuorumConfig

CALM_MS, END_MS = 6_000, 16_000
BROKERS, PRODUCERS, PARTITIONS, TOPIC = (1, 2, 3), 3, 2, "t"
ASK_S = 0.9
SMALL = {"segment.index.bytes": "4096"}  # a simulated disk keeps what it maps in memory
_LOOK_MS = 20  # the rules are looked at so often
_NEW_PRODUCER = {
    "transactional_id": None,
    "transaction_timeout": 1_000,
    "producer_id": -1,
    "producer_epoch": -1,
}


def host(number: int) -> str:
    """The name of a broker's machine."""
    return f"broker-{number}"


class ClusterWorld:
    """See the module. broker: its class, for planted bugs."""

    def __init__(self, seed: int, *, broker: type[Broker] = Broker) -> None:
        self.chance = random.Random(seed)
        self.timeline = Timeline()
        self.wires = Wires(self.timeline, self.chance)
        self.history: list[Operation] = []
        self.trouble: list[str] = []
        self.brokers: dict[int, Broker] = {}
        self._class = broker
        self._ids = iter(range(1, 10**6))
        self._leaders: dict[tuple[str, int, int], int] = {}  # (topic, partition, epoch) -> who
        self._agreed: dict[tuple[int, int], bytes] = {}  # (partition, offset) -> what
        self._checked: dict[tuple[int, int], int] = {}  # (broker, partition) -> up to where
        self._watermarks: dict[tuple[int, int, int], int] = {}
        programs: dict[str, Callable[[Machine], Coroutine[Any, Any, object]]] = {
            **{host(n): partial(self._broker, n) for n in BROKERS},
            **{f"producer-{n}": partial(self._producer, n) for n in range(PRODUCERS)},
        }
        self.machines = {
            name: Machine(name, self.timeline, self.wires, self.chance, program)
            for name, program in programs.items()
        }

    async def _broker(self, number: int, machine: Machine) -> None:
        voters = {n: Address(host(n), 9_093) for n in BROKERS}
        config = BrokerConfig(
            "/data",
            broker_id=number,
            listen=Address(host(number), 9_092),
            default_replicas=3,
            offsets_partitions=2,
            topic_defaults=SMALL,
            quorum=QuorumConfig(cluster="sim", voters=voters),
            max_lag_ms=600,
            session_ms=1_000,
            heartbeat_ms=100,
        )
        broker = self._class(
            config,
            disk=machine.disk,
            clock=machine.clock,
            net=machine.net,
            new_id=lambda: f"{next(self._ids):032x}",
            trouble=lambda words: self.trouble.append(f"{number}: {words}"),
            chance=self.chance.random,
        )
        self.brokers[number] = broker
        await broker.open()

    def run(self) -> Report:
        """Everything. Raises Broken."""
        for machine in self.machines.values():
            machine.boot()
        self.timeline.after(self.chance.randint(1_500, 2_000), self._fault)
        self.timeline.after(_LOOK_MS, self._look)
        self.timeline.run(CALM_MS)
        self._calm()
        self.timeline.run(END_MS)
        return self._judge()

    @property
    def crashes(self) -> int:
        """Of brokers."""
        return sum(self.machines[host(n)].crashes for n in BROKERS)

    @property
    def digest(self) -> int:
        """A checksum of what came out: equal for equal seeds, in whatever process."""
        disks = [sorted(self.machines[host(n)].disk.tree().items()) for n in BROKERS]
        return crc32(repr((self.timeline.count, self.history, disks)).encode())

    # What goes wrong.

    def _fault(self) -> None:
        if self.timeline.now_ms >= CALM_MS:
            return
        self.chance.choice((self._crash, self._crash, self._cut, self.wires.heal))()
        self.timeline.after(self.chance.randint(100, 1_500), self._fault)

    def _crash(self) -> None:
        name = host(self.chance.choice(BROKERS))
        machine = self.machines[name]
        if machine.loop is None:
            return
        if self.chance.random() < 0.4:
            machine.crash_after(self.chance.randint(0, 25))  # in the middle of some call
        else:
            machine.crash(power=self.chance.random() < 0.5)
        self.timeline.after(self.chance.randint(50, 2_500), self._boot, name)

    def _boot(self, name: str) -> None:
        if self.machines[name].loop is None:
            self.machines[name].boot()

    def _cut(self) -> None:
        some = [host(self.chance.choice(BROKERS))]
        others = [name for name in self.machines if name not in some and self.chance.random() < 0.7]
        self.wires.cut(some, others, one_way=self.chance.random() < 0.3)

    def _calm(self) -> None:
        self.wires.heal()
        for number in BROKERS:
            self.machines[host(number)].disk.crash_at = None
            self._boot(host(number))

    # The rules.

    def _look(self) -> None:
        for number in BROKERS:
            broker, machine = self.brokers.get(number), self.machines[host(number)]
            if broker is None or broker.disk is not machine.disk or machine.disk.dead:
                continue  # it is down, or has not begun again
            for (topic, part), partition in broker.partitions.all():
                if partition.leads:
                    key = topic, part, partition.record.leader_epoch
                    leader = self._leaders.setdefault(key, number)
                    if leader != number:
                        raise Broken("one leader an epoch", f"brokers {leader} and {number}: {key}")
                if topic == TOPIC:
                    self._look_at_log(number, part, partition)
        self.timeline.after(_LOOK_MS, self._look)

    def _look_at_log(self, number: int, part: int, partition: Any) -> None:
        watermark = partition.high_watermark
        life = id(partition)
        before = self._watermarks.get((number, part, life), 0)
        if partition.leads and watermark < before:
            raise Broken(
                "watermarks do not fall", f"broker {number}, {TOPIC}-{part}: {before}, {watermark}"
            )
        self._watermarks[number, part, life] = watermark
        start = min(self._checked.get((number, part), 0), watermark)
        for record in partition.log.records(start, watermark):
            known = self._agreed.setdefault((part, record.offset), record.value or b"")
            if known != record.value:
                raise Broken(
                    "logs agree",
                    f"{TOPIC}-{part}, offset {record.offset}: broker {number} has "
                    f"{record.value!r}, another had {known!r} below its high watermark",
                )
        self._checked[number, part] = watermark

    # Clients.

    async def _producer(self, number: int, machine: Machine) -> None:
        """Values 1, 2, 3, ..., each until it is acknowledged, to partitions that chance chooses."""
        client = _Client(machine, self.chance)
        while not await client.make_topic():
            await asyncio.sleep(0.05)
        producer_id = (await client.until("init_producer_id", 4, _NEW_PRODUCER, None)).producer_id
        sequences = [0] * PARTITIONS
        count = 0
        while self.timeline.now_ms < END_MS - 5_000:
            part = self.chance.randrange(PARTITIONS)
            values = [f"{number}:{count + n}" for n in range(self.chance.choice((1, 1, 3)))]
            count += len(values)
            batch = encode_values(
                [value.encode() for value in values],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[part],
                timestamps=1,
            )
            began = self.timeline.now_ms
            reply = await client.until("produce", 7, _produce(part, batch), part)
            first = reply.responses[0].partition_responses[0].base_offset
            sequences[part] += len(values)
            sent = [Message(TOPIC, part, first + n, value) for n, value in enumerate(values)]
            now = self.timeline.now_ms
            self.history.append(Operation(f"producer-{number}", "send", began, now, "ok", sent))
            await asyncio.sleep(self.chance.random() / 20)
        if number == 0:
            await asyncio.sleep(2)  # the others have their acknowledgements by then
            await self._read_all(client)

    async def _read_all(self, client: _Client) -> None:
        for part in range(PARTITIONS):
            offset = 0
            while True:
                began = self.timeline.now_ms
                reply = await client.until("fetch", 11, _fetch(part, offset), part)
                data = reply.responses[0].partitions[0].records
                records = [one for one in decode_all(data) if one.offset >= offset] if data else []
                if not records:
                    break
                polled = [
                    Message(TOPIC, part, one.offset, (one.value or b"").decode()) for one in records
                ]
                now = self.timeline.now_ms
                self.history.append(Operation("reader", "poll", began, now, "ok", polled=polled))
                offset = records[-1].offset + 1

    # The end.

    def _judge(self) -> Report:
        for machine in self.machines.values():
            if isinstance(machine.failure, Broken):
                raise machine.failure
            if machine.failure is not None:
                raise Broken(machine.name, repr(machine.failure))
            for context in machine.loop.errors if machine.loop is not None else ():
                raise Broken(machine.name, str(context))
        for line in self.trouble:
            if "is fenced" not in line:
                raise Broken("trouble", line)
        if not any(one.kind == "poll" for one in self.history):
            raise Broken("liveness", f"nothing was read by {END_MS} ms")
        report = check(self.history)
        if not report.ok():
            raise Broken("promise", str(report))
        return report


class _Client:
    """Asks whoever leads, as far as it knows; any broker for the rest."""

    def __init__(self, machine: Machine, chance: random.Random) -> None:
        self._net, self._chance = machine.net, chance
        self._open: dict[int, BrokerConnection] = {}
        self._leaders: dict[int, int] = {}

    async def ask(self, to: int, name: str, version: int, fields: dict[str, Any]) -> Any:
        """The reply; None: it did not come, and nobody knows whether the broker was asked."""
        try:
            async with asyncio.timeout(ASK_S):
                if to not in self._open:
                    address = Address(host(to), 9_092)
                    self._open[to] = await BrokerConnection.open(self._net, address)
                return await self._open[to].ask(name, version, fields)
        except (OSError, TimeoutError):
            connection = self._open.pop(to, None)
            if connection is not None:
                await connection.close()
            await asyncio.sleep(0.02)
            return None

    async def until(self, name: str, version: int, fields: dict[str, Any], part: int | None) -> Any:
        """The first reply without an error. part: of the leader of this partition."""
        while True:
            to = self._chance.choice(BROKERS)
            if part is not None:
                if part not in self._leaders:
                    await self._find_leaders()
                to = self._leaders.get(part, to)
            reply = await self.ask(to, name, version, fields)
            error = _error_in(reply) if reply is not None else ErrorCode.NONE
            if reply is not None and not error:
                return reply
            if error and not ErrorCode(error).retriable:
                raise Broken("error", f"{name}: {ErrorCode(error).name}")
            if part is not None:
                self._leaders.pop(part, None)
            await asyncio.sleep(0.01)

    async def _find_leaders(self) -> None:
        fields = {
            "topics": [{"topic_id": None, "name": TOPIC}],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        reply = await self.ask(self._chance.choice(BROKERS), "metadata", 8, fields)
        for topic in reply.topics if reply is not None else ():
            for one in topic.partitions:
                if one.leader_id >= 0:
                    self._leaders[one.partition_index] = one.leader_id

    async def make_topic(self) -> bool:
        """Whether it is there."""
        topic = {
            "name": TOPIC,
            "num_partitions": PARTITIONS,
            "replication_factor": 3,
            "assignments": [],
            "configs": [
                {"name": "flush.messages", "value": "1"},
                {"name": "min.insync.replicas", "value": "2"},
            ],
        }
        fields = {"topics": [topic], "timeout": 1_000, "validate_only": False}
        reply = await self.ask(self._chance.choice(BROKERS), "create_topics", 4, fields)
        made = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        return reply is not None and reply.topics[0].error_code in made


def _error_in(reply: Any) -> int:
    if hasattr(reply, "error_code") and not hasattr(reply, "responses"):
        return int(reply.error_code)
    [topic] = reply.responses
    [partition] = getattr(topic, "partition_responses", None) or topic.partitions
    return int(partition.error_code)


def _produce(part: int, batch: bytes) -> dict[str, Any]:
    topic = {"name": TOPIC, "partition_data": [{"index": part, "records": batch}]}
    return {"transactional_id": None, "acks": -1, "timeout": 800, "topic_data": [topic]}


def _fetch(part: int, offset: int) -> dict[str, Any]:
    wanted = {
        "partition": part,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": 20_000,
    }
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 30_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
