"""Clients of a simulated cluster: producers, a reader, and a group that begins again.

Who leads is what the last broker said that was asked. Readers name the latest leader epoch that
they have heard of, so that a leader of an earlier one can refuse (KIP-320). Produce has no place
for that; so producers pass over news that are older than what they know, as Java's clients do. What
clients are told goes into the history for the checker, and into the rules at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection
from typing import Any, Protocol

from craft2.apps.simulate import requests
from craft2.apps.simulate.cluster_rules import ClusterRules
from craft2.apps.simulate.raft_rules import Broken
from craft2.apps.simulate.requests import Fields
from craft2.history import Message, Operation
from craft2.net import Address
from craft2.record_batch import decode_all, encode_values
from craft2.sim.machine import Machine
from craft2.sim.timeline import Timeline
from phase2_groups.error_codes import ErrorCode
from phase3_raft.client.broker_connection import BrokerConnection
from phase3_raft.groups.coordinator import OFFSETS_TOPIC, partition_of

BROKERS, PARTITIONS, TOPIC, GROUP, OFFSETS_PARTITIONS = (1, 2, 3), 2, "t", "g", 2
ASK_S, HASTE_S = 0.9, 0.03
GIVEN_UP = 0.03  # of what producers, readers and members ask
_STALE = 0.1  # so often whoever is not wary goes by older news than its own
PORT = 9_092


def host(number: int) -> str:
    """The name of a broker's machine.

    >>> host(2)
    'broker-2'
    """
    return f"broker-{number}"


class World(Protocol):
    """What clients live in. send_until_ms: then producers end; read_until_ms: then readers do.

    generations: in which each member of a group is; -1: in none. members_agree: in the end all were
    in one.
    """

    timeline: Timeline
    chance: random.Random
    rules: ClusterRules
    history: list[Operation]
    send_until_ms: int
    read_until_ms: int
    generations: dict[str, int]
    members_agree: bool

    def says(self, who: str, what: str) -> None:
        """For the story, if it comes to that."""


class Client:
    """Asks whoever leads, as far as it knows; any broker for the rest.

    wary: does not go back to a leader of an earlier epoch. group: whose coordinator it asks.
    expected: errors that are an answer like any other. given_up: the share of its requests that it
    hangs up on within `HASTE_S`, wherever they are by then.
    """

    def __init__(
        self,
        machine: Machine,
        chance: random.Random,
        *,
        wary: bool = False,
        group: str = GROUP,
        expected: Collection[ErrorCode] = (),
        given_up: float = 0.0,
    ) -> None:
        self._wary, self._group, self._expected = wary, group, expected
        self._given_up = given_up
        self._name, self._net, self._chance = machine.name, machine.net, chance
        self._open: dict[int, BrokerConnection] = {}
        self._leaders: dict[int, int] = {}
        self._coordinator: int | None = None
        self.epochs: dict[int, int] = {}  # partition -> the latest that it has heard of

    async def ask(self, to: int, name: str, version: int, fields: Fields) -> Any:
        """The reply; None: it did not come, and nobody knows whether the broker was asked."""
        hurries = self._chance.random() < self._given_up
        try:
            async with asyncio.timeout(self._chance.random() * HASTE_S if hurries else ASK_S):
                if to not in self._open:
                    address = Address(host(to), PORT)
                    self._open[to] = await BrokerConnection.open(self._net, address)
                return await self._open[to].ask(name, version, fields)
        except (OSError, TimeoutError):
            connection = self._open.pop(to, None)
            if connection is not None:
                connection.close()
            if not hurries:
                await asyncio.sleep(0.02)
            return None

    async def ask_anybody(self, name: str, version: int, fields: Fields) -> Any:
        """As `ask`."""
        return await self.ask(self._chance.choice(BROKERS), name, version, fields)

    async def ask_leader(self, part: int, name: str, version: int, fields: Fields) -> Any:
        """The reply without an error; None: there is none, perhaps the next time."""
        if part not in self._leaders:
            await self._find_leaders()
        if part not in self._leaders:
            return None
        to = self._leaders[part]
        if not self._wary and self._chance.random() < _STALE:
            to = self._chance.choice(BROKERS)  # as somebody has it who was asked by others
        reply = self._checked(name, await self.ask(to, name, version, fields))
        if reply is None:
            self._leaders.pop(part, None)
        return reply

    async def ask_coordinator(self, name: str, version: int, fields: Fields) -> tuple[int, Any]:
        """The same of the broker that has the group, and who that is; -1: nobody knows."""
        if self._coordinator is None:
            asked = requests.coordinator(self._group)
            found = self._checked(
                "find_coordinator", await self.ask_anybody("find_coordinator", 2, asked)
            )
            if found is None:
                return -1, None
            self._coordinator = found.node_id
        to = self._coordinator
        reply = self._checked(name, await self.ask(to, name, version, fields))
        if reply is None:
            self._coordinator = None
        return to, reply

    def _checked(self, name: str, reply: Any) -> Any:
        error = ErrorCode(requests.error_in(reply)) if reply is not None else ErrorCode.NONE
        if error in self._expected:
            return reply
        if error and not error.retriable:
            raise Broken("no error", f"{self._name}: {name} is answered with {error.name}")
        return None if error else reply

    async def _find_leaders(self) -> None:
        reply = await self.ask_anybody("metadata", 8, requests.metadata(TOPIC))
        for topic in reply.topics if reply is not None else ():
            for one in topic.partitions:
                part, epoch = one.partition_index, one.leader_epoch
                known = self.epochs.get(part, -1)
                self.epochs[part] = max(known, epoch)
                if one.leader_id >= 0 and not (self._wary and epoch < known):
                    self._leaders[part] = one.leader_id

    def forget(self, part: int) -> None:
        """Ask again who leads, as clients do now and then."""
        self._leaders.pop(part, None)

    async def make_topic(self) -> None:
        """Until it is there."""
        fields = requests.create_topic(TOPIC, PARTITIONS, len(BROKERS))
        while True:
            reply = await self.ask_anybody("create_topics", 4, fields)
            made = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            if reply is not None and reply.topics[0].error_code in made:
                return
            await asyncio.sleep(0.05)


async def produce(world: World, name: str, machine: Machine) -> None:
    """Values 1, 2, 3, ..., each until it is acknowledged, to partitions that chance chooses."""
    chance = world.chance
    client = Client(machine, chance, wary=True, given_up=GIVEN_UP)
    await client.make_topic()
    given = None
    while given is None or given.error_code:
        given = await client.ask_anybody("init_producer_id", 4, requests.NEW_PRODUCER)
        await asyncio.sleep(0.01)
    sequences = [0] * PARTITIONS
    count = 0
    while world.timeline.now_ms < world.send_until_ms:
        part = chance.randrange(PARTITIONS)
        values = [f"{name[-1]}:{count + n}" for n in range(chance.choice((1, 1, 3)))]
        count += len(values)
        batch = encode_values(
            [value.encode() for value in values],
            producer_id=given.producer_id,
            producer_epoch=0,
            base_sequence=sequences[part],
            timestamps=1,
        )
        began = world.timeline.now_ms
        fields, reply = requests.produce(TOPIC, part, batch, timeout_ms=800), None
        while reply is None:
            reply = await client.ask_leader(part, "produce", 7, fields)
            if reply is None:
                await asyncio.sleep(0.01)
        first = reply.responses[0].partition_responses[0].base_offset
        sequences[part] += len(values)
        sent = [Message(TOPIC, part, first + n, value) for n, value in enumerate(values)]
        now = world.timeline.now_ms
        world.history.append(Operation(name, "send", began, now, "ok", sent))
        world.says(name, f"is told that {_shown(sent)}, stays")
        for message in sent:
            world.rules.is_told(name, (TOPIC, part), message.offset, str(message.value))
        world.rules.is_acknowledged((TOPIC, part), first + len(values))
        await asyncio.sleep(chance.random() / 20)


class _Reader:
    """Reads partitions on from positions of its own. Invariant: every position is one that a broker
    has vouched for: what is before it stays."""

    def __init__(self, world: World, name: str, machine: Machine, group: str = "") -> None:
        # A commit that was given up may come after a later one: so groups do not give up.
        given_up = 0.0 if group else GIVEN_UP
        self.client = Client(
            machine, world.chance, given_up=given_up, expected=[ErrorCode.OFFSET_OUT_OF_RANGE]
        )
        self.positions = [0] * PARTITIONS
        self._world, self._name, self._group = world, name, group
        self._latest = [0] * PARTITIONS
        self._asked_in = [-1] * PARTITIONS  # the leader epoch in which it asked for the end

    async def poll(self, part: int, wait_ms: int = 0) -> bool | None:
        """Whether there was something; None: nobody has answered."""
        world, offset = self._world, self.positions[part]
        epoch = self.client.epochs.get(part, -1)
        began = world.timeline.now_ms
        fields = requests.fetch(TOPIC, part, offset, epoch=epoch, wait_ms=wait_ms)
        reply = await self.client.ask_leader(part, "fetch", 11, fields)
        if reply is None:
            return None
        found = reply.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._pass_over(part, found.log_start_offset)
            return None
        data = found.records
        records = [one for one in decode_all(data) if one.offset >= offset] if data else []
        if not records:
            return False
        polled = [Message(TOPIC, part, one.offset, (one.value or b"").decode()) for one in records]
        now = world.timeline.now_ms
        world.history.append(
            Operation(self._name, "poll", began, now, "ok", polled=polled, group=self._group)
        )
        world.says(self._name, f"reads {_shown(polled)}")
        for message in polled:
            world.rules.is_told(self._name, (TOPIC, part), message.offset, str(message.value))
        self.positions[part] = records[-1].offset + 1
        return True

    def _pass_over(self, part: int, start: int) -> None:
        """A broker says that there is nothing before `start`: that is so if it was deleted."""
        offset = self.positions[part]
        if not offset < start <= self._world.rules.deleting.get((TOPIC, part), 0):
            what = f"{self._name} asks {TOPIC}-{part} for {offset}, and it begins at {start}"
            raise Broken("no error", what)
        self.begin_again(part, start)

    async def delete(self, part: int) -> None:
        """Have deleted what it has read, up to somewhere, or all of it."""
        chance, position = self._world.chance, self.positions[part]
        offset = chance.choice((position, chance.randrange(position + 1)))
        rules, key = self._world.rules, (TOPIC, part)
        rules.is_deleting(key, offset)
        fields = requests.delete_records(TOPIC, part, offset)
        reply = await self.client.ask_leader(part, "delete_records", 2, fields)
        if reply is not None and not requests.error_in(reply):
            self._world.says(self._name, f"is told that {TOPIC}-{part} begins at {offset}")
            rules.is_deleted(key, offset)

    def has_news(self, part: int) -> bool:
        """Whether there is a leader that has not been asked for the end yet."""
        return self.client.epochs.get(part, -1) > self._asked_in[part]

    async def ask_for_end(self, part: int) -> None:
        """Where it would find nothing more: never less than before, whoever leads (KIP-207)."""
        epoch = self.client.epochs.get(part, -1)
        self._asked_in[part] = epoch
        fields = requests.latest_offset(TOPIC, part, epoch=epoch)
        reply = await self.client.ask_leader(part, "list_offsets", 5, fields)
        if reply is None:
            return
        found = reply.topics[0].partitions[0].offset
        known = max(self._latest[part], self.positions[part])
        if found < known:
            what = f"{self._name} is told that {TOPIC}-{part} ends at {found}, and knew {known}"
            raise Broken("ends do not fall", what)
        self._latest[part] = found

    def begin_again(self, part: int, offset: int) -> None:
        """Go on from elsewhere."""
        self.positions[part] = offset
        now = self._world.timeline.now_ms
        self._world.history.append(Operation(self._name, "rebalance", now, now, "ok"))


async def read(world: World, name: str, machine: Machine) -> None:
    """All that is readable, as soon as it is, and now and then what it has read is deleted; at the
    end all that is left once more."""
    reader, chance = _Reader(world, name, machine), world.chance
    await reader.client.make_topic()
    while world.timeline.now_ms < world.read_until_ms:
        part = chance.randrange(PARTITIONS)
        if chance.random() < 0.2:
            reader.client.forget(part)
        if chance.random() < 0.05:
            await reader.delete(part)
        elif chance.random() < 0.1 or reader.has_news(part):
            await reader.ask_for_end(part)
        else:
            await reader.poll(part, chance.choice((0, 100)))
        await asyncio.sleep(chance.random() / 20)
    for one in (reader, _Reader(world, "auditor", machine)):
        for part in range(PARTITIONS):
            while (await one.poll(part)) is not False:
                pass


async def belong(world: World, name: str, machine: Machine) -> None:
    """A group: reads partition 0, commits what it has handled, and begins again now and then at
    what it has committed.

    A coordinator that was deposed and does not know it may answer with what was: Kafka does not
    exclude that. So commits are judged if who answered leads the group's partition, and did so when
    it was asked.
    """
    reader, chance = _Reader(world, name, machine, GROUP), world.chance
    await reader.client.make_topic()
    acknowledged = 0
    key = OFFSETS_TOPIC, partition_of(GROUP, OFFSETS_PARTITIONS)
    while world.timeline.now_ms < world.read_until_ms:
        if chance.random() < 0.3:
            before = world.rules.newest.get(key)
            asked = requests.committed(GROUP, TOPIC, 0)
            who, reply = await reader.client.ask_coordinator("offset_fetch", 7, asked)
            leads = before is world.rules.newest.get(key) and before is not None
            if reply is not None and leads and before.leader == who:  # type: ignore[union-attr]
                found = max(0, reply.topics[0].partitions[0].committed_offset)  # -1: none
                if found < acknowledged:
                    what = f"broker {who} says that {name} has committed {found}"
                    raise Broken("commits stay", f"{what}, and had acknowledged {acknowledged}")
                reader.begin_again(0, found)
        await reader.poll(0)
        position = reader.positions[0]
        asked = requests.commit(GROUP, TOPIC, 0, position)
        who, reply = await reader.client.ask_coordinator("offset_commit", 7, asked)
        if reply is not None:
            acknowledged = position
            world.says(name, f"is told by broker {who} that its commit of {position} stays")
        await asyncio.sleep(chance.random() / 10)


def _shown(messages: list[Message]) -> str:
    first, last = messages[0], messages[-1]
    values = str(first.value) if first is last else f"{first.value} to {last.value}"
    offsets = str(first.offset) if first is last else f"{first.offset} to {last.offset}"
    return f"{values} at {first.topic}-{first.partition}, {offsets}"
