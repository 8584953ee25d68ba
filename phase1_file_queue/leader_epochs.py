"""Which leader wrote what: for each leader epoch the offset of its first record.

    0            version of this file
    2            entries
    0 0          epoch 0 began at offset 0
    3 4096       epoch 3 at 4096 (epochs 1 and 2 wrote nothing)

A follower whose log ends in records of a leader that was deposed asks the new leader where that
epoch ended, and cuts its log there (KIP-101, KIP-279). In a Raft log the epoch is the term.

>>> epochs = LeaderEpochs()
>>> epochs.assign(0, 0), epochs.assign(3, 4096), epochs.assign(3, 5000)
(True, True, False)
>>> epochs.end_offset(1, log_end=5000), epochs.end_offset(3, log_end=5000)
((0, 4096), (3, 5000))

Source: `org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache`, which has the same format.
"""

from __future__ import annotations

from craft2.disk import Disk
from phase1_file_queue.log_config import BadBatch, CorruptLog
from phase1_file_queue.publish import publish


class LeaderEpochs:
    """Invariant: epochs and start offsets both grow from entry to entry."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, int]] = []  # (epoch, start offset)

    @property
    def latest(self) -> int:
        """The epoch of the last record, -1 without one."""
        return self.entries[-1][0] if self.entries else -1

    @property
    def end(self) -> int:
        """One more than the last start offset, 0 without one: the log must reach that far."""
        return self.entries[-1][1] + 1 if self.entries else 0

    def check(self, epoch: int) -> None:
        """Raises BadBatch for an epoch before the latest: a deposed leader is writing."""
        if epoch < self.latest:
            raise BadBatch(
                f"leader epoch {epoch} is older than the log's latest, {self.latest}",
                "a newer leader has written here; append with its epoch or not at all",
            )

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that records of `epoch` begin at `start_offset`; True if that is news."""
        if epoch <= self.latest:
            return False
        self.entries.append((epoch, start_offset))
        return True

    def end_offset(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(e, end): the largest epoch e <= `epoch` with records, and the offset where it ends.

        (-1, -1) if there is none. This is what a leader answers to OffsetForLeaderEpoch.
        """
        found, end = -1, -1
        for number, (entry, _) in enumerate(self.entries):
            if entry > epoch:
                break
            last = number + 1 == len(self.entries)
            found, end = entry, log_end if last else self.entries[number + 1][1]
        return found, end

    def truncate(self, offset: int) -> None:
        """The log now ends at `offset`."""
        self.entries = [entry for entry in self.entries if entry[1] < offset]

    def advance(self, offset: int) -> None:
        """The log now starts at `offset`: forget the epochs that ended before it."""
        kept = [entry for entry in self.entries if entry[1] >= offset]
        before = [entry for entry in self.entries if entry[1] < offset]
        if before and (not kept or kept[0][1] > offset):
            kept.insert(0, (before[-1][0], offset))
        self.entries = kept

    def save(self, disk: Disk, path: str) -> None:
        """Write the file, durably."""
        lines = ["0", str(len(self.entries)), *(f"{e} {start}" for e, start in self.entries)]
        publish(disk, path, "\n".join(lines).encode() + b"\n")

    def load(self, disk: Disk, path: str) -> None:
        """Read the file; a missing one has no entries. Raises CorruptLog if it makes no sense."""
        self.entries = []
        try:
            text = disk.read(path)
        except FileNotFoundError:
            return
        try:
            version, count, *lines = text.decode().splitlines()
            self.entries = [(int(e), int(start)) for e, start in (line.split() for line in lines)]
            if version != "0" or int(count) != len(self.entries):
                raise ValueError
        except ValueError:
            raise CorruptLog(
                f"{path!r} is not a leader epoch file: {text[:60]!r}",
                "delete it and the file recovery-point beside it: it is found again from the log",
            ) from None
