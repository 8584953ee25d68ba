"""What comes later: a reply's body that is not there yet, and what is done when it is.

A future tells whoever waits for it in the event loop's next round, and before that come all the
requests that have arrived meanwhile; where one waits for another, as a consumer for a producer's
records and a producer for its followers, these rounds are most of the time a message takes
(`make bench ARGS="broker-requests cluster-latency"`). So a `Promise` tells at once, and what is to
be done about it is done `Afterwards`: within the same round, but not in the middle of something.

>>> later, told = Afterwards(), []
>>> promise: Promise[str] = Promise()
>>> promise.when_kept(lambda: later.call(lambda: told.append(promise.result())))
>>> import asyncio
>>> async def main() -> list[str]:
...     promise.keep("a reply")
...     before = list(told)
...     later.run()
...     return before + told
>>> asyncio.run(main())
['a reply']
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, cast

Value = TypeVar("Value")
_AT_ONCE = 64  # calls in one round


def _nothing() -> None:
    pass


class Promise(Generic[Value]):
    """A value that comes later, for one who waits. given_up: called if nobody wants it any more."""

    __slots__ = ("_error", "_given_up", "_tell", "_value", "is_kept")

    def __init__(self, given_up: Callable[[], object] = _nothing) -> None:
        self._given_up = given_up
        self._value: Value | None = None
        self._error: BaseException | None = None
        self._tell: Callable[[], object] = _nothing
        self.is_kept = False  # or broken, or given up

    def keep(self, value: Value) -> None:
        """Here it is. Nothing happens if that was said before, or nobody wants it any more."""
        if not self.is_kept:
            self._value, self.is_kept = value, True
            self._tell()

    def fail(self, error: BaseException) -> None:
        """It will not come, and this is why."""
        if not self.is_kept:
            self._error, self.is_kept = error, True
            self._tell()

    def cancel(self) -> None:
        """Nobody wants it any more."""
        if not self.is_kept:
            self._error, self.is_kept = asyncio.CancelledError(), True
            self._given_up()

    def result(self) -> Value:
        """The value, once it is there. Raises what it failed with."""
        assert self.is_kept, "nobody has kept this promise yet"
        if self._error is not None:
            raise self._error
        return cast(Value, self._value)

    def when_kept(self, tell: Callable[[], object]) -> None:
        """Call back, once, when there is a result; at once if there is."""
        if self.is_kept:
            tell()
        else:
            self._tell = tell

    async def wait(self) -> Value:
        """The result, for a task. A task that is cancelled gives it up."""
        kept = asyncio.Event()
        self.when_kept(kept.set)
        try:
            await kept.wait()
        finally:
            self.cancel()
        return self.result()


class Afterwards:
    """Calls that wait until what is being done just now has come to its end: whoever does it calls
    `run` then; if nobody does, the event loop makes them in its next round."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], object]] = deque()

    def call(self, call: Callable[[], object]) -> None:
        """Call this afterwards."""
        if not self._calls:
            asyncio.get_running_loop().call_soon(self.run)
        self._calls.append(call)

    def run(self) -> None:
        """Make the calls, and those that they ask for. If there are many the event loop goes on
        before all are made: what was written meanwhile must not wait for them."""
        try:
            for _ in range(_AT_ONCE):
                if not self._calls:
                    break
                self._calls.popleft()()
        finally:
            if self._calls:  # or one went wrong: the others are not forgotten
                asyncio.get_running_loop().call_soon(self.run)
