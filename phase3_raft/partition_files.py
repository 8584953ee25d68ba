"""Whose a partition's folder is: the topic's id, in a file in it.

A topic can be deleted and another made with the same name. If the broker dies in between, what lies
in `flights-0` may be the old one's, and must not come back to life in the new one. So each folder
says to which topic it belongs, by the id that no other topic ever has; and when it is emptied, the
file that says so goes last.

>>> from craft2.faulty_disk import FaultyDisk
>>> disk = FaultyDisk()
>>> claim(disk, "/data/flights-0", "0123456789abcdef0123456789abcdef")
>>> print(disk.read("/data/flights-0/partition.metadata").decode())
version: 0
topic_id: ASNFZ4mrze8BI0VniavN7w
<BLANKLINE>
>>> owner(disk, "/data/flights-0")
'0123456789abcdef0123456789abcdef'

Source: KIP-516 (topic ids), Kafka's `PartitionMetadataFile`.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Container

from craft2.disk import Disk
from phase1_file_queue.log_config import CorruptLog
from phase1_file_queue.log_files import TOPIC_ID
from phase1_file_queue.publish import publish

_TEXT = re.compile(r"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\n")


def owner(disk: Disk, folder: str) -> str | None:
    """The id of the topic that a folder belongs to; None: nobody has claimed it.

    Raises CorruptLog if the file makes no sense.
    """
    path = os.path.join(folder, TOPIC_ID)
    if not disk.exists(path):
        return None
    data = disk.read(path)
    found = _TEXT.fullmatch(data.decode(errors="replace"))
    if found is None:
        raise CorruptLog(
            f"{path!r} does not say which topic the folder belongs to: {data[:60]!r}",
            "restore the file; without it the folder is taken for one that nobody has claimed",
        )
    return from_base64(found[1])


def from_base64(text: str) -> str:
    """An id as 32 hexadecimal digits, from Kafka's way to write it in files: 22 characters."""
    return base64.urlsafe_b64decode(text + "==").hex()


def to_base64(id_: str) -> str:
    """The opposite."""
    return base64.urlsafe_b64encode(bytes.fromhex(id_)).decode().rstrip("=")


def claim(disk: Disk, folder: str, topic_id: str, removed: Container[str] = ()) -> None:
    """Make a folder this topic's.

    removed: the ids of topics that are no more: what such a one has left there is removed.
    Raises CorruptLog if the folder is some other topic's.
    """
    found = owner(disk, folder) if disk.exists(folder) else None
    if found == topic_id:
        return
    if found is not None:
        if found not in removed:
            raise CorruptLog(
                f"{folder!r} belongs to a topic with the id {found}, not to that with {topic_id}",
                "it comes from another cluster, or the metadata was lost: move it away",
            )
        remove(disk, folder)
    disk.mkdir(folder)
    text = f"version: 0\ntopic_id: {to_base64(topic_id)}\n"
    publish(disk, os.path.join(folder, TOPIC_ID), text.encode())


def remove(disk: Disk, folder: str) -> None:
    """Remove a folder with all its files. Interrupted, it is still known whose it was."""
    names = disk.listdir(folder)
    for name in sorted(names, key=lambda name: name == TOPIC_ID):
        if name == TOPIC_ID:
            disk.sync_dir(folder)
        disk.unlink(os.path.join(folder, name))
    disk.rmdir(folder)
