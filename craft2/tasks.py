"""Tasks that somebody holds on to.

An event loop keeps no strong reference to its tasks: one that nobody else holds may be collected
in the middle of its work. So all tasks are begun with `spawn`, and their owner can end them.

>>> import asyncio
>>> async def main() -> int:
...     tasks = Tasks()
...     tasks.spawn(asyncio.sleep(60))
...     tasks.cancel()
...     await asyncio.sleep(0.001)
...     return len(tasks)
>>> asyncio.run(main())
0

Source: the note at `asyncio.create_task` in Python's documentation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """See the module. failed: told what ends a task that should not have ended so."""

    def __init__(self, failed: Callable[[BaseException], object] | None = None) -> None:
        self._failed = failed
        self._running: dict[asyncio.Task[Any], None] = {}  # in the order of their beginning

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Begin a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._running[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._running[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failed is not None:
            self._failed(error)

    def cancel(self) -> None:
        """Ask all of them to end."""
        for task in list(self._running):
            task.cancel()

    def __len__(self) -> int:
        return len(self._running)
