"""asyncio on virtual time: unmodified code, and nothing that waits.

Each machine has a loop of its own, and all of them share one `Timeline`: a callback is an event on
it, a timer is one that is planned for later. So tasks, futures, events, `sleep` and `timeout` work
as they always do, and an hour takes as long as what happens in it. Only what a machine has of its
own can differ: a clock that runs too fast, a pause, a crash.

>>> import asyncio
>>> timeline = Timeline()
>>> loop = SimLoop(timeline, "a")
>>> async def wait():
...     await asyncio.sleep(3_600)
...     return asyncio.get_running_loop().time()
>>> task = loop.create_task(wait())
>>> timeline.run(until_ms=3_600_000)
>>> task.result()
3600.0

What touches the world outside has no place here, and is an error: sockets, processes, signals,
threads. Connections come from `craft2.sim.net`.

Source: the interface is asyncio's own; the idea is FoundationDB's (W. Wilson, "Testing Distributed
Systems w/ Deterministic Simulation", 2014).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple

from craft2.sim.timeline import Timeline

Args = TypeVarTuple("Args")


class SimLoop(asyncio.AbstractEventLoop):
    """See the module.

    fast: how many seconds pass on this machine's clock in one of everybody's.
    after: called after every callback, so that somebody can look at what it has done.
    Invariant: once `dead`, no callback of this loop runs any more.
    """

    def __init__(
        self,
        timeline: Timeline,
        name: str,
        *,
        fast: float = 1.0,
        after: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self.dead = False
        self.errors: list[dict[str, Any]] = []  # what nobody caught
        self._timeline = timeline
        self._fast = fast
        self._after = after
        self._paused: list[asyncio.Handle] | None = None  # what is due meanwhile
        self._tasks: dict[asyncio.Task[Any], None] = {}

    # Time.

    def time(self) -> float:
        """Seconds, on this machine's clock."""
        return self._timeline.now_ms * self._fast / 1_000

    def call_soon(
        self, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.dead:
            self._timeline.at(self._timeline.now_ms, self._run, handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        # Never early; a millionth of a ms is rounding, and no reason to be a whole one late.
        self._timeline.at(math.ceil(when * 1_000 / self._fast - 1e-6), self._run, handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Args], object],
        *args: *Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def _run(self, handle: asyncio.Handle) -> None:
        if self.dead or handle.cancelled():
            return
        if self._paused is not None:
            self._paused.append(handle)
            return
        outer = asyncio._get_running_loop()  # a notebook's cell runs within one
        asyncio._set_running_loop(self)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(outer)
        if not self.dead:
            self._after()

    # A machine's misfortunes.

    def pause(self) -> None:
        """Let nothing run until `resume`, as SIGSTOP does; time goes on."""
        if self._paused is None:
            self._paused = []

    def resume(self) -> None:
        """Go on: first with what was due meanwhile."""
        due, self._paused = self._paused or [], None
        for handle in due:
            self._timeline.at(self._timeline.now_ms, self._run, handle)

    @property
    def paused(self) -> bool:
        return self._paused is not None

    def die(self) -> None:
        """The machine is gone. Detach its disk and its network first.

        Tasks that are forgotten still run their `finally`, whenever the garbage collector comes. So
        they end here and now, or a run would depend on it; nobody can see what they do.
        """
        self.dead = True
        for task in list(self._tasks):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
        self._tasks.clear()

    # What asyncio needs of a loop.

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def call(self, function: Callable[[*Args], Any], *args: *Args) -> Any:
        """What `function(*args)` returns when this loop is the one that runs."""
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            return function(*args)
        finally:
            asyncio._set_running_loop(outer)

    def is_running(self) -> bool:
        return not self.dead

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.dead:
            self.errors.append(context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays on the timeline, and nothing happens when its time comes."""
