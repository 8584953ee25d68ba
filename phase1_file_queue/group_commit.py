"""Group commit: many threads wait, one writes and syncs for all of them.

A sync takes about as long for a thousand records as for one. So the first thread that comes becomes
the *leader*: it takes everything that is waiting, appends it with one write, syncs once, and wakes
those it did it for. Who comes while it works waits for the next group, led by one of them. There is
no timer: the busier the log, the larger the groups.

Those whose records are durable wake in a chain: the leader wakes one, and each wakes the next as
its first act. Woken all at once, they would only queue for the interpreter, which runs one of them
at a time, and be put to sleep and woken a second time (a quarter of the throughput, says
`make bench ARGS=group-commit`).

A thread may be woken only if its own records were appended *before* the sync began. Those that
arrived in the meantime may look as if the same sync covered them; nobody knows.

Source: D. DeWitt et al., "Implementation Techniques for Main Memory Database Systems", SIGMOD 1984,
section 5.2, where the idea has its name.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from craft2.clock import Clock

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class _Waiter(Generic[Item, Outcome]):
    """A thread that sleeps behind `door` until its item is durable, or until it has to lead."""

    __slots__ = ("door", "gone", "item", "leads", "outcome")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.outcome: Outcome | BaseException | None = None
        self.leads = False
        self.gone = False  # interrupted: it will not wake the next one
        self.door = threading.Lock()
        self.door.acquire()


class GroupCommit(Generic[Item, Outcome]):
    """Makes items durable, many with one sync.

    append: writes a group of items; for each, its outcome or the error that it alone caused.
    flush: syncs everything appended. If either raises, all of the group get that error.
    """

    def __init__(
        self,
        append: Callable[[Sequence[Item]], Sequence[Outcome | Exception]],
        flush: Callable[[], object],
    ) -> None:
        self._append = append
        self._flush = flush
        self._mutex = threading.Lock()
        self._waiting: list[_Waiter[Item, Outcome]] = []
        self._done: deque[_Waiter[Item, Outcome]] = deque()  # finished, still to be woken
        self._led = False  # Invariant: somebody waits only while somebody leads

    def submit(self, item: Item) -> Outcome:
        """Return the item's outcome once it is durable; raise its error, or the group's."""
        mine: _Waiter[Item, Outcome] = _Waiter(item)
        try:
            with self._mutex:
                self._waiting.append(mine)
                mine.leads, self._led = not self._led, True
            if not mine.leads:
                mine.door.acquire()
                self._wake_next()
            if mine.outcome is None:
                self._lead()
        except BaseException:  # Ctrl-C: go, but do not leave the others without a leader
            self._abandon(mine)
            raise
        if isinstance(mine.outcome, BaseException):
            raise mine.outcome
        assert mine.outcome is not None
        return mine.outcome

    def _abandon(self, mine: _Waiter[Item, Outcome]) -> None:
        mine.gone = True
        self._wake_next()
        with self._mutex:
            if mine in self._waiting:
                self._waiting.remove(mine)
                if mine.leads:
                    self._pass_on()

    def _lead(self) -> None:
        """Make durable what is waiting; pass the lead on; begin to wake those who may go."""
        group = self._make_durable()
        with self._mutex:
            self._done += [waiter for waiter in group if not waiter.leads]
            self._pass_on()  # first, so that the next sync begins while this group wakes
        self._wake_next()

    # EXERCISE 3.1 group commit
    def _make_durable(self) -> list[_Waiter[Item, Outcome]]:
        """Append and sync what is waiting, all at once; return the waiters whose wait is over.

        `self._waiting` is the list of those who wait. Other threads add to it at any time, also
        while this function works; they hold `self._mutex` for that moment. Those who are left in it
        form the next group. They must be able to come while the disk works.

        `self._append(items)` writes the `.item` of many waiters, in their order, with one write. It
        returns an outcome for each (for some perhaps an error that concerns it alone). What it has
        written before `self._flush()` is called is on the disk when that returns.

        Each waiter returned has its `.outcome`. If append or flush raises anything at all
        (BaseException), that error is the outcome of the whole group: nobody knows what is on disk.
        """
        # BEGIN SOLUTION
        with self._mutex:
            group, self._waiting = self._waiting, []
        outcomes: Sequence[Outcome | BaseException]
        try:
            outcomes = self._append([waiter.item for waiter in group])
            self._flush()
        except BaseException as error:
            outcomes = [error] * len(group)
        for waiter, outcome in zip(group, outcomes, strict=True):
            waiter.outcome = outcome
        return group
        # END SOLUTION

    def _wake_next(self) -> None:
        while self._done:
            try:
                waiter = self._done.popleft()
            except IndexError:  # another thread took the last one
                return
            waiter.door.release()
            if not waiter.gone:
                return

    def _pass_on(self) -> None:
        """Let the one who has waited longest lead, if anybody waits; the mutex is held."""
        self._led = bool(self._waiting)
        for heir in self._waiting[:1]:
            heir.leads = True
            heir.door.release()


class IntervalFlusher:
    """Calls `flush` every so often while there is something to flush, in a thread of its own."""

    def __init__(self, flush: Callable[[], object], interval_ms: int, clock: Clock) -> None:
        self._flush = flush
        self._interval_s = interval_ms / 1000
        self._clock = clock
        self._closing = threading.Event()
        self._due = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="log-flusher", daemon=True)
        self._thread.start()

    def note(self) -> None:
        """Something was appended. Raises the error that ended the flusher, if one did."""
        self._due.set()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            while not self._clock.wait(self._closing, self._interval_s):
                if self._due.is_set():
                    self._due.clear()
                    self._flush()
        except BaseException as error:
            self._error = error

    def close(self) -> None:
        """End the thread. What it has not flushed yet is the caller's to flush."""
        self._closing.set()
        self._thread.join()
