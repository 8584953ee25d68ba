"""Raft servers with disks, state machines and clients, to whom things happen one at a time.

What can happen to a server is the vocabulary of every run: it starts, crashes, its timer rings, it
gets a message, is asked something. When, in which order, and which messages arrive is decided by
whoever derives from `Nodes`: chance (`raft_world`), or a record of what chance had done (`trace`).

>>> class Post(Nodes):  # every message arrives at once
...     def carry(self, message):
...         self.box = [*getattr(self, "box", []), message]
>>> nodes = Post(nodes=3)
>>> for server in (1, 2, 3):
...     _ = nodes.start(server, 0)
>>> nodes.ring(1, 300)
True
>>> while nodes.box:
...     message = nodes.box.pop(0)
...     _ = nodes.deliver(message.to, 300, message)
>>> nodes.servers[1].role.value, nodes.rules.elections
('leader', 1)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from craft2.apps.simulate.disk_and_state import Disk, State, command
from craft2.apps.simulate.linear import Operation, check_list, check_register
from craft2.apps.simulate.raft_rules import Broken, Rules
from phase3_raft.raft.log import RaftLog
from phase3_raft.raft.messages import (
    AnyMessage,
    Members,
    RaftError,
    Ready,
    Snapshot,
)
from phase3_raft.raft.server import RaftServer
from phase3_raft.raft.state import RaftConfig, Role

CONFIG = RaftConfig(max_append_entries=8, max_in_flight=4)  # small: limits are reached
_NO_CRASH: tuple[int | None, float] = (None, 0.0)
FILLER = command("nothing")


@dataclass(eq=False)
class Asking:
    """An operation that a server has accepted, and whose answer a client waits for."""

    client: int
    kind: str
    value: int | None
    called_ms: int
    server: int
    index: int = 0  # of its entry, and
    term: int = 0


class Action(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happened to one server: a line of a trace.

    ms: the true moment; clock_ms: what the server's own clock said. what: the name of a method of
    `Nodes`; arguments: its further ones. message: what `deliver` has delivered.
    """

    ms: int
    server: int
    what: str
    clock_ms: int
    arguments: tuple[Any, ...] = ()
    message: AnyMessage | None = None


class Nodes:
    """See the module. server, disk: the classes of the servers and disks, for planted bugs.

    Every method that lets something happen returns whether it could.
    """

    def __init__(
        self, nodes: int = 5, server: type[RaftServer] = RaftServer, disk: type[Disk] = Disk
    ) -> None:
        self.members = Members(voters=tuple(range(1, nodes + 1)))
        self.disks = {i: disk(Snapshot(members=self.members)) for i in self.members.voters}
        self.rules = Rules(self.disks)
        self.servers: dict[int, RaftServer] = {}
        self.states: dict[int, State] = {}
        self.asking: dict[int, Asking] = {}  # client -> what it waits for
        self.history: list[Operation] = []
        self.counts: Counter[str] = Counter()
        self.now_ms = 0
        self.actions: list[Action] | None = None  # a list, to have them recorded
        self._class = server
        self._crash_at: dict[int, tuple[int, float]] = {}
        self._slow: set[int] = set()
        self._writing: dict[int, Ready] = {}

    # For whoever derives.

    def carry(self, message: AnyMessage) -> None:
        """A message has left its sender."""
        raise NotImplementedError

    def answered(self, client: int) -> None:
        """A client has its answer, or waits no more."""

    def writes(self, server_id: int) -> None:
        """A slow disk has begun to write; say so when it has ended, with `written`."""

    def turned(self, server: RaftServer) -> None:
        """Something has happened to a server: its next deadline may be another."""

    def draw(self) -> float:
        """A random number for an election timeout."""
        return 0.5

    def _note(self, server_id: int, what: str, clock_ms: int, *arguments: Any) -> None:
        if self.actions is not None:
            self.actions.append(Action(self.now_ms, server_id, what, clock_ms, arguments))

    # What happens to a server.

    def start(self, server_id: int, clock_ms: int) -> bool:
        """It starts, or starts again, with what is on its disk."""
        if server_id in self.servers:
            return False
        self._note(server_id, "start", clock_ms)
        disk = self.disks[server_id]
        log = RaftLog(disk.snapshot, list(disk.entries))
        server = self._class(
            server_id, log, disk.hard_state, CONFIG, random=self.draw, now_ms=clock_ms
        )
        self.servers[server_id] = server
        self.states[server_id] = State.restored(disk.snapshot.data)
        self.rules.restarted(server)
        return True

    def crash(self, server_id: int, clock_ms: int) -> bool:
        """It is gone; its disk stays."""
        if server_id not in self.servers:
            return False
        self._note(server_id, "crash", clock_ms)
        self.gone(server_id)
        return True

    def gone(self, server_id: int) -> None:
        """What is left of a server that crashes."""
        self.counts["crashes"] += 1
        del self.servers[server_id]
        self._crash_at.pop(server_id, None)
        self._writing.pop(server_id, None)

    def crash_soon(self, server_id: int, clock_ms: int, step: int, share: float) -> bool:
        """It will crash in its next write. step: 0 before it, 1 within, with a share of the entries
        written, 2 after it and before anybody is told, 3 before it is applied."""
        if server_id not in self.servers:
            return False
        self._note(server_id, "crash_soon", clock_ms, step, share)
        self._crash_at[server_id] = step, share
        return True

    def spare(self, server_id: int, clock_ms: int) -> bool:
        """It will not crash in its next write after all."""
        if self._crash_at.pop(server_id, None) is None:
            return False
        self._note(server_id, "spare", clock_ms)
        return True

    def ring(self, server_id: int, clock_ms: int) -> bool:
        """Its election timer rings."""
        server = self.servers.get(server_id)
        if server is None or server.role is Role.LEADER:
            return False
        self._note(server_id, "ring", clock_ms)
        server.election_at_ms = min(server.election_at_ms, clock_ms)
        server.tick(clock_ms)
        self._pump(server)
        return True

    def beat(self, server_id: int, clock_ms: int) -> bool:
        """A leader's heartbeat is due."""
        server = self.servers.get(server_id)
        if server is None or server.role is not Role.LEADER:
            return False
        self._note(server_id, "beat", clock_ms)
        server.heartbeat_at_ms = min(server.heartbeat_at_ms, clock_ms)
        server.tick(clock_ms)
        self._pump(server)
        return True

    def deliver(self, server_id: int, clock_ms: int, message: AnyMessage) -> bool:
        """A message arrives."""
        server = self.servers.get(server_id)
        if server is None:
            return False
        if self.actions is not None:
            self.actions.append(
                Action(self.now_ms, server_id, "deliver", clock_ms, message=message)
            )
        server.step(message, clock_ms)
        self._pump(server)
        return True

    def ask(
        self,
        server_id: int,
        clock_ms: int,
        client: int,
        kind: str,
        value: int | None,
        called_ms: int,
        fillers: int,
    ) -> bool:
        """A client asks it: kind append or write, with a value; list or read, with None.

        fillers: entries without a meaning that come with it. False if it does not lead.
        """
        server = self.servers.get(server_id)
        if server is None or server.role is not Role.LEADER:
            return False
        asking = Asking(client, kind, value, called_ms, server_id)
        try:
            if value is None:
                server.read(asking)
            else:
                commands = [command(kind, value), *[FILLER] * fillers]
                asking.index, asking.term = server.propose(commands), server.term
        except RaftError:
            return False
        self._note(server_id, "ask", clock_ms, client, kind, value, called_ms, fillers)
        self.give_up(client)
        self.asking[client] = asking
        self._pump(server)
        return True

    def change(
        self, server_id: int, clock_ms: int, voters: Sequence[int], learners: Sequence[int]
    ) -> bool:
        """A leader is told who the members are to be."""
        members = Members(tuple(voters), tuple(learners))
        return self._lead(
            server_id, lambda it: it.change_members(members), "change", clock_ms, voters, learners
        )

    def transfer(self, server_id: int, clock_ms: int, to: int) -> bool:
        """A leader is told to hand over."""
        return self._lead(server_id, lambda it: it.transfer(to), "transfer", clock_ms, to)

    def _lead(
        self,
        server_id: int,
        wish: Callable[[RaftServer], object],
        what: str,
        clock_ms: int,
        *arguments: Any,
    ) -> bool:
        server = self.servers.get(server_id)
        if server is None:
            return False
        try:
            wish(server)
        except RaftError:
            return False
        self._note(server_id, what, clock_ms, *arguments)
        self._pump(server)
        return True

    def compact(self, server_id: int, clock_ms: int) -> bool:
        """It makes a snapshot of what it has applied."""
        server = self.servers.get(server_id)
        if server is None or server.log.applied <= server.log.snapshot.index:
            return False
        self._note(server_id, "compact", clock_ms)
        snapshot = server.compact(server.log.applied, self.states[server_id].snapshot())
        self.disks[server_id].compact(snapshot)
        self.rules.look(server)
        return True

    def slow_disk(self, server_id: int, clock_ms: int, slow: bool) -> bool:
        """From now on its writes take time, in which messages arrive; or not any more."""
        if slow == (server_id in self._slow):
            return False
        self._note(server_id, "slow_disk", clock_ms, slow)
        (self._slow.add if slow else self._slow.discard)(server_id)
        return True

    def written(self, server_id: int, clock_ms: int) -> bool:
        """A write of a slow disk is done."""
        ready = self._writing.pop(server_id, None)
        if ready is None:
            return False
        self._note(server_id, "written", clock_ms)
        server = self.servers[server_id]
        if self._write(server, ready):
            self._pump(server)
        return True

    # What a driver does.

    def _pump(self, server: RaftServer) -> None:
        """Do what there is to do, in the order that `Ready` asks for."""
        self._do(server)
        if self.servers.get(server.id) is server:  # it did not crash on the way
            self.turned(server)

    def _do(self, server: RaftServer) -> None:
        who = server.id
        self.rules.look(server)
        while who not in self._writing and (ready := server.ready()) is not None:
            if ready.early:
                self._send(ready.early)
            if ready.snapshot:
                self.rules.installed(server, ready.snapshot)
            if ready.entries:
                self.rules.wrote(server, ready.entries)
            if who in self._slow and (ready.entries or ready.hard_state or ready.snapshot):
                self._writing[who] = ready
                self.writes(who)
            elif not self._write(server, ready):
                return

    def _write(self, server: RaftServer, ready: Ready) -> bool:
        """Write, and what comes after it; False if it crashes on the way."""
        step, share = self._crash_at.pop(server.id, _NO_CRASH)
        disk = self.disks[server.id]
        if step == 1:
            self.counts["writes torn"] += 1
            disk.write(ready, server.log, int(share * (len(ready.entries) + 1)))
        elif step != 0:
            disk.write(ready, server.log)
            if step != 2:
                self._send(ready.messages)
        if step is not None:
            self.gone(server.id)
            return False
        if ready.committed or ready.reads or ready.snapshot:
            self._apply(server, ready)
        server.advance(ready)
        self.rules.look(server)
        return True

    def _send(self, messages: Sequence[AnyMessage]) -> None:
        for message in messages:
            self.rules.sends(message)
            self.carry(message)

    def _apply(self, server: RaftServer, ready: Ready) -> None:
        state = self.states[server.id]
        if ready.snapshot is not None:
            self.counts["snapshots installed"] += 1
            state = self.states[server.id] = State.restored(ready.snapshot.data)
        for entry in ready.committed:
            state.apply(entry)
            for asking in list(self.asking.values()):
                if asking.server == server.id and asking.index == entry.index:
                    self._finish(asking, asking.term == entry.term, asking.value)
        for read in ready.reads:
            who = read.context
            if isinstance(who, Asking) and self.asking.get(who.client) is who:
                seen = tuple(state.values) if who.kind == "list" else ()
                value = state.register if who.kind == "read" else None
                self._finish(who, read.index is not None, value, seen)

    # What clients were told.

    def _finish(
        self, asking: Asking, ok: bool, value: int | None, seen: tuple[int, ...] = ()
    ) -> None:
        if not ok:
            self.give_up(asking.client)
        else:
            del self.asking[asking.client]
            self.counts["operations"] += 1
            self.history.append(Operation(asking.kind, value, asking.called_ms, self.now_ms, seen))
        self.answered(asking.client)

    def give_up(self, client: int) -> None:
        """A client waits no more: what it asked for was done, or will be, or never."""
        asking = self.asking.pop(client, None)
        if asking is not None and asking.value is not None:
            self.history.append(Operation(asking.kind, asking.value, asking.called_ms))

    def judge_history(self) -> None:
        """Whether one machine could have said all that. Raises Broken."""
        waiting = [Operation(a.kind, a.value, a.called_ms) for a in self.asking.values() if a.value]
        for check in (check_list, check_register):
            wrong = check([*self.history, *waiting])
            if wrong is not None:
                raise Broken("linearizability", wrong)
