"""Who is in the cluster, and how that changes: one voter at a time (the thesis, 4.1 and 4.2).

A change is an entry of the log, and counts on each server from the moment at which its log has it,
committed or not; if it is cut off again, the members before it count again. Two sets of voters
that differ by one have majorities that always share a server, so the old and the new one cannot
decide different things. Two rules keep it so: a change begins only when the last one is committed,
and only once the leader has committed an entry of its own term (the second one is missing in the
thesis; see Ongaro's message to raft-dev of July 2015).

The other way is *joint consensus* (the paper, 6), where for a while both majorities have to agree.
It can replace all voters at once. Kafka's KRaft adds and removes one at a time, too (KIP-853), and
what has to be understood is less.

A new server comes as a *learner*: it gets the log and does not vote, so that one that has
everything still to catch up with does not hold up the others. Once it has, it is made a voter.
"""

from __future__ import annotations

from phase3_raft.raft.messages import Entry, EntryKind, Members, RaftError, ServerId
from phase3_raft.raft.replication import Replication
from phase3_raft.raft.state import NotLeader, Peer, Role


class Membership(Replication):
    """The part of a server that changes the members."""

    def change_members(self, members: Members) -> int:
        """Propose other members; returns the index of the entry.

        Raises NotLeader; RaftError if the voters differ by more than one, or not now.
        """
        self._check_leads()
        now = self.members
        difference = set(now.voters) ^ set(members.voters)
        if len(difference) > 1:
            raise RaftError(
                f"the voters {now.voters} cannot become {members.voters} in one step",
                "add or remove one at a time",
            )
        if members.wrong:
            raise RaftError(
                f"members {members.voters} and {members.learners}: {members.wrong}",
                "name at least one voter, and nobody twice",
            )
        if self.log.members[-1][0] > self.log.committed:
            raise RaftError(
                f"the change at entry {self.log.members[-1][0]} is not committed yet",
                "try again in a moment",
            )
        self._check_own_term_committed()
        index = self.log.last_index + 1
        self.log.append([Entry(self.term, index, members.encode(), EntryKind.MEMBERS)])
        self._peers_changed()
        return index

    def _check_leads(self) -> None:
        if self.role is not Role.LEADER:
            raise NotLeader(f"server {self.id} is a {self.role.value}", self.leader)
        if self.transferee is not None:
            raise NotLeader(
                f"server {self.id} is handing leadership to {self.transferee}", self.transferee
            )

    def _check_own_term_committed(self) -> None:
        if self.log.term_at(self.log.committed) != self.term:
            raise RaftError(
                f"server {self.id} has led term {self.term} for a moment only",
                "try again when its first entry is committed",
            )

    def _peers_changed(self) -> None:
        """Have a peer for everybody but ourselves."""
        wanted = set(self.members.everybody) - {self.id}
        for gone in self.peers.keys() - wanted:
            del self.peers[gone]
        for new in sorted(wanted - self.peers.keys()):
            self.peers[new] = Peer(next=self.log.last_index, heard_ms=self._now)

    def _leave_if_removed(self) -> None:
        """A leader that is no voter any more leads until that is committed (the thesis, 4.2.2)."""
        index, members = self.log.members[-1]
        if self.id not in members.voters and index <= self.log.committed:
            self._send_all()  # those who stay learn that it is committed
            self._follow(self.term)

    # Leadership handed over (the thesis, 3.10).

    def transfer(self, to: ServerId) -> None:
        """Let another voter lead: it is brought up to date, and then told to stand at once.

        Until then nothing can be proposed; if it takes longer than an election, it is called off.
        Raises NotLeader, and RaftError if `to` cannot lead.
        """
        self._check_leads()
        if to not in self.members.voters or to == self.id:
            others = [voter for voter in self.members.voters if voter != self.id]
            raise RaftError(f"server {to} cannot take over from {self.id}", f"name one of {others}")
        self.transferee = to
        self.transfer_until_ms = self._now + self.config.election_timeout_ms[1]
        peer = self.peers[to]
        if peer.match == self.log.last_index:
            self._agrees(to, peer, peer.match)

    transfer_until_ms = 0
