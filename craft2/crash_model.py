"""What a power cut leaves of a file and of a directory: the model behind `faulty_disk`.

Both keep two versions, the one that the operating system shows and the one that is surely on disk,
and the changes in between. After a cut any of these may have arrived or not; what can and cannot
happen is said in `craft2.disk` and `craft2.faulty_disk`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from craft2.disk import SECTOR


@dataclass
class Inode:
    """A file's content, seen from both sides. `pending` is what separates the two."""

    now: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    pending: list[tuple[int, bytes] | int] = field(default_factory=list)  # write, or truncate to
    mapped: int = 0  # how many bytes of it are mapped; 0: none
    maps: int = 0
    lost: bool = False  # a sync failed: what was pending then will never be written

    def synced(self) -> None:
        self.durable = bytes(self.now)
        self.pending.clear()

    def after_power_loss(self, rng: random.Random, keep: float) -> bytes:
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


@dataclass
class Directory:
    now: Names = field(default_factory=dict)
    durable: Names = field(default_factory=dict)
    pending: list[Callable[[Names], None]] = field(default_factory=list)

    def change(self, apply: Callable[[Names], None]) -> None:
        apply(self.now)
        self.pending.append(apply)

    def synced(self) -> None:
        self.durable = dict(self.now)
        self.pending.clear()

    def after_power_loss(self, rng: random.Random, keep: float) -> Names:
        names = dict(self.durable)
        for apply in self.pending:
            if rng.random() < keep:
                apply(names)
        return names


def set_name(name: str, inode: Inode) -> Callable[[Names], None]:
    return lambda names: names.update({name: inode})


def remove_name(name: str) -> Callable[[Names], None]:
    return lambda names: (names.pop(name, None), None)[1]


def move_name(old: str, new: str, inode: Inode) -> Callable[[Names], None]:
    def apply(names: Names) -> None:
        names.pop(old, None)
        names[new] = inode

    return apply
