"""Mistakes that people make in Raft, planted one at a time: the simulator must find each.

A test of a simulator that finds nothing says nothing. Each of these was somebody's bug, or is what
one sentence of the paper forbids.

Four mistakes are missing, since no rule judges them: a leader that no majority hears leads on; one
that was removed does; a vote is given while a leader is heard; and whoever is no member is listened
to. They cost time and needless elections, and no data; of that kind the simulator judges only that
there is progress once the faults end, and that the last leader stays.
`tests/phase3/test_raft_paper.py` has a test of each.
"""

# mypy: disable-error-code="override"
from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from msgspec.structs import replace

from craft2.apps.simulate.disk_and_state import Disk
from phase3_raft.raft.log import RaftLog
from phase3_raft.raft.messages import (
    Append,
    Appended,
    Entry,
    EntryKind,
    HardState,
    InstallSnapshot,
    Members,
    RaftError,
    Read,
    Ready,
    RequestVote,
    Snapshot,
)
from phase3_raft.raft.reads import Asked
from phase3_raft.raft.server import RaftServer
from phase3_raft.raft.state import Flow, Peer, Role


@dataclass(frozen=True)
class Bug:
    """A planted mistake: what is wrong, and the classes that have it."""

    about: str
    server: type[RaftServer] = RaftServer
    disk: type[Disk] = Disk


class _ForgetsVote(Disk):
    def write(self, ready: Ready, log: RaftLog, most: int = 2**62) -> None:
        super().write(ready, log, most)
        self.hard_state = HardState(self.hard_state.term, None)


class _ForgetsTerm(Disk):
    def write(self, ready: Ready, log: RaftLog, most: int = 2**62) -> None:
        super().write(ready._replace(hard_state=None), log, most)


class _LosesLastEntry(Disk):
    def write(self, ready: Ready, log: RaftLog, most: int = 2**62) -> None:
        super().write(ready, log, min(most, max(0, len(ready.entries) - 1)))


class _CountsOlderTerms(RaftServer):
    def _advance_commit(self) -> None:
        voters = self.members.voters
        reached = sorted(self.log.stable if v == self.id else self.peers[v].match for v in voters)
        self.log.committed = max(self.log.committed, reached[-self.members.majority])


class _HalfIsEnough(RaftServer):
    def _advance_commit(self) -> None:
        voters = self.members.voters
        reached = sorted(self.log.stable if v == self.id else self.peers[v].match for v in voters)
        index = reached[-max(1, len(voters) // 2)]
        if index > self.log.committed and self.log.term_at(index) == self.term:
            self.log.committed = index


class _HalfElects(RaftServer):
    def _count_votes(self) -> None:
        said = [self.votes[v] for v in self.members.voters if v in self.votes]
        if said.count(True) >= max(1, len(self.members.voters) // 2):
            if self.role is Role.PRE_CANDIDATE:
                self._stand(pre=False)
            elif self.role is Role.CANDIDATE:
                self._lead()


class _CountsItselfBeforeSync(RaftServer):
    def _advance_commit(self) -> None:
        stable, self.log.stable = self.log.stable, self.log.last_index
        super()._advance_commit()
        self.log.stable = stable


class _AnswersBeforeSync(RaftServer):
    def ready(self) -> Ready | None:
        ready = super().ready()
        if ready is None:
            return None
        return ready._replace(early=[*ready.early, *ready.messages], messages=[])


class _VotesForShorterLogs(RaftServer):
    def _grants(self, ask: RequestVote) -> bool:
        free = self.voted_for in (None, ask.sender) or ask.pre
        return free and ask.last_term >= self.log.last_term


class _VotesByLengthAlone(RaftServer):
    def _grants(self, ask: RequestVote) -> bool:
        free = self.voted_for in (None, ask.sender) or ask.pre
        return free and ask.last_index >= self.log.last_index


class _VotesTwice(RaftServer):
    def _grants(self, ask: RequestVote) -> bool:
        mine = self.log.last_term, self.log.last_index
        return (ask.last_term, ask.last_index) >= mine


class _TakesAnything(RaftServer):
    def _take(self, append: Append) -> int | None:
        if append.prev_index > self.log.last_index:
            return None
        known = self.log.term_at(append.prev_index)
        if known is not None:
            append = replace(append, prev_term=known)
        return super()._take(append)


class _ChecksOneTooFar(RaftServer):
    def _take(self, append: Append) -> int | None:
        known = self.log.term_at(append.prev_index - 1)
        if known is not None and append.prev_index > 1 and known <= append.prev_term:
            here = self.log.term_at(append.prev_index)
            if here is not None:
                append = replace(append, prev_term=here)
        return super()._take(append)


class _CutsAlways(RaftServer):
    def _take(self, append: Append) -> int | None:
        log = self.log
        if log.term_at(append.prev_index) == append.prev_term:
            if append.prev_index >= log.committed:
                log._cut(append.prev_index + 1)
            elif append.prev_index + 1 > log.snapshot.index:
                log.committed = append.prev_index
                log.applied = min(log.applied, append.prev_index)
                log._cut(append.prev_index + 1)
        return super()._take(append)


class _KeepsWhatContradicts(RaftServer):
    def _take(self, append: Append) -> int | None:
        if append.prev_index < self.log.last_index:
            known = self.log.last_index - append.prev_index
            if self.log.term_at(append.prev_index) == append.prev_term:
                rest = append.entries[known:]
                append = replace(
                    append,
                    prev_index=self.log.last_index,
                    prev_term=self.log.last_term,
                    entries=rest,
                )
        return super()._take(append)


class _CommitsWhatTheLeaderSays(RaftServer):
    """Its heartbeats are empty, as in the paper. Ours bring what contradicts: that hides it."""

    def _send(self, to: int, peer: Peer, anyhow: bool) -> bool:
        peer.waits = peer.waits or (anyhow and peer.flow is Flow.PROBE)
        return super()._send(to, peer, anyhow)

    def _take(self, append: Append) -> int | None:
        index = super()._take(append)
        if index is not None:
            self.log.committed = max(self.log.committed, min(append.commit, self.log.last_index))
        return index


class _BelievesWhatItSent(RaftServer):
    def _on_appended(self, answer: Appended) -> None:
        peer = self.peers.get(answer.sender)
        if peer is not None and answer.ok:
            answer = replace(answer, index=max(answer.index, peer.next - 1))
        super()._on_appended(answer)


class _ReadsAtOnce(RaftServer):
    """It waits for its first commit, as it must: "reads-too-early" is another mistake."""

    def _begin_round(self) -> None:
        committed = self.log.committed
        if self.log.term_at(committed) == self.term:
            self._reads += [Read(context, committed) for context in self._new_reads]
            self._new_reads = []


class _ReadsWithoutMajority(RaftServer):
    def _finish_rounds(self) -> None:
        for asked in self._asked:
            if len(self.members.voters) == 1 or any(
                peer.round >= asked.round for peer in self.peers.values()
            ):
                self._reads += [Read(context, asked.index) for context in asked.contexts]
                asked.contexts = []
        super()._finish_rounds()


class _ReadsBeforeItsFirstCommit(RaftServer):
    def _begin_round(self) -> None:
        if self._new_reads:
            self.round += 1
            self._asked.append(Asked(self.round, self.log.committed, self._new_reads))
            self._new_reads = []
            self._send_all(heartbeat=True)


class _ReadsJoinTheRoundUnderWay(RaftServer):
    def _begin_round(self) -> None:
        if self._new_reads and self._asked:
            self._asked[-1].contexts += self._new_reads
            self._new_reads = []
        super()._begin_round()


class _NoNoOp(RaftServer):
    def _lead(self) -> None:
        super()._lead()
        self.log.entries.pop()


class _ChangesTwoAtOnce(RaftServer):
    def change_members(self, members: Members) -> int:
        self._check_leads()
        index = self.log.last_index + 1
        self.log.append([Entry(self.term, index, members.encode(), EntryKind.MEMBERS)])
        self._peers_changed()
        return index


class _ChangesTooSoon(RaftServer):
    def _check_own_term_committed(self) -> None:
        pass


class _ForgetsMembersInSnapshot(RaftServer):
    def compact(self, index: int, data: bytes) -> Snapshot:
        first = self.log.snapshot.members
        super().compact(index, data)
        snapshot = self.log.snapshot
        self.log.snapshot = Snapshot(snapshot.index, snapshot.term, first, data)
        self.log.members[0] = index, first
        return self.log.snapshot


class _SnapshotOneTooFar(RaftServer):
    def compact(self, index: int, data: bytes) -> Snapshot:
        snapshot = super().compact(index, data)
        if self.log.entries:
            first = self.log.entries.pop(0)
            snapshot = Snapshot(index + 1, first.term, snapshot.members, data)
            self.log.snapshot = snapshot
            log = self.log
            log.applied, log.committed = max(log.applied, index + 1), max(log.committed, index + 1)
            log.stable = max(log.stable, index + 1)
        return snapshot


class _SnapshotKeepsTheRest(RaftServer):
    def _on_install_snapshot(self, install: InstallSnapshot) -> None:
        snapshot, log = install.snapshot, self.log
        rest = log.between(snapshot.index, log.last_index)
        super()._on_install_snapshot(install)
        if log.new_snapshot is snapshot and not log.entries:
            log.append(rest)
            log.stable = log.last_index


class _VotesForWhomTheLeaderSends(RaftServer):
    def _grants(self, ask: RequestVote) -> bool:
        chosen = ask.forced and self.voted_for in (None, ask.sender)
        return chosen or super()._grants(ask)


class _FollowsOldLeaders(RaftServer):
    def _same_term(self, message: object) -> bool:
        if isinstance(message, Append) and message.term < self.term:
            self._on_append(message)
            return False
        return super()._same_term(message)  # type: ignore[arg-type]


class _KeepsItsVote(RaftServer):
    def _follow(self, term: int, leader: int | None = None) -> None:
        voted_for = self.voted_for
        super()._follow(term, leader)
        self.voted_for = voted_for


class _NeverGoesBack(RaftServer):
    def _on_appended(self, answer: Appended) -> None:
        peer = self.peers.get(answer.sender)
        before = peer.next if peer else 0
        super()._on_appended(answer)
        if peer is not None and not answer.ok:
            peer.next = max(before, peer.next)


class _WaitsBeforeItsFirstHeartbeat(RaftServer):
    def _lead(self) -> None:
        super()._lead()
        self.heartbeat_at_ms = self.election_at_ms


BUGS: dict[str, Bug] = {
    "vote-forgotten": Bug("the vote does not survive a restart", disk=_ForgetsVote),
    "term-forgotten": Bug("neither does the term", disk=_ForgetsTerm),
    "last-entry-unwritten": Bug("the last entry of a write is not on disk", disk=_LosesLastEntry),
    "older-term-counted": Bug(
        "an earlier term's entry is committed by counting (figure 8)", _CountsOlderTerms
    ),
    "half-commits": Bug("half of the servers are enough to commit", _HalfIsEnough),
    "half-elects": Bug("half of the servers are enough to elect", _HalfElects),
    "leader-counts-unsynced": Bug(
        "the leader counts itself before its disk has the entry", _CountsItselfBeforeSync
    ),
    "answered-before-sync": Bug(
        "answers leave before the disk has what they promise", _AnswersBeforeSync
    ),
    "votes-for-shorter": Bug(
        "among logs of one last term the length does not count", _VotesForShorterLogs
    ),
    "votes-by-length": Bug("the last term does not count, only the length", _VotesByLengthAlone),
    "votes-twice": Bug("a server votes for whoever asks", _VotesTwice),
    "takes-anything": Bug("the term before the entries is not compared", _TakesAnything),
    "matches-one-off": Bug("the entry before the right one is compared", _ChecksOneTooFar),
    "cuts-always": Bug("every message cuts off what is behind it", _CutsAlways),
    "never-cuts": Bug("entries that contradict the leader stay", _KeepsWhatContradicts),
    "commits-beyond": Bug(
        "the leader's commit index counts beyond what both logs share", _CommitsWhatTheLeaderSays
    ),
    "sent-is-stored": Bug("any answer counts for all that was sent", _BelievesWhatItSent),
    "reads-at-once": Bug("a leader answers reads without asking whether it leads", _ReadsAtOnce),
    "reads-one-answer": Bug("one answer is enough for a read", _ReadsWithoutMajority),
    "reads-too-early": Bug(
        "a new leader reads before it knows what is committed", _ReadsBeforeItsFirstCommit
    ),
    "reads-share-round": Bug(
        "a read joins the round that an earlier one has begun", _ReadsJoinTheRoundUnderWay
    ),
    "no-no-op": Bug("a new leader waits for somebody to propose something", _NoNoOp),
    "two-changes": Bug(
        "a change of members begins before the last one is committed", _ChangesTwoAtOnce
    ),
    "changes-too-soon": Bug(
        "a new leader changes the members before it has committed anything", _ChangesTooSoon
    ),
    "snapshot-members": Bug(
        "a snapshot holds the first members, not those of its index", _ForgetsMembersInSnapshot
    ),
    "snapshot-one-off": Bug("a snapshot says that it holds one entry more", _SnapshotOneTooFar),
    "snapshot-keeps-rest": Bug(
        "entries behind a leader's snapshot stay, whatever came before them", _SnapshotKeepsTheRest
    ),
    "transfer-unchecked": Bug(
        "whoever a leader hands over to is voted for, whatever its log holds",
        _VotesForWhomTheLeaderSends,
    ),
    "follows-the-past": Bug(
        "entries from a leader of an earlier term are taken", _FollowsOldLeaders
    ),
    "keeps-vote": Bug("the vote of an earlier term counts in the next one", _KeepsItsVote),
    "never-goes-back": Bug("a leader does not look for where the logs agree", _NeverGoesBack),
    "heartbeats-late": Bug(
        "a new leader keeps the timer that it had as a candidate", _WaitsBeforeItsFirstHeartbeat
    ),
}


def bug_named(name: str | None) -> Bug:
    """A planted bug; no bug for None. Raises RaftError for a name that is none."""
    if name is None:
        return Bug("none")
    if name not in BUGS:
        near = get_close_matches(name, BUGS, n=3, cutoff=0.7)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise RaftError(
            f"there is no bug {name!r}", f"{meant}craft2 raft simulate --list-bugs lists them all"
        )
    return BUGS[name]
