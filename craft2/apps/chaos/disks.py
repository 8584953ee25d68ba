"""The disks of the brokers: small ones of their own where this is allowed, so that they fill up.

As root on Linux each broker's folder is a file system of its own (ext4 in a file, by a loop
device). `fill` writes a file until there is no space left, for real. `slow` freezes the file system
four fifths of the time, a tenth of a second at once, as `fsfreeze` does: whoever writes waits in
the kernel. Anywhere else the folders are ordinary, and both faults are left out, with the reason.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from craft2.errors import Craft2Error

_FIFREEZE, _FITHAW = 0xC0045877, 0xC0045878  # linux/fs.h
_FROZEN_S, _THAWED_S = 0.1, 0.025
_CHUNK = 256 * 1024
_OWNER = "chaos.pid"  # in the folder: the process that mounted them
FULL, SLOW = "full-disk", "slow-disk"


class DisksError(Craft2Error):
    """The disks of the brokers cannot be made."""


class Disks:
    """See the module. about: what they are. lacks: fault -> why it cannot be done."""

    def __init__(self, root: Path, brokers: Sequence[int], size_mb: int, *, own: bool) -> None:
        """size_mb: of each. own: False: do not even try file systems. Raises DisksError."""
        self._root, self._mounted = root, list[int]()
        self._brokers = list(brokers)
        root.mkdir(parents=True, exist_ok=True)
        sweep_mounts()
        (root / _OWNER).write_text(str(os.getpid()))
        why = "not asked for" if not own else self._mount_all(size_mb)
        self.about = f"{size_mb} MB of ext4 for each broker" if not why else f"a folder: {why}"
        self.lacks = dict.fromkeys((FULL, SLOW), f"no disk of its own: {why}") if why else {}
        for number in brokers:
            self.folder(number).mkdir(parents=True, exist_ok=True)

    def _mount_all(self, size_mb: int) -> str:
        """Why they have none; empty if they have."""
        if not hasattr(os, "geteuid") or os.geteuid() != 0:
            return "only root mounts"
        for tool in ("mkfs.ext4", "mount", "umount"):
            if shutil.which(tool) is None:
                return f"there is no `{tool}` here"
        try:
            for number in self._brokers:
                self._mount(number, size_mb)
        except DisksError as error:
            self.close()
            return error.problem
        return ""

    def _mount(self, number: int, size_mb: int) -> None:
        """Raises DisksError."""
        image, top = self._root / f"broker-{number}.ext4", self._top(number)
        top.mkdir(exist_ok=True)
        if not image.exists():
            with image.open("wb") as file:
                file.truncate(size_mb * 1024**2)
            _run("mkfs.ext4", "-q", "-F", "-m", "0", str(image))
        _run("mount", "-o", "loop", str(image), str(top))
        self._mounted.append(number)

    def _top(self, number: int) -> Path:
        return self._root / f"broker-{number}"

    def folder(self, number: int) -> Path:
        """For `--data-dir`."""
        return self._top(number) / "data"

    def wipe(self, number: int) -> None:
        """Remove all that a broker keeps; it must not run."""
        shutil.rmtree(self.folder(number))
        self.folder(number).mkdir()

    def used_mb(self, number: int) -> float:
        """How much a broker keeps."""
        files = (path for path in self.folder(number).rglob("*") if path.is_file())
        return sum(path.stat().st_blocks for path in files) * 512 / 1024**2

    def fill(self, number: int) -> None:
        """No space is left."""
        with (self._top(number) / "filler").open("wb", buffering=0) as file:
            for size in (_CHUNK, 1024):  # large pieces, then the small ones that still fit
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))
            try:
                os.fsync(file.fileno())
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self, number: int) -> None:
        """Undo `fill`."""
        (self._top(number) / "filler").unlink(missing_ok=True)

    @contextlib.contextmanager
    def slow(self, number: int) -> Iterator[None]:
        """While it lasts, whoever writes waits most of the time."""
        ending = threading.Event()
        thread = threading.Thread(target=self._freeze_often, args=(number, ending), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()

    def _freeze_often(self, number: int, ending: threading.Event) -> None:
        descriptor = os.open(self._top(number), os.O_RDONLY)
        try:
            while not ending.is_set():
                _ioctl(descriptor, _FIFREEZE)
                ending.wait(_FROZEN_S)
                _ioctl(descriptor, _FITHAW)
                ending.wait(_THAWED_S)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Unmount them; what was in them stays in `broker-N.ext4`."""
        for number in self._mounted:
            _run("umount", str(self._top(number)))
        self._mounted.clear()


def sweep_mounts() -> None:
    """Unmount what a run left that was killed: the file behind it may be gone, too."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/mounts").read_text().splitlines()
        for where in (line.split()[1] for line in lines):
            owner = Path(where).parent / _OWNER
            if not re.search(r"/broker-\d+$", where) or not owner.exists():
                continue
            if not Path(f"/proc/{owner.read_text()}").exists():
                thaw(where)
                with contextlib.suppress(DisksError):
                    _run("umount", where)


def thaw(where: str) -> None:
    """Let a file system go on that was left frozen."""
    descriptor = os.open(where, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # it was not frozen
            _ioctl(descriptor, _FITHAW)
    finally:
        os.close(descriptor)


def _ioctl(descriptor: int, what: int) -> None:
    import fcntl

    fcntl.ioctl(descriptor, what, 0)


def _run(*words: str) -> None:
    """Raises DisksError."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise DisksError(f"`{' '.join(words)}`: {done.stderr.strip()}", "see its manual")
