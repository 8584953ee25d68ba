"""A Raft server as data: which role it plays, in which term, and what it waits for.

    Follower --no leader for a while--> PreCandidate --a majority would vote--> Candidate
       ^  ^                                  |                                     |
       |  '----- a leader, or a later term --'-------------------------------------'
       '------- a later term, or no majority to be heard from --- Leader <-- a majority has voted

A term has one leader at most. Terms are Raft's clock: whoever hears of a later one joins it as a
follower, and what comes from an earlier one is refused (paper, 5.1).

This file holds the state and what every part needs; `elections`, `replication`, `membership` and
`reads` each add the rules of one matter, and `server` puts them together.

Source: the paper, figures 2 and 4; pre-vote and check-quorum: the thesis, 9.6 and 6.2.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from phase3_raft.raft.log import RaftLog
from phase3_raft.raft.messages import (
    AnyMessage,
    HardState,
    Members,
    RaftError,
    Read,
    ServerId,
)


class Role(Enum):
    """What a server is at the moment."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


MOVES: dict[Role, frozenset[Role]] = {
    Role.FOLLOWER: frozenset({Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE}),
    Role.PRE_CANDIDATE: frozenset({Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE}),
    Role.CANDIDATE: frozenset({Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEADER}),
    Role.LEADER: frozenset({Role.FOLLOWER}),
}


class NotLeader(RaftError):
    """Only a leader can do this; `leader` is who it is believed to be."""

    def __init__(self, problem: str, leader: ServerId | None) -> None:
        where = f"ask server {leader}" if leader is not None else "ask again in a moment"
        super().__init__(problem, where)
        self.leader = leader


@dataclass(frozen=True, kw_only=True)
class RaftConfig:
    """How a server behaves; times in ms.

    election_timeout_ms: from, to: how long a follower waits for its leader, at random, so that
        two rarely stand at the same moment (paper, 5.2).
    first_election_ms: the same after its start, when it has not heard from anybody; None: no other.
        A server that comes back stands too soon then, and is refused: that is the pre-vote's part.
    heartbeat_ms: how often a leader says that it is there; several times within the timeout.
    max_append_entries, max_append_bytes: the most that one message holds; of bytes, one entry's at
        least.
    max_in_flight: messages with entries to one follower that may be unanswered.
    """

    election_timeout_ms: tuple[int, int] = (300, 600)
    first_election_ms: tuple[int, int] | None = None
    heartbeat_ms: int = 60
    max_append_entries: int = 1_000
    max_append_bytes: int = 1024**2
    max_in_flight: int = 64

    def __post_init__(self) -> None:
        shortest, longest = self.election_timeout_ms
        if not 0 < self.heartbeat_ms < shortest < longest:
            raise RaftError(
                f"heartbeat_ms={self.heartbeat_ms}, election_timeout_ms={self.election_timeout_ms}",
                "give 0 < heartbeat < shortest timeout < longest timeout",
            )
        first = self.first_election_ms
        if first is not None and not 0 <= first[0] <= first[1]:
            raise RaftError(f"first_election_ms={first}", "give 0 <= shortest <= longest")
        for name in ("max_append_entries", "max_in_flight"):
            if getattr(self, name) < 1:
                raise RaftError(f"{name}={getattr(self, name)}", "give 1 or more")


class Flow(Enum):
    """How a leader sends to one follower."""

    PROBE = "probe"  # one message at a time, until it is known where the logs agree
    REPLICATE = "replicate"  # one after the other, without waiting
    SNAPSHOT = "snapshot"  # nothing, until it has the snapshot


@dataclass
class Peer:
    """What a leader knows of one other server (paper, figure 2: nextIndex and matchIndex).

    Invariant: match < next; match never falls while the leader is one, but of a learner that has
        lost what it had.
    """

    next: int  # the entry to send next
    match: int = 0  # up to here its log is known to be the leader's, and on its disk
    flow: Flow = Flow.PROBE
    waits: bool = False  # while probing: for the answer, or the next heartbeat
    in_flight: deque[int] = field(default_factory=deque)  # last index of each unanswered message
    commit_sent: int = 0  # the commit index it was told
    round: int = 0  # the latest round it has answered: see `reads`
    heard_ms: int = 0  # when it answered anything
    snapshot_ms: int = 0  # when the snapshot was sent
    doubted: int = 0  # the round in which it is asked again whether it has what it had; 0: none
    emptied: bool = False  # it has not: see `replication`


class RaftState:
    """See the module.

    Invariant: term never falls; voted_for is set once in a term. Both are on disk before any
        message that depends on them leaves (see `Ready`).
    Invariant: leader is None or the one leader of this term.
    Invariant: peers is empty unless this server leads.

    folder: the id of what its disk holds, if it has one. folders: gives those of all servers, as
    this one's log has them: see `elections`.
    """

    def __init__(
        self,
        server_id: ServerId,
        log: RaftLog,
        hard_state: HardState,
        config: RaftConfig,
        random: Callable[[], float],
        now_ms: int,
    ) -> None:
        self.id = server_id
        self.folder = ""
        self.folders: Callable[[], Mapping[ServerId, str]] = dict
        self.log = log
        self.term, self.voted_for = hard_state
        self.config = config
        self.role = Role.FOLLOWER
        self.leader: ServerId | None = None
        self.votes: dict[ServerId, bool] = {}  # of this candidacy
        self.peers: dict[ServerId, Peer] = {}
        self._random = random
        self._now = now_ms
        self._saved = hard_state  # what the driver was given to write
        self._outbox: list[AnyMessage] = []
        self._early: list[AnyMessage] = []
        self._reads: list[Read] = []
        self.heard_leader_ms = -(10**12)
        self.election_at_ms = 0  # a follower or candidate stands then
        self.heartbeat_at_ms = 0  # a leader says that it is there then
        self.quorum_at_ms = 0  # a leader asks itself then whether a majority hears it
        self._set_election_timer(self.config.first_election_ms)

    @property
    def members(self) -> Members:
        """Who is in the cluster, as far as this server's log knows."""
        return self.log.members[-1][1]

    @property
    def hard_state(self) -> HardState:
        """What has to be on disk."""
        return HardState(self.term, self.voted_for)

    def _move(self, role: Role) -> None:
        if role not in MOVES[self.role]:
            raise RaftError(
                f"server {self.id} cannot go from {self.role.value} to {role.value}",
                "this is a bug in the core: report the messages that led here",
            )
        self.role = role

    def _set_election_timer(self, wait_ms: tuple[int, int] | None = None) -> None:
        shortest, longest = wait_ms or self.config.election_timeout_ms
        self.election_at_ms = self._now + shortest + int(self._random() * (longest - shortest))

    def _has_leader(self) -> bool:
        """Whether a leader was heard within the shortest time after which anybody stands."""
        if self.role is Role.LEADER:
            return True
        since_ms = self._now - self.heard_leader_ms
        return self.leader is not None and since_ms < self.config.election_timeout_ms[0]

    def _follow(self, term: int, leader: ServerId | None = None) -> None:
        """Be a follower in `term`, the present one or a later one."""
        if term > self.term:
            self.term, self.voted_for = term, None
        was_leader = self.role is Role.LEADER
        self._move(Role.FOLLOWER)
        self.leader = leader
        self.votes = {}
        if was_leader:
            self._give_up_leading()
        self._set_election_timer()

    def _give_up_leading(self) -> None:
        """Forget what only a leader knows."""
        self.peers = {}
