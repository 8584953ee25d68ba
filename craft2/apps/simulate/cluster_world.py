"""Three brokers and their clients in virtual time: they die, are cut off, stand still, and agree.

The brokers are those that `craft2 broker` runs, each on a simulated machine, with the metadata in a
quorum and every partition of `TOPIC` on all three. Idempotent producers send with acks=all until
they are told; groups commit; topics come and go; and many a client hangs up before it is answered.
After every event the rules of `cluster_rules` are looked at; at the end everything is read, and the
checker compares what clients were told.

Faults come until `CALM_MS`. Then they stop, and by `END_MS` everything that was asked has to be
answered, and every replica in sync again.

>>> world = ClusterWorld(seed=1)
>>> report = world.run()
>>> report.ok(), world.rules.elections > 3
(True, True)
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any
from zlib import crc32

from craft2.apps.simulate import cluster_clients as clients
from craft2.apps.simulate import requests
from craft2.apps.simulate.cluster_admin import Topics, administer
from craft2.apps.simulate.cluster_clients import BROKERS, OFFSETS_PARTITIONS, PORT, host
from craft2.apps.simulate.cluster_faults import KINDS, Fault, plan
from craft2.apps.simulate.cluster_members import take_part
from craft2.apps.simulate.cluster_rules import ClusterRules
from craft2.apps.simulate.raft_rules import Broken
from craft2.checker import Report, check
from craft2.history import Operation
from craft2.net import Address
from craft2.sim.machine import Machine
from craft2.sim.net import Wires
from craft2.sim.timeline import Timeline
from phase2_groups.group_state import GroupLimits
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.metadata.quorum import QuorumConfig

CALM_MS, SEND_MS, READ_MS, END_MS = 7_000, 9_200, 10_000, 12_000
PRODUCERS, MEMBERS = 3, 2
LATELY = 15  # things that clients were told: so many of the last ones belong to the story
TOPICS = {
    "segment.index.bytes": "4096",  # a simulated disk keeps what it maps in memory
    "flush.messages": "1",
    "min.insync.replicas": "2",
}
LIMITS = GroupLimits(min_session_timeout_ms=100, initial_rebalance_delay_ms=50)
# What brokers say of each other when faults come; everything else is a mistake.
_EXPECTED = (
    "is fenced",
    "nobody could take over",
    "were not waited for",
    "was not compacted",
    "it copies what it had",
    "who was in sync before it, if somebody was, takes its place",
    "its folder was emptied",
    "votes now",
)


class ClusterWorld:
    """See the module.

    broker: its class, for planted bugs. without: numbers of faults that are left out.
    story: (ms, who, what), of faults, leaders, ISRs, and logs that are cut.
    """

    def __init__(
        self,
        seed: int,
        *,
        broker: type[Broker] = Broker,
        without: frozenset[int] = frozenset(),
    ) -> None:
        self.chance = random.Random(seed)
        self.timeline = Timeline()
        self.wires = Wires(self.timeline, self.chance)
        self.history: list[Operation] = []
        self.story: list[tuple[int, str, str]] = []
        self.lately: deque[tuple[int, str, str]] = deque(maxlen=LATELY)
        self.trouble: list[str] = []
        self.counts: Counter[str] = Counter()
        self.plan = [one for one in plan(seed, CALM_MS) if one.number not in without]
        self.faults: list[Fault] = []  # those that came to something
        self.rules = ClusterRules(self._tell)
        self.send_until_ms, self.read_until_ms = SEND_MS, READ_MS
        self._class = broker
        self._ids = iter(range(1, 10**6))
        self._brokers: dict[str, Broker] = {}
        self.names = [host(number) for number in BROKERS]
        self.generations: dict[str, int] = {}
        self.members_agree = False
        self.topics = Topics()
        producers = [f"producer-{n}" for n in range(PRODUCERS)]
        members = [f"member-{n}" for n in range(MEMBERS)]
        assignments: dict[int, bytes] = {}
        programs: dict[str, Callable[[Machine], Coroutine[Any, Any, object]]] = {
            **{host(n): partial(self._broker, n) for n in BROKERS},
            **{name: partial(clients.produce, self, name) for name in producers},
            "reader": partial(clients.read, self, "reader"),
            "group": partial(clients.belong, self, "group"),
            **{name: partial(take_part, self, name, assignments=assignments) for name in members},
            "admin": self._admin,
            "topics": partial(administer, self, "topics", topics=self.topics),
        }
        self.machines = {
            name: Machine(name, self.timeline, self.wires, self.chance, program)
            for name, program in programs.items()
        }
        for name, machine in self.machines.items():
            look = partial(self._look_at_client, machine)
            machine.looked = partial(self._look, int(name[-1])) if name in self.names else look

    async def _broker(self, number: int, machine: Machine) -> None:
        voters = {n: Address(host(n), PORT + 1) for n in BROKERS}
        config = BrokerConfig(
            "/data",
            broker_id=number,
            listen=Address(host(number), PORT),
            default_replicas=3,
            offsets_partitions=OFFSETS_PARTITIONS,
            topic_defaults=TOPICS,
            quorum=QuorumConfig(cluster="sim", voters=voters, compact_every=5),
            offsets_compact_after=10,
            offsets_batch_bytes=100,
            replica_partition_bytes=300,
            max_lag_ms=600,
            session_ms=1_000,
            heartbeat_ms=100,
            drain_s=1.0,
            group_limits=LIMITS,
        )
        broker = self._class(
            config,
            disk=machine.disk,
            clock=machine.clock,
            net=machine.net,
            new_id=lambda: f"{next(self._ids):032x}",
            trouble=partial(self._troubled, number),
            chance=self.chance.random,
        )
        self._brokers[machine.name] = broker
        self.rules.begins(number, broker)
        await broker.open()

    async def _admin(self, machine: Machine) -> None:
        self._client = clients.Client(machine, self.chance)

    def run(self) -> Report:
        """Everything. Raises Broken."""
        for machine in self.machines.values():
            machine.boot()
        for fault in self.plan:
            self.timeline.at(fault.ms, self._fault, fault)
        try:
            self.timeline.run(CALM_MS)
            self._calm()
            self.timeline.run(END_MS)
            return self._judge()
        finally:
            for machine in self.machines.values():
                machine.disk.die()  # first: what ends must not write any more
                if machine.loop is not None:
                    machine.loop.die()

    @property
    def crashes(self) -> int:
        """Of brokers."""
        return sum(self.machines[name].crashes for name in self.names)

    @property
    def digest(self) -> int:
        """A checksum of what came out: equal for equal seeds, in whatever process."""
        disks = [sorted(self.machines[name].disk.tree().items()) for name in self.names]
        return crc32(repr((self.timeline.count, self.history, self.story, disks)).encode())

    def summary(self) -> Counter[str]:
        """What happened, and how often."""
        return self.counts + Counter(
            {
                "events": self.timeline.count,
                "leaders": self.rules.elections,
                "crashes": self.crashes,
                "acknowledged sends": sum(one.kind == "send" for one in self.history),
                "polls": sum(one.kind == "poll" for one in self.history),
            }
        )

    # The story.

    def says(self, who: str, what: str) -> None:
        """What a client was told."""
        self.lately.append((self.timeline.now_ms, who, what))

    def _tell(self, who: str, what: str) -> None:
        self.story.append((self.timeline.now_ms, who, what))

    def _troubled(self, number: int, words: str) -> None:
        self._tell(host(number), words)
        if not any(expected in words for expected in _EXPECTED):
            self.trouble.append(f"{host(number)}: {words}")

    def _look(self, number: int) -> None:
        """A broker has done something."""
        if self.machines[host(number)].loop is None:
            self._tell(host(number), "loses power in the middle of it")
            self.rules.ends(number)
        else:
            self.rules.look(number)

    def _look_at_client(self, machine: Machine) -> None:
        if machine.done and isinstance(machine.failure, Broken):
            raise machine.failure

    # What goes wrong: see `cluster_faults.Stage`.

    def _fault(self, fault: Fault) -> None:
        what = KINDS[fault.kind](self, random.Random(fault.seed))
        if what is not None:
            self.faults.append(fault)
            self.counts[fault.kind] += 1
            self._tell("fault", what)
        for number in BROKERS:
            if self.machines[host(number)].loop is None:
                self.rules.ends(number)

    def leader(self, chance: random.Random) -> str:
        """The machine that leads some partition; some broker's, if none does."""
        leaders = [one.leader for one in self.rules.newest.values() if one.leader >= 0]
        return host(chance.choice(leaders or list(BROKERS)))

    def boot(self, name: str, fast: float = 1.0) -> None:
        """Start a machine that is down."""
        if self.machines[name].loop is None:
            self._tell(name, "starts")
            self.machines[name].boot(fast)

    def spares(self, name: str) -> bool:
        """Whether a broker's disk may be lost: all others run, and have what it has."""
        others = {int(one[-1]): self._brokers.get(one) for one in self.names if one != name}
        for number, broker in others.items():
            if not self.machines[host(number)].up or broker is None:
                return False
            about = broker.image.brokers.get(number)
            if about is None or about.directory != broker.directory:
                return False
        return all(others.keys() & set(one.isr) for one in self.rules.newest.values())

    def leave(self, name: str) -> None:
        """Have a broker shut down as it does when it is asked to, and start again."""
        machine, broker = self.machines[name], self._brokers[name]
        loop = machine.loop
        assert loop is not None

        async def end() -> None:
            await broker.close()
            self.timeline.after(1, stop)

        def stop() -> None:
            if machine.loop is loop:
                self._tell(name, "has ended")
                machine.crash(power=False)
                self.rules.ends(int(name[-1]))
                self.timeline.after(50, self.boot, name)

        self._ending = loop.create_task(end())

    def elect(self) -> None:
        """Somebody asks for the preferred leaders."""
        loop = self.machines["admin"].loop
        assert loop is not None
        asked = self._client.ask_anybody("elect_leaders", 1, requests.elect_preferred())
        self._electing = loop.create_task(asked)

    def _calm(self) -> None:
        self._tell("fault", "no more faults from here on")
        self.wires.heal()
        self.wires.slow = 0.0
        for name in self.names:
            machine = self.machines[name]
            machine.disk.crash_at = None
            if machine.loop is not None and machine.loop.paused:
                machine.loop.resume()
            self.boot(name)

    # The end.

    def _judge(self) -> Report:
        for machine in self.machines.values():
            if machine.failure is not None:
                raise Broken("no error", f"{machine.name}: {machine.failure!r}")
            for context in machine.loop.errors if machine.loop is not None else ():
                raise Broken("no error", f"{machine.name}: {context}")
        for line in self.trouble:
            raise Broken("no trouble", line)
        report = check(self.history)
        if not report.ok():
            raise Broken("history", str(report))
        self._all_is_well()
        return report

    def _all_is_well(self) -> None:
        """The faults have ended long ago."""
        if not self.members_agree:
            raise Broken("liveness", f"the members of a group are in {self.generations}")
        waiting = [name for name, one in self.machines.items() if not one.done]
        if waiting:
            raise Broken("liveness", f"at {END_MS} ms {', '.join(waiting)} still wait")
        self._agree()

    def _agree(self) -> None:
        """Brokers on topics, with what was told of them, and with what lies on their disks."""
        topics = self._brokers[self.names[0]].metadata.image.topics
        for name in self.names:
            broker = self._brokers[name]
            self.topics.compare(name, broker.metadata.image)
            if broker.metadata.image.topics != topics:
                what = f"{name} knows {broker.metadata.image.topics}, and {self.names[0]} {topics}"
                raise Broken("liveness", what)
            for folder, owner, _ in broker.partitions._folders():
                if owner not in topics:
                    raise Broken("liveness", f"{folder} is still there on {name} at {END_MS} ms")
        for topic in topics.values():
            for one in topic.partitions.values():
                if len(one.isr) < len(one.replicas):
                    what = f"of {topic.name}-{one.partition} only {one.isr} are in sync"
                    raise Broken("liveness", f"{what} at {END_MS} ms")
