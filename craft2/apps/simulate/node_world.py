"""A Raft cluster of whole nodes in virtual time: the driver as it is, on simulated machines.

`raft_world` runs the cores; here all runs that a real process runs, the driver, its links and
frames, the storage on phase 1's log, on asyncio, over connections that break and disks that lose
what was not synced. One seed decides everything. The same rules are checked, the clients' answers
judged, and once the faults end there must be progress.

>>> cluster = NodeWorld(seed=1)
>>> cluster.run()
>>> cluster.rules.elections > 0, len(cluster.history) > 50
(True, True)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from zlib import crc32

from craft2.apps.simulate.linear import Operation, check_list, check_register
from craft2.apps.simulate.raft_rules import Broken, Rules
from craft2.apps.simulate.synced import Synced
from craft2.events import Events
from craft2.faulty_disk import FaultyDisk
from craft2.net import Address
from craft2.sim.loop import SimLoop
from craft2.sim.machine import Machine
from craft2.sim.net import Wires
from craft2.sim.timeline import Timeline
from phase3_raft.raft.application import NodeConfig
from phase3_raft.raft.driver import RaftNode
from phase3_raft.raft.list_machine import ListMachine, command
from phase3_raft.raft.messages import AnyMessage, Members, Ready
from phase3_raft.raft.state import NotLeader, RaftConfig, Role
from phase3_raft.raft.storage import RaftStorage

CALM_MS, END_MS = 8_000, 14_000
CLIENTS, TIMEOUT_MS = 3, 900
BURSTS = (0, 0, 0, 1, 6)  # values that are appended with another one
DIRECTORY, _PORT = "/data", 7_000


class WatchedNode(RaftNode):
    """A node whose every step is looked at."""

    rules: Rules
    failures: list[Exception]  # of all nodes

    async def start(self) -> Address:
        send = self._links.send

        def watched(message: AnyMessage) -> None:
            self.rules.sends(message)
            send(message)

        listen = self._links.open

        async def restarted(address: Address) -> Address:
            self.rules.restarted(self._server)  # before the first message comes
            return await listen(address)

        self._links.send = watched  # type: ignore[method-assign]
        self._links.open = restarted  # type: ignore[method-assign]
        return await super().start()

    def _work(self) -> None:
        super()._work()
        if not self.stopped.is_set():
            self.rules.look(self._server)

    def _fail(self, error: BaseException) -> None:
        if not self.stopped.is_set() and isinstance(error, Exception):
            self.failures.append(error)
        super()._fail(error)

    def _do(self, ready: Ready) -> None:
        if ready.snapshot is not None:
            self.rules.installed(self._server, ready.snapshot)
        self.rules.wrote(self._server, list(ready.entries))
        super()._do(ready)
        self.rules.look(self._server)


class NodeWorld:
    """See the module. node: the class of the nodes, for planted bugs."""

    def __init__(self, seed: int, nodes: int = 3, node: type[WatchedNode] = WatchedNode) -> None:
        self.chance = random.Random(seed)
        self.timeline = Timeline()
        self.wires = Wires(self.timeline, self.chance)
        self.history: list[Operation] = []
        self.failures: list[Exception] = []
        self.numbers = tuple(range(1, nodes + 1))
        self._class = node
        self._nodes: dict[int, WatchedNode] = {}
        self._values = 0
        self._bursts: dict[int, Operation] = {}  # value -> its append
        self._asking: dict[int, tuple[str, int | None, float]] = {}
        self.machines = {
            number: Machine(
                f"server-{number}",
                self.timeline,
                self.wires,
                self.chance,
                partial(self._program, number),
            )
            for number in self.numbers
        }
        self.rules = Rules({n: Synced(partial(self._disk, n), DIRECTORY) for n in self.numbers})

    def _disk(self, number: int) -> FaultyDisk:
        return self.machines[number].disk

    async def _program(self, number: int, machine: Machine) -> None:
        config = NodeConfig(
            cluster="simulated",
            server_id=number,
            listen=Address(machine.name, _PORT),
            peers={n: Address(f"server-{n}", _PORT) for n in self.numbers},
            raft=RaftConfig(max_append_entries=2, max_in_flight=2),  # small: limits are reached
            compact_every=40,
        )
        storage = RaftStorage(
            DIRECTORY,
            "simulated",
            number,
            Members(voters=self.numbers),
            disk=machine.disk,
            clock=machine.clock,
        )
        node = self._class(
            config,
            ListMachine(),
            storage,
            net=machine.net,
            events=Events(machine.name, machine.clock),
            chance=self.chance.random,
        )
        node.rules, node.failures = self.rules, self.failures
        await node.start()
        self._nodes[number] = node

    def start(self) -> None:
        """Plan everything."""
        for machine in self.machines.values():
            machine.boot()
        for client in range(CLIENTS):
            self.timeline.after(self.chance.randint(700, 1_500), self._ask, client)
        self.timeline.after(self.chance.randint(500, 1_500), self._fault)

    def run(self) -> None:
        """Everything. Raises Broken."""
        self.start()
        self.timeline.run(CALM_MS)
        self._calm()
        before = max(self.rules.committed, default=0)
        self.timeline.run(END_MS)
        self._judge(before)

    @property
    def crashes(self) -> int:
        return sum(machine.crashes for machine in self.machines.values())

    @property
    def digest(self) -> int:
        """A checksum of what came out: equal for equal seeds, in whatever process."""
        said = [self.timeline.count, self.wires.pieces, self.history]
        disks = [sorted(machine.disk.tree().items()) for machine in self.machines.values()]
        return crc32(repr((said, disks)).encode())

    # Clients.

    def _ask(self, client: int) -> None:
        kind = self.chance.choice(("append", "append", "write", "list", "read"))
        self._values += 1
        value = self._values if kind in ("append", "write") else None
        asked = self._asking[client] = (kind, value, self.timeline.now_ms)
        self.timeline.after(TIMEOUT_MS, self._answered, client, asked, None)
        self._try(client, asked)

    def _try(self, client: int, asked: tuple[str, int | None, float]) -> None:
        """Ask some server, and another one soon if this one is not there or does not lead."""
        if self._asking.get(client) is not asked:
            return
        number = self.chance.choice(self.numbers)
        machine, node = self.machines[number], self._nodes.get(number)
        again = partial(self.timeline.after, self.chance.randint(5, 40), self._try, client, asked)
        if not machine.up or node is None or node.stopped.is_set():
            again()
            return
        assert machine.loop is not None
        kind, value, _ = asked
        if value is None:
            future = machine.loop.call(node.read)
        else:
            future = machine.loop.call(node.propose, command(kind, value))
            for _ in range(self.chance.choice(BURSTS)):
                self._append_too(machine.loop, node)

        def done(future: asyncio.Future[object]) -> None:
            error = future.exception()
            if error is None:
                self._answered(client, asked, node.machine)  # type: ignore[arg-type]
            elif isinstance(error, NotLeader):
                again()
            else:
                self._answered(client, asked, None)

        future.add_done_callback(done)

    def _append_too(self, loop: SimLoop, node: WatchedNode) -> None:
        """One more value, for which no client waits: they all come to the disk in one batch."""
        self._values += 1
        value, called = self._values, self.timeline.now_ms
        self._bursts[value] = Operation("append", value, called)

        def done(future: asyncio.Future[object]) -> None:
            if future.exception() is None:
                self._bursts[value] = Operation("append", value, called, self.timeline.now_ms)

        loop.call(node.propose, command("append", value)).add_done_callback(done)

    def _answered(
        self, client: int, asked: tuple[str, int | None, float], seen: ListMachine | None
    ) -> None:
        """seen: the server's state, if it has answered; else nobody knows."""
        if self._asking.get(client) is not asked:
            return
        del self._asking[client]
        kind, value, called = asked
        now = self.timeline.now_ms
        if seen is None:
            if value is not None:
                self.history.append(Operation(kind, value, called))
        elif kind == "list":
            values: Sequence[int] = tuple(seen.values)  # type: ignore[arg-type]
            self.history.append(Operation(kind, None, called, now, tuple(values)))
        elif kind == "read":
            self.history.append(Operation(kind, seen.register, called, now))  # type: ignore[arg-type]
        else:
            self.history.append(Operation(kind, value, called, now))
        self.timeline.after(self.chance.randint(1, 60), self._ask, client)

    # What goes wrong.

    def _fault(self) -> None:
        if self.timeline.now_ms >= CALM_MS:
            return
        acts = (self._crash, self._crash, self._cut, self._heal, self._pause, self._weather)
        self.chance.choice(acts)()
        self.timeline.after(self.chance.randint(50, 800), self._fault)

    def _crash(self) -> None:
        number = self.chance.choice(self.numbers)
        machine = self.machines[number]
        if machine.loop is None:
            return
        if self.chance.random() < 0.6:
            machine.crash_after(self.chance.randint(0, 12))
        else:
            self._nodes.pop(number, None)
            machine.crash(power=self.chance.random() < 0.7)
        self.timeline.after(self.chance.randint(100, 1_500), self._boot, number)

    def _boot(self, number: int) -> None:
        machine = self.machines[number]
        if machine.loop is None:
            self._nodes.pop(number, None)
            machine.boot(fast=self.chance.choice((1.0, 1.0, 0.9, 1.1)))

    def _cut(self) -> None:
        some = [n for n in self.numbers if self.chance.random() < 0.5]
        names = [f"server-{n}" for n in self.numbers]
        here = [f"server-{n}" for n in some]
        there = [name for name in names if name not in here]
        self.wires.cut(here, there, one_way=self.chance.random() < 0.3)

    def _heal(self) -> None:
        self.wires.heal()

    def _pause(self) -> None:
        machine = self.machines[self.chance.choice(self.numbers)]
        if machine.up:
            assert machine.loop is not None
            machine.loop.pause()
            self.timeline.after(self.chance.randint(50, 1_500), machine.loop.resume)

    def _weather(self) -> None:
        self.wires.slow = self.chance.choice((0.0, 0.05, 0.3))

    def _calm(self) -> None:
        """All faults end."""
        self.wires.heal()
        self.wires.slow = 0.0
        for number, machine in self.machines.items():
            machine.disk.crash_at = None
            if machine.loop is not None and machine.loop.paused:
                machine.loop.resume()
            self._boot(number)

    # The end.

    def _judge(self, before: int) -> None:
        for failed in self.failures:
            raise _broken("a node has stopped", failed)
        for machine in self.machines.values():
            loop = machine.loop
            if machine.failure is not None:
                raise _broken(machine.name, machine.failure)
            for context in loop.errors if loop is not None else ():
                raise _broken(f"{machine.name}: {context}", context.get("exception"))
        leaders = [n for n, node in self._nodes.items() if node._server.role is Role.LEADER]
        now = max(self.rules.committed, default=0)
        if not leaders or now < before + 10:
            raise Broken(
                "liveness",
                f"{END_MS - CALM_MS} ms after the last fault there are {len(leaders)} leaders, "
                f"and {now - before} new entries",
            )
        left = [Operation(k, v, called) for k, v, called in self._asking.values() if v is not None]
        for check in (check_list, check_register):
            wrong = check([*self.history, *self._bursts.values(), *left])
            if wrong is not None:
                raise Broken("linearizability", wrong)


def _broken(where: str, error: BaseException | None) -> Broken:
    """A rule's own error as it is; any other must not be."""
    if isinstance(error, Broken):
        return error
    return Broken("no error is left over", f"{where}: {error!r}")
