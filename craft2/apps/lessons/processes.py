"""Processes that a notebook starts, listens to, and kills.

    worker = Worker(produce, root, 0, 500)     # a function, in a process of its own
    worker.wait_for(100)                       # until it has acknowledged 100 things
    worker.kill()                              # kill -9
    worker.acks                                # all it acknowledged: a list of tuples of ints

A worker acknowledges by writing a line of numbers into a pipe.  What is in the pipe survives the
worker, so the parent knows exactly what had been promised when it died.

A worker has a process group of its own (an interrupt of the notebook is not for it), inherits
neither the notebook's output nor its input, and ends when the notebook's kernel does: its standard
input is a pipe whose other end only the kernel holds.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from craft2.clock import Clock, SystemClock
from craft2.errors import Craft2Error

if TYPE_CHECKING:
    from phase1_file_queue.queue_consumer import QueueConsumer

_TOO_LATE = 3  # the exit code of a worker that has lived as long as it may
LIMIT_S = 50.0  # no worker lives longer: a cell that waits for one ends before its own limit


class WorkerError(Craft2Error):
    """A worker ended before it had done what the notebook waits for."""


class Work(Protocol):
    """A function of a module: it takes numbers and texts, and returns nothing."""

    __name__: str
    __module__: str
    __call__: Callable[..., None]


class Worker:
    """One process that runs `work(*arguments)`; `acks` is what it has acknowledged so far.

    It ends after `limit_s` at the latest.
    """

    def __init__(self, work: Work, *arguments: object, limit_s: float = LIMIT_S) -> None:
        self.acks: list[tuple[int, ...]] = []
        self._limit_s = limit_s
        self._reader: threading.Thread | None = None
        self._name = work.__name__
        where = f"{work.__module__}:{work.__name__}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (read when the worker has failed)
        self._process = subprocess.Popen(
            # -P keeps the notebook's folder off the module path: PYTHONPATH says whose code runs.
            [sys.executable, "-P", "-m", __name__, str(limit_s), where, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            process_group=0,
        )

    def wait_for(self, count: int) -> None:
        """Return when the worker has acknowledged `count` things; WorkerError if it ends before."""
        if not self.reaches(count):
            raise self._error(f"{count} acknowledgements")

    def reaches(self, count: int) -> bool:
        """Whether the worker acknowledges `count` things; if not, it has ended."""
        while len(self.acks) < count:
            if not self._read_ack():
                return False
        return True

    def follow(self) -> None:
        """From now on a thread reads the acknowledgements: `acks` grows by itself."""
        self._reader = threading.Thread(target=self._read_acks, daemon=True)
        self._reader.start()

    @property
    def running(self) -> bool:
        """False once the process has ended, for whatever reason."""
        return self._process.poll() is None

    def finish(self) -> list[tuple[int, ...]]:
        """Wait until the worker has done its work; returns all it acknowledged."""
        self._read_rest()
        code = self._process.wait()
        if code != 0:
            raise self._error("its end")
        self._close()
        return self.acks

    def kill(self) -> list[tuple[int, ...]]:
        """`kill -9`: the process stops between two instructions; returns all it acknowledged."""
        self._process.kill()
        self._read_rest()
        self._process.wait()
        self._close()
        return self.acks

    def _read_rest(self) -> None:
        if self._reader is None:
            self._read_acks()
        else:
            self._reader.join()

    def _read_acks(self) -> None:
        while self._read_ack():
            pass

    def _read_ack(self) -> bool:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.endswith(b"\n"):
            self.acks.append(tuple(map(int, line.split())))
        return line.endswith(b"\n")

    def _error(self, awaited: str) -> WorkerError:
        code = self._process.wait()
        self._log.seek(0)
        said = self._log.read().decode(errors="replace").strip().splitlines()
        last = f"; it said: {said[-1]}" if said else ""
        self._close()
        if code == _TOO_LATE:
            return WorkerError(
                f"the process {self._name!r} has stopped itself after {self._limit_s:g} s, as it "
                f"must, with {len(self.acks)} acknowledgements; the notebook waited for {awaited}",
                "run this cell again when this machine has less else to do",
            )
        return WorkerError(
            f"the process {self._name!r} ended with code {code} after {len(self.acks)} "
            f"acknowledgements, while the notebook waited for {awaited}{last}",
            "mend what it says and run this cell again",
        )

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._log):
            assert pipe is not None
            pipe.close()


def lives(start: Callable[[], Worker], kill_after: Iterable[int]) -> list[tuple[int, ...]]:
    """All that a worker acknowledges which is killed after so many, and started again, and ...

    The last one, which is not killed, finishes the work. On a busy machine a kill comes late, and
    one before it may have done so.
    """
    acks: list[tuple[int, ...]] = []
    for count in kill_after:
        worker = start()
        if not worker.reaches(count):
            return acks + worker.finish()
        acks += worker.kill()
    return acks + start().finish()


def acknowledge(*numbers: int) -> None:
    """Tell the parent: one line, in one write, so that lines of several threads do not mix."""
    os.write(1, (" ".join(map(str, numbers)) + "\n").encode())


# What workers do.


def write_jsonl(path: str, count: int | None = None) -> None:
    """The naive service: append this machine's metrics to one file, a JSON object a line."""
    from craft2.apps.ingestion.machine_metrics import metrics

    events = itertools.islice(metrics(0.001, SystemClock()), count)
    with open(path, "a", buffering=8192) as file:  # the usual size, spelled out for every Python
        for number, event in enumerate(events):
            json.dump(json.loads(event.value), file)
            file.write("\n")
            acknowledge(number)


def produce(root: str, start: int, count: int) -> None:
    """Produce `count` flights from number `start` on; acknowledge partition, offset, number."""
    from craft2.apps.ingestion.flights import flights
    from phase1_file_queue.partitioned_queue import PartitionedQueue

    with PartitionedQueue(root) as queue:
        for number, flight in enumerate(flights(count, start), start):
            where = queue.produce(flight.key, flight.value, timestamp=flight.event_time_ms)
            acknowledge(*where, number)


def produce_steadily(root: str, start: int, per_second: int) -> None:
    """Produce flights from number `start` on at this rate; acknowledge partition and offset."""
    from craft2.apps.ingestion.flights import flights
    from phase1_file_queue.partitioned_queue import PartitionedQueue

    clock, never = SystemClock(), threading.Event()
    began = clock.monotonic()
    with PartitionedQueue(root) as queue:
        for number, flight in enumerate(flights(start=start)):
            clock.wait(never, began + number / per_second - clock.monotonic())
            acknowledge(*queue.produce(flight.key, flight.value, timestamp=flight.event_time_ms))


def consume(root: str, group: str, total: int) -> None:
    """Handle messages until the group has handled `total`; acknowledge partition and offset."""
    from phase1_file_queue.message_file import Message
    from phase1_file_queue.queue_consumer import QueueConsumer

    handled: list[Message] = []

    def handle(message: Message) -> None:
        acknowledge(message.partition, message.offset)
        handled.append(message)

    with QueueConsumer(root, group) as consumer:
        before = sum(map(consumer.committed, consumer.lag()))
        consumer.start(handle)
        _wait_until_committed(consumer, total, lambda: before + len(handled))


def consume_in_tens(root: str, group: str, commit: str, stop_at: int) -> None:
    """Poll ten messages at a time and handle them, to the end; acknowledge partition and offset.

    commit: "before" or "after" handling the ten.
    stop_at: after so many messages stand still, until somebody kills this process; 0: never.
    """
    from phase1_file_queue.queue_consumer import QueueConsumer

    handled = 0
    with QueueConsumer(root, group) as consumer:
        while messages := consumer.poll(10):
            if commit == "before":
                consumer.commit()
            for message in messages:
                acknowledge(message.partition, message.offset)
                handled += 1
                if handled == stop_at:
                    threading.Event().wait()
            if commit == "after":
                consumer.commit()


def consume_out_of_order(root: str, group: str, commit: str, stuck_at: int, total: int) -> None:
    """Four threads on partition 0, until it is committed to `total`; acknowledge as `consume`.

    commit: "safe": as the tracker says; "latest": the message that was finished last, plus one.
    stuck_at: the handler of this offset never returns; `total` or more: of none.
    """
    from unittest.mock import patch

    from phase1_file_queue import queue_consumer
    from phase1_file_queue.commit_tracker import CommitTracker
    from phase1_file_queue.message_file import Message

    class Latest(CommitTracker):
        def finish(self, offset: int) -> int:
            return offset + 1

    clock, never = SystemClock(), threading.Event()
    handled: list[Message] = []

    def handle(message: Message) -> None:
        if message.offset == stuck_at:
            never.wait()
        clock.wait(never, 0.001 * (4 - message.offset % 5))  # so that many overtake others
        acknowledge(message.partition, message.offset)
        handled.append(message)

    tracker = Latest if commit == "latest" else CommitTracker
    with (
        patch.object(queue_consumer, "CommitTracker", tracker),
        queue_consumer.QueueConsumer(root, group, threads=4, in_order=False) as consumer,
    ):
        before = consumer.committed(0)
        consumer.start(handle)
        _wait_until_committed(consumer, total, lambda: before + len(handled))


def _wait_until_committed(
    consumer: QueueConsumer, total: int, handled: Callable[[], int], clock: Clock | None = None
) -> None:
    """Return when the group has committed `total` messages; end this process if it never will.

    handled: how many the group has handled so far. It may take a second until that is committed.
    (A thread may be stuck in its handler, so an exception would wait for it.)
    """
    clock, never = clock or SystemClock(), threading.Event()
    idle_s = 0.0
    while (done := sum(map(consumer.committed, consumer.lag()))) < total:
        if consumer.errors:
            _give_up(str(next(iter(consumer.errors.values()))))
        idle_s = idle_s + 0.01 if handled() >= total else 0.0
        if idle_s > 2:
            _give_up(
                f"all {total} messages are handled, but only {done} are committed: "
                "is `finish` (exercise 2.1) right?"
            )
        clock.wait(never, 0.01)


def _give_up(why: str) -> None:
    print(why, file=sys.stderr, flush=True)
    os._exit(1)


def hashes(key: str) -> None:
    """Acknowledge Python's hash of `key` and Kafka's, as this process computes them."""
    from phase1_file_queue.partitioner import murmur2

    acknowledge(hash(key.encode()), murmur2(key.encode()))


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the parent is gone, or has closed the pipe
    os._exit(2)


def main(limit_s: str, where: str, *arguments: str) -> None:
    """The worker's side: run a module's function; arguments made of digits are numbers."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    limit = threading.Timer(float(limit_s), os._exit, (_TOO_LATE,))
    limit.daemon = True
    limit.start()
    module, _, name = where.partition(":")
    work = getattr(importlib.import_module(module), name)
    work(*(int(text) if text.isdigit() else text for text in arguments))


if __name__ == "__main__":
    main(*sys.argv[1:])
