"""What a simulated Raft server has besides its memory: a disk, and a state machine to feed.

>>> state = State()
>>> state.apply(Entry(1, 1, command("append", 5)))
>>> State.restored(state.snapshot()).values
[5]
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from phase3_raft.raft.log import RaftLog
from phase3_raft.raft.messages import Entry, EntryKind, HardState, Ready, Snapshot


def command(kind: str, value: int = 0) -> bytes:
    """The data of an entry: append or write, or nothing."""
    return msgspec.msgpack.encode((kind, value))


@dataclass
class Disk:
    """What survives a crash."""

    snapshot: Snapshot
    hard_state: HardState = field(default_factory=HardState)
    entries: list[Entry] = field(default_factory=list)

    def write(self, ready: Ready, log: RaftLog, most: int = 2**62) -> None:
        """Do what `Ready` asks for; `most`: entries that are written before the crash."""
        if ready.snapshot is not None:
            kept = log.between(ready.snapshot.index, log.stable)
            self.snapshot, self.entries = ready.snapshot, list(kept)
        if ready.hard_state is not None:
            self.hard_state = ready.hard_state
        if ready.entries and most:
            first = ready.entries[0].index - self.snapshot.index - 1
            self.entries[first:] = ready.entries[:most]

    def compact(self, snapshot: Snapshot) -> None:
        """Keep a snapshot, and drop what it covers."""
        del self.entries[: snapshot.index - self.snapshot.index]
        self.snapshot = snapshot

    def has(self, entry: Entry) -> bool:
        """Whether this entry, or a snapshot that covers it, is here."""
        place = entry.index - self.snapshot.index - 1
        if place < 0:
            return True
        return place < len(self.entries) and self.entries[place].term == entry.term


@dataclass
class State:
    """The replicated state machine: a list that grows, and a register."""

    values: list[int] = field(default_factory=list)
    register: int | None = None

    def apply(self, entry: Entry) -> None:
        """Carry out one entry."""
        if entry.kind != EntryKind.COMMAND:
            return
        kind, value = msgspec.msgpack.decode(entry.data)
        if kind == "append":
            self.values.append(value)
        elif kind == "write":
            self.register = value

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.values, self.register))

    @classmethod
    def restored(cls, data: bytes) -> State:
        """The opposite of `snapshot`."""
        return cls(*msgspec.msgpack.decode(data)) if data else cls()
