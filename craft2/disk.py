"""The disk, as an argument: everything that touches files does it through a `Disk`.

`RealDisk` is the machine's. `craft2.faulty_disk.FaultyDisk` keeps files in memory, remembers what
was synced, and can crash after any call; `CountingDisk` wraps either and counts calls, which is how
the notebooks show what a message costs without tracing the process.

Four facts about disks shape this interface, and every storage class above it:

1. A write goes to the operating system's page cache. It survives the death of the process, not the
   loss of power. Only `File.sync` makes it durable.
2. A new name (a file created or renamed) is data of the *directory*, durable only after
   `Disk.sync_dir`.
3. A disk writes whole sectors (512 bytes at least). An unsynced write may reach the disk in part,
   in any order, sector by sector.
4. After a `sync` fails nobody knows what is on disk, and trying again may report success without
   having written anything (the kernel marks failed pages clean). The only safe reaction is to stop
   and read the file again from disk. See the PostgreSQL project's notes on fsync errors (2018).

>>> import tempfile
>>> disk = RealDisk()
>>> path = tempfile.mkdtemp() + "/greeting"
>>> file = disk.open(path, "create")
>>> file.write_at(0, b"hello")
>>> file.sync()
>>> disk.read(path)
b'hello'
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from craft2.errors import Craft2Error

SECTOR = 512  # bytes that a disk writes all at once
Buffer = bytes | bytearray | memoryview
Mode = Literal["read", "write", "create", "empty"]

_FLAGS: dict[str, int] = {
    "read": os.O_RDONLY,
    "write": os.O_RDWR,
    "create": os.O_RDWR | os.O_CREAT,
    "empty": os.O_RDWR | os.O_CREAT | os.O_TRUNC,
}


class DiskError(Craft2Error):
    """The operating system refused a call: it names the call, the path and the system's reason."""


class DiskFull(DiskError):
    """No space is left on the device (ENOSPC) or in the user's quota (EDQUOT)."""


def disk_error(call: str, path: str, error: OSError) -> DiskError:
    """The `DiskError` for an `OSError`, with a fix that fits its number."""
    reason = f"{call} {path!r}: {error.strerror or error} ({errno.errorcode.get(error.errno or 0)})"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(reason, "free some space on this disk, then try again")
    if error.errno == errno.EMFILE:
        return DiskError(reason, "raise the limit on open files (ulimit -n)")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return DiskError(reason, "make the directory writable for this user, or choose another")
    return DiskError(reason, "check the disk; what was acknowledged before is still there")


@contextlib.contextmanager
def _errors_of(call: str, path: str) -> Iterator[None]:
    """Turn an OSError into a DiskError; a file that is missing or in the way keeps its own type."""
    try:
        yield
    except (FileNotFoundError, FileExistsError, NotADirectoryError):
        raise
    except OSError as error:
        raise disk_error(call, path, error) from error


class Map(Protocol):
    """A file's bytes as memory: what is stored in `view` is in the page cache at once."""

    view: memoryview

    def flush(self) -> None:
        """Make the mapped bytes durable."""

    def close(self) -> None:
        """Give the memory back; `view` is unusable afterwards."""


class File(Protocol):
    """An open file. Positions and sizes are in bytes."""

    path: str

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data`; on an error some of it may have been written."""

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make everything written to this file so far durable (not its name: `sync_dir`)."""

    def map(self, size: int) -> Map:
        """Map the first `size` bytes. A shorter file grows to `size` with zeros.

        A file opened with `read` maps read-only, and must be long enough.
        """

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A lock the kernel holds for us: it goes with the process, however the process ends.

    Two `Lock` objects exclude each other even within one process; one object is not reentrant.

    The kernel locks a file, not its name. So if somebody removes the file, `acquire` takes the lock
    on the file that has the name next; else the two would have a lock each. A lock that is *held*
    then stays with its old file, and no longer keeps out who comes later.
    """

    def acquire(self, *, shared: bool = False, wait: bool = True) -> bool:
        """Take it, or change its kind; False if `wait` is off and somebody else has it.

        Raises FileNotFoundError if the file's folder is gone, DiskError.
        """

    def release(self) -> None: ...

    def holder(self) -> int | None:
        """The number of a process that has it, where the system tells (Linux does)."""

    def close(self) -> None: ...


class Disk(Protocol):
    """What the packages may ask of a file system."""

    def open(self, path: str, mode: Mode) -> File:
        """`read` and `write` need the file; `create` makes a missing one, `empty` an empty one."""

    def read(self, path: str) -> bytes:
        """The whole content of a file."""

    def rename(self, old: str, new: str) -> None:
        """Give a file a new name in one step, replacing whatever had that name."""

    def unlink(self, path: str) -> None: ...

    def mkdir(self, path: str) -> None:
        """Make a directory and its missing parents, durably; no error if it exists."""

    def rmdir(self, path: str) -> None:
        """Remove an empty directory, durably."""

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def exists(self, path: str) -> bool: ...

    def sync_dir(self, path: str) -> None:
        """Make the names in a directory durable: those added, renamed and removed."""

    def lock(self, path: str) -> Lock:
        """A lock on the file `path`, which is created if need be."""


@dataclass(frozen=True)
class FileSlice:
    """`size` bytes of an open file from `position` on: data that need not pass through Python."""

    file: File
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.file.read_at(self.position, self.size)


class _RealMap:
    def __init__(self, mapped: mmap.mmap) -> None:
        self._mapped = mapped
        self.view = memoryview(mapped)

    def flush(self) -> None:
        self._mapped.flush()

    def close(self) -> None:
        self.view.release()
        self._mapped.close()


class _Descriptor(int):
    """A file descriptor that is closed when nobody refers to it any more.

    An object of its own, so that whoever has closed a file leaves nothing to do for the garbage
    collector: a Ctrl-C that comes while that runs `__del__` is lost.
    """

    def __del__(self) -> None:
        os.close(self)


_CLOSED = -1


class _RealFile:
    def __init__(self, path: str, mode: Mode) -> None:
        self.path = path
        self._writable = mode != "read"
        with _errors_of("open", path):
            self._fd: int = _Descriptor(os.open(path, _FLAGS[mode] | os.O_CLOEXEC, 0o644))

    def read_at(self, position: int, size: int) -> bytes:
        with _errors_of("read", self.path):
            return os.pread(self._fd, size, position)

    def write_at(self, position: int, data: Buffer) -> None:
        try:
            written = os.pwrite(self._fd, data, position)
            while written < len(data):
                written += os.pwrite(self._fd, memoryview(data)[written:], position + written)
        except OSError as error:
            raise disk_error("write", self.path, error) from error

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def truncate(self, size: int) -> None:
        with _errors_of("truncate", self.path):
            os.ftruncate(self._fd, size)

    def sync(self) -> None:
        with _errors_of("sync", self.path):
            _sync_fd(self._fd)

    def map(self, size: int) -> Map:
        if self._writable and self.size() < size:
            self.truncate(size)
        access = mmap.ACCESS_WRITE if self._writable else mmap.ACCESS_READ
        with _errors_of("map", self.path):
            return _RealMap(mmap.mmap(self._fd, size, access=access))

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        self._fd = _CLOSED


def _sync_fd(fd: int) -> None:
    """The strongest sync this system has.

    On macOS fsync leaves data in the drive's own cache and F_FULLFSYNC empties it. On Linux
    fdatasync is enough: it writes the data, and the metadata needed to read it back (the size).
    """
    if hasattr(fcntl, "F_FULLFSYNC"):
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)


class _RealLock:
    def __init__(self, path: str) -> None:
        self._path = path
        self._held = False
        self._open()
        self._fd: int = _CLOSED  # until it is wanted: most locks are hardly ever taken

    def _open(self) -> None:
        with _errors_of("open", self._path):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._fd = _Descriptor(os.open(self._path, flags, 0o644))

    def acquire(self, *, shared: bool = False, wait: bool = True) -> bool:
        if self._fd == _CLOSED:
            self._open()
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        while True:
            try:
                fcntl.flock(self._fd, kind if wait else kind | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            except OSError as error:
                raise disk_error("lock", self._path, error) from error
            if self._held or self._has_its_name():
                self._held = True
                return True
            self._open()  # which lets go of the one that nobody else can find any more

    def _has_its_name(self) -> bool:
        """Whether whoever opens the path now gets the file that we have."""
        try:
            with _errors_of("stat", self._path):
                return os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def release(self) -> None:
        self._held = False
        if self._fd != _CLOSED:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def holder(self) -> int | None:
        try:
            with open("/proc/locks") as file:
                lines = file.read().splitlines()
            found = os.stat(self._path)
        except OSError:
            return None
        # A line: "1: FLOCK  ADVISORY  WRITE 4711 fe:01:131 0 EOF", with the device and the inode.
        name = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        locks = [line.split() for line in lines if " FLOCK " in line and "->" not in line]
        pids = [int(lock[4]) for lock in locks if lock[5] == name]
        return next((pid for pid in pids if pid > 0), None)  # else it runs in another container

    def close(self) -> None:
        self._fd = _CLOSED


class RealDisk:
    """The machine's own file system."""

    def open(self, path: str, mode: Mode) -> File:
        return _RealFile(path, mode)

    def read(self, path: str) -> bytes:
        with _errors_of("read", path), open(path, "rb") as file:
            return file.read()

    def rename(self, old: str, new: str) -> None:
        with _errors_of("rename", old):
            os.rename(old, new)

    def unlink(self, path: str) -> None:
        with _errors_of("unlink", path):
            os.unlink(path)

    def mkdir(self, path: str) -> None:
        missing = [os.path.abspath(path)]
        while not os.path.exists(parent := os.path.dirname(missing[-1])):
            missing.append(parent)
        with _errors_of("mkdir", path):
            os.makedirs(path, exist_ok=True)
        for each in missing:  # a directory's own name is data of its parent: fact 2
            self.sync_dir(os.path.dirname(each))

    def rmdir(self, path: str) -> None:
        with _errors_of("rmdir", path):
            os.rmdir(path)
        self.sync_dir(os.path.dirname(os.path.abspath(path)))

    def listdir(self, path: str) -> list[str]:
        with _errors_of("list", path):
            return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def sync_dir(self, path: str) -> None:
        with _errors_of("sync", path):
            fd = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
            try:
                _sync_fd(fd)
            finally:
                os.close(fd)

    def lock(self, path: str) -> Lock:
        return _RealLock(path)


class UnsyncedDisk(RealDisk):
    """A RealDisk whose files are never synced: to see what syncing costs.

    What was acknowledged survives the death of the process, and not the loss of power.
    """

    def open(self, path: str, mode: Mode) -> File:
        return _UnsyncedFile(path, mode)

    def sync_dir(self, path: str) -> None:
        pass


class _UnsyncedFile(_RealFile):
    def sync(self) -> None:
        pass


class CountingDisk:
    """Passes every call on to another disk and counts it by name in `calls`.

    >>> import tempfile
    >>> disk = CountingDisk(RealDisk())
    >>> file = disk.open(tempfile.mkdtemp() + "/x", "create")
    >>> file.write_at(0, b"data")
    >>> disk.calls
    Counter({'open': 1, 'write_at': 1})
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> object:
        target = getattr(self._disk, name)

        def counted(*args: object, **kwargs: object) -> object:
            self.calls[name] += 1
            result = target(*args, **kwargs)
            return _CountingFile(result, self.calls) if name == "open" else result

        return counted


class _CountingFile:
    def __init__(self, file: File, calls: Counter[str]) -> None:
        self._file = file
        self._calls = calls

    def __getattr__(self, name: str) -> object:
        target = getattr(self._file, name)
        if not callable(target):
            return target

        def counted(*args: object, **kwargs: object) -> object:
            self._calls[name] += 1
            return target(*args, **kwargs)

        return counted
