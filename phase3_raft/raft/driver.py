"""A Raft server that runs: the core, its disk, its connections and a state machine, on asyncio.

    node = RaftNode(NodeConfig(...), machine, storage, net=RealNet())
    await node.start()
    result = await node.propose(command)  # when it is committed and applied here
    await node.read()                     # now `machine` shows all that was answered before

The core says what there is to do (`Ready`); here it is done, in that order. All happens in `_work`,
which nothing interrupts: whatever has come since the last time, messages and proposals, is handed
to the core first, so it shares one message to each follower and one sync of the disk. The sync is
waited for right here: meanwhile more comes in, and goes with the next one (group commit). No
heartbeat leaves meanwhile, so election timeouts have to be longer than a disk may take.

What the outside gives (`Net`, `Disk`, the event loop with its clock, chance) is passed in, so the
same code runs on virtual time.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from craft2.disk import DiskError
from craft2.events import Emitter, Events, EventsError
from craft2.net import Address, Net, RealNet
from craft2.tasks import Tasks
from phase3_raft.raft.application import (
    MAX_SNAPSHOT_BYTES,
    MAX_WAITING,
    Busy,
    NodeConfig,
    OutcomeUnknown,
    StateMachine,
    Status,
    Stopped,
    check_command,
)
from phase3_raft.raft.links import Links
from phase3_raft.raft.messages import (
    AnyMessage,
    Entry,
    Members,
    RaftError,
    Read,
    Ready,
    ServerId,
)
from phase3_raft.raft.server import RaftServer
from phase3_raft.raft.state import NotLeader, Role
from phase3_raft.raft.storage import RaftStorage


class RaftNode:
    """See the module.

    Invariant: _waiting holds, in the order of the log, the entries of this server's own term that
        somebody waits for; it is empty unless the server leads. _doubted: by index, the entries it
        proposed and led no more before it knew, with their term, as long as it does not know.
    folder, folders: as the server's; to be set before the start.
    """

    def __init__(
        self,
        config: NodeConfig,
        machine: StateMachine,
        storage: RaftStorage,
        *,
        net: Net | None = None,
        events: Emitter | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.config = config
        self.machine = machine
        self.failure: Exception | None = None
        self.stopped = asyncio.Event()
        self.lost: Callable[[ServerId], object] = lambda server: None  # told who hung up
        self.folder = ""
        self.folders: Callable[[], Mapping[ServerId, str]] = dict
        self.led_by: Callable[[ServerId | None], object] = lambda leader: None  # told who leads now
        self._storage = storage
        self._events = events or Events(f"server-{config.server_id}")
        self._tasks = Tasks(self._fail)
        self._links = Links(
            config.cluster,
            config.server_id,
            config.peers,
            net or RealNet(),
            self._tasks,
            self._events,
            chance,
            self._received,
            self._connection_lost,
        )
        self._chance = chance
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._proposals: tuple[list[bytes], list[asyncio.Future[Any]]] = ([], [])
        self._waiting: deque[tuple[int, asyncio.Future[Any]]] = deque()
        self._waiting_term = 0
        self._doubted: dict[int, list[tuple[int, asyncio.Future[bool | None]]]] = {}
        self._reading: dict[asyncio.Future[None], None] = {}
        self._was: tuple[Role, int, ServerId | None] = (Role.FOLLOWER, 0, None)
        self._snapshot: tuple[int, bytes] = (0, b"")  # taken, not yet in place of the log

    async def start(self) -> Address:
        """Read the disk and listen; returns where. Raises NetError, RaftError, DiskError."""
        self._loop = asyncio.get_running_loop()
        log, hard_state = self._storage.load()
        if log.snapshot.index:
            self.machine.restore(log.snapshot.data)
        self._server = RaftServer(
            self.config.server_id,
            log,
            hard_state,
            self.config.raft,
            random=self._chance,
            now_ms=self._now_ms(),
        )
        self._server.folder, self._server.folders = self.folder, self.folders
        address = await self._links.open(self.config.listen)
        self._wake()
        return address

    def stop(self) -> None:
        """End: nothing is written or sent any more."""
        if self.stopped.is_set():
            return
        self.stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        self._links.close()
        self._tasks.cancel()
        self._give_up_waiting("stopped")
        self._doubt_no_more(upto=None)
        for future in self._proposals[1]:
            _fail(future, self._stopped_error())
        for future in self._reading:
            _fail(future, self._stopped_error())
        try:
            self._storage.close()
        except DiskError as error:
            self.failure = self.failure or error

    def _fail(self, error: BaseException) -> None:
        """Something is wrong that cannot be mended here, a disk above all: stop, and say so."""
        if self.stopped.is_set() or not isinstance(error, Exception):
            return  # a simulated machine that has crashed does nothing more
        self.failure = error
        self.stop()  # first: it may be just the events that cannot be written
        with contextlib.suppress(EventsError):
            self._events.emit("stopped", because=f"{type(error).__name__}: {error}")

    def _stopped_error(self) -> Stopped:
        why = f": {self.failure}" if self.failure else ""
        return Stopped(f"server {self.config.server_id} has stopped{why}", "ask another server")

    # What an application asks for.

    def propose(self, command: bytes) -> asyncio.Future[Any]:
        """Have a command carried out everywhere; the future has its result here.

        It fails with NotLeader or Busy (nothing has happened), OutcomeUnknown, or Stopped. Raises
        RaftError for a command that is too long, or none.
        """
        check_command(command)
        future = self._future()
        if not future.done():
            commands, futures = self._proposals
            if len(self._waiting) + len(commands) >= MAX_WAITING:
                future.set_exception(Busy(f"{MAX_WAITING} proposals wait", "wait for some of them"))
                return future
            commands.append(command)
            futures.append(future)
            self._wake()
        return future

    def read(self) -> asyncio.Future[None]:
        """Done when `machine` shows everything that was answered, anywhere, before this call.

        It fails with NotLeader (also if the server ceases to be one meanwhile), or Stopped.
        """
        future = self._future()
        try:
            if not future.done():
                self._server.read(future)
                self._reading[future] = None
                self._wake()
        except NotLeader as error:
            future.set_exception(error)
        return future

    def change_members(self, members: Members) -> asyncio.Future[None]:
        """Add or remove one voter, or learners; done when that is committed.

        It fails as `propose` does, and with RaftError for what cannot be done (now).
        """
        future = self._future()
        try:
            if not future.done():
                self._check_known(members)
                self._take_proposals()  # they were first
                self._wait_for(self._server.change_members(members), [future])
                self._wake()
        except RaftError as error:
            future.set_exception(error)
        return future

    def _check_known(self, members: Members) -> None:
        """Raises RaftError for a member that nobody could reach."""
        strange = [one for one in members.everybody if not self._links.knows(one)]
        if strange:
            raise RaftError(
                f"servers {sorted(strange)} have no address", "name those that `peers` or `meet` do"
            )

    def meet(self, server: ServerId, address: Address) -> None:
        """Where a server is that was not among the peers at the start, or is elsewhere by now."""
        self._links.add(server, address)

    def transfer(self, to: ServerId) -> None:
        """Let another voter lead, once it has everything; `status` shows whether it does.

        Raises NotLeader, RaftError.
        """
        self._server.transfer(to)
        self._wake()

    @property
    def leader(self) -> ServerId | None:
        """Who leads, as far as this server knows; itself as well."""
        return None if self.stopped.is_set() else self._server.leader

    @property
    def members(self) -> Members:
        """Of the cluster, as this server knows them."""
        return self._server.members

    @property
    def term(self) -> int:
        """The latest that this server knows of."""
        return self._server.term

    def unapplied(self) -> Sequence[Entry]:
        """What the log has and `machine` has not, whether it is committed or not."""
        log = self._server.log
        return log.between(log.applied, log.last_index)

    @property
    def emptied(self) -> list[ServerId]:
        """As the server's, while it leads: voters that have lost what they had acknowledged."""
        return self._server.emptied

    def has_all(self, server: ServerId) -> bool:
        """Whether another server is connected, and has all that is committed, as far as this one
        knows while it leads."""
        peer = self._server.peers.get(server)
        there = server in self._links.connected()
        return peer is not None and there and peer.match >= self._server.log.committed

    def status(self) -> Status:
        """How this server sees things."""
        server, log = self._server, self._server.log
        return Status(
            server.id,
            server.role.value,
            server.term,
            server.leader,
            server.members.voters,
            server.members.learners,
            log.snapshot.index + 1,
            log.last_index,
            log.committed,
            log.applied,
            self._links.connected(),
            {i: log.last_index - peer.match for i, peer in server.peers.items()},
            self._links.dropped,
            str(self.failure or "") if self.stopped.is_set() else "",
        )

    def _future(self) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        if self.stopped.is_set():
            future.set_exception(self._stopped_error())
        return future

    # What comes in.

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1_000)

    def _received(self, messages: Sequence[AnyMessage]) -> None:
        """Raises BadMessage, which ends the connection that it came on."""
        if not self.stopped.is_set():
            now_ms = self._now_ms()
            self._wake()
            for message in messages:
                self._server.step(message, now_ms)

    def _connection_lost(self, to: ServerId) -> None:
        if not self.stopped.is_set():
            self._server.connection_lost(to, self._now_ms())
            self._wake()
            self._loop.call_soon(self.lost, to)  # not in the middle of what a connection does

    def _wake(self) -> None:
        """Work, soon: after everything that has come in by now."""
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._work)

    def _set_timer(self) -> None:
        """Be woken when the core has to be told that time has passed."""
        # Half a millisecond late: `_now_ms` must not round down to the one before.
        when_s = (self._server.next_deadline_ms() + 0.5) / 1_000
        if self._timer is not None:
            if self._timer.when() <= when_s:
                return  # too early is no harm, and cheaper than a new timer each time
            self._timer.cancel()
        self._timer = self._loop.call_at(when_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._wake()

    # What there is to do.

    def _work(self) -> None:
        self._woken = False
        if self.stopped.is_set():
            return
        try:
            server, now_ms = self._server, self._now_ms()
            if now_ms >= server.next_deadline_ms():
                server.tick(now_ms)
            self._take_proposals()
            while (ready := server.ready()) is not None:
                self._do(ready)
                server.advance(ready)
            self._compact()
            self._note_changes()
            self._set_timer()
        except Exception as error:
            self._fail(error)

    def _take_proposals(self) -> None:
        commands, futures = self._proposals
        if not commands:
            return
        self._proposals = [], []
        try:
            self._wait_for(self._server.propose(commands), futures)
        except NotLeader as error:
            for future in futures:
                _fail(future, error)

    def _wait_for(self, first: int, futures: Sequence[asyncio.Future[Any]]) -> None:
        """These wait for the entries from `first` on."""
        if self._server.term != self._waiting_term:
            self._give_up_waiting("led no more for a moment")
            self._waiting_term = self._server.term
        self._waiting.extend(enumerate(futures, first))

    def _do(self, ready: Ready) -> None:
        """See `Ready`, whose order this is."""
        send = self._links.send
        for message in ready.early:
            send(message)
        if ready.snapshot is not None:  # first: one that the machine cannot read must not be kept
            self.machine.restore(ready.snapshot.data)
        if ready.snapshot is not None or ready.hard_state is not None or ready.entries:
            self._storage.write(ready, self._server.log)
        for message in ready.messages:
            send(message)
        if ready.snapshot is not None:
            self._doubt_no_more(upto=ready.snapshot.index)
            self._events.emit("snapshot-installed", offset=ready.snapshot.index)
        self._apply(ready.committed)
        for read in ready.reads:
            self._serve(read)

    def _apply(self, entries: Sequence[Entry]) -> None:
        apply, waiting, term = self.machine.apply, self._waiting, self._waiting_term
        for entry in entries:
            result = None if entry.kind else apply(entry.data)  # 0: a command
            if waiting and waiting[0][0] == entry.index and entry.term == term:
                _, future = waiting.popleft()
                if not future.done():
                    future.set_result(result)
            if self._doubted:
                for its_term, outcome in self._doubted.pop(entry.index, ()):
                    outcome.set_result(entry.term == its_term)

    def _serve(self, read: Read) -> None:
        future = read.context
        assert isinstance(future, asyncio.Future)
        del self._reading[future]
        if read.index is None:
            server = self._server
            _fail(future, NotLeader(f"server {server.id} leads no more", server.leader))
        elif not future.done():
            future.set_result(None)

    def _note_changes(self) -> None:
        """Report a new role, term or leader, and tell who waited for one that leads no more."""
        server = self._server
        now = server.role, server.term, server.leader
        if now == self._was:
            return
        before, self._was = self._was, now
        if before[2] != server.leader:
            self.led_by(server.leader)
        if server.role is not Role.LEADER or server.term != self._waiting_term:
            self._give_up_waiting(f"leads no more (term {server.term})")
        kind = "leads" if server.role is Role.LEADER else server.role.value
        self._events.emit(kind, term=server.term, data={"leader": server.leader})

    def _give_up_waiting(self, why: str) -> None:
        for index, future in self._waiting:
            outcome: asyncio.Future[bool | None] = self._loop.create_future()
            self._doubted.setdefault(index, []).append((self._waiting_term, outcome))
            _fail(
                future,
                OutcomeUnknown(
                    f"server {self.config.server_id} {why}: the command may be carried out or not",
                    "read the state from the new leader before you propose it again",
                    outcome,
                ),
            )
        self._waiting.clear()

    def _doubt_no_more(self, *, upto: int | None) -> None:
        """What became of the entries up to this index, None: of all, will not be known here."""
        for index in [one for one in self._doubted if upto is None or one <= upto]:
            for _, outcome in self._doubted.pop(index):
                outcome.set_result(None)

    # Snapshots.

    def _compact(self) -> None:
        log, (taken, data) = self._server.log, self._snapshot
        if log.applied < max(taken, log.snapshot.index) + self.config.compact_every:
            return
        if taken > log.snapshot.index and len(data) <= MAX_SNAPSHOT_BYTES:
            self._storage.save_snapshot(self._server.compact(taken, data))
            self._events.emit("compacted", offset=taken, term=self._server.term)
        elif taken > log.snapshot.index:
            why = f"a snapshot of {len(data)} bytes, where {MAX_SNAPSHOT_BYTES} fit into a frame"
            self._events.emit("not-compacted", offset=taken, because=why)
        self._snapshot = log.applied, self.machine.snapshot()


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
