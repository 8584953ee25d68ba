"""The files of a log's directory, apart from the records themselves.

00000000000000000000.log .index .timeindex    a segment
00000000000000004096.snapshot                 producer state before that offset
leader-epoch-checkpoint                       leader epochs
recovery-point                                how much need not be checked after a crash
partition.metadata                            which topic the log is of: a broker writes it
.control                                      the shared page (control_page)
.users .writers .append                       kernel locks; the files are empty
*.cut                                         what recovery cut off and kept
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass

from crc32c import crc32c

from craft2.disk import Disk
from phase1_file_queue.log_config import CorruptLog, NotALog
from phase1_file_queue.producer_state import SUFFIX as SNAPSHOT_SUFFIX
from phase1_file_queue.publish import publish
from phase1_file_queue.segment import SUFFIXES

EPOCHS = "leader-epoch-checkpoint"
CHECKPOINT = "recovery-point"
CONTROL = ".control"
TOPIC_ID = "partition.metadata"

_NUMBERED = re.compile(r"(\d{20})(\.[a-z]+)")


@dataclass(frozen=True)
class Checkpoint:
    """The file recovery-point. Everything before `recovery_point` is on disk and was checked.

    segment, position: where that is: a segment's base offset, and bytes in its file.
    clean: the log was closed properly: it ends there, and its indexes are complete.
    """

    log_start: int = 0
    recovery_point: int = 0
    segment: int = 0
    position: int = 0
    clean: bool = False

    def save(self, disk: Disk, directory: str) -> None:
        """Write the file, durably: a line of JSON, and its CRC32C on a second one."""
        line = json.dumps(asdict(self)).encode()
        publish(disk, os.path.join(directory, CHECKPOINT), b"%s\n%08x\n" % (line, crc32c(line)))

    @classmethod
    def load(cls, disk: Disk, directory: str) -> Checkpoint | None:
        """Read the file; None if there is none. Raises CorruptLog if it makes no sense."""
        path = os.path.join(directory, CHECKPOINT)
        try:
            data = disk.read(path)
        except FileNotFoundError:
            return None
        try:
            line, crc = data.splitlines()
            found = cls(**json.loads(line))
            if crc == b"%08x" % crc32c(line) and all(
                isinstance(n, int) and n >= 0 for n in asdict(found).values()
            ):
                return found
        except (ValueError, TypeError):
            pass
        raise CorruptLog(
            f"{path!r} is not a recovery point: {data[:80]!r}",
            "delete it: the whole log is then checked when it is opened",
        )


def is_log_file(name: str) -> bool:
    """Whether a directory that holds a file of this name is a log's, or was one."""
    match = _NUMBERED.fullmatch(name)
    return name in (CHECKPOINT, CONTROL, EPOCHS) or (match is not None and match[2] in SUFFIXES)


def segment_bases(disk: Disk, directory: str) -> list[int]:
    """The base offsets of the segments in a log's directory, ascending.

    Raises NotALog for a file that has no business there.
    """
    bases = []
    for name in disk.listdir(directory):
        match = _NUMBERED.fullmatch(name)
        if match and match[2] == ".log":
            bases.append(int(match[1]))
        elif not (
            name.startswith(".")
            or (match and match[2] in (*SUFFIXES, SNAPSHOT_SUFFIX))
            or name in (EPOCHS, CHECKPOINT, TOPIC_ID)
            or name.endswith(".cut")
        ):
            raise NotALog(
                f"{os.path.join(directory, name)!r} is no file of a log",
                "move it away, or give the path of a log's directory",
            )
    return sorted(bases)


def remove_orphans(disk: Disk, directory: str, bases: list[int]) -> None:
    """Remove index files whose segment is gone: a crash while it was deleted leaves them."""
    for name in disk.listdir(directory):
        match = _NUMBERED.fullmatch(name)
        if match and match[2] in SUFFIXES and int(match[1]) not in bases:
            disk.unlink(os.path.join(directory, name))
