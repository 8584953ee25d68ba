"""Mistakes in a Raft server's driver and storage, planted one at a time: see `node_world`.

`raft_bugs` has those of the core. These are around it, where the core's promises meet a disk, a
line and somebody who waits for an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from craft2.apps.simulate.node_world import WatchedNode
from craft2.disk import Disk
from phase3_raft.raft.log import RaftLog
from phase3_raft.raft.messages import Entry, Ready, Snapshot


@dataclass(frozen=True)
class NodeBug:
    """A planted mistake: what is wrong, and the class that has it."""

    about: str
    node: type[WatchedNode]


class _SendsBeforeItWrites(WatchedNode):
    def _do(self, ready: Ready) -> None:
        for message in ready.messages:
            self._links.send(message)
        super()._do(ready._replace(messages=[]))


class _NeverWritesItsVote(WatchedNode):
    def _do(self, ready: Ready) -> None:
        super()._do(ready._replace(hard_state=None))


class _NeverSyncsItsLog(WatchedNode):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._storage._log.flush = lambda: 0  # type: ignore[method-assign]


class _CutsWholeBatches(WatchedNode):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        storage = self._storage

        def cut(first: int, log: RaftLog) -> None:
            storage._log.truncate_to(first)
            if storage._log.end_offset < first:
                storage._log.reset_to(first)

        storage._cut = cut  # type: ignore[method-assign]


class _GivesUpTheLogFirst(WatchedNode):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        storage = self._storage

        def save(snapshot: Snapshot) -> None:
            storage._log.advance_start(snapshot.index + 1)
            storage._publish("snapshot", snapshot)

        storage.save_snapshot = save  # type: ignore[method-assign]


class _KeepsKept(WatchedNode):
    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        storage, put_back = self._storage, self._storage._put_back

        def put_back_only() -> None:
            disk = storage._disk
            storage._disk = _NothingIsRemoved(disk)  # type: ignore[assignment]
            put_back()
            storage._disk = disk

        storage._put_back = put_back_only  # type: ignore[method-assign]


class _NothingIsRemoved:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name) if name != "unlink" else lambda path: None


class _AppliesTwice(WatchedNode):
    def _apply(self, entries: Sequence[Entry]) -> None:
        super()._apply(entries)
        if len(entries) > 1:
            super()._apply(entries[-1:])


class _AnswersForOthersEntries(WatchedNode):
    """Who waits is not told that this server leads no more."""

    def _give_up_waiting(self, why: str) -> None:
        pass

    def _apply(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            result = None if entry.kind else self.machine.apply(entry.data)
            while self._waiting and self._waiting[0][0] <= entry.index:
                _, future = self._waiting.popleft()
                if not future.done():
                    future.set_result(result)


class _ReadsAtOnce(WatchedNode):
    def read(self) -> asyncio.Future[None]:
        future = self._future()
        if not future.done():
            future.set_result(None)
        return future


BUGS: dict[str, NodeBug] = {
    "sends-before-writing": NodeBug(
        "messages leave before the disk has what they promise", _SendsBeforeItWrites
    ),
    "vote-unwritten": NodeBug("term and vote are not written", _NeverWritesItsVote),
    "log-unsynced": NodeBug("the log is written, and not synced", _NeverSyncsItsLog),
    "cuts-whole-batches": NodeBug(
        "entries that share a batch with one that is cut off are not written again",
        _CutsWholeBatches,
    ),
    "log-before-snapshot": NodeBug(
        "the log gives up what a snapshot covers before that is written", _GivesUpTheLogFirst
    ),
    "kept-stays": NodeBug("entries put aside during a cut are put back at every start", _KeepsKept),
    "applies-twice": NodeBug("the last of several entries is applied twice", _AppliesTwice),
    "answers-for-others": NodeBug(
        "a command counts as done when its index is applied, whoever's entry that is",
        _AnswersForOthersEntries,
    ),
    "reads-at-once": NodeBug("whoever is asked answers reads at once", _ReadsAtOnce),
}
