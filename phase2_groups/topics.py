"""Topics in a folder: `ROOT/flights-0/`, `ROOT/flights-1/`, ... each a log of phase 1.

How many partitions a topic has is how many of these there are without a gap. So they are made from
the highest number down: nobody ever sees a topic with some of its partitions, nor one that has
grown by half. If that is interrupted, the folders beyond the gap are nobody's, and only the same
growth may go on with them.

>>> import tempfile
>>> root = tempfile.mkdtemp()
>>> create_topic(root, "flights", 4)
>>> partition_count(root, "flights")
4
"""

from __future__ import annotations

import os
import re

from craft2.disk import Disk, RealDisk
from craft2.errors import Craft2Error
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog

_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
PARTITION_FOLDER = re.compile(r"(.+)-(0|[1-9][0-9]*)")
MAX_PARTITIONS = 100_000


class TopicError(Craft2Error):
    """A topic that cannot be made, grown or found."""


def create_topic(
    root: str | os.PathLike[str], topic: str, partitions: int, *, disk: Disk | None = None
) -> None:
    """Make a topic, or let one grow to `partitions`.

    Keys move: which partition a key goes to depends on how many there are. Raises TopicError for a
    name or a number that Kafka would not allow either, if it has more partitions already, or is
    growing to more.
    """
    disk = disk or RealDisk()
    check_topic(topic)
    if type(partitions) is not int or not 1 <= partitions <= MAX_PARTITIONS:
        raise TopicError(
            f"topic {topic!r} cannot have {partitions!r} partitions",
            f"give a whole number from 1 to {MAX_PARTITIONS}",
        )
    there = partition_count(root, topic, disk=disk)
    if there > partitions:
        raise TopicError(
            f"topic {topic!r} has {there} partitions and cannot shrink to {partitions}",
            "make another topic: what is in a partition cannot be dealt out again",
        )
    beyond = [number for number in _folders(root, topic, disk) if number >= partitions]
    if beyond:  # they would count as soon as the gap is closed
        raise TopicError(
            f"topic {topic!r} would have {max(beyond) + 1} partitions, not {partitions}: a growth "
            f"that has not ended has made {', '.join(f'{topic}-{number}' for number in beyond)}",
            f"if nobody is at it, create_topic with {max(beyond) + 1} finishes it; to have fewer, "
            "remove these folders first, if their logs are empty",
        )
    for number in reversed(range(there, partitions)):
        path = partition_path(root, topic, number)
        PartitionLog(path, LogConfig(access="shared"), disk=disk).close()


def _folders(root: str | os.PathLike[str], topic: str, disk: Disk) -> list[int]:
    """The numbers of all partitions' folders of a topic, with or without a gap."""
    if not disk.exists(os.fspath(root)):
        return []
    found = (PARTITION_FOLDER.fullmatch(name) for name in disk.listdir(os.fspath(root)))
    return sorted(int(match[2]) for match in found if match and match[1] == topic)


def check_topic(topic: str) -> None:
    """Raise TopicError unless `topic` is a name that Kafka allows too."""
    if not isinstance(topic, str) or not _NAME.fullmatch(topic) or topic in (".", ".."):
        raise TopicError(
            f"{topic!r} is not the name of a topic",
            "use up to 249 of the characters a-z A-Z 0-9 . _ -",
        )


def partition_path(root: str | os.PathLike[str], topic: str, partition: int) -> str:
    """The folder of one partition's log."""
    return os.path.join(os.fspath(root), f"{topic}-{partition}")


def partition_count(root: str | os.PathLike[str], topic: str, *, disk: Disk | None = None) -> int:
    """How many partitions a topic has; 0: there is no such topic."""
    disk = disk or RealDisk()
    count = 0
    while disk.exists(partition_path(root, topic, count)):
        count += 1
    return count


def list_topics(root: str | os.PathLike[str], *, disk: Disk | None = None) -> dict[str, int]:
    """Every topic and how many partitions it has."""
    disk = disk or RealDisk()
    found = (PARTITION_FOLDER.fullmatch(name) for name in disk.listdir(os.fspath(root)))
    names = {match[1] for match in found if match and not match[1].startswith("__")}
    counts = {topic: partition_count(root, topic, disk=disk) for topic in sorted(names)}
    return {topic: count for topic, count in counts.items() if count}
