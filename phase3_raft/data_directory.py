"""Which data directory a broker has: an id that goes with the files in it.

A broker that comes back with an empty directory, on a new disk or after an `rm -rf` too many, has
the same number and the same address, and nothing of what it had acknowledged. The controller would
take it for one that is in sync, and let it lead; the others would then cut their logs to what it
has. So the directory has an id, made when the directory is, which the broker tells when it
registers: under another one it is in sync with nothing until it has copied everything
(`metadata.broker_changes`).

>>> from craft2.faulty_disk import FaultyDisk
>>> disk = FaultyDisk()
>>> disk.mkdir("/data")
>>> directory_id(disk, "/data", lambda: "0123456789abcdef0123456789abcdef")
'0123456789abcdef0123456789abcdef'
>>> print(disk.read("/data/meta.properties").decode())
version=1
directory.id=ASNFZ4mrze8BI0VniavN7w
<BLANKLINE>
>>> directory_id(disk, "/data", lambda: "f" * 32)  # it is there by now
'0123456789abcdef0123456789abcdef'

Source: KIP-858 (`directory.id`), Kafka's `MetaProperties`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from craft2.disk import Disk
from phase1_file_queue.log_config import CorruptLog
from phase1_file_queue.publish import publish
from phase3_raft.partition_files import from_base64, to_base64

FILE = "meta.properties"
_TEXT = re.compile(r"version=1\ndirectory\.id=([A-Za-z0-9_-]{22})\n")


def directory_id(disk: Disk, folder: str, new_id: Callable[[], str]) -> str:
    """The id of a broker's data directory, 32 hexadecimal digits; a new one if it has none yet.

    Raises CorruptLog if the file makes no sense; DiskError.
    """
    path = os.path.join(folder, FILE)
    if not disk.exists(path):
        publish(disk, path, f"version=1\ndirectory.id={to_base64(new_id())}\n".encode())
    data = disk.read(path)
    found = _TEXT.fullmatch(data.decode(errors="replace"))
    if found is None:
        raise CorruptLog(
            f"{path!r} does not say which directory this is: {data[:60]!r}",
            "restore the file; or remove it: then this broker copies from the others what it has",
        )
    return from_base64(found[1])
