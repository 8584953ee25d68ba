"""A server's log as Raft sees it: a snapshot, and the entries behind it.

    snapshot          entries
    [... 4]   5  6  7  8  9  10  11
                 ^ applied    |
                       ^ committed   ^ last
                             ^ stable: so far it is on this server's disk

>>> log = RaftLog(Snapshot(members=Members(voters=(1,))))
>>> log.append([Entry(1, 1, b"x"), Entry(1, 2, b"y"), Entry(2, 3, b"z")])
>>> log.last_index, log.term_at(2), log.term_at(9)
(3, 1, None)
>>> log.put(1, [Entry(3, 2, b"Y")])  # what comes from a leader wins
>>> [entry.data for entry in log.entries]
[b'x', b'Y']

Source: the paper, 5.3 and 7; the fast search for the last common entry is in 5.3, last paragraphs.
"""

from __future__ import annotations

from collections.abc import Sequence

from phase3_raft.raft.messages import (
    Entry,
    EntryKind,
    Members,
    RaftError,
    Snapshot,
    decode_members,
)


class RaftLog:
    """See the module.

    Invariant: entries[i].index == snapshot.index + 1 + i; their terms never fall.
    Invariant: snapshot.index <= applied <= committed <= last_index; applied <= stable.
    members: (index, members) of each MEMBERS entry in the log, oldest first; the first one is the
        snapshot's. The last one is in force, committed or not (thesis, 4.1).
    new_snapshot: one that came from the leader and is not on disk yet.
    """

    def __init__(self, snapshot: Snapshot, entries: Sequence[Entry] = ()) -> None:
        self.new_snapshot: Snapshot | None = None
        self._begin(snapshot, entries)

    def _begin(self, snapshot: Snapshot, entries: Sequence[Entry]) -> None:
        self.snapshot = snapshot
        self.entries: list[Entry] = []
        self.committed = self.applied = snapshot.index
        self.members: list[tuple[int, Members]] = [(snapshot.index, snapshot.members)]
        self.append(entries)
        self.stable = self.last_index

    @property
    def last_index(self) -> int:
        return self.snapshot.index + len(self.entries)

    @property
    def last_term(self) -> int:
        return self.entries[-1].term if self.entries else self.snapshot.term

    def term_at(self, index: int) -> int | None:
        """The term of an entry; None if it is not here (any more, or yet)."""
        place = index - self.snapshot.index - 1
        if place == -1:
            return self.snapshot.term
        return self.entries[place].term if 0 <= place < len(self.entries) else None

    def between(self, after: int, upto: int, max_entries: int = 2**62) -> Sequence[Entry]:
        """The entries behind `after`, up to and with `upto`."""
        first = self.snapshot.index + 1
        return self.entries[after + 1 - first : min(upto, after + max_entries) + 1 - first]

    def append(self, entries: Sequence[Entry]) -> None:
        """Add entries at the end. Raises RaftError unless they go on where the log ends."""
        if not entries:
            return
        if entries[0].index != self.last_index + 1:
            raise RaftError(
                f"entry {entries[0].index} cannot follow entry {self.last_index}",
                "the log has a hole: restore this server from the others",
            )
        self.entries += entries
        for entry in entries:
            if entry.kind and entry.kind == EntryKind.MEMBERS:  # most are commands, 0
                self.members.append((entry.index, decode_members(entry.data)))

    def put(self, prev_index: int, entries: Sequence[Entry]) -> None:
        """Make the log hold a leader's entries behind `prev_index`, where both agree.

        Nothing is cut off unless an entry contradicts: a late message that says less than the log
        holds is no reason to forget what came after it (paper, figure 2, AppendEntries 3 and 4).
        """
        if prev_index == self.last_index:
            self.append(entries)
            return
        for place, entry in enumerate(entries):
            if self.term_at(entry.index) != entry.term:
                if entry.index <= self.last_index:
                    self._cut(entry.index)
                self.append(entries[place:])
                return

    def check_committed(self, index: int, term: int) -> None:
        """That a leader's entry is ours, if it is committed and still here. Raises RaftError: who
        went on would differ from the others for ever (etcd panics, too)."""
        if index <= self.committed and self.term_at(index) not in (None, term):
            raise self._contradicted(index)

    def _contradicted(self, index: int) -> RaftError:
        return RaftError(
            f"entry {index} is committed (up to {self.committed}) and a leader contradicts it",
            "two leaders have been at work: keep the data of all servers, and report this",
        )

    def _cut(self, index: int) -> None:
        """Forget the entries from `index` on."""
        if index <= self.committed:
            raise self._contradicted(index)
        del self.entries[index - self.snapshot.index - 1 :]
        self.stable = min(self.stable, index - 1)
        while self.members[-1][0] >= index:
            self.members.pop()

    def last_not_above(self, index: int, term: int) -> int:
        """The last index, `index` or before, whose entry is of `term` or an older one.

        A leader and a follower that disagree at `index` agree nowhere above it: so a whole term is
        passed over in one message, in place of an entry in each.
        """
        index = min(index, self.last_index)
        while index > self.snapshot.index and (self.term_at(index) or 0) > term:
            index -= 1
        return index

    # Snapshots.

    def compact(self, index: int, data: bytes) -> Snapshot:
        """Put the application's state after `index` in place of the entries up to there.

        Raises RaftError for an index that is not applied, or already covered.
        """
        if not self.snapshot.index < index <= self.applied:
            raise RaftError(
                f"a snapshot of index {index} is of no use: the last one is of "
                f"{self.snapshot.index}, and {self.applied} is applied",
                "make it of the last applied entry",
            )
        term = self.term_at(index)
        assert term is not None
        at = max(place for place, (first, _) in enumerate(self.members) if first <= index)
        kept = self.entries[index - self.snapshot.index :]
        self.snapshot = Snapshot(index, term, self.members[at][1], data)
        self.members = [(index, self.snapshot.members), *self.members[at + 1 :]]
        self.entries = kept
        return self.snapshot

    def install(self, snapshot: Snapshot) -> None:
        """Begin anew with a leader's snapshot, which reaches further than what is committed here.

        If the log goes on behind it with the same history, that part stays (paper, figure 13, 6).
        """
        goes_on = self.term_at(snapshot.index) == snapshot.term
        kept = self.between(snapshot.index, self.last_index) if goes_on else ()
        stable = max(self.stable, snapshot.index) if goes_on else snapshot.index
        self._begin(snapshot, kept)
        self.stable = stable
        self.new_snapshot = snapshot
