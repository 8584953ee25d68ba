"""What there is to see of a Raft server at one moment, and of the messages between servers.

Plain data: what a picture is drawn from, and what a test compares.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from phase3_raft.raft.messages import AnyMessage, Entry, EntryKind
from phase3_raft.raft.server import RaftServer
from phase3_raft.raft.state import Role

DOWN = "down"


class Cell(NamedTuple):
    """One entry of a log, as it is drawn."""

    index: int  # type: ignore[assignment]
    term: int
    text: str
    committed: bool


class Look(NamedTuple):
    """One server at one moment. role: DOWN while it does not run. next: follower -> the entry that
    its leader sends next; match: up to where their logs are known to agree."""

    ms: int
    role: str
    term: int
    voted_for: int | None
    cells: tuple[Cell, ...]
    next: Mapping[int, int]
    match: Mapping[int, int]
    election_at_ms: int  # 0 for a leader
    snapshot: int  # the entries up to here are in a snapshot


@dataclass
class Letter:
    """One message on its way. fate: "arrives", "dropped", or why else it does not."""

    number: int
    message: AnyMessage
    sent_ms: int
    arrives_ms: int
    words: str
    fate: str = "arrives"


def text_of(entry: Entry) -> str:
    """An entry in a word or two; a command is text."""
    if entry.kind == EntryKind.NO_OP:
        return "no-op"
    if entry.kind == EntryKind.MEMBERS:
        return "members"
    return entry.data.decode()


def look_at(server: RaftServer, ms: int, text: Callable[[Entry], str] = text_of) -> Look:
    """A running server, as it is."""
    log = server.log
    return Look(
        ms,
        server.role.value,
        server.term,
        server.voted_for,
        tuple(Cell(e.index, e.term, text(e), e.index <= log.committed) for e in log.entries),
        {n: peer.next for n, peer in server.peers.items()},
        {n: peer.match for n, peer in server.peers.items()},
        0 if server.role is Role.LEADER else server.election_at_ms,
        log.snapshot.index,
    )
