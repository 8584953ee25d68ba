"""What a reader finds after a crash: a table, one row for each way to write a file.

The file is written on a disk in memory (`craft2.faulty_disk`), which crashes before every step,
by `kill -9` and by power cuts with different luck.  Everything is decided by seeds, so the table is
the same every time.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import partial

from craft2.disk import Disk
from craft2.faulty_disk import FaultyDisk, crash_points

PATH = "/partition-0/00000000.msg"
CONTENT = b"a message of three sectors\n" * 50  # a disk writes 512 bytes at once, not 1,350
OUTCOMES = ("whole", "absent", "empty", "damaged", "lost")
WriteFile = Callable[[Disk, str, bytes], None]


def write_file(
    disk: Disk, path: str, data: bytes, *, rename: bool, sync: bool, sync_directory: bool
) -> None:
    """Write a file with some of the three precautions, to see what each of them is for."""
    hidden = os.path.join(os.path.dirname(path), ".hidden") if rename else path
    target = disk.open(hidden, "empty")
    target.write_at(0, data)
    if sync:
        target.sync()
    target.close()
    if rename:
        disk.rename(hidden, path)
    if sync_directory:
        disk.sync_dir(os.path.dirname(path))


WAYS: dict[str, WriteFile] = {
    "no precaution": partial(write_file, rename=False, sync=False, sync_directory=False),
    "no rename": partial(write_file, rename=False, sync=True, sync_directory=True),
    "no sync of the file": partial(write_file, rename=True, sync=False, sync_directory=True),
    "no sync of the directory": partial(write_file, rename=True, sync=True, sync_directory=False),
}


def after_crashes(write: WriteFile) -> Counter[str]:
    """How often a reader finds what, over all crashes of one `write(disk, path, data)`.

    whole: the file is there, complete.  absent: it is not, and nobody was told it would be.
    empty, damaged: the name is there, the content is not, or in part.  lost: the writer had
    returned, so its caller counted on the file, and there is none.
    """
    returned: list[bool] = []

    def run(disk: FaultyDisk) -> None:
        returned.clear()
        disk.mkdir(os.path.dirname(PATH))
        write(disk, PATH, CONTENT)
        returned.append(True)
        disk.open("/one-step-more", "create")  # so that one crash comes after the return

    found: Counter[str] = Counter()
    for _, disk in crash_points(run, outcomes=8):
        found[_judge(disk.tree().get(PATH), bool(returned))] += 1
    return found


def _judge(content: bytes | None, returned: bool) -> str:
    if content is None:
        return "lost" if returned else "absent"
    if content == CONTENT:
        return "whole"
    return "damaged" if content else "empty"


def failures(found: Counter[str]) -> int:
    """How many of the crashes left something that must not be."""
    return found["empty"] + found["damaged"] + found["lost"]


def crash_table(ways: dict[str, WriteFile]) -> dict[str, Counter[str]]:
    """Print what is found after crashes, a row for each way; return it as well."""
    table = {name: after_crashes(write) for name, write in ways.items()}
    print(f"{'':26}{'crashes':>8}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES))
    for name, found in table.items():
        counts = "".join(f"{found[outcome] or '-':>9}" for outcome in OUTCOMES)
        print(f"{name:26}{found.total():>8}{counts}")
    return table
