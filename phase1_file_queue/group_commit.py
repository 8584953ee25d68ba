"""Group commit: many threads wait, one syncs for all of them.

A sync takes about as long for one record as for a thousand. So the first thread that has to wait
becomes the *leader* and syncs; whoever appends meanwhile queues up. When the leader comes back it
wakes everyone whose records lie below the offset it started from, and hands the lead to one of the
others. No timer is involved: the busier the log, the larger the groups.

Source: D. DeWitt et al., "Implementation Techniques for Main Memory Database Systems", SIGMOD 1984,
section 5.2, where the idea has its name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from craft2.clock import Clock
from phase1_file_queue.log_config import FlushPolicy


class _Waiter:
    """A thread that sleeps on `door` until its records are durable, or it has to lead."""

    __slots__ = ("door", "leads", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.leads = False
        self.door = threading.Lock()
        self.door.acquire()


class GroupCommit:
    """Makes appended records durable as a flush policy says.

    flush: syncs the log; returns the offset before which everything is durable then. Raises if it
    cannot; then every waiting thread gets an error.
    """

    def __init__(
        self, flush: Callable[[], int], policy: FlushPolicy, interval_ms: int, clock: Clock
    ) -> None:
        self._flush = flush
        self._policy = policy
        self._interval_s = interval_ms / 1000
        self._clock = clock
        self._mutex = threading.Lock()
        self._leading = False
        self._waiters: list[_Waiter] = []
        self._durable = 0
        self._wanted = 0  # the largest offset anybody asked for
        self._closing = threading.Event()
        self._flusher: threading.Thread | None = None
        self.error: BaseException | None = None  # why the background flusher ended, if it did

    def wait(self, offset: int) -> None:
        """Return when everything before `offset` is as safe as the policy promises."""
        if self._policy == "batch":
            self._wait_until_durable(offset)
        elif self._policy == "interval":
            self._wanted = max(self._wanted, offset)
            if self.error is not None:
                raise self.error
            if self._flusher is None:
                self._start_flusher()

    def _wait_until_durable(self, offset: int) -> None:
        while True:
            with self._mutex:
                if offset <= self._durable:
                    return
                if not self._leading:
                    self._leading = True
                    break
                waiter = _Waiter(offset)
                self._waiters.append(waiter)
            waiter.door.acquire()
            if waiter.leads:
                break
        self._lead()
        # The leader's own records were appended before it flushed, so they are durable now.

    def _lead(self) -> None:
        """Flush once; wake those whose records that covered; pass the lead on."""
        durable = self._durable
        try:
            durable = self._flush()
        finally:
            with self._mutex:
                self._durable = max(self._durable, durable)
                done = [w for w in self._waiters if w.offset <= self._durable]
                self._waiters = [w for w in self._waiters if w.offset > self._durable]
                if self._waiters:
                    self._waiters[0].leads = True
                    done.append(self._waiters.pop(0))
                else:
                    self._leading = False
            for waiter in done:
                waiter.door.release()

    def reset(self, offset: int) -> None:
        """The log was cut: nothing at or after `offset` is durable any more."""
        with self._mutex:
            self._durable = min(self._durable, offset)
            self._wanted = min(self._wanted, offset)

    def _start_flusher(self) -> None:
        with self._mutex:
            if self._flusher is None:
                self._flusher = threading.Thread(
                    target=self._flush_at_intervals, name="log-flusher", daemon=True
                )
                self._flusher.start()

    def _flush_at_intervals(self) -> None:
        try:
            while not self._clock.wait(self._closing, self._interval_s):
                if self._wanted > self._durable:
                    self._durable = self._flush()
        except BaseException as error:
            self.error = error

    def close(self) -> None:
        """End the background flusher. What it had not flushed yet is the caller's to flush."""
        self._closing.set()
        if self._flusher is not None:
            self._flusher.join()
            self._flusher = None
