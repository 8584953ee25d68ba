"""Elections: who may lead (the paper, 5.2 and 5.4.1).

A follower that hears no leader for its timeout stands. First it asks whether it *would* be voted
for (*pre-vote*): a server that was cut off, and comes back, would otherwise raise the term and
depose a leader that everybody else is content with. Then it begins a term, votes for itself, and
asks the others. Each gives one vote a term, to the first who asks and whose log is not behind its
own: so the winner has every committed entry, since a majority has each of those, and a majority has
voted, and two majorities share a server.

A new leader's first entry is a *no-op*. It may not count an entry of an earlier term as committed
because a majority has it (5.4.2, figure 8); once an entry of its own is committed, all before it
are. Without the no-op that might take until somebody proposes something.

A server that has lost its folder has lost its votes as well, and entries that were committed with
its help: its vote might make somebody lead who lacks them. So a folder may have an id, which goes
into the log when its server is taken in. Who asks for a vote says which folder the other one had,
and that one does not vote with another. It votes again for whoever has the new id in the log: who
has that has all that came before. (The paper takes disks to last; with KIP-853, too, a server with
another directory is another voter.)

While a leader is heard, requests for votes are not even looked at (the thesis, 4.2.3): so a removed
server, which gets no heartbeats and does not know why, cannot disturb the others. The same goes for
all else that it may say: see `RaftServer.step`.
"""

from __future__ import annotations

from phase3_raft.raft.messages import (
    MAX_TERM,
    Entry,
    EntryKind,
    RaftError,
    RequestVote,
    ServerId,
    TimeoutNow,
    Vote,
)
from phase3_raft.raft.state import Peer, RaftState, Role


class Elections(RaftState):
    """The half of a server that stands and votes."""

    def _stand(self, pre: bool, forced: bool = False) -> None:
        """Ask for votes, or (pre) whether they would be given."""
        self._set_election_timer()
        if self.id not in self.members.voters:
            return  # a learner, or nobody's member (yet, or any more)
        if self.term + 1 >= MAX_TERM:
            raise RaftError(
                f"server {self.id} cannot stand: behind term {self.term} no term is left",
                "nobody gets there by elections: found a new cluster from this one's state",
            )
        self._move(Role.PRE_CANDIDATE if pre else Role.CANDIDATE)
        self.leader = None
        if not pre:
            self.term, self.voted_for = self.term + 1, self.id
        self.votes = {self.id: True}
        folders = self.folders()
        for voter in self.members.voters:
            if voter != self.id:
                self._outbox.append(
                    RequestVote(
                        sender=self.id,
                        to=voter,
                        term=self.term + pre,
                        last_index=self.log.last_index,
                        last_term=self.log.last_term,
                        pre=pre,
                        forced=forced,
                        folder=folders.get(voter, ""),
                    )
                )
        self._count_votes()

    def _on_request_vote(self, ask: RequestVote) -> None:
        """Answer. The term is ours by now, except with a pre-vote, whose term is a later one."""
        granted = self._grants(ask) and ask.folder in ("", self.folder)
        if granted and not ask.pre:
            self.voted_for = ask.sender
            self._set_election_timer()
        self._answer_vote(ask, granted)

    def _answer_vote(self, ask: RequestVote, granted: bool) -> None:
        term = ask.term if granted else self.term
        self._outbox.append(
            Vote(sender=self.id, to=ask.sender, term=term, granted=granted, pre=ask.pre)
        )

    # EXERCISE 22.1 grant a vote
    def _grants(self, ask: RequestVote) -> bool:
        """Whether this server votes for who asks. It only says so: the caller notes the vote.

        One vote a term: `self.voted_for` is None, or who got it. Who has it already may ask again
        (its answer was lost). By now `ask.term` is `self.term`, which the caller sees to; but a
        pre-vote (`ask.pre`) may be about a later one, in which the vote is still free.

        And never for a log that is behind ours, or committed entries could be lost. The later
        `last_term` is ahead; of logs with one last term, the longer one. `ask` and `self.log` both
        have `last_term` and `last_index` (paper, 5.4.1). Equal logs are not behind.
        """
        # BEGIN SOLUTION
        free = self.voted_for in (None, ask.sender) or (ask.pre and ask.term > self.term)
        mine = self.log.last_term, self.log.last_index
        return free and (ask.last_term, ask.last_index) >= mine
        # END SOLUTION

    def _on_vote(self, vote: Vote) -> None:
        wanted = Role.PRE_CANDIDATE if vote.pre else Role.CANDIDATE
        if self.role is wanted and vote.term == self.term + (vote.pre and vote.granted):
            self.votes[vote.sender] = vote.granted
            self._count_votes()

    def _count_votes(self) -> None:
        members = self.members
        said = [self.votes[voter] for voter in members.voters if voter in self.votes]
        if said.count(True) >= members.majority:
            if self.role is Role.PRE_CANDIDATE:
                self._stand(pre=False)
            else:
                self._lead()
        elif said.count(False) >= members.majority:
            self._follow(self.term)

    def _lead(self) -> None:
        """The term is ours."""
        self._move(Role.LEADER)
        self.leader = self.id
        self.votes = {}
        begin = self.log.last_index + 1
        others = (member for member in self.members.everybody if member != self.id)
        self.peers = {other: Peer(next=begin, heard_ms=self._now) for other in others}
        self.heartbeat_at_ms = self._now + self.config.heartbeat_ms  # the no-op is the first one
        self.quorum_at_ms = self._now + self.config.election_timeout_ms[0]
        self.log.append([Entry(self.term, begin, b"", EntryKind.NO_OP)])

    def connection_lost(self, to: ServerId, now_ms: int) -> None:
        """The connection to a server broke. If that leads, it has probably died: do not wait.

        If it has not, the others still hear it, and refuse: that is what the pre-vote is for. The
        moment is one of chance, so that two rarely stand at the same one.
        """
        self._now = now_ms
        if to == self.leader:
            self.leader = None
            soon_ms = now_ms + int(self._random() * self.config.heartbeat_ms)
            self.election_at_ms = min(self.election_at_ms, soon_ms)

    def _on_timeout_now(self, message: TimeoutNow) -> None:
        """The leader wants us to take over: no pre-vote, and the others must not wait for it."""
        if message.sender == self.leader:
            self._stand(pre=False, forced=True)
