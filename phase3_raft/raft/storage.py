"""What a Raft server keeps on disk: its log on phase 1's log, its hard state, its last snapshot.

    DIR/log/           a log of phase 1: an entry a record, index = offset, term = leader epoch
    DIR/hard_state     term and vote; replaced in one rename
    DIR/snapshot       the last snapshot, with a checksum; replaced in one rename
    DIR/who            which cluster and which server this is

`write` does what `Ready` asks for, in the order that a crash at any call allows: the hard state
comes before the entries (an entry of a term that the server does not know to have begun must not
be found after a restart), the snapshot before the log gives up what it covers.

>>> import tempfile
>>> from phase3_raft.raft.messages import Ready
>>> folder = tempfile.mkdtemp()
>>> storage = RaftStorage(folder, "cluster-a", 1, Members(voters=(1,)))
>>> log, hard_state = storage.load()
>>> log.append([Entry(1, 1, b"x = 3")])
>>> storage.write(Ready([], None, log.entries, HardState(1, 1), [], [], []), log)
>>> storage.close()
>>> log, hard_state = RaftStorage(folder, "cluster-a", 1).load()
>>> log.entries, hard_state
([Entry(term=1, index=1, data=b'x = 3', kind=0)], HardState(term=1, voted_for=1))
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from typing import TypeVar

import msgspec
from crc32c import crc32c

from craft2.clock import Clock, SystemClock
from craft2.disk import Disk, RealDisk
from craft2.record_batch import decode, encode_values, read_header
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.publish import publish
from phase3_raft.raft.log import RaftLog
from phase3_raft.raft.messages import (
    Entry,
    EntryKind,
    HardState,
    Members,
    RaftError,
    Ready,
    ServerId,
    Snapshot,
)

_LOG = LogConfig(
    flush_policy="never",
    max_message_bytes=2**30,
    segment_bytes=64 * 1024**2,
    max_index_bytes=256 * 1024,
)
_BATCH = 1_000  # entries of one record batch


Kept = TypeVar("Kept", HardState, Snapshot)


class RaftStorage:
    """See the module.

    members: of a cluster that is just being founded; every server must be given the same. A server
        that joins later is given none, and learns them from the log.
    Raises RaftError for a folder of another cluster or server, or for files that are damaged.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        cluster: str,
        server_id: ServerId,
        members: Members | None = None,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.directory = os.fspath(directory)
        self._disk = disk or RealDisk()
        self._clock = clock or SystemClock()
        self._members = members or Members()
        self._disk.mkdir(self.directory)
        self._check_who(f"{cluster} {server_id}".encode())
        self._log = PartitionLog(self._path("log"), _LOG, disk=self._disk, clock=self._clock)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _check_who(self, who: bytes) -> None:
        path = self._path("who")
        if not self._disk.exists(path):
            publish(self._disk, path, who)
        found = self._disk.read(path)
        if found != who:
            raise RaftError(
                f"{self.directory!r} belongs to cluster and server {found.decode(errors='replace')}"
                f", not to {who.decode()}",
                "start this server with its own folder",
            )

    # Reading.

    def load(self) -> tuple[RaftLog, HardState]:
        """What is on disk, after whatever crash."""
        snapshot = self._read_snapshot()
        first = snapshot.index + 1
        if self._log.end_offset < first:  # new, or it crashed before it could be reset
            self._log.reset_to(first)
        if self._log.log_start > first:
            raise RaftError(
                f"{self.directory!r}: the snapshot ends at {snapshot.index}, and the log begins at "
                f"{self._log.log_start}",
                "entries are missing: empty the folder and let the server join anew",
            )
        entries = [
            Entry(
                read_header(batch).leader_epoch,
                record.offset,
                record.value or b"",
                record.key[0] if record.key else 0,
            )
            for batch in self._log.batches(first)
            for record in decode(batch, check_crc=False)  # `batches` has checked it
            if record.offset >= first
        ]
        return RaftLog(snapshot, entries), self._read_hard_state()

    def _read_hard_state(self) -> HardState:
        path = self._path("hard_state")
        if not self._disk.exists(path):
            return HardState()
        return self._checked(path, HardState)

    def _read_snapshot(self) -> Snapshot:
        path = self._path("snapshot")
        if not self._disk.exists(path):
            return Snapshot(members=self._members)
        return self._checked(path, Snapshot)

    def _checked(self, path: str, kind: type[Kept]) -> Kept:
        data = self._disk.read(path)
        crc, body = data[:4], data[4:]
        if len(data) < 5 or crc32c(body).to_bytes(4, "big") != crc:
            raise RaftError(
                f"{path!r} is damaged: {len(data)} bytes whose checksum is wrong",
                "restore it, or empty the folder and let the server join anew",
            )
        return msgspec.msgpack.decode(body, type=kind)

    # Writing.

    def write(self, ready: Ready, log: RaftLog) -> None:
        """Make durable what `ready` asks for; when this returns, its messages may leave.

        log: the server's, from which `ready` came.
        """
        if ready.snapshot is not None:
            self._publish("snapshot", ready.snapshot)
            if log.term_at(ready.snapshot.index + 1) is None:
                self._log.reset_to(ready.snapshot.index + 1)
            else:
                self._log.advance_start(ready.snapshot.index + 1)
        if ready.hard_state is not None:
            self._publish("hard_state", ready.hard_state)
        if ready.entries:
            self._append(ready.entries, log)
            self._log.flush()

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot of this server's own (`compact`), and drop what it covers."""
        self._publish("snapshot", snapshot)
        self._log.advance_start(snapshot.index + 1)

    def _publish(self, name: str, what: HardState | Snapshot) -> None:
        body = msgspec.msgpack.encode(what)
        publish(self._disk, self._path(name), crc32c(body).to_bytes(4, "big") + body)

    def _append(self, entries: Sequence[Entry], log: RaftLog) -> None:
        first = entries[0].index
        if first < self._log.end_offset:
            self._log.truncate_to(first)  # whole batches go, so some before `first` may be gone
            entries = [*log.between(self._log.end_offset - 1, first - 1), *entries]
        for term, of_term in groupby(entries, key=lambda entry: entry.term):
            some = list(of_term)
            for start in range(0, len(some), _BATCH):
                self._append_batch(term, some[start : start + _BATCH])

    def _append_batch(self, term: int, entries: Sequence[Entry]) -> None:
        keys = [bytes([e.kind]) if e.kind != EntryKind.COMMAND else None for e in entries]
        batch = encode_values(
            [entry.data for entry in entries],
            keys=keys if any(keys) else None,
            timestamps=self._clock.now_ms(),
        )
        self._log.append_as_leader(batch, term)

    def close(self) -> None:
        """Give the files back."""
        self._log.close()
