"""A broker and its clients in virtual time: it dies at any moment, and its clients are the judges.

The broker is the one that `craft2 broker` runs, on a simulated machine whose disk loses what was
not synced. Idempotent producers send the same batch until it is acknowledged; a group commits
offsets; at the end everything is read, and the checker compares what they were told.

>>> world = BrokerWorld(seed=1)
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

from craft2.apps.simulate import requests
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

CALM_MS, END_MS = 5_000, 11_000
PRODUCERS, PARTITIONS, TOPIC, GROUP = 3, 2, "t", "g"
ASK_S = 0.9
BROKER = Address("broker", 9_092)
SMALL = {"segment.index.bytes": "4096"}  # a simulated disk keeps what it maps in memory


class BrokerWorld:
    """See the module.

    power: whether crashes lose what was not synced, or only the process dies. Records are synced
    before they are acknowledged (`flush.messages=1`); commits are not, so with power they are not
    judged. broker: its class, for planted bugs.
    """

    def __init__(self, seed: int, *, power: bool = True, broker: type[Broker] = Broker) -> None:
        self.chance = random.Random(seed)
        self.timeline = Timeline()
        self.wires = Wires(self.timeline, self.chance)
        self.history: list[Operation] = []
        self.trouble: list[str] = []
        self.committed = 0
        self._power, self._class = power, broker
        self._ids = iter(range(1, 10**6))
        programs: dict[str, Callable[[Machine], Coroutine[Any, Any, object]]] = {
            BROKER.host: self._broker,
            **{f"producer-{n}": partial(self._producer, n) for n in range(PRODUCERS)},
            "committer": self._committer,
        }
        self.machines = {
            name: Machine(name, self.timeline, self.wires, self.chance, program)
            for name, program in programs.items()
        }
        self._server = self.machines[BROKER.host]

    async def _broker(self, machine: Machine) -> None:
        broker = self._class(
            BrokerConfig("/data", listen=BROKER, offsets_partitions=2, topic_defaults=SMALL),
            disk=machine.disk,
            clock=machine.clock,
            net=machine.net,
            new_id=lambda: f"{next(self._ids):032x}",
            trouble=self.trouble.append,
        )
        await broker.open()

    def run(self) -> Report:
        """Everything. Raises Broken."""
        for machine in self.machines.values():
            machine.boot()
        self.timeline.after(self.chance.randint(300, 900), self._fault)
        self.timeline.run(CALM_MS)
        self._calm()
        self.timeline.run(END_MS)
        return self._judge()

    @property
    def crashes(self) -> int:
        """Of the broker."""
        return self._server.crashes

    @property
    def digest(self) -> int:
        """A checksum of what came out: equal for equal seeds, in whatever process."""
        disk = sorted(self._server.disk.tree().items())
        return crc32(repr((self.timeline.count, self.history, disk)).encode())

    # What goes wrong.

    def _fault(self) -> None:
        if self.timeline.now_ms >= CALM_MS:
            return
        act = self.chance.choice((self._crash, self._crash, self._cut, self.wires.heal))
        act()
        self.timeline.after(self.chance.randint(100, 1_200), self._fault)

    def _crash(self) -> None:
        if self._server.loop is None:
            return
        if self._power and self.chance.random() < 0.6:
            self._server.crash_after(self.chance.randint(0, 25))  # in the middle of some call
        else:
            self._server.crash(power=self._power)
        self.timeline.after(self.chance.randint(50, 1_000), self._boot)

    def _boot(self) -> None:
        if self._server.loop is None:
            self._server.boot()

    def _cut(self) -> None:
        others = [name for name in self.machines if name != BROKER.host]
        some = [name for name in others if self.chance.random() < 0.6]
        self.wires.cut([BROKER.host], some, one_way=self.chance.random() < 0.3)

    def _calm(self) -> None:
        self.wires.heal()
        self._server.disk.crash_at = None
        self._boot()

    # Clients.

    async def _producer(self, number: int, machine: Machine) -> None:
        """Values 1, 2, 3, ..., each until it is acknowledged, to partitions that chance chooses."""
        client = _Client(machine)
        while not await client.make_topic():
            await asyncio.sleep(0.05)
        producer_id = (await client.until("init_producer_id", 4, requests.NEW_PRODUCER)).producer_id
        sequences = [0] * PARTITIONS
        count = 0
        while self.timeline.now_ms < END_MS - 3_500:
            partition = self.chance.randrange(PARTITIONS)
            values = [f"{number}:{count + n}" for n in range(self.chance.choice((1, 1, 3)))]
            count += len(values)
            batch = encode_values(
                [value.encode() for value in values],
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[partition],
                timestamps=1,
            )
            began = self.timeline.now_ms
            asked = requests.produce(TOPIC, partition, batch)
            reply = await client.until("produce", 7, asked)
            first = reply.responses[0].partition_responses[0].base_offset
            sequences[partition] += len(values)
            sent = [Message(TOPIC, partition, first + n, value) for n, value in enumerate(values)]
            now = self.timeline.now_ms
            self.history.append(Operation(f"producer-{number}", "send", began, now, "ok", sent))
            await asyncio.sleep(self.chance.random() / 20)
        if number == 0:
            await asyncio.sleep(2)  # the others have their acknowledgements by then
            await self._read_all(client)

    async def _read_all(self, client: _Client) -> None:
        for partition in range(PARTITIONS):
            offset = 0
            while True:
                began = self.timeline.now_ms
                reply = await client.until("fetch", 11, requests.fetch(TOPIC, partition, offset))
                found = reply.responses[0].partitions[0]
                records = decode_all(found.records) if found.records else []
                if not records:
                    break
                polled = [
                    Message(TOPIC, partition, one.offset, (one.value or b"").decode())
                    for one in records
                ]
                now = self.timeline.now_ms
                self.history.append(Operation("reader", "poll", began, now, "ok", polled=polled))
                offset = records[-1].offset + 1

    def _check_committed(self, fetched: Any) -> None:
        found = max(0, fetched.topics[0].partitions[0].committed_offset)  # -1: none
        if not self._power and found < self.committed:
            raise Broken("commit", f"{self.committed} acknowledged, {found} found")

    async def _committer(self, machine: Machine) -> None:
        client = _Client(machine)
        while not await client.make_topic():
            await asyncio.sleep(0.05)
        while self.timeline.now_ms < END_MS - 3_500:
            if self.chance.random() < 0.3:
                asked = requests.committed(GROUP, TOPIC, 0)
                self._check_committed(await client.until("offset_fetch", 7, asked))
            asked = requests.commit(GROUP, TOPIC, 0, self.committed + 1)
            await client.until("offset_commit", 7, asked)
            self.committed += 1
            await asyncio.sleep(self.chance.random() / 10)

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
            raise Broken("trouble", line)
        if not any(one.kind == "poll" for one in self.history):
            raise Broken("liveness", f"nothing was read by {END_MS} ms")
        report = check(self.history)
        if not report.ok():
            raise Broken("promise", str(report))
        return report


class _Client:
    """Asks the broker, over a new connection when the last one broke."""

    def __init__(self, machine: Machine) -> None:
        self._net = machine.net
        self._connection: BrokerConnection | None = None

    async def ask(self, name: str, version: int, fields: dict[str, Any]) -> Any:
        """The reply; None: it did not come, and nobody knows whether the broker was asked."""
        try:
            async with asyncio.timeout(ASK_S):
                if self._connection is None:
                    self._connection = await BrokerConnection.open(self._net, BROKER)
                return await self._connection.ask(name, version, fields)
        except (OSError, TimeoutError):
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            await asyncio.sleep(0.02)
            return None

    async def until(self, name: str, version: int, fields: dict[str, Any]) -> Any:
        """The first reply without an error."""
        while True:
            reply = await self.ask(name, version, fields)
            error = requests.error_in(reply) if reply is not None else ErrorCode.NONE
            if reply is not None and not error:
                return reply
            if error and not ErrorCode(error).retriable:
                raise Broken("error", f"{name}: {ErrorCode(error).name}")
            await asyncio.sleep(0.01)

    async def make_topic(self) -> bool:
        """Whether it is there."""
        fields = requests.create_topic(TOPIC, PARTITIONS, 1, flush_messages="1")
        reply = await self.ask("create_topics", 4, fields)
        made = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        return reply is not None and reply.topics[0].error_code in made
