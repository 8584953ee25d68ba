"""What a power cut leaves of a file and of a directory: the model behind `faulty_disk`.

Both keep two versions, the one that the operating system shows and the one that is surely on disk,
and the changes in between. After a cut any of these may have arrived or not; what can and cannot
happen is said in `craft2.disk` and `craft2.faulty_disk`.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from craft2.disk import SECTOR


@dataclass
class Inode:
    """A file's content, seen from both sides. `pending` is what separates the two."""

    now: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)  # write, or truncate to
    mapped: int = 0  # how many bytes of it are mapped; 0: none

    def synced(self) -> None:
        self.durable = self.after_power_loss(random.Random(0), keep=1.0)
        self.pending.clear()

    def sync_failed(self) -> None:
        """What was pending is shown as before, and counts as written, but never will be."""
        self.pending.clear()

    def after_power_loss(self, rng: random.Random, keep: float) -> bytes:
        """The content found when power is back; each change arrived with the chance `keep`."""
        data = bytearray(self.durable)
        size = len(data)  # the size arrives independently of the data
        stale: set[int] = set()  # sectors whose later writes did not arrive either
        for change in self.pending:
            if isinstance(change, int):
                if rng.random() < keep:
                    resize(data, min(change, len(data)))
                    size = change
                continue
            position, written = change
            if rng.random() < keep:
                size = max(size, position + len(written))
            resize(data, max(len(data), position + len(written)))
            for start, end in sectors(position, position + len(written)):
                if start // SECTOR in stale or rng.random() >= keep:
                    stale.add(start // SECTOR)
                else:
                    data[start:end] = written[start - position : end - position]
        for start, end in sectors(0, min(self.mapped, len(self.now))):
            if rng.random() < keep:
                size = max(size, end)
                resize(data, max(len(data), end))
                data[start:end] = self.now[start:end]
        resize(data, size)
        return bytes(data)


def resize(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


def sectors(start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts of [start, end) that lie in one sector each."""
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        yield start, stop
        start = stop


Names = dict[str, Inode]


@dataclass(frozen=True)
class Renaming:
    """A change of a directory: `old` (if any) goes, `new` (if any) now leads to `inode`."""

    old: str | None
    new: str | None
    inode: Inode | None = None

    def apply(self, names: Names) -> None:
        if self.old is not None:
            names.pop(self.old, None)
        if self.new is not None and self.inode is not None:
            names[self.new] = self.inode


@dataclass
class Directory:
    """A directory's names, seen from both sides, as `Inode` has a file's bytes."""

    now: Names = field(default_factory=dict)
    durable: Names = field(default_factory=dict)
    pending: list[Renaming] = field(default_factory=list)

    def change(self, change: Renaming) -> None:
        change.apply(self.now)
        self.pending.append(change)

    def synced(self) -> None:
        self.durable = dict(self.now)
        self.pending.clear()

    def after_power_loss(self, rng: random.Random, keep: float) -> Names:
        """The names found when power is back; each change arrived with the chance `keep`."""
        names = dict(self.durable)
        for change in self.pending:
            if rng.random() < keep:
                change.apply(names)
        return names


def copy_of(directories: dict[str, Directory]) -> dict[str, Directory]:
    """The same files and names, both sides of them, in new objects."""
    return copy.deepcopy(directories)
