"""What is surely on the disk of a simulated Raft server: the entries that no power cut takes away.

Read from the disk itself, past the server's own code: what that believes to have synced is what is
to be judged. A file counts with the content of its last sync, under the name that its directory had
at its last one. An entry is in the log, or in a snapshot that covers it, or among those that a cut
has put aside for a moment (see `phase3_raft.raft.storage` for the files).

>>> from phase3_raft.raft.messages import HardState, Members, Ready
>>> from phase3_raft.raft.storage import RaftStorage
>>> disk = FaultyDisk()
>>> synced = Synced(lambda: disk, "/data")
>>> storage = RaftStorage("/data", "simulated", 1, Members(voters=(1,)), disk=disk)
>>> log, _ = storage.load()
>>> log.append([Entry(1, 1, b"x = 3")])
>>> synced.has(log.entries[0])
False
>>> storage.write(Ready([], None, log.entries, HardState(1, 1), [], [], []), log)
>>> synced.has(log.entries[0])
True
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import msgspec

from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import BatchTooShort, CorruptBatch, verify
from phase3_raft.raft.messages import Entry, Snapshot

_CRC_SIZE = 4  # bytes, before what `RaftStorage` publishes


class Synced:
    """See the module. disk: returns the server's: it finds another one after every crash."""

    def __init__(self, disk: Callable[[], FaultyDisk], directory: str) -> None:
        self._disk = disk
        self._log, self._snapshot, self._kept = (
            os.path.join(directory, name) for name in ("log/", "snapshot", "kept")
        )
        # What the files said when they were last looked at: most have not changed since.
        self._terms_of: tuple[bytes, dict[int, int]] = b"", {}
        self._index_of: tuple[bytes, int] = b"", 0

    def has(self, entry: Entry) -> bool:
        """Whether this entry, or a snapshot that covers it, is here."""
        files = self._disk().synced_tree()
        if entry.index <= self._snapshot_index(files.get(self._snapshot, b"")):
            return True
        segments = [
            data
            for path, data in files.items()
            if path.startswith(self._log) and path[-4:] == ".log"
        ]
        if self._terms(segments).get(entry.index) == entry.term:
            return True
        kept = files.get(self._kept, b"")[_CRC_SIZE:]
        return bool(kept) and entry in msgspec.msgpack.decode(kept, type=list[Entry])

    def _snapshot_index(self, data: bytes) -> int:
        known, index = self._index_of
        if data is not known:
            index = msgspec.msgpack.decode(data[_CRC_SIZE:], type=Snapshot).index if data else 0
            self._index_of = data, index
        return index

    def _terms(self, segments: list[bytes]) -> dict[int, int]:
        """The term of each entry, up to where a file is torn. What is known is not read again."""
        known, terms = self._terms_of
        if len(segments) != 1 or not segments[0].startswith(known):
            known, terms = b"", {}
        for data in segments:
            position = len(known)
            with contextlib.suppress(CorruptBatch, BatchTooShort):
                while position < len(data):
                    header = verify(data, position)
                    terms |= dict.fromkeys(
                        range(header.base_offset, header.next_offset), header.leader_epoch
                    )
                    position += header.size
            self._terms_of = (data[:position], terms) if len(segments) == 1 else (b"", {})
        return terms
