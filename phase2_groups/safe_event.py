"""An event that a Ctrl-C cannot break.

Python raises KeyboardInterrupt in the main thread wherever that is just now. `threading.Event` has
a lock, taken by a function in Python: if the interrupt comes when that function has the lock and
has not returned yet, nobody ever gives it back, and all other threads wait for it. A notebook's
cells are interrupted often, and `Producer.send` sets an event thousands of times a second.

Here nothing is taken: each waiter has a lock of its own that others only open. (`with lock:`, where
`lock` is a `threading.Lock`, is safe, too: taking it and entering the block are one step.)

>>> event = SafeEvent()
>>> event.wait(0), event.set(), event.wait()
(False, None, True)

Source: bugs.python.org/issue29988 (what an interrupt does to `with`).
"""

from __future__ import annotations

import contextlib
import threading


class SafeEvent(threading.Event):
    """See the module. A call of `set` or `clear` that was interrupted may have done nothing.

    Invariant: each bell is locked until `set` has been called after its waiter began.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._bells: list[threading.Lock] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        for bell in tuple(self._bells):
            with contextlib.suppress(RuntimeError):  # another `set` was quicker
                bell.release()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        bell = threading.Lock()
        bell.acquire()
        self._bells.append(bell)
        try:  # in this order: who sets it looks for bells when it is set
            return self._is_set or bell.acquire(timeout=-1 if timeout is None else max(0, timeout))
        finally:
            self._bells.remove(bell)
