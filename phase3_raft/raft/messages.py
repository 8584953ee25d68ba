"""What Raft servers say to each other, what they keep on disk, and what one asks of its driver.

>>> ask = RequestVote(sender=1, to=2, term=7, last_index=40, last_term=6)
>>> decode_message(encode_message(ask)) == ask
True

Source: Ongaro and Ousterhout, "In Search of an Understandable Consensus Algorithm" (the paper,
figure 2 above all); Ongaro's dissertation, chapters 3, 4, 6 and 10 (the thesis).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec

from craft2.errors import Craft2Error

ServerId = int


class RaftError(Craft2Error):
    """Something that a server cannot do, or must not do."""


class BadMessage(RaftError):
    """Bytes that are no message."""


class EntryKind(IntEnum):
    """What an entry is for."""

    COMMAND = 0  # the application's
    NO_OP = 1  # a new leader's first entry: see `elections`
    MEMBERS = 2  # who is in the cluster from here on: see `membership`


class Entry(NamedTuple):
    """One entry of the log. Two entries of one index and term are the same entry (paper, 5.3)."""

    term: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    data: bytes
    kind: int = EntryKind.COMMAND


class Members(msgspec.Struct, frozen=True, array_like=True):
    """Who is in the cluster. Learners get the log and do not vote (thesis, 4.2.1)."""

    voters: tuple[ServerId, ...] = ()
    learners: tuple[ServerId, ...] = ()

    @property
    def everybody(self) -> tuple[ServerId, ...]:
        return self.voters + self.learners

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

    index: int = 0
    term: int = 0
    members: Members = Members()
    data: bytes = b""


class HardState(NamedTuple):
    """What must be on disk before any message that depends on it leaves (paper, figure 2).

    Invariant: term never falls; within a term voted_for is set once.
    """

    term: int = 0
    voted_for: ServerId | None = None


# Messages.


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True, kw_only=True):
    """What all of them have. term: the sender's, but see RequestVote and Vote."""

    sender: ServerId
    to: ServerId
    term: int


class RequestVote(Message, frozen=True, tag=1):
    """Paper, 5.2 and 5.4.1. With `pre`, nobody is bound by the answer (thesis, 9.6), and `term` is
    the one that the sender would begin. forced: the leader itself has asked for this election."""

    last_index: int
    last_term: int
    pre: bool = False
    forced: bool = False


class Vote(Message, frozen=True, tag=2):
    """The answer; if a pre-vote is granted, `term` is that of the question."""

    granted: bool
    pre: bool = False


class Append(Message, frozen=True, tag=3):
    """Paper, 5.3; without entries it is a heartbeat. round: see `reads`."""

    prev_index: int
    prev_term: int
    entries: tuple[Entry, ...]
    commit: int
    round: int = 0


class Appended(Message, frozen=True, tag=4):
    """The answer to Append and InstallSnapshot.

    ok: `index` is how far the sender's log agrees with the leader's. Else `index` is the
    prev_index that did not fit, and the hint is an index and term from where to look on.
    """

    ok: bool
    index: int
    hint_index: int = 0
    hint_term: int = 0
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
    """The opposite. Raises BadMessage."""
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError as error:
        raise BadMessage(
            f"{len(data)} bytes are no message of a Raft server: {error}",
            "let only servers of this cluster connect to this port",
        ) from error


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
