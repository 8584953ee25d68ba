"""What must be true of a Raft cluster after every single event.

The five properties of the paper's figure 3, and what a restart must not forget. Each is checked as
something happens, against what was seen before: so a check costs next to nothing, and the event
that broke the rule is the last one.

    election safety         a term has one leader at most
    leader append-only      a leader never cuts or changes its own log
    log matching            two logs with an entry of one index and term agree in it, and in the
                            term of the one before; by induction, in everything up to there
    leader completeness     who is elected has every committed entry
    state machine safety    no two servers apply different entries at one index
    monotonic commit        a server's commit index never falls, but by a restart
    promises kept           a restart does not fall behind a term or a vote that was told to others
"""

from __future__ import annotations

from phase3_raft.raft.messages import AnyMessage, Entry, Vote
from phase3_raft.raft.server import RaftServer
from phase3_raft.raft.state import Role


class Broken(AssertionError):
    """A rule was broken: `rule`, and what happened, in words."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule, self.what = rule, what


class Rules:
    """See the module. Invariant: `committed` is the one true log, as far as anybody knows it."""

    def __init__(self) -> None:
        self.committed: dict[int, Entry] = {}
        self.elections = 0
        self._leaders: dict[int, int] = {}  # term -> who
        self._entries: dict[tuple[int, int], tuple[int, bytes]] = {}  # (index, term) -> what
        self._commit: dict[int, int] = {}  # server -> its commit index
        self._led: dict[int, tuple[int, int]] = {}  # leader -> (term, last index)
        self._told_term: dict[int, int] = {}
        self._told_vote: dict[tuple[int, int], int] = {}  # (server, term) -> for whom

    def look(self, server: RaftServer) -> None:
        """After every event, at the server that it happened to."""
        log, who = server.log, server.id
        if server.role is Role.LEADER:
            self._look_at_leader(server)
        if log.committed < self._commit.get(who, 0):
            raise Broken(
                "monotonic commit",
                f"server {who} went back from {self._commit[who]} to {log.committed}",
            )
        for entry in log.between(max(self._commit.get(who, 0), log.snapshot.index), log.committed):
            known = self.committed.setdefault(entry.index, entry)
            if known != entry:
                raise Broken(
                    "state machine safety", f"server {who} commits {entry}, and {known} was"
                )
        self._commit[who] = log.committed

    def _look_at_leader(self, server: RaftServer) -> None:
        who, term, log = server.id, server.term, server.log
        leader = self._leaders.setdefault(term, who)
        if leader != who:
            raise Broken("election safety", f"servers {leader} and {who} both lead term {term}")
        led_term, last = self._led.get(who, (0, 0))
        if led_term != term:
            self.elections += 1
            self._look_for_all_committed(server)
        elif log.last_index < last:
            raise Broken(
                "leader append-only", f"leader {who} cut its log from {last} to {log.last_index}"
            )
        self._led[who] = term, log.last_index

    def _look_for_all_committed(self, server: RaftServer) -> None:
        for index, entry in self.committed.items():
            if index > server.log.snapshot.index and server.log.term_at(index) != entry.term:
                raise Broken(
                    "leader completeness",
                    f"server {server.id} leads term {server.term} without {entry}",
                )

    def wrote(self, server: RaftServer, entries: list[Entry]) -> None:
        """A server has put these entries into its log."""
        for entry in entries:
            before = server.log.term_at(entry.index - 1) or 0
            if entry.index == server.log.snapshot.index + 1:
                before = server.log.snapshot.term
            known = self._entries.setdefault((entry.index, entry.term), (before, entry.data))
            if known != (before, entry.data):
                raise Broken(
                    "log matching",
                    f"server {server.id} has {entry} behind term {before}; elsewhere it is "
                    f"{known[1]!r} behind term {known[0]}",
                )

    def sends(self, message: AnyMessage) -> None:
        """A message leaves: what it says is a promise."""
        who = message.sender
        if isinstance(message, Vote):
            if message.pre:
                return
            if message.granted:
                chosen = self._told_vote.setdefault((who, message.term), message.to)
                if chosen != message.to:
                    raise Broken(
                        "promises kept",
                        f"server {who} voted for {chosen} and for {message.to} in {message.term}",
                    )
        elif getattr(message, "pre", False):
            return
        self._told_term[who] = max(self._told_term.get(who, 0), message.term)

    def restarted(self, server: RaftServer) -> None:
        """A server has read its disk."""
        told = self._told_term.get(server.id, 0)
        if server.term < told:
            raise Broken(
                "promises kept", f"server {server.id} restarts in term {server.term} after {told}"
            )
        self._commit[server.id] = server.log.committed
        self._led.pop(server.id, None)
