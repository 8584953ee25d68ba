"""A disk in memory that fails the way disks fail.

It keeps two versions of everything: what the operating system shows (its page cache) and what would
be there after the power went. Each call that changes something is a *step*; the disk can crash
before any step, and `power_loss` then invents one of the contents that the real thing might leave:

- bytes written and not synced: each 512-byte sector as it was after some number of the writes;
- a file that had grown: its new size may be there without the data (zeros), or not;
- names created, renamed and removed since the last `sync_dir`: any of these, or none;
- mapped memory: each sector as it was last written, by a sync or by the kernel on its own, or as
  it is now.

`kill` is the gentler end, `kill -9`: the page cache survives, only locks and open files go. The
disk can also be small (`capacity`: ENOSPC), broken (`fail_at`: EIO and others), slow (`delay_s`).

>>> disk = FaultyDisk(crash_at=3)
>>> try:
...     file = disk.open("/a", "create")            # step 1
...     file.write_at(0, b"x")                      # step 2
...     file.sync()                                 # step 3: never happens
... except Crashed:
...     print(disk.power_loss(keep=0.0).tree())     # nothing had been synced, not even the name
{}
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import threading
from collections.abc import Callable, Iterator

from craft2.clock import Clock, SystemClock
from craft2.crash_model import Directory, Inode, Renaming, copy_of, resize
from craft2.disk import Buffer, Disk, File, Lock, Map, Mode, disk_error
from craft2.errors import Craft2Error

_WRITEBACK = 7  # steps


class Crashed(BaseException):
    """The machine is gone. Not an `Exception`, so that no handler mistakes it for an error."""


class FaultyDisk(Disk):
    """See the module. A directory made with `mkdir` is durable at once: `mkdir` syncs its parent.

    `crash_at`: the step (from 1) that never happens, nor anything after it.
    `fail_at`: step -> errno; that step fails with it and the next ones go on.
    `capacity`: bytes of data the disk has room for.
    `delay_s`: each sync takes this long on `clock`.
    """

    def __init__(
        self,
        *,
        crash_at: int | None = None,
        fail_at: dict[int, int] | None = None,
        capacity: int | None = None,
        delay_s: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self.crash_at = crash_at
        self.fail_at = fail_at or {}
        self.capacity = capacity
        self.steps = 0
        self.trace: list[str] = []  # every step so far, in words
        self._delay_s = delay_s
        self._clock = clock or SystemClock()
        self._dead = False
        self._mutex = threading.RLock()
        self._released = threading.Condition(self._mutex)
        self._directories: dict[str, Directory] = {"/": Directory()}
        self._locks: dict[int, dict[_FaultyLock, bool]] = {}  # id of inode -> holder -> shared?

    # What a test asks of it.

    def power_loss(self, *, seed: int = 0, keep: float = 0.5) -> FaultyDisk:
        """The disk as it may be found when power is back.

        keep: the chance of each unsynced change to have arrived; 0 loses all, 1 nothing.
        """
        rng = random.Random(seed)
        after = FaultyDisk(clock=self._clock)
        fresh: dict[int, Inode] = {}
        for path, directory in self._directories.items():
            found = after._directories[path] = Directory()
            for name, inode in directory.after_power_loss(rng, keep).items():
                if id(inode) not in fresh:
                    data = inode.after_power_loss(rng, keep)
                    fresh[id(inode)] = Inode(now=bytearray(data), durable=data)
                found.now[name] = fresh[id(inode)]
            found.synced()
        self.die()
        return after

    def kill(self) -> FaultyDisk:
        """The disk as the next process finds it after `kill -9`.

        The page cache is still there, and still not durable; the locks are free.
        """
        after = FaultyDisk(clock=self._clock)
        self.die()
        after._directories = copy_of(self._directories)
        return after

    def die(self) -> None:
        """From now on every call on this disk raises `Crashed`, also from other threads."""
        with self._mutex:
            self._dead = True
            self._released.notify_all()

    @property
    def dead(self) -> bool:
        """Whether it has crashed."""
        return self._dead

    def tree(self) -> dict[str, bytes]:
        """path -> content of every file, as the operating system shows it."""
        return {
            os.path.join(path, name): bytes(inode.now)
            for path, directory in sorted(self._directories.items())
            for name, inode in sorted(directory.now.items())
        }

    def synced_tree(self) -> dict[str, bytes]:
        """path -> content of every file, as it is found if a power cut takes all that it can."""
        return {
            os.path.join(path, name): inode.durable
            for path, directory in self._directories.items()
            for name, inode in directory.durable.items()
        }

    # The disk.

    def open(self, path: str, mode: Mode) -> File:
        with self._mutex:
            self._alive()
            directory, name = self._find(path)
            inode = directory.now.get(name)
            if inode is None and mode in ("read", "write"):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if inode is None:
                self._step("create", path)
                inode = Inode()
                directory.change(Renaming(None, name, inode))
            file = _FaultyFile(self, path, inode)
            if mode == "empty" and inode.now:
                file.truncate(0)
            return file

    def read(self, path: str) -> bytes:
        with self._mutex:
            return self._file(path, "read")

    def rename(self, old: str, new: str) -> None:
        with self._mutex:
            directory, old_name = self._find(old)
            target, new_name = self._find(new)
            if target is not directory:
                raise ValueError(f"rename across directories is not modelled: {old!r} to {new!r}")
            inode = directory.now.get(old_name)
            if inode is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
            self._step("rename", f"{old} to {new_name}")
            directory.change(Renaming(old_name, new_name, inode))

    def unlink(self, path: str) -> None:
        with self._mutex:
            directory, name = self._find(path)
            if name not in directory.now:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self._step("unlink", path)
            directory.change(Renaming(name, None))

    def mkdir(self, path: str) -> None:
        with self._mutex:
            self._alive()
            path = os.path.normpath(path)
            while path not in self._directories:
                self._directories[path] = Directory()
                path = os.path.dirname(path)

    def rmdir(self, path: str) -> None:
        with self._mutex:
            path = os.path.normpath(path)
            if self.listdir(path):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            self._step("rmdir", path)
            del self._directories[path]

    def listdir(self, path: str) -> list[str]:
        with self._mutex:
            self._alive()
            path = os.path.normpath(path)
            if path not in self._directories:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            children = {
                os.path.basename(other)
                for other in self._directories
                if other != path and os.path.dirname(other) == path
            }
            return sorted(children | set(self._directories[path].now))

    def exists(self, path: str) -> bool:
        with self._mutex:
            self._alive()
            path = os.path.normpath(path)
            parent = self._directories.get(os.path.dirname(path))
            return path in self._directories or (
                parent is not None and os.path.basename(path) in parent.now
            )

    def sync_dir(self, path: str) -> None:
        with self._mutex:
            self._alive()
            directory = self._directories.get(os.path.normpath(path))
            if directory is None:
                missing = not self.exists(path)
                code = errno.ENOENT if missing else errno.ENOTDIR
                raise OSError(code, os.strerror(code), path)
            self._step("sync_dir", path)
            self._clock_delay()
            directory.synced()

    def lock(self, path: str) -> Lock:
        return _FaultyLock(self, path)

    # Its inside.

    def _file(self, path: str, mode: Mode) -> bytes:
        file = self.open(path, mode)
        return file.read_at(0, file.size())

    def _find(self, path: str) -> tuple[Directory, str]:
        directory, name = os.path.split(os.path.normpath(path))
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._directories[directory], name

    def _alive(self) -> None:
        if self._dead:
            raise Crashed

    def _clock_delay(self) -> None:
        if self._delay_s:
            self._clock.wait(threading.Event(), self._delay_s)

    def _step(self, call: str, path: str) -> None:
        """One more step: perhaps the last, perhaps one that fails."""
        self._alive()
        if self.crash_at is not None and self.steps + 1 >= self.crash_at:
            self.die()
            raise Crashed
        self.steps += 1
        self.trace.append(f"{call} {path}")
        if self.steps % _WRITEBACK == 0:
            self._write_back_maps()
        if self.steps in self.fail_at:
            number = self.fail_at[self.steps]
            raise disk_error(call, path, OSError(number, os.strerror(number)))

    def _write_back_maps(self) -> None:
        """The kernel writes mapped memory to disk whenever it likes: here, now and then."""
        for directory in self._directories.values():
            for inode in directory.now.values():
                if inode.mapped and len(inode.durable) >= inode.mapped <= len(inode.now):
                    inode.durable = bytes(inode.now[: inode.mapped]) + inode.durable[inode.mapped :]

    def _room_for(self, inode: Inode, position: int, size: int) -> int:
        """How many of `size` bytes at `position` fit on the disk."""
        if self.capacity is None:
            return size
        inodes = {id(i): i for d in self._directories.values() for i in d.now.values()}
        free = self.capacity - sum(len(i.now) for i in inodes.values())
        return max(0, min(size, len(inode.now) - position + free))


class _FaultyFile(File):
    def __init__(self, disk: FaultyDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def read_at(self, position: int, size: int) -> bytes:
        with self._disk._mutex:
            self._disk._alive()
            return bytes(self._inode.now[position : position + size])

    def write_at(self, position: int, data: Buffer) -> None:
        with self._disk._mutex:
            self._disk._step("write", f"{self.path} {position}+{len(data)}")
            fits = self._disk._room_for(self._inode, position, len(data))
            written = bytes(data[:fits])
            now = self._inode.now
            if position + fits > len(now):
                resize(now, position + fits)
            now[position : position + fits] = written
            self._inode.pending.append((position, written))
            if fits < len(data):
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                raise disk_error("write", self.path, full)

    def size(self) -> int:
        with self._disk._mutex:
            self._disk._alive()
            return len(self._inode.now)

    def truncate(self, size: int) -> None:
        with self._disk._mutex:
            self._disk._step("truncate", f"{self.path} to {size}")
            resize(self._inode.now, size)
            self._inode.pending.append(size)

    def sync(self) -> None:
        with self._disk._mutex:
            try:
                self._disk._step("sync", self.path)
            except Exception:
                self._inode.sync_failed()
                raise
            self._disk._clock_delay()
            self._inode.synced()

    def map(self, size: int) -> Map:
        with self._disk._mutex:
            if len(self._inode.now) < size:
                self.truncate(size)
            return _FaultyMap(self, size)

    def fileno(self) -> int:
        raise DiskHasNoDescriptors(
            f"{self.path!r} is in memory, so the operating system has no number for it",
            "read it with read_at",
        )

    def close(self) -> None:
        pass


class DiskHasNoDescriptors(Craft2Error):
    """A file in memory has no number to give to the operating system."""


class _FaultyMap(Map):
    def __init__(self, file: _FaultyFile, size: int) -> None:
        self._file = file
        self._inode = file._inode
        self._inode.mapped = max(self._inode.mapped, size)
        self.view = memoryview(self._inode.now)[:size]

    def flush(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self.view.release()


class _FaultyLock(Lock):
    def __init__(self, disk: FaultyDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._inode = self._named()

    def _named(self) -> Inode:
        """The file that has the path now, made if need be."""
        self._disk.open(self._path, "create").close()
        directory, name = self._disk._find(self._path)
        return directory.now[name]

    def acquire(self, *, shared: bool = False, wait: bool = True) -> bool:
        with self._disk._mutex:
            while True:
                self._disk._alive()
                holders = self._disk._locks.setdefault(id(self._inode), {})
                if self not in holders and self._inode is not self._named():
                    self._inode = self._named()
                    continue
                others = [kind for holder, kind in holders.items() if holder is not self]
                if not others or (shared and all(others)):
                    holders[self] = shared
                    self._disk._released.notify_all()
                    return True
                if not wait:
                    return False
                self._disk._released.wait()

    def release(self) -> None:
        with self._disk._mutex:
            self._disk._locks.get(id(self._inode), {}).pop(self, None)
            self._disk._released.notify_all()

    def holder(self) -> int | None:
        return None

    def close(self) -> None:
        self.release()


def crash_points(
    run: Callable[[FaultyDisk], object],
    *,
    outcomes: int = 4,
    limit: int = 100_000,
) -> Iterator[tuple[str, FaultyDisk]]:
    """Run `run` over and over, crashing one step later each time; yield each disk found after.

    For each crash point: the disk after `kill -9`, after a power loss that lost all that was
    unsynced, and `outcomes` mixtures. The words say which, and which step never happened. What
    `run` had promised by then it must note for itself (in a list, say), cleared at its start.
    """
    for step in range(1, limit):
        disk = FaultyDisk(crash_at=step)
        with contextlib.suppress(Crashed):
            run(disk)
        if not disk._dead:
            return
        after = disk.trace[-1] if disk.trace else "the start"
        yield f"killed before step {step}, after {after}", disk.kill()
        for number in range(outcomes + 1):
            found = disk.power_loss(seed=step * 31 + number, keep=0.5 if number else 0.0)
            yield f"power lost before step {step}, after {after} (outcome {number})", found
