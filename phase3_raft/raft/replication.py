"""Replication: how everybody comes to have the leader's log (the paper, 5.3 and 5.4.2).

Each message carries entries and what comes before them: the index and term of one entry. A follower
takes the entries only if it has that one, so by induction its log is the leader's up to there
(*log matching*). If it has not, it says from where to look on, and the leader goes back. Until it
is known where the logs agree the leader sends one message at a time; then one after the other
without waiting, `max_in_flight` at most (*pipelining*). What got lost shows as a message that does
not fit.

A voter that refuses what it had acknowledged has *lost* it: its disk is a new one. The paper takes
disks to last: a majority that counts this voter may lack what was committed with its help. So it
becomes a learner, of whom nothing is believed that it does not say now, and votes again when it has
everything (as with KIP-853). To be sure it is asked twice: an answer from before may come late.

An entry is *committed* when a majority has it on disk and it is of the leader's own term; with it,
all before it are.

Nothing is sent at once. What a leader has for each follower is put together when the driver asks
what there is to do (`Ready`), so all that was proposed by then travels in one message.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from phase3_raft.raft.elections import Elections
from phase3_raft.raft.messages import (
    Append,
    Appended,
    BadMessage,
    Entry,
    InstallSnapshot,
    ServerId,
    TimeoutNow,
)
from phase3_raft.raft.state import Flow, Peer, Role


class Replication(Elections):
    """The half of a server that sends the log, and takes it."""

    transferee: ServerId | None = None  # leadership is being handed over to it
    round = 0  # see `reads`

    # The leader's side.

    def _send_all(self, heartbeat: bool = False) -> None:
        """Put together what each follower lacks; to each something, if it is a heartbeat."""
        last, committed = self.log.last_index, self.log.committed
        for to, peer in self.peers.items():
            if heartbeat:
                peer.waits = False
                more = self._send(to, peer, anyhow=True)
            else:
                knows = peer.next > last and peer.commit_sent >= committed
                more = not knows or peer.flow is Flow.SNAPSHOT  # the usual case is neither
            while more:
                more = self._send(to, peer, anyhow=False)

    def _send(self, to: ServerId, peer: Peer, anyhow: bool) -> bool:
        """Send one message, if there is something to say; True if there may be more."""
        log = self.log
        if peer.flow is Flow.SNAPSHOT:
            lost = self._now - peer.snapshot_ms >= self.config.election_timeout_ms[1]
            if lost:
                self._send_snapshot(to, peer)
            return False
        full = len(peer.in_flight) >= self.config.max_in_flight
        more = peer.next <= log.last_index and not (peer.waits or full)
        if not (more or anyhow or (peer.commit_sent < log.committed and not peer.waits)):
            return False
        prev_term = log.term_at(peer.next - 1)
        if prev_term is None:
            self._send_snapshot(to, peer)
            return False
        entries = self._some_behind(peer.next - 1) if more else ()
        self._early.append(
            Append(
                sender=self.id,
                to=to,
                term=self.term,
                prev_index=peer.next - 1,
                prev_term=prev_term,
                entries=tuple(entries),
                commit=log.committed,
                round=self.round,
            )
        )
        peer.commit_sent = log.committed
        if peer.flow is Flow.PROBE:
            peer.waits = True
        elif entries:
            peer.next += len(entries)
            peer.in_flight.append(peer.next - 1)
        return bool(entries) and peer.flow is Flow.REPLICATE

    def _some_behind(self, index: int) -> Sequence[Entry]:
        """The entries behind `index`, as many as go into one message."""
        entries = self.log.between(index, self.log.last_index, self.config.max_append_entries)
        size = 0
        for place, entry in enumerate(entries):
            size += len(entry.data)
            if size > self.config.max_append_bytes and place:
                return entries[:place]
        return entries

    def _send_snapshot(self, to: ServerId, peer: Peer) -> None:
        peer.flow, peer.snapshot_ms = Flow.SNAPSHOT, self._now
        self._early.append(
            InstallSnapshot(
                sender=self.id,
                to=to,
                term=self.term,
                snapshot=self.log.snapshot,
                round=self.round,
            )
        )

    def _on_appended(self, answer: Appended) -> None:
        peer = self.peers.get(answer.sender)
        if self.role is not Role.LEADER or peer is None:
            return
        self._check_answer(answer)
        peer.heard_ms = self._now
        peer.round = max(peer.round, answer.round)
        votes = answer.sender in self.members.voters
        known = peer.match if votes else 0
        if answer.ok:
            self._agrees(answer.sender, peer, answer.index)
        elif known < answer.index and (
            peer.flow is Flow.REPLICATE or answer.index == peer.next - 1
        ):
            agreed = self.log.last_not_above(answer.hint_index, answer.hint_term)
            peer.next = max(known, min(agreed, answer.index - 1)) + 1
            peer.match = min(peer.match, peer.next - 1)
            peer.flow, peer.waits = Flow.PROBE, False
            peer.in_flight.clear()
        elif votes and answer.index == peer.next - 1:
            self._doubt(peer, answer)

    def _doubt(self, peer: Peer, answer: Appended) -> None:
        """A voter refuses what it had acknowledged: see the module."""
        if not peer.doubted:
            self.round += 1
            peer.doubted = self.round
        elif answer.round >= peer.doubted:
            peer.emptied = True

    @property
    def emptied(self) -> list[ServerId]:
        """The voters that have lost what they had acknowledged, as far as this leader knows."""
        return [one for one in self.members.voters if one in self.peers and self.peers[one].emptied]

    def _check_answer(self, answer: Appended) -> None:
        """That it answers what was asked: a leader's followers have nothing that it has not.

        Raises BadMessage: what was believed would be committed, or read, without a majority.
        """
        last, who = self.log.last_index, f"server {answer.sender} answers that it has"
        if answer.ok and answer.index > last:
            raise BadMessage(
                f"{who} entry {answer.index}, and the last one is {last}",
                "its data is of another cluster, or it is another program: stop it; with an empty "
                "folder it is sent all",
            )
        if answer.round > self.round:
            raise BadMessage(
                f"{who} heard round {answer.round}, and the last one is {self.round}",
                "bring all servers to one version",
            )

    def _agrees(self, sender: ServerId, peer: Peer, index: int) -> None:
        """A follower's log is ours up to `index`, on its disk."""
        while peer.in_flight and peer.in_flight[0] <= index:
            peer.in_flight.popleft()
        if index >= peer.match:
            peer.match, peer.doubted, peer.emptied = index, 0, False
        peer.next = max(peer.next, peer.match + 1)
        if peer.flow is Flow.PROBE or (
            peer.flow is Flow.SNAPSHOT and peer.match >= self.log.snapshot.index
        ):
            peer.flow, peer.waits = Flow.REPLICATE, False
            peer.next = peer.match + 1
            peer.in_flight.clear()
        self._advance_commit()
        if sender == self.transferee and peer.match == self.log.last_index:
            self._outbox.append(TimeoutNow(sender=self.id, to=sender, term=self.term))

    # EXERCISE 23.2 advance the commit index
    def _advance_commit(self) -> None:
        """Raise `self.log.committed` as far as it may be raised (paper, figure 2, last rule).

        An entry is committed once a majority has it on disk. `self.members.voters` are the numbers
        of those who count, `self.members.majority` is how many decide. `self.peers[voter].match`
        is how far another voter's log, on its disk, is known to be ours. We, number `self.id`, are
        not in `self.peers`: of our own log `self.log.stable` is on our disk, which may be less than
        all of it. And we may not be one of the voters, while we are being removed.

        But no entry is counted unless its term, `self.log.term_at(index)`, is `self.term`: figure 8
        shows why. Once one of this term is committed, all before it are. The index never falls.
        """
        # BEGIN SOLUTION
        reached = sorted(
            self.log.stable if voter == self.id else self.peers[voter].match
            for voter in self.members.voters
        )
        index = reached[-self.members.majority]
        if index > self.log.committed and self.log.term_at(index) == self.term:
            self.log.committed = index
        # END SOLUTION

    # The follower's side.

    def _on_append(self, append: Append) -> None:
        """From the leader of this term."""
        self._heard_leader(append.sender)
        log = self.log
        index = self._take(append)
        if index is None:
            hint = log.last_not_above(append.prev_index, append.prev_term)
            self._answer(append, False, append.prev_index, hint, log.term_at(hint) or 0)
        else:
            self._answer(append, True, index)

    def _take(self, append: Append) -> int | None:
        """Take the leader's entries, if they fit; returns how far both logs then agree, or None.

        What is committed fits, even if it is in the snapshot by now. Raises RaftError if it does
        not, which ends this server.
        """
        log = self.log
        if append.prev_index < log.committed:
            known = log.committed - append.prev_index
            log.check_committed(append.prev_index, append.prev_term)
            for entry in append.entries[:known]:
                log.check_committed(entry.index, entry.term)
            if len(append.entries) <= known:
                return log.committed
            append = replace(
                append,
                prev_index=log.committed,
                prev_term=log.term_at(log.committed),
                entries=append.entries[known:],
            )
        return self._take_if_they_fit(append)

    # EXERCISE 23.1 the append check
    def _take_if_they_fit(self, append: Append) -> int | None:
        """Put the leader's entries into `self.log`, if they fit; returns how far both then agree.

        They fit if our log has the entry before them: one with the index `append.prev_index` and
        the term `append.prev_term` (`self.log.term_at(index)` is None where there is none). If not,
        return None and change nothing.

        `self.log.put(prev_index, entries)` puts entries after an index, and cuts off ours only
        where they contradict. Both logs then agree up to the last of these entries: that index is
        the answer, for a heartbeat without entries `append.prev_index`.

        `append.commit` is how far the leader's log is committed. So `self.log.committed` may rise
        to there, but no further than both logs are now known to agree, and it never falls.
        """
        # BEGIN SOLUTION
        log = self.log
        if log.term_at(append.prev_index) != append.prev_term:
            return None
        log.put(append.prev_index, append.entries)
        index = append.prev_index + len(append.entries)
        log.committed = max(log.committed, min(append.commit, index))
        return index
        # END SOLUTION

    def _on_install_snapshot(self, install: InstallSnapshot) -> None:
        self._heard_leader(install.sender)
        self.log.check_committed(install.snapshot.index, install.snapshot.term)
        if install.snapshot.index > self.log.committed:
            self.log.install(install.snapshot)
        self._answer(install, True, self.log.committed)

    def _heard_leader(self, leader: ServerId) -> None:
        if self.role is not Role.FOLLOWER:
            self._follow(self.term, leader)
        self.leader = leader
        self.heard_leader_ms = self._now
        self._set_election_timer()

    def _answer(
        self,
        message: Append | InstallSnapshot,
        ok: bool,
        index: int,
        hint_index: int = 0,
        hint_term: int = 0,
    ) -> None:
        self._outbox.append(
            Appended(
                sender=self.id,
                to=message.sender,
                term=self.term,
                ok=ok,
                index=index,
                hint_index=hint_index,
                hint_term=hint_term,
                # An earlier term's is none of this one's, even if the same server leads both.
                round=message.round if message.term == self.term else 0,
            )
        )
