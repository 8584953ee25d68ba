"""A Raft cluster of pure cores in virtual time: disks, network, clients, and what goes wrong.

One seed decides everything. Faults come until `CALM_MS`; then they stop, and the cluster has to
make progress. After every event the rules of `raft_rules` are checked, at the end what the clients
were told.

>>> world = World(seed=1, nodes=3)
>>> world.run()
>>> world.rules.elections > 0, len(world.history) > 100
(True, True)
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

import msgspec

from craft2.apps.simulate.linear import Operation, check_list, check_register
from craft2.apps.simulate.raft_rules import Broken, Rules
from craft2.sim.network import Network, Weather
from craft2.sim.timeline import Timeline
from phase3_raft.raft.log import RaftLog
from phase3_raft.raft.messages import (
    AnyMessage,
    Entry,
    EntryKind,
    HardState,
    Members,
    RaftError,
    Ready,
    Snapshot,
)
from phase3_raft.raft.server import RaftServer
from phase3_raft.raft.state import NotLeader, RaftConfig, Role

CALM_MS, END_MS = 8_000, 12_000
CLIENTS, TIMEOUT_MS = 3, 900


@dataclass
class Disk:
    """What survives a crash. `torn`: a write that a crash interrupts leaves a part of itself."""

    snapshot: Snapshot
    hard_state: HardState = field(default_factory=HardState)
    entries: list[Entry] = field(default_factory=list)

    def write(self, ready: Ready, log: RaftLog, most: int = 2**62) -> None:
        """Do what `Ready` asks for; `most`: entries that are written before the crash."""
        if ready.snapshot is not None:
            kept = log.between(ready.snapshot.index, log.stable)
            self.snapshot, self.entries = ready.snapshot, list(kept)
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        if ready.entries and most:
            first = ready.entries[0].index - self.snapshot.index - 1
            self.entries[first:] = ready.entries[:most]

    def compact(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and drop what it covers."""
        del self.entries[: snapshot.index - self.snapshot.index]
        self.snapshot = snapshot


@dataclass
class State:
    """The replicated state machine: a list that grows, and a register."""

    values: list[int] = field(default_factory=list)
    register: int | None = None

    def apply(self, entry: Entry) -> None:
        """Carry out one entry."""
        if entry.kind != EntryKind.COMMAND:
            return
        kind, value = msgspec.msgpack.decode(entry.data)
        if kind == "append":
            self.values.append(value)
        else:
            self.register = value

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.values, self.register))

    @classmethod
    def restored(cls, data: bytes) -> State:
        """The opposite of `snapshot`."""
        return cls(*msgspec.msgpack.decode(data)) if data else cls()


@dataclass
class Asking:
    """An operation that a client waits for."""

    client: int
    kind: str
    value: int | None
    called: float
    server: int = 0
    index: int = 0  # of its entry, and
    term: int = 0


class World:
    """See the module.

    server, disk: the classes of the servers and their disks, for planted bugs. traced: whether to
    keep `digest`, a checksum of everything that arrived anywhere, in order.
    """

    def __init__(
        self,
        seed: int,
        nodes: int = 5,
        server: type[RaftServer] = RaftServer,
        disk: type[Disk] = Disk,
        traced: bool = False,
    ) -> None:
        self.digest = 0
        self._traced = traced
        self.chance = random.Random(seed)
        self.timeline = Timeline()
        self.network = Network(self.timeline, self.chance, self._arrive)
        self.rules = Rules()
        self.members = Members(voters=tuple(range(1, nodes + 1)))
        self.crashes = 0
        self.history: list[Operation] = []
        self._class = server
        self._disks = {i: disk(Snapshot(members=self.members)) for i in self.members.voters}
        self._servers: dict[int, RaftServer] = {}
        self._states: dict[int, State] = {}
        self._lives = dict.fromkeys(self.members.voters, 0)
        self._paused: dict[int, list[AnyMessage]] = {}
        self._crash_at: dict[int, int] = {}  # server -> the step of its next write to crash at
        self._asking: dict[int, Asking] = {}  # client -> what it waits for
        self._values = 0
        for server_id in self.members.voters:
            self._boot(server_id)

    def run(self) -> None:
        """Everything. Raises Broken."""
        for client in range(CLIENTS):
            self.timeline.after(self.chance.randint(300, 900), self._ask, client)
        self.timeline.after(self.chance.randint(200, 1_000), self._fault)
        self.timeline.run(CALM_MS)
        self._calm()
        before = max(self.rules.committed, default=0)
        self.timeline.run(END_MS)
        self._judge(before)

    # Servers.

    def _boot(self, server_id: int) -> None:
        disk = self._disks[server_id]
        log = RaftLog(disk.snapshot, list(disk.entries))
        server = self._class(
            server_id,
            log,
            disk.hard_state,
            RaftConfig(max_append_entries=8, max_in_flight=4),
            random=self.chance.random,
            now_ms=self.timeline.now_ms,
        )
        self._servers[server_id] = server
        self._states[server_id] = State.restored(disk.snapshot.data)
        self._lives[server_id] += 1
        self.rules.restarted(server)
        self._plan_tick(server_id)

    def _plan_tick(self, server_id: int) -> None:
        moment = self._servers[server_id].next_deadline_ms()
        moment = max(moment, self.timeline.now_ms + 1)
        self.timeline.at(moment, self._tick, server_id, self._lives[server_id])

    def _tick(self, server_id: int, life: int) -> None:
        if self._lives[server_id] != life or server_id not in self._servers:
            return
        if server_id in self._paused:
            self.timeline.after(20, self._tick, server_id, life)
            return
        server = self._servers[server_id]
        if self.timeline.now_ms >= server.next_deadline_ms():
            server.tick(self.timeline.now_ms)
            self._pump(server)
        if server_id in self._servers:
            self._plan_tick(server_id)

    def _arrive(self, to: int, message: AnyMessage) -> None:
        if self._traced:
            self.digest = crc32(f"{self.timeline.now_ms} {message}".encode(), self.digest)
        server = self._servers.get(to)
        if server is None:
            return
        if to in self._paused:
            self._paused[to].append(message)
            return
        server.step(message, self.timeline.now_ms)
        self._pump(server)

    def _pump(self, server: RaftServer) -> None:
        """Do what there is to do, as a driver does; it may crash between any two steps."""
        self.rules.look(server)
        while (ready := server.ready()) is not None:
            step = self._crash_at.pop(server.id, None)
            self._send(ready.early)
            if step == 0:
                return self._crash(server.id)
            disk = self._disks[server.id]
            self.rules.wrote(server, list(ready.entries))
            if step == 1:
                disk.write(ready, server.log, self.chance.randint(0, len(ready.entries)))
                return self._crash(server.id)
            disk.write(ready, server.log)
            if step == 2:
                return self._crash(server.id)
            self._send(ready.messages)
            if step == 3:
                return self._crash(server.id)
            self._apply(server, ready)
            server.advance(ready)
            self.rules.look(server)
            self._maybe_compact(server)
        return None

    def _send(self, messages: Sequence[AnyMessage]) -> None:
        for message in messages:
            self.rules.sends(message)
            self.network.send(message.sender, message.to, message)

    def _apply(self, server: RaftServer, ready: Ready) -> None:
        state = self._states[server.id]
        if ready.snapshot is not None:
            state = self._states[server.id] = State.restored(ready.snapshot.data)
        for entry in ready.committed:
            state.apply(entry)
            for client, asking in list(self._asking.items()):
                if (asking.server, asking.index) == (server.id, entry.index):
                    ok = asking.term == entry.term
                    self._answered(client, asking.value if ok else None, ok=ok)
        for read in ready.reads:
            self._reads_done(server, read.context, read.index)

    def _reads_done(self, server: RaftServer, asking: object, index: int | None) -> None:
        if not isinstance(asking, Asking) or self._asking.get(asking.client) is not asking:
            return
        client = asking.client
        if index is None:
            self._answered(client, None, ok=False)
        elif asking.kind == "list":
            self._answered(client, None, ok=True, seen=tuple(self._states[server.id].values))
        else:
            self._answered(client, self._states[server.id].register, ok=True)

    def _maybe_compact(self, server: RaftServer) -> None:
        log = server.log
        if log.applied > log.snapshot.index + 40:
            snapshot = server.compact(log.applied, self._states[server.id].snapshot())
            self._disks[server.id].compact(snapshot)

    def _crash(self, server_id: int) -> None:
        self.crashes += 1
        del self._servers[server_id]
        self._paused.pop(server_id, None)
        self._crash_at.pop(server_id, None)

    # Clients.

    def _ask(self, client: int) -> None:
        """A client begins an operation, at whichever server."""
        kind = self.chance.choice(("append", "append", "write", "list", "read"))
        self._values += 1
        value = self._values if kind in ("append", "write") else None
        asking = Asking(client, kind, value, self.timeline.now_ms)
        self._asking[client] = asking
        self.timeline.after(TIMEOUT_MS, self._give_up, client, asking)
        self._try(asking)

    def _try(self, asking: Asking) -> None:
        if self._asking.get(asking.client) is not asking:
            return
        server = self._servers.get(self.chance.choice(self.members.voters))
        try:
            if server is None or server.id in self._paused:
                raise NotLeader("it does not answer", None)
            if asking.value is None:
                server.read(asking)
            else:
                asking.index = server.propose([msgspec.msgpack.encode((asking.kind, asking.value))])
                asking.server, asking.term = server.id, server.term
        except RaftError:
            self.timeline.after(self.chance.randint(5, 40), self._try, asking)
        else:
            self._pump(server)

    def _answered(
        self, client: int, value: int | None, *, ok: bool, seen: tuple[int, ...] = ()
    ) -> None:
        asking = self._asking.pop(client)
        now = self.timeline.now_ms
        if ok:
            done = Operation(asking.kind, value, asking.called, now, seen)
            self.history.append(done)
        elif asking.value is not None:  # lost, or not: nobody knows
            self.history.append(Operation(asking.kind, asking.value, asking.called))
        self.timeline.after(self.chance.randint(1, 60), self._ask, client)

    def _give_up(self, client: int, asking: Asking) -> None:
        if self._asking.get(client) is asking:
            self._answered(client, None, ok=False)

    # What goes wrong.

    def _fault(self) -> None:
        if self.timeline.now_ms >= CALM_MS:
            return
        chance = self.chance
        act = chance.choice(
            (self._fault_crash, self._fault_crash, self._fault_boot, self._fault_cut,
             self._fault_weather, self._fault_pause, self._fault_heal, self._fault_members)
        )  # fmt: skip
        act()
        self.timeline.after(chance.randint(20, 700), self._fault)

    def _fault_crash(self) -> None:
        if self._servers:
            victim = self.chance.choice(sorted(self._servers))
            if self.chance.random() < 0.7:  # in the middle of its next write
                self._crash_at[victim] = self.chance.randint(0, 3)
            else:
                self._crash(victim)
            self.timeline.after(self.chance.randint(50, 1_500), self._boot_if_down, victim)

    def _boot_if_down(self, server_id: int) -> None:
        if server_id not in self._servers:
            self._boot(server_id)

    def _fault_boot(self) -> None:
        for server_id in self.members.voters:
            self._boot_if_down(server_id)

    def _fault_cut(self) -> None:
        some = {i for i in self.members.voters if self.chance.random() < 0.5}
        others = set(self.members.voters) - some
        self.network.cut(sorted(some), sorted(others), one_way=self.chance.random() < 0.3)

    def _fault_weather(self) -> None:
        self.network.weather = Weather(
            lost=self.chance.choice((0.0, 0.02, 0.2)),
            doubled=self.chance.choice((0.0, 0.1)),
            slow=self.chance.choice((0.0, 0.1, 0.5)),
        )

    def _fault_pause(self) -> None:
        running = sorted(self._servers.keys() - self._paused.keys())
        if running:
            victim = self.chance.choice(running)
            self._paused[victim] = []
            self.timeline.after(self.chance.randint(50, 1_500), self._wake, victim)

    def _wake(self, server_id: int) -> None:
        for message in self._paused.pop(server_id, []):
            self._arrive(server_id, message)

    def _fault_heal(self) -> None:
        self.network.heal()

    def _fault_members(self) -> None:
        """A leader takes a voter out, or back in, or hands over."""
        for server in self._servers.values():
            if server.role is not Role.LEADER or server.id in self._paused:
                continue
            now = server.members
            one = self.chance.choice(self.members.voters)
            try:
                if self.chance.random() < 0.3:
                    server.transfer(one)
                elif one not in now.voters:
                    server.change_members(Members((*now.voters, one)))
                elif len(now.voters) > len(self.members.voters) - 1:
                    server.change_members(Members(tuple(v for v in now.voters if v != one)))
            except RaftError:
                continue
            self._pump(server)
            return

    def _calm(self) -> None:
        """All faults end."""
        self.network.heal()
        self.network.weather = Weather()
        for server_id in sorted(self._paused):
            self._wake(server_id)
        self._crash_at.clear()
        self._fault_boot()

    # The end.

    def _judge(self, before: int) -> None:
        leaders = [s.id for s in self._servers.values() if s.role is Role.LEADER]
        now = max(self.rules.committed, default=0)
        if not leaders or now < before + 10:
            raise Broken(
                "liveness",
                f"{END_MS - CALM_MS} ms after the last fault there are {len(leaders)} leaders, "
                f"and {now - before} new entries",
            )
        open_ops = [
            Operation(a.kind, a.value, a.called)
            for a in self._asking.values()
            if a.value is not None
        ]
        for check in (check_list, check_register):
            wrong = check([*self.history, *open_ops])
            if wrong is not None:
                raise Broken("linearizability", wrong)
