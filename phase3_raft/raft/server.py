"""A Raft server: messages and ticks in, what there is to do out. No clock, no disk, no network.

>>> from phase3_raft.raft.messages import Members, Snapshot
>>> alone = RaftServer(1, RaftLog(Snapshot(members=Members(voters=(1,)))), now_ms=0)
>>> alone.tick(alone.election_at_ms)
>>> alone.role.value, alone.term
('leader', 1)
>>> alone.propose([b"x = 3"])
2
>>> ready = alone.ready()  # the driver writes the entries and the hard state, and
>>> alone.advance(ready)  # says so: only then does our own disk count
>>> [entry.data for entry in alone.ready().committed]
[b'', b'x = 3']

The caller's duties are in `Ready`. Randomness is an argument, so the same inputs have the same
outputs: that is what lets `craft2.sim` replay a failure.

Source: the paper, figure 2; the shape of this interface is that of etcd's raft.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from phase3_raft.raft.log import RaftLog
from phase3_raft.raft.messages import (
    AnyMessage,
    Append,
    Appended,
    Entry,
    HardState,
    InstallSnapshot,
    Ready,
    RequestVote,
    ServerId,
    Snapshot,
    TimeoutNow,
    Vote,
)
from phase3_raft.raft.reads import Reads
from phase3_raft.raft.state import RaftConfig, Role


class RaftServer(Reads):
    """See the module.

    server_id: its number in the cluster. log: with what is on disk, and `stable` at its end.
    random: 0 <= random() < 1.
    """

    def __init__(
        self,
        server_id: ServerId,
        log: RaftLog,
        hard_state: HardState | None = None,
        config: RaftConfig | None = None,
        *,
        random: Callable[[], float] = random.random,
        now_ms: int,
    ) -> None:
        super().__init__(
            server_id, log, hard_state or HardState(), config or RaftConfig(), random, now_ms
        )

    # In.

    def tick(self, now_ms: int) -> None:
        """Time has passed; to be called at `next_deadline_ms` at the latest."""
        self._now = now_ms
        if self.role is not Role.LEADER:
            if now_ms >= self.election_at_ms:
                self._stand(pre=True)
            return
        if now_ms >= self.quorum_at_ms:
            self._step_down_without_quorum()
        if self.role is Role.LEADER and now_ms >= self.heartbeat_at_ms:
            self.heartbeat_at_ms = now_ms + self.config.heartbeat_ms
            self._send_all(heartbeat=True)
        if self.transferee is not None and now_ms >= self.transfer_until_ms:
            self.transferee = None

    def _step_down_without_quorum(self) -> None:
        """A leader that no majority hears leads nobody (the thesis, 6.2)."""
        timeout_ms = self.config.election_timeout_ms[0]
        self.quorum_at_ms = self._now + timeout_ms
        heard = sum(
            voter == self.id or self._now - self.peers[voter].heard_ms < timeout_ms
            for voter in self.members.voters
        )
        if heard < self.members.majority:
            self._follow(self.term)

    def next_deadline_ms(self) -> int:
        """When the next `tick` is due."""
        if self.role is Role.LEADER:
            return min(self.heartbeat_at_ms, self.quorum_at_ms)
        return self.election_at_ms

    def step(self, message: AnyMessage, now_ms: int) -> None:
        """A message has come. What is late, doubled or out of order does no harm.

        Raises BadMessage for an answer to what was never asked; it then has changed nothing.
        """
        self._now = now_ms
        if not (self._counts(message) and self._same_term(message)):
            return
        match message:
            case Append():
                self._on_append(message)
            case Appended():
                self._on_appended(message)
                self._finish_rounds()
            case RequestVote():
                self._on_request_vote(message)
            case Vote():
                self._on_vote(message)
            case InstallSnapshot():
                self._on_install_snapshot(message)
            case TimeoutNow():
                self._on_timeout_now(message)

    def _counts(self, message: AnyMessage) -> bool:
        """Whether to look at a message, above all at its term, if a stranger has sent it.

        Its answer never counts, as nobody has asked it (etcd drops such ones, too). What it asks
        for has to count: the members that we know may be old ones, and it may lead, or stand, by
        new ones (the thesis, 4.1). But not while a leader is heard, as with votes (4.2.3): so a
        server that was removed cannot depose it. Between leaders a stranger's word counts; whoever
        cannot be trusted has to be taken out of `NodeConfig.peers`.
        """
        if message.sender == self.leader or message.sender in self.members.everybody:
            return True
        return not (isinstance(message, Vote | Appended) or self._has_leader())

    def _same_term(self, message: AnyMessage) -> bool:
        """Join a later term, refuse an earlier one; whether the message still has to be answered
        (the paper, 5.1)."""
        if message.term == self.term:
            return True
        if message.term < self.term:
            self._refuse_earlier_term(message)
            return False
        if isinstance(message, RequestVote):
            if self._has_leader() and not message.forced:
                return False  # we are content
            if message.pre:
                return True  # nobody has begun that term yet
        elif isinstance(message, Vote) and message.pre and message.granted:
            return True  # the term that we asked about
        leads = isinstance(message, Append | InstallSnapshot)
        self._follow(message.term, message.sender if leads else None)
        return True

    def _refuse_earlier_term(self, message: AnyMessage) -> None:
        """Our term in the answer tells a leader that it leads no more."""
        if isinstance(message, Append | InstallSnapshot):
            self._answer(message, False, 0)
        elif isinstance(message, RequestVote):
            self._answer_vote(message, False)

    def propose(self, commands: Sequence[bytes]) -> int:
        """Append commands to the log; returns the index of the first. Raises NotLeader.

        They are committed when `Ready.committed` has them, with this index *and* this term; if
        another leader's entry turns up there, they are lost, and may be proposed again.
        """
        self._check_leads()
        first, term = self.log.last_index + 1, self.term
        self.log.append([Entry(term, first + i, data) for i, data in enumerate(commands)])
        return first

    def compact(self, index: int, data: bytes) -> Snapshot:
        """The application's state after `index` is `data`: forget the entries up to there."""
        return self.log.compact(index, data)

    # Out.

    def ready(self) -> Ready | None:
        """What there is to do now; None if nothing."""
        if self.role is Role.LEADER:
            self._leave_if_removed()
        if self.role is Role.LEADER:
            self._begin_round()
            self._finish_rounds()
            self._send_all()
        log = self.log
        new_state = (self.term, self.voted_for) != self._saved
        if not (
            self._early
            or self._outbox
            or self._reads
            or new_state
            or log.stable < log.last_index
            or log.applied < min(log.committed, log.stable)
            or log.new_snapshot
        ):
            return None  # the usual case: a driver asks until there is nothing
        early, self._early = self._early, []
        outbox, self._outbox = self._outbox, []
        reads, self._reads = self._reads, []
        return Ready(
            early=early,
            snapshot=log.new_snapshot,
            entries=log.between(log.stable, log.last_index),
            hard_state=self.hard_state if new_state else None,
            messages=outbox,
            committed=log.between(log.applied, min(log.committed, log.stable)),
            reads=reads,
        )

    def advance(self, ready: Ready) -> None:
        """What was ready is done: written, sent, applied."""
        log = self.log
        if ready.hard_state is not None:
            self._saved = ready.hard_state
        if ready.snapshot is not None and ready.snapshot is log.new_snapshot:
            log.new_snapshot = None
        if ready.entries:
            last = ready.entries[-1]
            if log.term_at(last.index) == last.term:
                log.stable = max(log.stable, last.index)
        if ready.committed:
            log.applied = max(log.applied, ready.committed[-1].index)
        if self.role is Role.LEADER:
            self._advance_commit()
