"""Publishing a file: it appears whole or not at all.

A reader that looks into the directory at any moment, also after a crash at any moment, must find
under the file's name either the complete content or what was there before. And once `publish` has
returned, neither `kill -9` nor a power cut may take the content away.

Every message file, every committed offset and every checkpoint of this package is written by this
one function.

Source: the `rename` and `fsync` pages of POSIX; T. Pillai et al., "All File Systems Are Not Created
Equal", OSDI 2014, for how many programs get this wrong.
"""

from __future__ import annotations

import os

from craft2.disk import Disk


def staging_path(path: str) -> str:
    """Where the content of `path` is prepared: a hidden file in the same directory.

    The same directory, because a rename is one step only within one file system.

    >>> staging_path("q/partition-0/00000007.msg")
    'q/partition-0/.00000007.msg.tmp'
    """
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.tmp")


# EXERCISE 1.1 atomic publish
def publish(disk: Disk, path: str, data: bytes, *, sync: bool = True) -> None:
    """Give the file `path` the content `data`, in one step as far as anybody can see.

    disk: what you need of it: `open(path, "empty")`, which makes an empty file (or empties the one
    there is) and returns it; on that file `write_at(position, data)`, `sync()`, which makes its
    content durable, and `close()`; `rename(old, new)`, which replaces `new` in one step; and
    `sync_dir(directory)`, which makes the names in a directory durable.
    path: the final name. `staging_path(path)` is a name that readers ignore.
    sync: if true, the file must survive a power cut from the moment this function returns; if
    false, only the death of this process, and there is nothing to sync.
    """
    # BEGIN SOLUTION
    staged = staging_path(path)
    file = disk.open(staged, "empty")
    try:
        file.write_at(0, data)
        if sync:
            file.sync()
    finally:
        file.close()
    disk.rename(staged, path)
    if sync:
        disk.sync_dir(os.path.dirname(path))
    # END SOLUTION
