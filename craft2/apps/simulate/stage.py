"""A few Raft servers on a stage: time stands still until you let it pass, and you may go back.

The servers are the real ones, in virtual time. What you do to them is written down with its moment,
and nothing else is left to chance: so a stage can be played again up to any moment and go on
differently from there (`fork`), and all that happened can be drawn (`craft2.apps.simulate.film`).

>>> stage = Stage(3)
>>> stage.time_out(1)
>>> stage.run(60)
>>> stage.leader, stage.propose(1, "x = 3")
(1, 2)
>>> stage.run(60)
>>> stage.log(2)
'1: no-op, 1: x = 3 |'
>>> other = stage.fork(at_ms=60)  # before the proposal
>>> other.run(60)
>>> other.log(2)
'1: no-op |'
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from craft2.apps.simulate.looks import Letter, Look, look_at, text_of
from craft2.apps.simulate.raft_rules import Rules
from craft2.apps.simulate.stage_checks import check_number, check_servers, check_terms
from craft2.apps.simulate.stage_words import words_of
from craft2.sim.timeline import Timeline
from phase3_raft.raft.log import RaftLog
from phase3_raft.raft.messages import (
    AnyMessage,
    Entry,
    HardState,
    Members,
    RaftError,
    Snapshot,
)
from phase3_raft.raft.server import RaftServer
from phase3_raft.raft.state import RaftConfig, Role

_DELAY_MS = (8, 14)  # of a message


class Answer(NamedTuple):
    """What became of a read. log: what was committed then, in words; None if it was refused."""

    ms: int
    server: int
    asked_ms: int
    log: str | None


class Step(NamedTuple):
    """Something you did."""

    ms: int
    name: str
    arguments: tuple[Any, ...]


class Stage:
    """See the module. All times are ms since the curtain rose.

    voters: who votes at first; all, if None. Who does not is there and waits to be made one.
    logs: server -> the terms of the entries that it begins with, as in the paper's figures. All
        have heard of the latest of them.
    committed: how many of them are known to be committed, everywhere.
    election_timeout_ms: from, to; each server draws anew for each wait. max_append_entries: of one
        message.
    server: the class of the servers.
    """

    def __init__(
        self,
        servers: int = 3,
        *,
        voters: Sequence[int] | None = None,
        logs: Mapping[int, Sequence[int]] | None = None,
        committed: int = 0,
        seed: int = 1,
        election_timeout_ms: tuple[int, int] = (150, 300),
        heartbeat_ms: int = 50,
        max_append_entries: int = 1_000,
        server: type[RaftServer] = RaftServer,
    ) -> None:
        self._made = {
            "voters": voters,
            "logs": logs,
            "committed": committed,
            "seed": seed,
            "election_timeout_ms": election_timeout_ms,
            "heartbeat_ms": heartbeat_ms,
            "max_append_entries": max_append_entries,
            "server": server,
        }
        self._config = RaftConfig(
            election_timeout_ms=election_timeout_ms,
            heartbeat_ms=heartbeat_ms,
            max_append_entries=max_append_entries,
        )
        if servers < 1:
            raise RaftError(f"a stage of {servers} servers", "give at least one")
        self.numbers = tuple(range(1, servers + 1))
        founders = self.numbers if voters is None else tuple(voters)
        check_servers("voters", founders, self.numbers)
        check_terms(logs or {}, self.numbers)
        check_number("committed", committed)
        self._members = Members(voters=founders)
        self.letters: list[Letter] = []
        self.looks: dict[int, list[Look]] = {number: [] for number in self.numbers}
        self.steps: list[Step] = []
        self.answers: list[Answer] = []
        self.rules = Rules()
        self._timeline = Timeline()
        self._chance = random.Random(seed)
        self._class = server
        self._cut: set[tuple[int, int]] = set()
        self._disks = {n: self._disk(n, logs or {}) for n in self.numbers}
        self._servers: dict[int, RaftServer] = {}
        self._planned: dict[int, int] = {}  # server -> when it is looked after next
        for number in self.numbers:
            self._boot(number, committed)

    def _disk(
        self, number: int, logs: Mapping[int, Sequence[int]]
    ) -> tuple[HardState, Snapshot, list[Entry]]:
        terms = logs.get(number, ())
        entries = [Entry(term, i, b"%d" % i) for i, term in enumerate(terms, 1)]
        latest = max((term for one in logs.values() for term in one), default=0)
        hard_state = HardState(latest)  # a majority has voted in it
        return hard_state, Snapshot(members=self._members), entries

    # What happens by itself.

    @property
    def now_ms(self) -> int:
        return self._timeline.now_ms

    @property
    def leader(self) -> int | None:
        """Who leads the latest term that anybody leads."""
        led = [(s.term, n) for n, s in self._servers.items() if s.role is Role.LEADER]
        return max(led)[1] if led else None

    @property
    def leaders(self) -> list[int]:
        """All who believe that they lead: two, for a while, when the network is cut."""
        return [n for n, s in self._servers.items() if s.role is Role.LEADER]

    def run(self, ms: int) -> None:
        """Let time pass."""
        check_number("ms", ms, but="; time does not go back, fork does")
        self._timeline.run(self.now_ms + ms)

    def run_until_led(self, besides: int | None = None, at_most_ms: int = 5_000) -> int:
        """Let time pass until somebody (`besides` that one) leads in the latest term; returns who.

        Raises RaftError if nobody does in time.
        """
        end = self.now_ms + at_most_ms
        while self.now_ms < end:
            self._timeline.run(self.now_ms + 1)
            latest = max((s.term for s in self._servers.values()), default=0)
            for number in self.leaders:
                if number != besides and self._servers[number].term == latest:
                    return number
        raise RaftError(f"nobody leads after {at_most_ms} ms", "is a majority up and connected?")

    def _boot(self, number: int, committed: int = 0) -> None:
        hard_state, snapshot, entries = self._disks[number]
        log = RaftLog(snapshot, entries)
        log.committed = log.applied = min(committed, log.last_index)
        self._servers[number] = server = self._class(
            number, log, hard_state, self._config, random=self._chance.random, now_ms=self.now_ms
        )
        self._planned.pop(number, None)
        self.rules.restarted(server)
        self._plan_tick(number)
        self._look(number)

    def _plan_tick(self, number: int) -> None:
        """Come back at the server's next deadline, unless that is planned already."""
        moment = max(self._servers[number].next_deadline_ms(), self.now_ms + 1)
        if moment != self._planned.get(number):
            self._planned[number] = moment
            self._timeline.at(moment, self._tick, number, moment)

    def _tick(self, number: int, moment: int) -> None:
        server = self._servers.get(number)
        if server is None or self._planned.get(number) != moment:
            return
        if self.now_ms >= server.next_deadline_ms():
            server.tick(self.now_ms)
            self._pump(number)
        else:
            self._plan_tick(number)

    def _pump(self, number: int) -> None:
        server = self._servers[number]
        self.rules.look(server)
        while (ready := server.ready()) is not None:
            self.rules.wrote(server, list(ready.entries))
            for message in (*ready.early, *ready.messages):
                self._send(message)
            server.advance(ready)
            self.rules.look(server)
            for read in ready.reads:
                asked_ms = int(str(read.context))
                log = None if read.index is None else self._committed(number)
                self.answers.append(Answer(self.now_ms, number, asked_ms, log))
        self._disks[number] = server.hard_state, server.log.snapshot, list(server.log.entries)
        self._look(number)
        self._plan_tick(number)

    def _send(self, message: AnyMessage) -> None:
        self.rules.sends(message)
        arrives = self.now_ms + self._chance.randint(*_DELAY_MS)
        letter = Letter(len(self.letters), message, self.now_ms, arrives, words_of(message))
        self.letters.append(letter)
        if (message.sender, message.to) in self._cut:
            letter.fate = "cut off"
        self._timeline.at(arrives, self._arrive, letter)

    def _arrive(self, letter: Letter) -> None:
        message = letter.message
        if letter.fate == "arrives" and (message.sender, message.to) in self._cut:
            letter.fate = "cut off"
        if letter.fate == "arrives" and message.to not in self._servers:
            letter.fate = "nobody there"
        if letter.fate == "arrives":
            self._servers[message.to].step(message, self.now_ms)
            self._pump(message.to)

    def _look(self, number: int) -> None:
        server = self._servers.get(number)
        before = self.looks[number][-1] if self.looks[number] else None
        if server is None:
            assert before is not None
            look = before._replace(ms=self.now_ms, role="down", next={}, match={})
        else:
            look = look_at(server, self.now_ms)
        if before is None or before._replace(ms=0) != look._replace(ms=0):
            self.looks[number].append(look)

    # What you do.

    def time_out(self, *numbers: int) -> None:
        """Let the election timers of these servers ring now."""
        servers = [self._running(number) for number in numbers]
        self._note("time_out", *numbers)
        for server in servers:
            server.election_at_ms = self.now_ms
            server.tick(self.now_ms)
            self._pump(server.id)

    def propose(self, number: int, text: str) -> int:
        """Propose a command to a server; returns its index. Raises NotLeader."""
        if not isinstance(text, str):
            raise RaftError(f"the command {text!r} is no text", f'propose "{text}"')
        index = self._running(number).propose([text.encode()])
        self._note("propose", number, text)
        self._pump(number)
        return index

    def read(self, number: int) -> None:
        """Ask a server what is stored; `answers` gets what it says. Raises NotLeader."""
        self._running(number).read(self.now_ms)
        self._note("read", number)
        self._pump(number)

    def change_voters(self, number: int, *voters: int) -> None:
        """Ask a leader to make these the voters: one more, or one less. Raises RaftError."""
        leader = self._running(number)
        check_servers("voters", voters, self.numbers)
        leader.change_members(Members(voters=voters))
        self._note("change_voters", number, *voters)
        self._pump(number)

    def transfer(self, number: int, to: int) -> None:
        """Ask a leader to hand over to another server. Raises RaftError."""
        self._running(number).transfer(to)
        self._note("transfer", number, to)
        self._pump(number)

    def compact(self, number: int) -> int:
        """Let a server put what it has applied into a snapshot; returns up to where."""
        log = self._running(number).log
        self._running(number).compact(log.applied, b"the state of the application")
        self._note("compact", number)
        self._pump(number)
        return log.snapshot.index

    def stop(self, number: int) -> None:
        """Kill a server: what it has in memory is gone."""
        self._running(number)
        self._note("stop", number)
        del self._servers[number]
        self._look(number)

    def start(self, number: int) -> None:
        """Start it again, with what is on its disk."""
        if number in self._servers or number not in self.numbers:
            raise RaftError(f"server {number} cannot be started", "start one that was stopped")
        self._note("start", number)
        self._boot(number)

    def cut(self, *numbers: int) -> None:
        """Cut these servers off from all others, both ways; among themselves they talk."""
        check_servers("what to cut off", numbers, self.numbers)
        self._note("cut", *numbers)
        others = [n for n in self.numbers if n not in numbers]
        self._cut |= {pair for a in numbers for b in others for pair in ((a, b), (b, a))}

    def heal(self) -> None:
        """Join all again."""
        self._note("heal")
        self._cut.clear()

    def on_the_way(self) -> list[Letter]:
        """The messages that were sent and have not arrived yet."""
        return [one for one in self.letters if one.arrives_ms > self.now_ms]

    def drop(self, *letters: int) -> None:
        """Lose these messages (their numbers), which are on the way."""
        flying = {letter.number: letter for letter in self.on_the_way()}
        for number in letters:
            if number not in flying:
                raise RaftError(
                    f"message {number} is not on the way at {self.now_ms} ms",
                    f"drop one of {sorted(flying) or 'those that are sent later'}",
                )
        self._note("drop", *letters)
        for number in letters:
            flying[number].fate = "dropped"

    def fork(self, at_ms: int) -> Stage:
        """Another stage that is as this one was at a moment, to go on differently.

        What you did at that very moment is not done yet; if it is the present one, it is.
        """
        check_number("at_ms", at_ms)
        if at_ms > self.now_ms:
            raise RaftError(f"at_ms is {at_ms}", f"give a moment from 0 to {self.now_ms}")
        steps = [step for step in self.steps if step.ms < at_ms or at_ms == self.now_ms]
        return self._again(at_ms, steps)

    def _again(self, until_ms: int, steps: Iterable[Step]) -> Stage:
        stage = Stage(len(self.numbers), **self._made)  # type: ignore[arg-type]
        for step in steps:
            stage._timeline.run(step.ms)
            getattr(stage, step.name)(*step.arguments)
        stage._timeline.run(until_ms)
        return stage

    def _note(self, name: str, *arguments: Any) -> None:
        self.steps.append(Step(self.now_ms, name, arguments))

    def _running(self, number: int) -> RaftServer:
        if number not in self._servers:
            raise RaftError(
                f"server {number} is not running", f"name one of {sorted(self._servers)}"
            )
        return self._servers[number]

    # What there is to see.

    def server(self, number: int) -> RaftServer:
        """A running server itself."""
        return self._running(number)

    def log(self, number: int) -> str:
        """A server's log in words, `term: command`; the bar stands behind what is committed."""
        look = self.looks[number][-1]
        words = [f"snapshot to {look.snapshot}"] if look.snapshot else []
        committed = len(words) + sum(cell.committed for cell in look.cells)
        words += [f"{cell.term}: {cell.text}" for cell in look.cells]
        left, right = ", ".join(words[:committed]), ", ".join(words[committed:])
        return f"{left} | {right}".strip() if words else ""

    def _committed(self, number: int) -> str:
        log = self._running(number).log
        return " | ".join(text_of(entry) for entry in log.entries if entry.index <= log.committed)

    def terms(self, number: int) -> tuple[int, ...]:
        """The terms of a server's log, as the paper draws them."""
        return tuple(cell.term for cell in self.looks[number][-1].cells)
