"""Consumers that are processes: started, watched and killed from a notebook's cell.

    with WorkerPool("file:queue", ["flights"], "billing", workers=3) as pool:
        pool.wait_until(lambda: len(pool.owners()) == 8)    # each partition has an owner
        pool.kill("consumer-2")                             # kill -9: it says goodbye to nobody
        pool.wait_until(lambda: "consumer-2" not in pool.owners().values())
        pool.events()                                       # what happened, and because of what

Each worker has a session of its own (an interrupt of the notebook is not for it), writes what it
prints to a file, and ends when the process that started it does, however that ends. Linux sees to
it (PR_SET_PDEATHSIG, see prctl(2)). Elsewhere, a worker's standard input is a pipe whose other end
the pool's process holds: that is not enough for a worker that stands still, nor while a child that
the pool's process has forked lives on and holds the pipe too. On Linux this is left of it: a worker
that is paused in its first moments, before it has asked for the signal.

What happens goes, as events, to one file for all of them.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import psutil

from craft2.clock import Clock, SystemClock
from craft2.disk import RealDisk
from craft2.errors import Craft2Error
from craft2.events import Event, EventLog, read_events
from phase2_groups.consumer import Consumer
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.consumer_errors import CommitRefused, RebalanceInProgress
from phase2_groups.fetch_buffer import ConsumerRecord
from phase2_groups.file_transport import FileTransport
from phase2_groups.group_files import LOCK, group_folder
from phase2_groups.group_messages import TopicPartition

_REPORT_EVERY_S = 0.1
_PR_SET_PDEATHSIG = 1  # Linux: the number of this request in prctl(2)

Handler = Callable[[ConsumerRecord], object]


class WorkerError(Craft2Error):
    """A worker that cannot be started, or has ended in a way that nobody asked for."""


class Spec(msgspec.Struct):
    """What a worker is told."""

    name: str
    parent: int  # the pool's process id
    root: str
    topics: list[str]
    settings: dict[str, Any]
    handler: str  # module:function
    events: str


class WorkerPool:
    """See the module.

    address: `file:FOLDER`. handler: a function that can be imported, called with each record.
    settings: of each worker's `ConsumerConfig`, over these: earliest, session timeout 1 s,
    heartbeats every 0.3 s, a commit by hand after every poll whose records have been handled.
    """

    def __init__(
        self,
        address: str,
        topics: Sequence[str],
        group_id: str,
        *,
        workers: int = 0,
        handler: Handler = repr,
        folder: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
        **settings: object,
    ) -> None:
        self._root = _folder_of(address)
        self._topics = list(topics)
        self._handler = _importable(handler)
        self._clock = clock or SystemClock()
        self._settings = {
            "bootstrap_servers": address,
            "group_id": group_id,
            "auto_offset_reset": "earliest",
            "session_timeout_ms": 1_000,
            "heartbeat_interval_ms": 300,
            "enable_auto_commit": False,
            **settings,
        }
        ConsumerConfig(**self._settings)  # type: ignore[arg-type]  # its errors come here, not there
        self.folder = Path(folder or tempfile.mkdtemp(prefix="craft2-workers-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        self.events_file = self.folder / "events.jsonl"
        self._log = EventLog(self.events_file, "pool", self._clock)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ended: set[str] = set()  # by our own hand
        self._count = 0
        self._closed = False
        # To Linux the parent is the *thread* that starts a process; this one lives like the pool.
        self._starter = ThreadPoolExecutor(1, "worker-pool")
        self.add(workers)

    # What one does to workers.

    def add(self, count: int = 1, **settings: object) -> list[str]:
        """Start more; `settings` are for these alone. Returns their names."""
        if self._closed:
            raise WorkerError("the pool is closed", "make a new one")
        return [self._start(settings) for _ in range(count)]

    def _start(self, settings: dict[str, object]) -> str:
        self._count += 1
        name = f"consumer-{self._count}"
        spec = Spec(
            name=name,
            parent=os.getpid(),
            root=self._root,
            topics=self._topics,
            settings={"client_id": name, **self._settings, **settings},
            handler=self._handler,
            events=str(self.events_file),
        )
        with open(self.folder / f"{name}.log", "wb") as log:
            self._processes[name] = self._starter.submit(
                subprocess.Popen,
                # -P keeps the notebook's folder off the module path: PYTHONPATH says whose code.
                [sys.executable, "-P", "-m", __name__, msgspec.json.encode(spec).decode()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            ).result()
        self._log.emit("started", data={"worker": name}, because="the pool was told to add one")
        return name

    def kill(self, name: str) -> None:
        """`kill -9`: it stops between two instructions and tells nobody."""
        self._signal(name, signal.SIGKILL, "killed")
        self._processes[name].wait()

    def pause(self, name: str) -> None:
        """`kill -STOP`: it stands still, as in a long pause of its garbage collector.

        Not while it holds the group's lock, though: that would halt all the others, too.
        """
        self._signal(name, signal.SIGSTOP, "paused")
        process, never = self._processes[name], threading.Event()
        while process.poll() is None:
            if not _stands_still(process):
                self._clock.wait(never, 0.001)  # a signal takes a moment
            elif self._lock_is_free():
                return
            else:
                os.kill(process.pid, signal.SIGCONT)
                self._clock.wait(never, 0.01)
                os.kill(process.pid, signal.SIGSTOP)

    def _lock_is_free(self) -> bool:
        """Whether the group's lock can be had; others may hold it, but each only for a moment."""
        folder = group_folder(self._root, str(self._settings["group_id"]))
        os.makedirs(folder, exist_ok=True)
        lock, never = RealDisk().lock(os.path.join(folder, LOCK)), threading.Event()
        try:
            for _ in range(50):
                if lock.acquire(wait=False):
                    return True
                self._clock.wait(never, 0.01)
            return False
        finally:
            lock.close()

    def resume(self, name: str) -> None:
        """`kill -CONT`: it goes on, and does not know that time has passed."""
        self._signal(name, signal.SIGCONT, "resumed")

    def stop(self, name: str, limit_s: float = 10.0) -> None:
        """Let it finish the record in hand, commit, leave the group, and end; wake it for that.

        Raises WorkerError if it still runs after `limit_s` seconds. It will end with that record.
        """
        if name in self._processes and _stands_still(self._processes[name]):
            self.resume(name)
        self._signal(name, signal.SIGTERM, "stopped")
        try:
            self._processes[name].wait(limit_s)
        except subprocess.TimeoutExpired:
            raise WorkerError(
                f"{name} still runs {limit_s:g} s after it was told to stop",
                "its handler takes long, or hangs: wait, or kill it",
            ) from None

    def _signal(self, name: str, number: signal.Signals, word: str) -> None:
        if name not in self._processes:
            raise WorkerError(
                f"there is no worker {name!r}", f"there are {', '.join(self._processes) or 'none'}"
            )
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._ended.add(name)
        if self._processes[name].poll() is None:
            self._log.emit(word, data={"worker": name}, because=f"the pool sent {number.name}")
            self._processes[name].send_signal(number)

    # What one sees of them.

    def running(self) -> list[str]:
        """The workers that have not ended."""
        return [name for name, process in self._processes.items() if process.poll() is None]

    def events(self) -> list[Event]:
        """What happened so far: to workers, in the group, and to partitions, in file order."""
        return read_events(self.events_file).events

    def owners(self) -> dict[TopicPartition, str]:
        """Who has each partition, as its members last said and the group last decided."""
        owners: dict[TopicPartition, str] = {}
        for event in self.events():
            if event.topic is None or event.partition is None:
                if event.kind == "member-gone":
                    gone = event.who
                    owners = {p: who for p, who in owners.items() if who != gone}
            elif event.kind == "assigned":
                owners[event.topic, event.partition] = event.who
            elif event.kind in ("revoked", "lost"):
                partition = event.topic, event.partition
                if owners.get(partition) == event.who:
                    del owners[partition]
        return owners

    def wait_until(self, reached: Callable[[], object], timeout_s: float = 30.0) -> None:
        """Return when `reached()` is true.

        Raises WorkerError if that takes longer, or if a worker ends by itself.
        """
        until, never = self._clock.monotonic() + timeout_s, threading.Event()
        while not reached():
            for name, process in self._processes.items():
                if process.poll() not in (None, 0) and name not in self._ended:
                    raise WorkerError(f"{name} has ended: {self._last_words(name)}")
            if self._clock.monotonic() > until:
                raise WorkerError(
                    f"waited {timeout_s:.0f} s; running: {', '.join(self.running()) or 'none'}; "
                    f"owners: {self.owners()}",
                    f"look at the events, and at the workers' files in {self.folder}",
                )
            self._clock.wait(never, 0.02)

    def _last_words(self, name: str) -> str:
        said = (self.folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return said[-1] if said else f"with code {self._processes[name].returncode}"

    def close(self) -> None:
        """Kill what still runs."""
        self._closed = True
        for name, process in self._processes.items():
            self._ended.add(name)
            process.kill()
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        self._starter.shutdown()
        self._log.close()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _stands_still(process: subprocess.Popen[bytes]) -> bool:
    if process.poll() is not None:
        return False
    return bool(psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)


def _folder_of(address: str) -> str:
    kind, _, folder = address.partition(":")
    if kind != "file" or not folder:
        raise WorkerError(f"the address {address!r}", "give file:FOLDER")
    return folder


def _importable(handler: Handler) -> str:
    module, name = getattr(handler, "__module__", ""), getattr(handler, "__qualname__", "")
    if module == "__main__" or "<" in name or not name:
        raise WorkerError(
            f"the handler {handler!r} cannot be imported by another process",
            "put it into a module (a file beside the notebook is none) and import it from there",
        )
    return f"{module}:{name}"


# The worker's side.


def _end_with(parent: int) -> None:
    """See the module."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before that
        os._exit(2)
    threading.Thread(target=_end_with_pipe, daemon=True).start()


def _end_with_pipe() -> None:
    os.read(0, 1)  # returns when nobody holds the other end any more
    os._exit(2)


def run(spec: Spec) -> None:
    """Poll, handle, commit, until SIGTERM or an error of the handler; then go back to the first
    record not handled, and end.

    So the positions that are committed, by hand or when the consumer closes, are right.
    """
    module, _, name = spec.handler.partition(":")
    handle: Handler = getattr(importlib.import_module(module), name)
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    config = ConsumerConfig(**spec.settings)
    clock = SystemClock()
    next_report_s = 0.0
    with (
        EventLog(spec.events, spec.name) as events,
        FileTransport(spec.root, events=events) as files,
        Consumer(config, files, events=events) as consumer,
    ):
        consumer.subscribe(spec.topics)
        while not stopping.is_set():
            records = consumer.poll(100)
            done = 0
            try:
                while done < len(records) and not stopping.is_set():
                    handle(records[done])
                    done += 1
            finally:
                for left in reversed(records[done:]):  # the first of a partition comes last
                    consumer.seek((left.topic, left.partition), left.offset)
            if records and not config.enable_auto_commit:
                # A refusal is no loss: the records come again, here or at another worker.
                with contextlib.suppress(CommitRefused, RebalanceInProgress):
                    consumer.commit()
            if clock.monotonic() >= next_report_s:
                next_report_s = clock.monotonic() + _REPORT_EVERY_S
                _report(consumer, events)


def _report(consumer: Consumer, events: EventLog) -> None:
    """How far each partition is, and what it has still before it."""
    for (topic, number), lag in consumer.lag().items():
        position = consumer.position((topic, number))
        events.emit("progress", topic=topic, partition=number, offset=position, data={"lag": lag})


def main(text: str) -> None:
    """Run one worker."""
    spec = msgspec.json.decode(text, type=Spec)
    _end_with(spec.parent)
    run(spec)


if __name__ == "__main__":
    main(sys.argv[1])
