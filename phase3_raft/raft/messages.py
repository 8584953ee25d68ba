"""What Raft servers say to each other, what they keep on disk, and what one asks of its driver.

>>> ask = RequestVote(sender=1, to=2, term=7, last_index=40, last_term=6)
>>> decode_message(encode_message(ask)) == ask
True

Source: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm" (the paper,
figure 2 above all); Ongaro's dissertation, chapters 3, 4, 6 and 10 (the thesis).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, NamedTuple

import msgspec

from craft2.errors import Craft2Error

# These are checked when a message is decoded.
ServerId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]  # a broker's number in Kafka's protocol
# A term has the 4 bytes of a leader epoch in phase 1's log. The last one is nobody's: who joined it
# could never stand again. Ten elections a second reach it in seven years.
MAX_TERM = 2**31 - 1
Term = Annotated[int, msgspec.Meta(ge=0, lt=MAX_TERM)]
# A million entries a second reach the last one in 285 years.
Index = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class RaftError(Craft2Error):
    """Something that a server cannot do, or must not do."""


class BadMessage(RaftError):
    """Bytes that are no message."""


class EntryKind(IntEnum):
    """What an entry is for."""

    COMMAND = 0  # the application's
    NO_OP = 1  # a new leader's first entry: see `elections`
    MEMBERS = 2  # who is in the cluster from here on: see `membership`


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One entry of the log. Two entries of one index and term are the same entry (paper, 5.3).

    gc=False: it holds nothing that could refer back to it, and there are very many of them.
    """

    term: Term
    index: Index
    data: bytes
    kind: int = EntryKind.COMMAND


class Members(msgspec.Struct, frozen=True, array_like=True):
    """Who is in the cluster. Learners get the log and do not vote (thesis, 4.2.1).

    Raises RaftError for anything but tuples of numbers.
    """

    voters: tuple[ServerId, ...] = ()
    learners: tuple[ServerId, ...] = ()

    def __post_init__(self) -> None:
        for name, some in (("voters", self.voters), ("learners", self.learners)):
            if not (isinstance(some, tuple) and all(type(one) is int for one in some)):
                raise RaftError(f"{name}={some!r}", "give a tuple of numbers of servers")

    @property
    def everybody(self) -> tuple[ServerId, ...]:
        return self.voters + self.learners

    @property
    def wrong(self) -> str:
        """Why these could not decide anything together, in words; "" if they could."""
        for one, times in Counter(self.everybody).items():
            if times > 1:
                return f"{one} is named twice"
        return "" if self.voters else "there are no voters"

    @property
    def majority(self) -> int:
        """How many votes decide."""
        return len(self.voters) // 2 + 1

    def encode(self) -> bytes:
        """As the data of an entry."""
        return msgspec.msgpack.encode(self)


def decode_members(data: bytes) -> Members:
    """The members in an entry of that kind."""
    return msgspec.msgpack.decode(data, type=Members)


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    """The application's state after the entry `index`, in place of all entries up to there."""

    index: Index = 0
    term: Term = 0
    members: Members = Members()
    data: bytes = b""


class HardState(NamedTuple):
    """What must be on disk before any message that depends on it leaves (paper, figure 2).

    Invariant: term never falls; within a term voted_for is set once.
    """

    term: Term = 0
    voted_for: ServerId | None = None


# Messages.


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True, kw_only=True):
    """What all of them have. term: the sender's, but see RequestVote and Vote."""

    sender: ServerId
    to: ServerId
    term: Term


class RequestVote(Message, frozen=True, tag=1):
    """Paper, 5.2 and 5.4.1. With `pre`, nobody is bound by the answer (thesis, 9.6), and `term` is
    the one that the sender would begin. forced: the leader itself has asked for this election.
    folder: the one that the receiver had, as far as the sender's log knows (`elections`)."""

    last_index: Index
    last_term: Term
    pre: bool = False
    forced: bool = False
    folder: str = ""


class Vote(Message, frozen=True, tag=2):
    """The answer; if a pre-vote is granted, `term` is that of the question."""

    granted: bool
    pre: bool = False


class Append(Message, frozen=True, tag=3):
    """Paper, 5.3; without entries it is a heartbeat. round: see `reads`."""

    prev_index: Index
    prev_term: Term
    entries: tuple[Entry, ...]
    commit: Index
    round: int = 0


class Appended(Message, frozen=True, tag=4):
    """The answer to Append and InstallSnapshot.

    ok: `index` is how far the sender's log agrees with the leader's. Else `index` is the
    prev_index that did not fit, and the hint is an index and term from where to look on.
    """

    ok: bool
    index: Index
    hint_index: Index = 0
    hint_term: Term = 0
    round: int = 0


class InstallSnapshot(Message, frozen=True, tag=5):
    """For a follower that needs entries which are gone (paper, 7)."""

    snapshot: Snapshot
    round: int = 0


class TimeoutNow(Message, frozen=True, tag=6):
    """Begin an election at once: leadership is handed over (thesis, 3.10)."""


AnyMessage = RequestVote | Vote | Append | Appended | InstallSnapshot | TimeoutNow
_DECODER: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)


def encode_message(message: AnyMessage) -> bytes:
    """For a line between servers."""
    return msgspec.msgpack.encode(message)


def decode_message(data: bytes) -> AnyMessage:
    """The opposite. Raises BadMessage, also for entries that no log could hold."""
    try:
        message = _DECODER.decode(data)
        if isinstance(message, Append):
            _check_entries(message)
        elif isinstance(message, InstallSnapshot):
            _check_snapshot(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(
            f"{len(data)} bytes are no message of a Raft server: {error}",
            "let only servers of this cluster connect to this port",
        ) from error
    return message


def _check_entries(append: Append) -> None:
    """Indexes go on one by one, terms never fall, and nothing is of a later term than the sender's.
    Raises BadMessage, DecodeError."""
    index, term = append.prev_index, append.prev_term
    for entry in append.entries:
        index += 1
        if entry.index != index or not term <= entry.term <= append.term:
            raise BadMessage(
                f"entry {entry.index} of term {entry.term} cannot follow entry {index - 1} of term "
                f"{term} in a message of term {append.term}",
                "the sender's log has a hole: restore that server from the others",
            )
        term = entry.term
        if entry.kind:  # 0, a command, is by far the usual one
            _check_kind(entry)


def _check_kind(entry: Entry) -> None:
    if entry.kind not in EntryKind.__members__.values():
        raise BadMessage(
            f"entry {entry.index} is of kind {entry.kind}, which this version does not know",
            "bring all servers to one version",
        )
    if entry.kind == EntryKind.MEMBERS and (wrong := decode_members(entry.data).wrong):
        raise BadMessage(
            f"the members in entry {entry.index}: {wrong}",
            "the sender's log is damaged: restore that server from the others",
        )


def _check_snapshot(install: InstallSnapshot) -> None:
    snapshot = install.snapshot
    wrong = snapshot.members.wrong
    if snapshot.term > install.term:
        wrong = f"it is of term {snapshot.term}, in a message of term {install.term}"
    if wrong:
        raise BadMessage(
            f"a snapshot up to {snapshot.index}: {wrong}",
            "the sender's snapshot is damaged: restore that server from the others",
        )


# What a server asks of its driver.


class Read(NamedTuple):
    """A read that may be served once everything up to `index` is applied. None: it may not, since
    this server leads no more."""

    context: object
    index: int | None  # type: ignore[assignment]


class Ready(NamedTuple):
    """What there is to do now. The driver

    1. may send `early` at once;
    2. installs `snapshot`, then writes `entries` (cutting off what it has from the first one's
       index on) and `hard_state`, and syncs;
    3. sends `messages`: they promise what 2 has written;
    4. applies `snapshot`, then `committed`, in order, and serves `reads`;
    5. calls `advance`.
    """

    early: Sequence[AnyMessage]
    snapshot: Snapshot | None
    entries: Sequence[Entry]
    hard_state: HardState | None
    messages: Sequence[AnyMessage]
    committed: Sequence[Entry]
    reads: Sequence[Read]
