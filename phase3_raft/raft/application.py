"""What an application gives a Raft server to replicate, and what it may be told.

The machine is the application's: `driver.RaftNode` hands it the committed commands, in order, the
same ones on every server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from craft2.net import Address
from phase3_raft.raft.frames import MAX_FRAME_BYTES
from phase3_raft.raft.messages import RaftError, ServerId
from phase3_raft.raft.state import RaftConfig

MAX_COMMAND_BYTES = 1024**2
MAX_SNAPSHOT_BYTES = MAX_FRAME_BYTES - 64 * 1024
MAX_WAITING = 100_000  # proposals that nobody has had an answer to


class OutcomeUnknown(RaftError):
    """The server led no more before it knew: the command may have been, or will be, carried out, or
    never. Ask for the state before proposing it again, unless twice does no harm.

    outcome: whether it is carried out, once this server learns that from the next leader; None: it
    will not learn it, since it has stopped, or has been sent a snapshot instead of the entries.
    """

    def __init__(self, problem: str, fix: str, outcome: asyncio.Future[bool | None]) -> None:
        super().__init__(problem, fix)
        self.outcome = outcome


class Busy(RaftError):
    """Too many proposals wait already; nothing has happened."""


class Stopped(RaftError):
    """The server does not run (any more)."""


def check_command(command: bytes) -> None:
    """That it may be proposed. Raises RaftError."""
    if not isinstance(command, bytes):
        raise RaftError(f"the command {command!r:.80}", "a command is bytes: encode it")
    if len(command) > MAX_COMMAND_BYTES:
        raise RaftError(
            f"a command of {len(command)} bytes, where {MAX_COMMAND_BYTES} are allowed",
            "propose smaller ones, or where the data is",
        )


class StateMachine(Protocol):
    """What is replicated. It must be a function of the commands alone: no clock, no chance.

    What `apply` or `restore` raises stops the server: every other one would do something else, or
    die of it, too. A command that is refused is a result.
    """

    def apply(self, command: bytes) -> object:
        """Carry a command out; what it returns is what `propose` returns."""

    def snapshot(self) -> bytes:
        """The state."""

    def restore(self, data: bytes) -> None:
        """Be in a state that `snapshot` has returned."""


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """Which server of which cluster, and where the others are.

    listen: where the others connect to; port 0 is any. peers: everybody who is, or may become, a
        member, with addresses; the server's own entry is not used.
    compact_every: after so many entries a snapshot is taken; it takes the place of the log when as
        many more have come, so who is a little behind needs no snapshot.
    """

    cluster: str
    server_id: ServerId
    listen: Address
    peers: Mapping[ServerId, Address]
    raft: RaftConfig = field(default_factory=RaftConfig)
    compact_every: int = 50_000


class Status(msgspec.Struct, frozen=True):
    """How a server sees things. lag: of each follower, if it leads, how many entries it lacks."""

    id: ServerId
    role: str
    term: int
    leader: ServerId | None
    voters: tuple[ServerId, ...]
    learners: tuple[ServerId, ...]
    first_index: int
    last_index: int
    committed: int
    applied: int
    connected: list[ServerId]
    lag: dict[ServerId, int]
    dropped: int
    stopped: str = ""
