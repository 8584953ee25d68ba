"""What a Raft server keeps on disk: its log on phase 1's log, its hard state, its last snapshot.

    DIR/log/           a log of phase 1: an entry a record, index = offset, term = leader epoch
    DIR/hard_state     term and vote; replaced in one rename
    DIR/snapshot       the last snapshot, with a checksum; replaced in one rename
    DIR/kept           entries that a cut takes out of the log for a moment, until they are back
    DIR/who            which cluster and which server this is

`write` does what `Ready` asks for, in the order that a crash at any call allows: the hard state
comes before the entries (an entry of a term that the server does not know to have begun must not
be found after a restart), the snapshot before the log gives up what it covers. After a call that
failed there is no second one: nobody knows what is on disk (`craft2.disk`, fact 4).

The term of a batch is its leader epoch, which its checksum does not cover (followers of Kafka's
rewrite it). So it is compared with what else is known: snapshot.term <= terms that never fall <=
hard_state.term, and the terms in the log's `leader-epoch-checkpoint`. What a crash may leave is
taken: one last term that is not in there yet.

`load` reads what the last process has written, synced or not, and makes it durable: the server
will say that it has it.

What was acknowledged and is not there must not go unnoticed: the server would vote, and answer, as
if it had never had it. Noticed is a file that is missing while a later one is there, and a log that
ends before what it had flushed, which its `.control` page knows after a `kill -9`. It cannot be
known that a log ends too early if that page is lost as well, or not of that time (a power cut and a
disk that lied), nor that a folder of which only `who` is left is not a new one.

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

import contextlib
import os
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise, zip_longest
from typing import TypeVar

import msgspec
from crc32c import crc32c

from craft2.clock import Clock, SystemClock
from craft2.disk import Disk, RealDisk
from craft2.record_batch import decode, encode_values, read_header
from phase1_file_queue.leader_epochs import LeaderEpochs
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.log_files import EPOCHS
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.publish import publish
from phase3_raft.raft.log import RaftLog
from phase3_raft.raft.messages import (
    Entry,
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
JOIN_ANEW = (
    "restore it from this server's own disk; or let the leader take this server out of the "
    "members, empty its folder, start it with --join, and add it to the members again. Never start "
    "a voter with an empty folder while others are away: what is only on their disks may be lost"
)


Kept = TypeVar("Kept", HardState, Snapshot, list[Entry])


class RaftStorage:
    """See the module.

    members: of a cluster that is just being founded; every server must be given the same. A server
        that joins later, or again after it has lost its folder, is given none, and learns them from
        the log: until then it stands for no election.
    remedy: what is to be done when the folder cannot be used, for its errors.
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
        remedy: str = JOIN_ANEW,
    ) -> None:
        self._remedy = remedy
        self.directory = os.fspath(directory)
        self._disk = disk or RealDisk()
        self._clock = clock or SystemClock()
        self._members = members or Members()
        self._failed: Exception | None = None  # what a write has ended with
        self._disk.mkdir(self.directory)
        self._check_who(f"{cluster} {server_id}".encode())
        self._disk.sync_dir(self.directory)  # who was here last may have died before it did
        self._terms = LeaderEpochs()  # as the last process knew them: a log that was not closed
        self._terms.load(self._disk, os.path.join(self._path("log"), EPOCHS))  # finds them anew
        self._log = PartitionLog(self._path("log"), _LOG, disk=self._disk, clock=self._clock)

    def _path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def _check_who(self, who: bytes) -> None:
        path = self._path("who")
        if not self._disk.exists(path):
            self._check_new("who", "hard_state", "snapshot", "log")
            publish(self._disk, path, who)
        found = self._disk.read(path)
        if found != who:
            whose = repr(found.decode(errors="replace"))[1:-1]  # in one line, whatever is in it
            raise RaftError(
                f"{self.directory!r} belongs to cluster and server {whose}, not to {who.decode()}",
                "start this server with its own folder",
            )

    def _check_new(self, missing: str, *later: str) -> None:
        """A folder without this file must be a new one, without later ones, or it was lost."""
        found = [name for name in later if self._disk.exists(self._path(name))]
        if found:
            raise RaftError(
                f"{self.directory!r} has no {missing}, but {', '.join(found)}",
                self._remedy,
            )

    # Reading.

    def load(self) -> tuple[RaftLog, HardState]:
        """What is on disk, after whatever crash; to be called once.

        Raises RaftError or LogError for what no crash explains: see the module.
        """
        hard_state, snapshot = self._read_hard_state(), self._read_snapshot()
        self._check_hard_state(hard_state, "snapshot", snapshot.term)
        if self._log.log_start == 0:  # made just now: before anything else is written it goes to 1
            self._check_new("log", "hard_state", "snapshot")
        self._put_back()
        first = snapshot.index + 1
        # New, or it crashed after a snapshot was written, and before the log was reset.
        self._reset_unless_it_goes_on(snapshot)
        if self._log.log_start > first:
            raise RaftError(
                f"{self.directory!r}: the snapshot ends at {snapshot.index}, and the log begins at "
                f"{self._log.log_start}",
                f"entries are missing: {self._remedy}",
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
        if first + len(entries) != self._log.end_offset:
            raise RaftError(
                f"{self.directory!r}: the log ends at {self._log.end_offset - 1}, and "
                f"{len(entries)} of its entries from {first} on can be read",
                f"the log is damaged: {self._remedy}",
            )
        self._check_terms(snapshot, entries)
        self._check_hard_state(hard_state, "log", entries[-1].term if entries else 0)
        self._log.flush()
        return RaftLog(snapshot, entries), hard_state

    def _check_hard_state(self, hard_state: HardState, name: str, term: int) -> None:
        """It is written before anything of its term is."""
        if hard_state.term < term:
            raise RaftError(
                f"{self.directory!r}: hard_state says term {hard_state.term}, and the {name} "
                f"{term}: its file is lost, or an old one, or the {name} is damaged",
                self._remedy,
            )

    def _check_terms(self, snapshot: Snapshot, entries: Sequence[Entry]) -> None:
        """See the module. Raises RaftError."""
        path, before = self._path("log"), snapshot.term
        fix = f"the log is damaged: {self._remedy}"
        for entry in entries:
            if entry.term < before:
                raise RaftError(
                    f"{path!r}: entry {entry.index} is of term {entry.term}, behind one of term "
                    f"{before}",
                    fix,
                )
            before = entry.term
        runs = [(term, next(some).index) for term, some in groupby(entries, lambda one: one.term)]
        self._terms.advance(snapshot.index + 1)
        self._terms.truncate(self._log.end_offset)
        known = self._terms.entries
        new = runs[len(known) :]
        if len(new) == 1 and self._log.epoch_end_offset(new[0][0])[0] == new[0][0]:
            runs.pop()  # it was not closed, and may have died before this one was noted
        for run, saved in zip_longest(runs, known):
            if known and run != saved:
                raise RaftError(
                    f"{path!r}: term and first entry are {run}, and in {EPOCHS} {saved}", fix
                )

    def _reset_unless_it_goes_on(self, snapshot: Snapshot) -> bool:
        """Let the log begin anew behind a snapshot, unless its own entry there is the snapshot's
        last one; whether it has. What is behind another one is of another history."""
        first = snapshot.index + 1
        reset = self._log.end_offset < first or not self._goes_on_behind(snapshot)
        if reset:
            self._log.reset_to(first)
        return reset

    def _goes_on_behind(self, snapshot: Snapshot) -> bool:
        """Whether the log has the snapshot's last entry, or gave it up for the snapshot."""
        if snapshot.index < self._log.log_start:
            return True
        return read_header(next(self._log.batches(snapshot.index))).leader_epoch == snapshot.term

    def _read_hard_state(self) -> HardState:
        path = self._path("hard_state")
        if not self._disk.exists(path):
            return HardState()
        return self._checked(path, HardState)

    def _read_snapshot(self) -> Snapshot:
        path = self._path("snapshot")
        if not self._disk.exists(path):
            return Snapshot(members=self._members)
        snapshot = self._checked(path, Snapshot)
        if snapshot.members.wrong and snapshot.members.voters:  # who joins late may know of none
            raise self._not_ours(path, f"members {snapshot.members}: {snapshot.members.wrong}")
        return snapshot

    def _checked(self, path: str, kind: type[Kept]) -> Kept:
        data = self._disk.read(path)
        crc, body = data[:4], data[4:]
        if len(data) < 5 or crc32c(body).to_bytes(4, "big") != crc:
            raise RaftError(
                f"{path!r} is damaged: {len(data)} bytes whose checksum is wrong",
                self._remedy,
            )
        try:
            what = msgspec.msgpack.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._not_ours(path, str(error)) from error
        if msgspec.msgpack.encode(what) != body:
            raise self._not_ours(path, "it is shorter, or longer")
        return what

    def _not_ours(self, path: str, why: str) -> RaftError:
        return RaftError(
            f"{path!r} holds nothing that a server writes there: {why}",
            self._remedy,
        )

    # Writing.

    def write(self, ready: Ready, log: RaftLog) -> None:
        """Make durable what `ready` asks for; when this returns, its messages may leave.

        log: the server's, from which `ready` came. Raises DiskError, and from then on RaftError.
        """
        with self._writing():
            if ready.hard_state is not None:
                self._publish("hard_state", ready.hard_state)
            if ready.snapshot is not None:
                self._publish("snapshot", ready.snapshot)
                if not self._reset_unless_it_goes_on(ready.snapshot):
                    self._log.advance_start(ready.snapshot.index + 1)
            if ready.entries:
                self._append(ready.entries, log)
                self._log.flush()

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Keep a snapshot of this server's own (`compact`), and drop what it covers."""
        with self._writing():
            self._publish("snapshot", snapshot)
            self._log.advance_start(snapshot.index + 1)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """What fails in here is the last thing that is written."""
        if self._failed is not None:
            raise RaftError(
                f"{self.directory!r} is not written any more, after an error: {self._failed}",
                "mend the disk, then start this server again: it reads what is there",
            ) from self._failed
        try:
            yield
        except Exception as error:
            self._failed = error
            raise

    def _publish(self, name: str, what: HardState | Snapshot | list[Entry]) -> None:
        body = msgspec.msgpack.encode(what)
        publish(self._disk, self._path(name), crc32c(body).to_bytes(4, "big") + body)

    def _append(self, entries: Sequence[Entry], log: RaftLog) -> None:
        if entries[0].index < self._log.end_offset:
            self._cut(entries[0].index, log)
        self._append_all(entries)

    def _cut(self, first: int, log: RaftLog) -> None:
        """Remove the entries from `first` on.

        The log gives up whole batches only, and what is before `first` in its batch may be
        committed, because we have said that we have it. So it is on disk elsewhere meanwhile.
        """
        batch = read_header(next(self._log.batches(first))).base_offset
        kept = list(log.between(max(batch - 1, log.snapshot.index), first - 1))
        if not kept:
            self._log.truncate_to(first)
            return
        self._publish("kept", kept)
        self._put_back()

    def _put_back(self) -> None:
        """Let the log end with the entries that were kept, if there are any."""
        path = self._path("kept")
        if not self._disk.exists(path):
            return
        kept = self._checked(path, list[Entry])
        if not kept:
            raise self._not_ours(path, "no entries")
        for entry, after in pairwise(kept):
            if after.index != entry.index + 1 or after.term < entry.term:
                raise self._not_ours(path, f"entry {after.index} behind {entry.index}")
        self._terms.truncate(0)  # they are of the log as it was
        first = kept[0].index
        if first < self._log.end_offset:
            self._log.truncate_to(first)
        if (
            self._log.end_offset != first
        ):  # a part of the batch is in the snapshot, and gone with it
            self._log.reset_to(first)
        self._append_all(kept)
        self._log.flush()
        self._disk.unlink(path)
        self._disk.sync_dir(self.directory)  # if it came back, it would cut off what is to come

    def _append_all(self, entries: Sequence[Entry]) -> None:
        for term, of_term in groupby(entries, key=lambda entry: entry.term):
            some = list(of_term)
            for start in range(0, len(some), _BATCH):
                self._append_batch(term, some[start : start + _BATCH])

    def _append_batch(self, term: int, entries: Sequence[Entry]) -> None:
        keys = [bytes([entry.kind]) if entry.kind else None for entry in entries]  # 0: a command
        batch = encode_values(
            [entry.data for entry in entries],
            keys=keys if any(keys) else None,
            timestamps=self._clock.now_ms(),
        )
        self._log.append_as_leader(batch, term)

    def close(self) -> None:
        """Give the files back."""
        self._log.close()
