"""Which process this is, without asking the system each time.

Locks, threads and sockets are not a forked child's to use, so whoever holds some looks now and then
whether it still is where it began. `os.getpid` is a system call; this is a number in memory, set
again in each child (`make bench ARGS=send`: the system call made `send` a tenth slower).

>>> import os
>>> process_id() == os.getpid()
True
"""

from __future__ import annotations

import os

_pid = os.getpid()


def process_id() -> int:
    """`os.getpid()`."""
    return _pid


def _in_a_forked_child() -> None:
    global _pid
    _pid = os.getpid()


os.register_at_fork(after_in_child=_in_a_forked_child)
