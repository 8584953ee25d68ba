"""What a figure was measured on: a rate without its machine says nothing."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import tempfile
from pathlib import Path

import msgspec
import psutil

from craft2.clock import Clock, SystemClock
from craft2.disk import RealDisk


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a machine that decide how fast a message queue is."""

    cpu: str  # the model, as the processor names itself
    cores: int  # logical ones this process may use
    memory_gb: float  # 10^9 bytes
    kernel: str
    python: str
    filesystem: str  # the type under the measured folder: "ext4", "apfs", "tmpfs"
    fsync_ms: float  # median time to append 100 bytes to a file and sync it


def describe(folder: str | os.PathLike[str], clock: Clock | None = None) -> Machine:
    """This machine, with the disk that holds `folder`.  Writes and removes one small file there."""
    return Machine(
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _cores(),
        memory_gb=round(psutil.virtual_memory().total / 1e9, 1),
        kernel=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        filesystem=filesystem_of(folder),
        fsync_ms=fsync_ms(folder, clock or SystemClock()),
    )


def filesystem_of(folder: str | os.PathLike[str]) -> str:
    """The type of the file system that holds `folder`, "unknown" where the system does not say."""
    here = str(Path(folder).resolve())
    best, kind = "", "unknown"
    for partition in psutil.disk_partitions(all=True):
        mount = partition.mountpoint.rstrip("/")
        if (here + "/").startswith(mount + "/") and len(mount) >= len(best):
            best, kind = mount, partition.fstype or "unknown"
    return kind


def fsync_ms(folder: str | os.PathLike[str], clock: Clock, times: int = 30) -> float:
    """Milliseconds (median of `times`) to append 100 bytes to a file in `folder` and sync it."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fsync-") as scratch:
        file = RealDisk().open(f"{scratch}/appended", "create")
        try:
            taken = []
            for i in range(times):
                start = clock.monotonic()
                file.write_at(i * 100, b"x" * 100)
                file.sync()
                taken.append(clock.monotonic() - start)
        finally:
            file.close()
    return statistics.median(taken) * 1000


def _cores() -> int:
    return os.cpu_count() or 1


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    if platform.system() == "Darwin":
        name = subprocess.run(
            ["sysctl", "-n", "machdep.cpu.brand_string"],
            capture_output=True,
            text=True,
            check=False,
        )
        if name.stdout.strip():
            return name.stdout.strip()
    return platform.processor() or platform.machine()
