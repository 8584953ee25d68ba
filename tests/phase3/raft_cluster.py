"""A cluster of Raft cores for tests: every message arrives at once, unless a test says no."""

from __future__ import annotations

from phase3_raft.raft.log import RaftLog
from phase3_raft.raft.messages import Entry, HardState, Members, Snapshot
from phase3_raft.raft.server import RaftServer
from phase3_raft.raft.state import RaftConfig, Role


def entries(*terms, first=1):
    """A log by the terms of its entries, as the paper's figures show it."""
    return [Entry(term, first + place, b"%d" % term) for place, term in enumerate(terms)]


class Cluster:
    """Servers 1 to n. Who is in `down` neither gets nor sends anything, nor what is in `cut`."""

    def __init__(self, n=3, logs=None, terms=None, members=None, **config):
        self.members = members or Members(voters=tuple(range(1, n + 1)))
        self.config = RaftConfig(**config)
        self.now = 0
        self.down = set()
        self.cut = set()
        self.applied = {i: [] for i in self.members.everybody}
        self.messages = []  # that arrived, in order
        self.reads = []
        self.servers = {}
        for i in self.members.everybody:
            self.add(i, (logs or {}).get(i, ()), (terms or {}).get(i))

    def add(self, i, log=(), term=None, members=None):
        """A server with this log on its disk."""
        term = max((entry.term for entry in log), default=0) if term is None else term
        snapshot = Snapshot(members=self.members if members is None else members)
        self.applied.setdefault(i, [])
        self.servers[i] = RaftServer(
            i, RaftLog(snapshot, log), HardState(term), self.config, random=lambda: 0.5, now_ms=0
        )

    def __getitem__(self, i):
        return self.servers[i]

    def deliver(self, drop=lambda message: False):
        """Do all there is to do, everywhere, until nothing moves."""
        moving = True
        while moving:
            moving = False
            for i, server in self.servers.items():
                if i in self.down:
                    continue
                while (ready := server.ready()) is not None:
                    moving = True
                    sent = [*ready.early, *ready.messages]
                    if ready.snapshot is not None:
                        self.applied[i] = [ready.snapshot.data]
                    self.applied[i] += [entry.data for entry in ready.committed]
                    self.reads += ready.reads
                    server.advance(ready)
                    for message in sent:
                        self.carry(message, drop)

    def carry(self, message, drop):
        lost = message.to in self.down or (message.sender, message.to) in self.cut
        if not lost and message.to in self.servers and not drop(message):
            self.messages.append(message)
            self.servers[message.to].step(message, self.now)

    def elect(self, i):
        """Let server i stand, and win if it can."""
        self.now = max(self.now, self[i].election_at_ms)
        for server in self.servers.values():  # nobody remembers a leader that long
            if server.id != i and server.role is not Role.LEADER:
                server._now = self.now
                server._set_election_timer()
        self[i].tick(self.now)
        self.deliver()
        return self[i].role

    def beat(self, i):
        """Let the leader's heartbeat come."""
        self.now = max(self.now, self[i].heartbeat_at_ms)
        self[i].tick(self.now)
        self.deliver()

    def pass_time(self, ms):
        """Let everybody's clock run, in small steps."""
        until = self.now + ms
        while self.now < until:
            self.now += 10
            for i, server in self.servers.items():
                if i not in self.down and self.now >= server.next_deadline_ms():
                    server.tick(self.now)
            self.deliver()

    def separate(self, *some):
        """Nothing gets from these to the others, or back, until `cut` is cleared."""
        others = set(self.servers) - set(some)
        self.cut |= {(a, b) for a in some for b in others}
        self.cut |= {(b, a) for a in some for b in others}

    def terms(self, i):
        """The terms of a server's log."""
        return [entry.term for entry in self[i].log.entries]

    def leaders(self):
        return [i for i, server in self.servers.items() if server.role is Role.LEADER]
