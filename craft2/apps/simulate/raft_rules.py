"""What must be true of a Raft cluster after every single event.

The five properties of the paper's figure 3, and what a restart must not forget. Each is checked as
something happens, against what was seen before: so a check costs next to nothing, and the event
that broke the rule is the last one.

    election safety         a term has one leader at most
    leader append-only      a leader never cuts or changes its own log
    log matching            two logs with an entry of one index and term agree in it, and in the
                            term of the one before; by induction, in everything up to there
    leader completeness     who leads a term has every entry that was committed in an earlier one
    state machine safety    no two servers apply different entries at one index
    monotonic commit        a server's commit index never falls, but by a restart
    promises kept           a restart does not fall behind a term or a vote that was told to others

And three that are how the paper keeps these. Breaking them is harmless most of the time, and costs
data at the next crash; so they are looked for where they are broken:

    own term                a leader counts none but entries of its own term (5.4.2, figure 8)
    a majority's disks      what is committed is on the disks of a majority (5.1, 5.3)
    one change at a time    members change again when the last change is committed (thesis, 4.1),
                            and in a new term when an entry of that is (Ongaro to raft-dev, 2015)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from phase3_raft.raft.messages import AnyMessage, Entry, EntryKind, RequestVote, Snapshot, Vote
from phase3_raft.raft.server import RaftServer
from phase3_raft.raft.state import Role


class Broken(AssertionError):
    """A rule was broken: `rule`, and what happened, in words."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule, self.what = rule, what


class Holder(Protocol):
    """A disk, as far as a rule is about it."""

    def has(self, entry: Entry) -> bool:
        """Whether it holds this entry, as it is or in a snapshot."""


class Rules:
    """See the module. disks: the servers'; without them the last three rules are not looked at.

    Invariant: `committed` is the one true log, as far as anybody knows it.
    """

    def __init__(self, disks: Mapping[int, Holder] | None = None) -> None:
        self._disks = disks or {}
        self.committed: dict[int, Entry] = {}
        self.elections = 0
        self._committed_in: dict[int, int] = {}  # index -> the term in which that happened
        self._leaders: dict[int, int] = {}  # term -> who
        self._entries: dict[tuple[int, int], tuple[int, bytes]] = {}  # (index, term) -> what
        self._commit: dict[int, int] = {}  # server -> its commit index
        self._led: dict[int, tuple[int, int]] = {}  # leader -> (term, last index)
        self._told_term: dict[int, int] = {}
        self._told_vote: dict[tuple[int, int], int] = {}  # (server, term) -> for whom

    def look(self, server: RaftServer) -> None:
        """After every event, at the server that it happened to."""
        who, committed = server.id, server.log.committed
        if server.role is Role.LEADER:
            self._look_at_leader(server)
        before = self._commit.get(who, 0)
        if committed < before:
            raise Broken("monotonic commit", f"server {who} went back from {before} to {committed}")
        if committed > before:
            self._look_at_committed(server, before)
            self._commit[who] = committed

    def _look_at_committed(self, server: RaftServer, before: int) -> None:
        log, who = server.log, server.id
        counts = self._disks and server.role is Role.LEADER
        if counts and log.term_at(log.committed) != server.term:
            raise Broken(
                "own term",
                f"server {who} leads term {server.term} and counts entry {log.committed} of term "
                f"{log.term_at(log.committed)}",
            )
        for entry in log.between(max(before, log.snapshot.index), log.committed):
            if entry.index not in self.committed:
                self._look_on_disks(server, entry)
            known = self.committed.setdefault(entry.index, entry)
            self._committed_in.setdefault(entry.index, server.term)
            if known != entry:
                raise Broken(
                    "state machine safety",
                    f"server {who} commits {_named(entry)}, and {_named(known)} was committed",
                )

    def _look_on_disks(self, server: RaftServer, entry: Entry) -> None:
        voters = server.members.voters
        disks = self._disks
        holders = [voter for voter in voters if voter in disks and disks[voter].has(entry)]
        if disks and len(holders) < server.members.majority:
            raise Broken(
                "a majority's disks",
                f"server {server.id} commits {_named(entry)}, and of {list(voters)} only {holders} "
                "have it on disk",
            )

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
            earlier = self._committed_in[index] < server.term  # else it slept
            here = index <= server.log.snapshot.index or server.log.term_at(index) == entry.term
            if earlier and not here:
                raise Broken(
                    "leader completeness",
                    f"server {server.id} leads term {server.term} without {_named(entry)}",
                )

    def wrote(self, server: RaftServer, entries: Sequence[Entry]) -> None:
        """A server has put these entries into its log."""
        if self._disks:
            self._look_at_changes(server, entries)
        for entry in entries:
            before = server.log.term_at(entry.index - 1) or 0
            if entry.index == server.log.snapshot.index + 1:
                before = server.log.snapshot.term
            known = self._entries.setdefault((entry.index, entry.term), (before, entry.data))
            if known != (before, entry.data):
                raise Broken(
                    "log matching",
                    f"server {server.id} has {_named(entry)} as {entry.data!r} behind term "
                    f"{before}; elsewhere it is {known[1]!r} behind term {known[0]}",
                )

    def _look_at_changes(self, server: RaftServer, entries: Sequence[Entry]) -> None:
        changes = server.log.members
        if len(changes) > 2 and changes[-2][0] not in self.committed:
            raise Broken(
                "one change at a time",
                f"server {server.id} has changes of members at {changes[-2][0]} and "
                f"{changes[-1][0]}, and the first one is not committed",
            )
        term, committed = server.term, server.log.committed
        if server.role is not Role.LEADER or server.log.term_at(committed) == term:
            return
        for entry in entries:
            if entry.kind == EntryKind.MEMBERS and entry.term == term:
                raise Broken(
                    "one change at a time",
                    f"leader {server.id} changes the members in {_named(entry)}, and has committed "
                    f"nothing of this term, but up to {committed}",
                )

    def installed(self, server: RaftServer, snapshot: Snapshot) -> None:
        """A leader's snapshot takes the place of entries: what stays must go on behind it."""
        self.wrote(server, server.log.between(snapshot.index, snapshot.index + 1))

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
                        f"server {who} votes for {chosen} and {message.to} in term {message.term}",
                    )
        elif isinstance(message, RequestVote):
            if message.pre:
                return
            self._told_vote.setdefault((who, message.term), who)
        self._told_term[who] = max(self._told_term.get(who, 0), message.term)

    def restarted(self, server: RaftServer) -> None:
        """A server has read its disk."""
        told = self._told_term.get(server.id, 0)
        if server.term < told:
            raise Broken(
                "promises kept", f"server {server.id} restarts in term {server.term} after {told}"
            )
        voted = self._told_vote.get((server.id, server.term))
        if voted is not None and server.voted_for != voted:
            raise Broken(
                "promises kept",
                f"server {server.id} has voted for {voted} in term {server.term}, and restarts "
                f"with a vote for {server.voted_for}",
            )
        self._commit[server.id] = server.log.committed
        self._led.pop(server.id, None)


def _named(entry: Entry) -> str:
    return f"entry {entry.index} of term {entry.term}"
