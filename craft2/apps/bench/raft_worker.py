"""One server of a cluster under load: ours, or PySyncObj's.

Each of three such processes is told the same. Whichever is elected keeps so many commands
outstanding, a new one for each that is committed and applied; after a warm-up it counts for a
while, and prints how many a second those were. The load is in the leader's own process, since
PySyncObj is a library for that.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import msgspec

from craft2.disk import RealDisk, UnsyncedDisk
from craft2.net import Address
from phase3_raft.raft.application import NodeConfig
from phase3_raft.raft.driver import RaftNode
from phase3_raft.raft.messages import Members
from phase3_raft.raft.state import RaftConfig
from phase3_raft.raft.storage import RaftStorage


class Spec(msgspec.Struct):
    """What a worker is told."""

    kind: str  # ours or PySyncObj
    number: int
    ports: dict[int, int]
    folder: str
    fsync: bool
    outstanding: int
    size_bytes: int
    warmup_s: float
    seconds: float
    settings: dict[str, Any] = {}  # of PySyncObj


class Meter:
    """Counts what is committed, and says when to stop."""

    def __init__(self, spec: Spec) -> None:
        self.count = 0
        self._from = time.monotonic() + spec.warmup_s
        self._until = self._from + spec.seconds
        self._before = -1

    def look(self) -> bool:
        """To be called now and then; False when the time is over, and the rate printed."""
        now = time.monotonic()
        if self._before < 0 and now >= self._from:
            self._before, self._from = self.count, now
        if now < self._until:
            return True
        print((self.count - self._before) / (now - self._from), flush=True)
        return False


class Counter:
    """A state machine that counts."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, command: bytes) -> int:
        self.count += 1
        return self.count

    def snapshot(self) -> bytes:
        return b"%d" % self.count

    def restore(self, data: bytes) -> None:
        self.count = int(data)


async def ours(spec: Spec) -> None:
    """Our `RaftNode`."""
    peers = {number: Address("127.0.0.1", port) for number, port in spec.ports.items()}
    config = NodeConfig(
        cluster="bench",
        server_id=spec.number,
        listen=peers[spec.number],
        peers=peers,
        raft=RaftConfig(),
    )
    disk = RealDisk() if spec.fsync else UnsyncedDisk()
    storage = RaftStorage(spec.folder, "bench", spec.number, Members(tuple(peers)), disk=disk)
    node = RaftNode(config, Counter(), storage)
    await node.start()
    while node.status().role != "leader":
        await asyncio.sleep(0.01)
    meter, command = Meter(spec), b"x" * spec.size_bytes

    def again(done: asyncio.Future[Any]) -> None:
        done.result()
        meter.count += 1
        node.propose(command).add_done_callback(again)

    for _ in range(spec.outstanding):
        node.propose(command).add_done_callback(again)
    while meter.look():
        await asyncio.sleep(0.01)


def theirs(spec: Spec) -> None:
    """PySyncObj's `SyncObj`, ticked by hand: without a thread it is faster."""
    from pysyncobj import SyncObj, SyncObjConf, replicated

    class Replicated(SyncObj):  # type: ignore[misc]
        def __init__(self) -> None:
            addresses = {number: f"127.0.0.1:{port}" for number, port in spec.ports.items()}
            me = addresses.pop(spec.number)
            journal = f"{spec.folder}.journal"
            conf = SyncObjConf(autoTick=False, journalFile=journal, **spec.settings)
            super().__init__(me, list(addresses.values()), conf)
            self.count = 0

        @replicated  # type: ignore[untyped-decorator]
        def put(self, value: bytes) -> None:
            self.count += 1

    node = Replicated()
    while not (node.isReady() and node._isLeader()):
        node.doTick(0.01)
    meter, command = Meter(spec), b"x" * spec.size_bytes

    def again(result: object, error: int) -> None:
        assert not error, error
        meter.count += 1
        node.put(command, callback=again)

    for _ in range(spec.outstanding):
        node.put(command, callback=again)
    while meter.look():
        node.doTick(0.001)


if __name__ == "__main__":
    told = msgspec.json.decode(sys.argv[1], type=Spec)
    if told.kind == "ours":
        asyncio.run(ours(told))
    else:
        theirs(told)
