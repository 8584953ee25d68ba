"""Replication: how everybody comes to have the leader's log (the paper, 5.3 and 5.4.2).

Each message carries entries and what comes before them: the index and term of one entry. A follower
takes the entries only if it has that one, so by induction its log is the leader's up to there
(*log matching*). If it has not, it says from where to look on, and the leader goes back. Until it
is known where the logs agree the leader sends one message at a time; then one after the other
without waiting, `max_in_flight` at most (*pipelining*). What got lost shows as a message that does
not fit.

An entry is *committed* when a majority has it on disk and it is of the leader's own term; with it,
all before it are.

Nothing is sent at once. What a leader has for each follower is put together when the driver asks
what there is to do (`Ready`), so all that was proposed by then travels in one message.
"""

from __future__ import annotations

from phase3_raft.raft.elections import Elections
from phase3_raft.raft.messages import Append, Appended, InstallSnapshot, ServerId, TimeoutNow
from phase3_raft.raft.state import Flow, Peer, Role


class Replication(Elections):
    """The half of a server that sends the log, and takes it."""

    transferee: ServerId | None = None  # leadership is being handed over to it
    round = 0  # see `reads`

    # The leader's side.

    def _send_all(self, heartbeat: bool = False) -> None:
        """Put together what each follower lacks; to each something, if it is a heartbeat."""
        for to, peer in self.peers.items():
            if heartbeat:
                peer.waits = False
            while self._send(to, peer, heartbeat):
                heartbeat = False

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
        entries = (
            log.between(peer.next - 1, log.last_index, self.config.max_append_entries)
            if more
            else ()
        )
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
        peer.heard_ms = self._now
        peer.round = max(peer.round, answer.round)
        if answer.ok:
            self._agrees(answer.sender, peer, answer.index)
        elif peer.match < answer.index and (
            peer.flow is Flow.REPLICATE or answer.index == peer.next - 1
        ):
            agreed = self.log.last_not_above(answer.hint_index, answer.hint_term)
            peer.next = max(peer.match, min(agreed, answer.index - 1)) + 1
            peer.flow, peer.waits = Flow.PROBE, False
            peer.in_flight.clear()

    def _agrees(self, sender: ServerId, peer: Peer, index: int) -> None:
        """A follower's log is ours up to `index`, on its disk."""
        while peer.in_flight and peer.in_flight[0] <= index:
            peer.in_flight.popleft()
        peer.match = max(peer.match, index)
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

    def _advance_commit(self) -> None:
        """Raise `self.log.committed` as far as it may be raised (paper, figure 2, last rule).

        `self.peers[voter].match` is how far a voter's log, on its disk, is known to be ours; our
        own is `self.log.stable`. `self.members` has the `voters` (we may not be one of them, while
        we are being removed) and says how many are a `majority`. An entry may be counted only if
        its term is `self.term`: see figure 8.
        """
        reached = sorted(
            self.log.stable if voter == self.id else self.peers[voter].match
            for voter in self.members.voters
        )
        index = reached[-self.members.majority]
        if index > self.log.committed and self.log.term_at(index) == self.term:
            self.log.committed = index

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
        """Put the entries into `self.log`, if they fit; returns how far both logs then agree.

        They fit if the log has an entry `append.prev_index` of the term `append.prev_term` (see
        `log.term_at`); what is committed is known to fit, even if it is in the snapshot by now.
        `log.put(prev_index, entries)` does the rest. Then `log.committed` may rise to
        `append.commit`, but never beyond what both logs are now known to share, and never falls.
        Returns None, and changes nothing, if they do not fit.
        """
        log = self.log
        if append.prev_index < log.committed:
            known = log.committed - append.prev_index
            if len(append.entries) <= known:
                return log.committed
            log.put(log.committed, append.entries[known:])
        elif log.term_at(append.prev_index) == append.prev_term:
            log.put(append.prev_index, append.entries)
        else:
            return None
        index = append.prev_index + len(append.entries)
        log.committed = max(log.committed, min(append.commit, index))
        return index

    def _on_install_snapshot(self, install: InstallSnapshot) -> None:
        self._heard_leader(install.sender)
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
                round=message.round,
            )
        )
