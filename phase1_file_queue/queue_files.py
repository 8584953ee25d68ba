"""The files of a queue's directory, apart from the messages: what they hold, and what is refused.

    root/queue.json                    {"format": "craft2 message files, 1", "num_partitions": 4}
    root/partition-N/offset.txt        a number and a newline, as in every offset file
    root/.lock                         held while a queue is made or grown; the file is empty

`queue.json` is written last: a directory without it is not a queue yet, and the next process that
wants one there makes it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator

from craft2.disk import Disk
from craft2.errors import Craft2Error
from phase1_file_queue.publish import publish

OFFSET_FILE = "offset.txt"
MAX_MESSAGES = 100_000_000  # in a partition: as many as eight digits can number
_MESSAGE_NAME = re.compile(r"([0-9]{8})\.msg")
_PARTITION_NAME = re.compile(r"partition-[0-9]+")
_FORMAT = "craft2 message files, 1"


class NotAQueue(Craft2Error):
    """The directory holds something else, or a queue of another shape."""


class UnknownPartition(Craft2Error):
    """A partition number outside 0 ... num_partitions - 1."""


class CorruptOffsetFile(Craft2Error):
    """An offset file that does not hold a number."""


def parse_offset(data: bytes, path: str) -> int:
    """The number in an offset file; raises CorruptOffsetFile for anything else."""
    text = data.strip()
    if not (text.isdigit() and len(text) <= 18):
        raise CorruptOffsetFile(
            f"offset file {path!r} holds {data[:40]!r} instead of a number",
            "stop the processes that use this queue and delete the file: a partition's offset.txt "
            "is made again from its messages, and a group without its file starts again at 0",
        )
    return int(text)


def partition_path(root: str, number: int) -> str:
    """The directory of a partition."""
    return os.path.join(root, f"partition-{number}")


def message_path(directory: str, offset: int) -> str:
    """The file of a message in its partition's directory.

    >>> message_path("q/partition-2", 7)
    'q/partition-2/00000007.msg'
    """
    return os.path.join(directory, f"{offset:08d}.msg")


def message_offset(directory: str, name: str) -> int | None:
    """The offset that a file's name stands for; None for a file that holds no message.

    Names that begin with a dot are nobody's: half-written files and locks have such names. Raises
    NotAQueue for a name that has no business in a partition.
    """
    if name.startswith(".") or name == OFFSET_FILE:
        return None
    match = _MESSAGE_NAME.fullmatch(name)
    if match is None:
        raise NotAQueue(
            f"{os.path.join(directory, name)!r} is not a message file",
            "move it out of the partition's directory; only NNNNNNNN.msg belongs there",
        )
    return int(match[1])


def missing_partition(directory: str) -> NotAQueue:
    """The error for a partition whose directory is not there, or not there any more."""
    return NotAQueue(
        f"the partition's directory {directory!r} is missing",
        "restore it; an empty one loses the partition's messages",
    )


def check_count(value: object, what: str) -> None:
    """Raise NotAQueue unless `value` can be a number of partitions."""
    if not (isinstance(value, int) and value > 0):
        raise NotAQueue(f"{what} is {value!r}", "give a whole number of 1 or more")


def check_partition(number: object, count: int, root: str) -> None:
    """Raise UnknownPartition unless the queue at `root`, which has `count`, has this partition."""
    if not (isinstance(number, int) and 0 <= number < count):
        raise UnknownPartition(
            f"partition {number!r} does not exist: the queue {root!r} has "
            f"{count} (0 to {count - 1})",
            "name one of these, or grow the queue with add_partitions",
        )


@contextlib.contextmanager
def locked(disk: Disk, root: str) -> Iterator[None]:
    """Hold the lock on a queue's directory, against two processes that create or grow it."""
    lock = disk.lock(os.path.join(root, ".lock"))
    try:
        lock.acquire()
        yield
    finally:
        lock.close()


def open_or_create(disk: Disk, root: str, num_partitions: int) -> int:
    """The partition count of the queue at `root`, which is made first if nothing is there."""
    try:
        disk.mkdir(root)
        names = disk.listdir(root)
    except (FileExistsError, NotADirectoryError):
        raise NotAQueue(f"{root!r} is a file", "give the path of a directory") from None
    found = read_metadata(disk, root)
    if found is None:
        strange = [n for n in names if not (n.startswith(".") or _PARTITION_NAME.fullmatch(n))]
        if strange:
            raise NotAQueue(
                f"{root!r} is not a queue: it has no queue.json, but it holds {strange[0]!r}",
                "give the path of a queue, or of an empty or missing directory",
            )
        with locked(disk, root):
            found = read_metadata(disk, root)
            if found is None:
                make_partitions(disk, root, num_partitions)
                found = num_partitions
    # Whoever made the queue may have died before its names were durable, and a message is no safer
    # than the names on the way to it. So every opening syncs them, before anything is acknowledged.
    disk.sync_dir(root)
    disk.sync_dir(os.path.dirname(os.path.abspath(root)))
    return found


def make_partitions(disk: Disk, root: str, total: int) -> None:
    """Make the missing ones of `total` partitions, then say so in queue.json."""
    for number in range(total):
        disk.mkdir(partition_path(root, number))
    disk.sync_dir(root)
    metadata = json.dumps({"format": _FORMAT, "num_partitions": total})
    publish(disk, os.path.join(root, "queue.json"), metadata.encode() + b"\n")


def read_metadata(disk: Disk, root: str) -> int | None:
    """The partition count in queue.json; None if there is no such file.

    Raises NotAQueue if it does not describe a queue of this format.
    """
    path = os.path.join(root, "queue.json")
    try:
        data = disk.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        metadata = json.loads(data)
        count = metadata["num_partitions"]
        if metadata["format"] == _FORMAT and isinstance(count, int) and count > 0:
            return count
    except (ValueError, KeyError, TypeError):
        pass
    raise NotAQueue(
        f"{path!r} does not describe a queue of message files: {data[:80]!r}",
        f'restore it: {{"format": "{_FORMAT}", "num_partitions": N}}',
    )


def require_metadata(disk: Disk, root: str) -> int:
    """The partition count in queue.json; raises NotAQueue if there is none."""
    count = read_metadata(disk, root)
    if count is None:
        raise NotAQueue(
            f"{root!r} is not a queue: it has no queue.json",
            "check the path; PartitionedQueue(path) makes a new queue",
        )
    return count
