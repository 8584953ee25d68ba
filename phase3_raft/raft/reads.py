"""Reads that never show an old state, without writing to the log (the thesis, 6.4).

A leader may have been deposed without knowing. So before it answers a read it asks everybody
whether it still leads: every message carries a *round*, every answer repeats it, and once a
majority has answered the round that began after the read came, no other leader can have committed
anything before it came. The read is then served from a state that has everything up to what was
committed when it came.

A new leader does not know what is committed until an entry of its own term is (see `elections`):
until then reads wait.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from phase3_raft.raft.membership import Membership
from phase3_raft.raft.messages import Read


@dataclass
class Asked:
    """Reads that wait for one round. Invariant: index was committed when they came."""

    round: int
    index: int
    contexts: list[object] = field(default_factory=list)


class Reads(Membership):
    """The part of a server that serves reads."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._new_reads: list[object] = []  # no round has been begun for these
        self._asked: deque[Asked] = deque()

    def read(self, context: object) -> None:
        """Ask for a read; `Ready.reads` says when it may be served. Raises NotLeader."""
        self._check_leads()
        self._new_reads.append(context)

    def _begin_round(self) -> None:
        """Give the reads that came since the last time a round of their own."""
        committed = self.log.committed
        if self._new_reads and self.log.term_at(committed) == self.term:
            self.round += 1
            self._asked.append(Asked(self.round, committed, self._new_reads))
            self._new_reads = []
            self._send_all(heartbeat=True)

    def _finish_rounds(self) -> None:
        """Let those go whose round a majority has answered."""
        voters = self.members.voters
        while self._asked:
            asked = self._asked[0]
            heard = sum(
                voter == self.id or self.peers[voter].round >= asked.round for voter in voters
            )
            if heard < self.members.majority:
                return
            self._reads += [Read(context, asked.index) for context in asked.contexts]
            self._asked.popleft()

    def _give_up_leading(self) -> None:
        super()._give_up_leading()
        self.transferee = None
        contexts = [context for asked in self._asked for context in asked.contexts]
        self._reads += [Read(context, None) for context in (*contexts, *self._new_reads)]
        self._asked.clear()
        self._new_reads = []
