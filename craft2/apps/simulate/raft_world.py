"""A Raft cluster of pure cores in virtual time: disks, network, clients, and what goes wrong.

One seed decides everything. Faults come until `CALM_MS`; then they stop, and the cluster has to
make progress within bounded time; then clients fall silent, the leader crashes once more, and the
next one must be able to answer a read although nobody writes, and must stay the leader. After every
event the rules of `raft_rules` are checked, at the end what the clients were told.

Which faults come, and how often, differs from seed to seed: some see nothing but partitions, some
everything at once. That finds more than giving every seed the average.

>>> world = World(seed=1, nodes=3)
>>> world.run()
>>> world.rules.elections > 0, len(world.history) > 100
(True, True)

Source: Groce and others, "Swarm Testing" (2012), for faults that differ from run to run.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from zlib import crc32

from craft2.apps.simulate.disk_and_state import Disk
from craft2.apps.simulate.raft_faults import FAULTS, SWARM
from craft2.apps.simulate.raft_nodes import Nodes
from craft2.apps.simulate.raft_rules import Broken
from craft2.sim.drift import DriftingClock
from craft2.sim.network import Network, Weather
from craft2.sim.timeline import Timeline
from phase3_raft.raft.messages import AnyMessage, RaftError
from phase3_raft.raft.server import RaftServer
from phase3_raft.raft.state import Role

CALM_MS = 6_000  # faults come until then
PATIENCE_MS = 8_000  # how long what must happen may take without faults
PEACE_MS = 1_500  # how long the last leader is looked at
CLIENTS, TIMEOUT_MS = 4, 900
READER = CLIENTS  # one more, that asks only when told to
# One run of so many, and which, has such a fault; the other ones are as they were without.
RARELY = {"stall in a read": (4, 3), "leader alone with one": (16, 13)}
PROGRESS = 10  # entries that are to be committed when faults have ended
_NEVER = 1 << 62
MOST_MESSAGES = 20_000  # of a run; usual are a tenth


class World(Nodes):
    """See the module.

    server, disk: the classes of the servers and their disks, for planted bugs. traced: whether to
    keep `digest`, a checksum of everything that arrived anywhere, in order. recorded: whether to
    keep `actions`. without: numbers of faults, in order, that are left out.
    """

    def __init__(
        self,
        seed: int,
        nodes: int = 5,
        server: type[RaftServer] = RaftServer,
        disk: type[Disk] = Disk,
        *,
        traced: bool = False,
        recorded: bool = False,
        without: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(nodes, server, disk)
        self.digest = 0
        self.planned_faults = 0
        self.faults: list[tuple[int, str]] = []  # (ms, what), in order
        self.actions = [] if recorded else None
        self.chance = random.Random(seed)
        self._seed = seed
        self.timeline = Timeline()
        self.network = Network(self.timeline, self.chance, self._arrive)
        self.paused: dict[int, list[Callable[[], object]]] = {}  # what waits for its wakening
        self.clocks = {i: DriftingClock() for i in self.members.voters}
        self._traced = traced
        self._without = without
        self._lives = dict.fromkeys(self.members.voters, 0)
        self._planned: dict[int, int] = {}  # server -> its next tick's moment
        self._operation = [0] * CLIENTS  # each client's number of the one it is at
        self._values = 0
        self._silent = False

    def run(self) -> None:
        """Everything. Raises Broken."""
        try:
            self._run()
            self.judge_history()
        except (RaftError, LookupError) as error:  # some bugs trip over themselves first
            raise Broken("no error of its own", f"{type(error).__name__}: {error}") from error

    def _run(self) -> None:
        for server_id in self.members.voters:
            self.boot(server_id)
        for client in range(CLIENTS):
            self.timeline.after(self.chance.randint(300, 900), self._ask, client)
        self._faulty_times()
        self._go(CALM_MS)
        self._calm()
        before = max(self.rules.committed, default=0)
        self._must(
            lambda: max(self.rules.committed, default=0) >= before + PROGRESS,
            f"{PROGRESS} entries are committed within {{}} ms after the last fault",
        )
        self._silent = True
        self._go(self.now_ms + TIMEOUT_MS)
        for server_id in [i for i, s in self.servers.items() if s.role is Role.LEADER]:
            self.crash(server_id, self.clock_ms(server_id))
            self.timeline.after(200, self.boot, server_id)
        done, elections = self.counts["operations"], self.rules.elections
        self._insist(done)
        self._must(
            lambda: self.counts["operations"] > done,
            "a read is answered, though nobody writes, within {} ms after the leader's crash",
        )
        self._stays(elections)

    def _must(self, done: Callable[[], bool], what: str) -> None:
        end_ms = self.now_ms + PATIENCE_MS
        while not done():
            if self.now_ms >= end_ms:
                leaders = [i for i, s in self.servers.items() if s.role is Role.LEADER]
                what = what.format(PATIENCE_MS)
                raise Broken("liveness", f"it did not happen that {what}; leaders: {leaders}")
            self._go(self.now_ms + 100)

    def _stays(self, elections: int) -> None:
        """A leader to whom nothing happens stays the leader: one election is enough."""
        self._go(self.now_ms + PEACE_MS)
        if self.rules.elections > elections + 1:
            raise Broken(
                "liveness",
                f"{self.rules.elections - elections} leaders, one after the other, followed the "
                f"one that crashed, though no other fault came in {PEACE_MS} ms",
            )

    def _go(self, until_ms: int) -> None:
        self.timeline.run(until_ms)
        self.now_ms = self.timeline.now_ms

    def summary(self) -> Counter[str]:
        """What happened, and how often."""
        network = self.network
        return self.counts + Counter(
            {
                "events": self.timeline.count,
                "elections": self.rules.elections,
                "commits": len(self.rules.committed),
                "messages": network.sent,
                "messages lost": network.lost,
                "messages doubled": network.doubled,
                "messages overtaken": network.slowed,
            }
        )

    # Servers.

    def clock_ms(self, server_id: int) -> int:
        """What a server's clock says."""
        return self.clocks[server_id].read(self.now_ms)

    def boot(self, server_id: int) -> None:
        """Start it, if it does not run."""
        self.now_ms = self.timeline.now_ms
        if self.start(server_id, self.clock_ms(server_id)):
            self._lives[server_id] += 1
            self._planned.pop(server_id, None)
            self.turned(self.servers[server_id])

    def draw(self) -> float:
        return self.chance.random()

    def gone(self, server_id: int) -> None:
        super().gone(server_id)
        self.paused.pop(server_id, None)

    def turned(self, server: RaftServer) -> None:
        """Come back at its next deadline, unless that is planned, or something earlier."""
        moment = self.clocks[server.id].when(server.next_deadline_ms())
        moment = max(moment, self.timeline.now_ms + 1)
        if moment < self._planned.get(server.id, _NEVER):
            self._planned[server.id] = moment
            self.timeline.at(moment, self._tick, server, moment)

    def _tick(self, server: RaftServer, moment: int) -> None:
        who = server.id
        if self.servers.get(who) is not server or self._planned.get(who) != moment:
            return
        if who in self.paused:
            self._planned[who] = moment = self.timeline.now_ms + 20
            self.timeline.at(moment, self._tick, server, moment)
            return
        del self._planned[who]
        self.now_ms = self.timeline.now_ms
        clock_ms = self.clocks[who].read(self.now_ms)
        if clock_ms < server.next_deadline_ms():
            self.turned(server)
        elif server.role is Role.LEADER:
            self.beat(who, clock_ms)
        else:
            self.ring(who, clock_ms)

    def writes(self, server_id: int) -> None:
        self.timeline.after(
            self.chance.randint(1, 30), self._written, server_id, self._lives[server_id]
        )

    def _written(self, server_id: int, life: int) -> None:
        if server_id in self.paused:
            self.timeline.after(20, self._written, server_id, life)
        elif self._lives[server_id] == life:
            self.now_ms = self.timeline.now_ms
            self.written(server_id, self.clock_ms(server_id))

    # Messages.

    def carry(self, message: AnyMessage) -> None:
        self.network.send(message.sender, message.to, message)
        if self.network.sent > MOST_MESSAGES:
            raise Broken(
                "liveness",
                f"{self.network.sent} messages in {self.now_ms} ms: servers talk in circles",
            )

    def _arrive(self, to: int, message: AnyMessage) -> None:
        self.now_ms = now_ms = self.timeline.now_ms
        if self._traced:
            self.digest = crc32(f"{now_ms} {message}".encode(), self.digest)
        if to in self.paused:
            self.paused[to].append(partial(self._arrive, to, message))
        else:
            self.deliver(to, self.clocks[to].read(now_ms), message)

    def pause(self, server_id: int) -> None:
        """Let it stand still; what arrives waits."""
        self.paused.setdefault(server_id, [])

    def wake(self, server_id: int) -> None:
        """It goes on."""
        for act in self.paused.pop(server_id, []):
            act()

    # Clients.

    def _ask(self, client: int) -> None:
        """A client begins an operation, at whichever server."""
        if self._silent:
            return
        self._operation[client] += 1
        kind = self.chance.choice(("append", "append", "write", "list", "read"))
        self._values += 1
        value = self._values if kind in ("append", "write") else None
        number = self._operation[client]
        self.timeline.after(TIMEOUT_MS, self._tire, client, number)
        self._try(client, number, kind, value, self.timeline.now_ms)

    def _try(self, client: int, number: int, kind: str, value: int | None, called_ms: int) -> None:
        if self._operation[client] != number:
            return
        to = self.chance.choice(self.members.voters)
        if to in self.paused:
            self.paused[to].append(
                partial(self._try_at, to, client, number, kind, value, called_ms)
            )
        else:
            self._try_at(to, client, number, kind, value, called_ms)

    def _try_at(
        self, to: int, client: int, number: int, kind: str, value: int | None, called_ms: int
    ) -> None:
        if self._operation[client] != number:
            return
        self.now_ms = self.timeline.now_ms
        fillers = self.chance.choice((0, 0, 0, 1, 10))
        if not self.ask(to, self.clock_ms(to), client, kind, value, called_ms, fillers):
            wait_ms = self.chance.randint(5, 40)
            self.timeline.after(wait_ms, self._try, client, number, kind, value, called_ms)

    def answered(self, client: int) -> None:
        if client == READER:
            return
        self._operation[client] += 1
        self.timeline.after(self.chance.randint(1, 60), self._ask, client)

    def _tire(self, client: int, number: int) -> None:
        if self._operation[client] == number:
            self.give_up(client)
            self.answered(client)

    def read_at(self, server_id: int) -> bool:
        """One more client reads at this server, now, and forgets what it had asked before."""
        self.now_ms = now_ms = self.timeline.now_ms
        self.timeline.after(TIMEOUT_MS, self.give_up, READER)
        return self.ask(server_id, self.clock_ms(server_id), READER, "list", None, now_ms, 0)

    def _insist(self, done: int) -> None:
        """Ask for a read, again and again, until there have been more operations than `done`."""
        self.now_ms = self.timeline.now_ms
        if self.counts["operations"] == done:
            if not self.asking:
                to = self.chance.choice(self.members.voters)
                self.ask(to, self.clock_ms(to), 0, "list", None, self.now_ms, 0)
            self.timeline.after(20, self._insist, done)

    # What goes wrong.

    def _faulty_times(self) -> None:
        chance = self.chance
        weights = [chance.choice((0, 1, 1, 3)) for _ in SWARM]
        if not any(weights):
            weights = [1] * len(SWARM)
        slowest = chance.choice((150, 400, 700))
        now_ms = chance.randint(20, slowest)
        while now_ms < CALM_MS:
            (name,) = chance.choices(list(SWARM), weights)
            self._plan_fault(now_ms, name, chance.random())
            now_ms += chance.randint(20, slowest)
        for name, (runs, which) in RARELY.items():
            if self._seed % runs == which:
                own = random.Random(f"{name.split()[0]} {self._seed}")
                when_ms = own.randint(CALM_MS // 8, CALM_MS * 5 // 8)
                self._plan_fault(when_ms, name, own.random())

    def _plan_fault(self, at_ms: int, name: str, seed: float) -> None:
        if self.planned_faults not in self._without:
            self.timeline.at(at_ms, self._fault, name, seed)
        self.planned_faults += 1

    def _fault(self, name: str, seed: float) -> None:
        """Whatever a fault draws it draws for itself: the others are the same without it."""
        self.now_ms = self.timeline.now_ms
        what = FAULTS[name](self, random.Random(seed))
        if what is not None:
            self.counts[name] += 1
            self.faults.append((self.now_ms, what))

    def _calm(self) -> None:
        """All faults end; clocks stay as wrong as they are, and disks as slow."""
        self.network.heal()
        self.network.weather = Weather()
        for server_id in sorted(self.paused):
            self.wake(server_id)
        for server_id in self.members.voters:
            self.spare(server_id, self.clock_ms(server_id))
            self.boot(server_id)
