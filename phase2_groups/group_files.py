"""A group's state in a file, and whoever holds the kernel's lock moves it.

There is no coordinator process. Each member, when it has something to say, takes the lock on the
group's folder, reads the state, lets the machine do one step, and writes the state back. A process
that dies lets go of the lock by dying (`kill -9` too), and it has either replaced the file, in one
rename, or not touched it. One that is halted with the lock in its hand (`kill -STOP`) halts all
others until it goes on: that is the price of a lock, and one reason for phase 3. They do not wait
for ever: after a while they say whom they wait for.

    ROOT/__groups/billing/state    one line for a quick look, then the group as JSON
    ROOT/__groups/billing/lock     the kernel lock; the file is empty

A reply for somebody else waits in the state file until that somebody looks. So does time: every
member now and then reads the first line, and whoever sees a deadline that has passed makes the
step. Deadlines are in ms of the machine's monotonic clock, which all its processes share and which
nobody can set.

The file is not synced: whatever the power takes from it, it also takes all members. If it is gone
(and be it with its folder) or damaged, the group starts again without members, at the generation
that `__consumer_offsets` remembers.
"""

from __future__ import annotations

import os
import threading
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from crc32c import crc32c

from craft2.clock import Clock, SystemClock
from craft2.disk import Disk, DiskError, RealDisk
from craft2.errors import Craft2Error
from craft2.events import Emitter
from phase1_file_queue.publish import publish
from phase2_groups.committed_offsets import CommittedOffsets
from phase2_groups.consumer_errors import GroupBlocked
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_machine import GroupMachine
from phase2_groups.group_messages import (
    Commit,
    Effect,
    Happened,
    Input,
    Join,
    Reply,
    Request,
    Store,
    Stored,
    Tick,
)
from phase2_groups.group_state import Group, GroupLimits, State
from phase2_groups.safe_event import SafeEvent

GROUPS_FOLDER, LOCK = "__groups", "lock"
VERSION = 1
_FIRST_LINE = 64  # bytes, padded with spaces
_REPLY_KEPT_MS = 60_000
_LOOK_EVERY_S = 0.02
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.01  # between two tries to take the lock

# Nobody waits long for a member that is on the same machine.
LOCAL_LIMITS = GroupLimits(min_session_timeout_ms=100, initial_rebalance_delay_ms=200)

_LONGEST_NAME = 200  # bytes: file systems allow 255


class GroupFilesError(Craft2Error):
    """A group's folder that this program cannot use."""


class Glance(NamedTuple):
    """The first line of the state file."""

    generation: int
    state: State
    deadline_ms: int | None  # when the next tick is due


class _Kept(msgspec.Struct):
    """A reply that waits for its reader, and since when."""

    since_ms: int
    reply: Reply


class _Saved(msgspec.Struct):
    """Everything in the state file behind its first line."""

    group: Group
    outbox: dict[str, _Kept] = {}


def group_folder(root: str | os.PathLike[str], group_id: str) -> str:
    """Where a group's files are; its name may have any characters.

    Raises GroupFilesError for a name that is too long for a folder.
    """
    name = quote(group_id, safe=" ")
    if not name.strip("."):  # nobody's folder but the file system's
        name = name.replace(".", "%2E")
    if not 0 < len(name) <= _LONGEST_NAME:
        raise GroupFilesError(
            f"group_id {group_id!r} makes a folder's name of {len(name)} bytes",
            f"give one of 1 to {_LONGEST_NAME} letters; others than a-z A-Z 0-9 . _ - count thrice",
        )
    return os.path.join(os.fspath(root), GROUPS_FOLDER, name)


class GroupFiles:
    """One group, for one process; its threads may share it. See the module."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        group_id: str,
        offsets: CommittedOffsets,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        limits: GroupLimits = LOCAL_LIMITS,
        events: Emitter | None = None,
    ) -> None:
        self.group_id = group_id
        self._disk = disk or RealDisk()
        self._clock = clock or SystemClock()
        self._offsets = offsets
        self._limits = limits
        self._events = events
        self._folder = group_folder(root, group_id)
        self._make_folder()
        self._path = os.path.join(self._folder, "state")
        self._lock_path = os.path.join(self._folder, LOCK)
        self._lock = self._disk.lock(self._lock_path)
        self._session_timeout_ms: int | None = None  # of the member that joined last
        self._mutex = threading.Lock()  # the kernel's lock is between processes
        self._closing = SafeEvent()

    def _make_folder(self) -> None:
        try:
            self._disk.mkdir(self._folder)
        except (FileExistsError, NotADirectoryError):
            raise GroupFilesError(
                f"{self._folder!r} cannot be made: a file is in its way", "move that file away"
            ) from None

    def ask(self, request: Request, timeout_ms: int) -> Reply | None:
        """Put a request to the group; wait for the reply, up to `timeout_ms`.

        None: it took longer, or it is lost: with the state, or since it was not fetched in time.
        Raises GroupBlocked if the lock could not be had for `timeout_ms` (a commit), or for the
        member's session timeout (what its thread asks, where a reply may take far longer); then
        nothing was done. Raises GroupFilesError, DiskError.
        """
        if isinstance(request, Join):
            self._session_timeout_ms = request.session_timeout_ms
        patience_ms = timeout_ms
        if self._session_timeout_ms is not None and not isinstance(request, Commit):
            patience_ms = min(timeout_ms, self._session_timeout_ms)
        reply = self._step(request, patience_ms)
        until, seen = self._now_ms() + timeout_ms, None
        while reply is None and self._now_ms() < until and not self._closing.is_set():
            self._clock.wait(self._closing, _LOOK_EVERY_S)
            self.tick_if_due()
            line = self._read_line()
            if line == seen:  # it has the checksum of all that follows
                continue
            seen, saved = line, self._load()
            if request.token in saved.outbox:
                return saved.outbox[request.token].reply
            if not saved.group.owes(request.token):
                return None
        return reply

    def glance(self) -> Glance:
        """Generation, state and next deadline, for the price of reading one line."""
        line = self._read_line()
        if not line:
            return Glance(0, State.EMPTY, None)
        try:
            _, version, _, generation, state, deadline = line.decode().split()
            self._check_version(int(version))
            due = None if deadline == "-" else int(deadline)
            return Glance(int(generation), State(state), due)
        except ValueError:  # damaged: whoever steps next sees to it
            return Glance(0, State.EMPTY, 0)

    def _read_line(self) -> bytes:
        """The first line of the file; empty if there is none."""
        try:
            file = self._disk.open(self._path, "read")
        except FileNotFoundError:
            return b""
        try:
            return file.read_at(0, _FIRST_LINE)
        finally:
            file.close()

    def tick_if_due(self) -> Glance:
        """Let time pass for the group, if one of its deadlines has; not if the lock is taken now,
        for there will be another look."""
        glance = self.glance()
        if glance.deadline_ms is not None and glance.deadline_ms <= self._now_ms():
            self._try_step(Tick())
            return self.glance()
        return glance

    def group(self) -> Group:
        """The group as it is now."""
        return self._load().group

    def close(self) -> None:
        """Let go; whoever waits in `ask` comes back with None."""
        self._closing.set()
        with self._mutex:
            self._lock.close()

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _step(self, request: Request, patience_ms: int) -> Reply | None:
        """One step of the machine; its reply to `request`, if there is one yet."""
        since_ms, pause_s = self._now_ms(), _FIRST_PAUSE_S
        while (effects := self._try_step(request)) is None:  # type: ignore[arg-type]
            waited_ms = self._now_ms() - since_ms
            if waited_ms >= patience_ms:
                raise self._blocked(waited_ms)
            if self._clock.wait(self._closing, pause_s):
                return None
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        replies = (one for one in effects if isinstance(one, Reply) and one.token == request.token)
        return next(replies, None)

    def _blocked(self, waited_ms: int) -> GroupBlocked:
        pid = self._lock.holder()
        who = "another process" if pid is None else f"process {pid}"
        look = f"find it with `lsof {self._lock_path}`; " if pid is None else ""
        return GroupBlocked(
            f"{who} holds the lock {self._lock_path!r} of group {self.group_id!r}; this one has "
            f"waited {waited_ms / 1000:.1f} s for it",
            f"{look}if it was stopped, let it go on: kill -CONT {pid or 'PID'}; "
            f"or end it: kill -9 {pid or 'PID'}",
        )

    def _try_step(self, event: Input) -> list[Effect] | None:
        """One step of the machine under the lock; its effects. None: try again.

        Somebody else has the lock just now, or the folder was gone, and with it the group.
        """
        with self._mutex:
            if self._closing.is_set():
                return None
            try:
                if not self._lock.acquire(wait=False):  # in here: an interrupt may come behind it
                    return None
                effects = self._step_alone(event)
            except FileNotFoundError:
                self._make_folder()
                return None
            finally:
                self._lock.release()
        for effect in effects:
            if self._events is not None and isinstance(effect, Happened):
                self._events.emit(
                    effect.kind,
                    who=effect.who,
                    group=self.group_id,
                    generation=effect.generation,
                    because=effect.because,
                    data=effect.data,
                )
        return effects

    def _step_alone(self, event: Input) -> list[Effect]:
        saved = self._load()
        machine = GroupMachine(saved.group, self._limits)
        effects = self._carry_out(machine, event)
        asked = event.token if isinstance(event, Request) else None
        for effect in effects:
            if isinstance(effect, Reply) and effect.token != asked:
                saved.outbox[effect.token] = _Kept(self._now_ms(), effect)
        self._save(saved)
        return effects

    def _carry_out(self, machine: GroupMachine, event: Input) -> list[Effect]:
        """The effects of `event`, those of storing included: it is done before we let go."""
        effects = machine.handle(event, self._now_ms())
        for effect in effects:  # grows while we are at it
            if isinstance(effect, Store):
                error = self._store(effect, machine.group)
                effects += machine.handle(Stored(number=effect.number, error=error), self._now_ms())
        return effects

    def _store(self, store: Store, group: Group) -> ErrorCode:
        try:
            if store.what == "offsets":
                self._offsets.commit(self.group_id, store.offsets)
            else:
                self._offsets.save_group(group)
        except DiskError:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    # The file.

    def _load(self) -> _Saved:
        try:
            data = self._disk.read(self._path)
        except FileNotFoundError:
            return self._start_again()
        try:
            _, version, crc, *_ = data[:_FIRST_LINE].decode().split()
            self._check_version(int(version))
            body = data[_FIRST_LINE:]
            if int(crc, 16) == crc32c(body):
                return msgspec.json.decode(body, type=_Saved)
        except ValueError:
            pass
        return self._start_again()

    def _start_again(self) -> _Saved:
        generation = self._offsets.generation(self.group_id)
        return _Saved(Group(group_id=self.group_id, generation=generation))

    def _save(self, saved: _Saved) -> None:
        oldest = self._now_ms() - _REPLY_KEPT_MS
        saved.outbox = {t: kept for t, kept in saved.outbox.items() if kept.since_ms > oldest}
        group, body = saved.group, msgspec.json.encode(saved)
        due = group.next_deadline_ms()
        words = ["group", VERSION, f"{crc32c(body):08x}", group.generation, group.state.value]
        line = " ".join(map(str, [*words, "-" if due is None else due]))
        publish(
            self._disk, self._path, line.ljust(_FIRST_LINE - 1).encode() + b"\n" + body, sync=False
        )

    def _check_version(self, version: int) -> None:
        if version != VERSION:
            raise GroupFilesError(
                f"{self._path!r} was written in version {version}; this program knows {VERSION}",
                "use the newer program, or remove the folder when no member of the group runs",
            )
