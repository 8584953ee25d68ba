"""One broker as a process: what `craft2 broker` runs."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from craft2.apps.broker_log import BrokerLog, say
from craft2.errors import Craft2Error
from craft2.net import Address, raise_file_limit
from phase3_raft.broker import Broker, BrokerConfig

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h


class FolderInUse(Craft2Error):
    """A broker's folder that another process has open."""


def serve(config: BrokerConfig, *, metrics: Address | None, with_stdin: bool) -> None:
    """Run until SIGTERM or Ctrl-C. Raises FolderInUse, NetError, LogInUse, CorruptLog, DiskError.

    metrics: where Prometheus may ask.
    with_stdin: also end when standard input does, which is when the process that holds the other
        end of a pipe is no more.
    """
    raise_file_limit()
    _keep_freed_memory()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_run(config, metrics, with_stdin))


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop's, where there is one: a quarter less time for each request."""
    try:
        import uvloop
    except ImportError:  # such as on Windows
        return None
    loop: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return loop


def _keep_freed_memory() -> None:
    """Have the C library keep what is freed, up to 64 MB, for the next batch.

    Else it gives the buffer of each large batch back to the system; for the next one the system
    looks for pages, and clears them (`make bench ARGS="cluster broker"`). Of glibc; another library
    goes on as it is. Source: mallopt(3).
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, 32 * 1024**2)  # the most that it takes
        mallopt(_M_TRIM_THRESHOLD, 64 * 1024**2)


async def _run(config: BrokerConfig, metrics: Address | None, with_stdin: bool) -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    if with_stdin:
        loop.add_reader(sys.stdin.fileno(), _end_with_stdin, ending)
    log, why = BrokerLog(), ""
    try:
        with _pid_file(config.data_dir) as serves_at:
            async with _open(Broker(config, trouble=log)) as broker:
                with _metrics(broker, metrics):
                    failed = asyncio.ensure_future(broker.failed())
                    failed.add_done_callback(lambda _: ending.set())
                    await _either(_serves(broker), ending.wait())
                    if not ending.is_set():
                        serves_at(broker.address)
                        print(f"ready {broker.address}", flush=True)
                    await ending.wait()
                    log.tell_left_out()
                    if failed.done():
                        why = failed.result()
                    failed.cancel()
                    serves_at(None)
    except (OSError, Craft2Error):
        if not why:  # a disk that has failed fails again when files are closed
            raise
    if why:
        _say_why(why)  # last: it is the line that people look for
        raise SystemExit(1)


@asynccontextmanager
async def _open(broker: Broker) -> AsyncIterator[Broker]:
    """Until it is closed. One that cannot serve listens to the other voters no more: they would
    connect while the loop ends, and what would answer them is never waited for."""
    try:
        await broker.open()
    except BaseException:
        broker.metadata.close()
        raise
    try:
        yield broker
    finally:
        await broker.close()


def _say_why(words: str) -> None:
    """Even if the reason is a full disk, and standard error a file on it."""
    if not say(words):
        print(words, flush=True)


PID_FILE = "broker.pid"


@contextmanager
def _pid_file(folder: str) -> Iterator[Callable[[Address | None], None]]:
    """While it runs, the folder says which process it is, and while it serves, where; nobody else
    can run there. The file stays, and is empty then. Raises FolderInUse."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, PID_FILE), "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read().partition(" ")[0].strip()
            raise FolderInUse(
                f"the folder {folder!r} is in use by {f'process {who}' if who else 'another'}",
                "end that process, or give another --data-dir",
            ) from None

        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        length = file.tell()

        def serves_at(address: Address | None) -> None:
            if address is None:
                file.truncate(length)  # a full disk does not hinder it
                return
            file.write(f" {address}\n")
            file.flush()

        yield serves_at
        file.truncate(0)


def read_pid_file(folder: str) -> tuple[int, str] | None:
    """The broker that runs in a folder: its process, and where it listens, "" as long as it does
    not serve; None: nobody runs."""
    import psutil

    try:
        with open(os.path.join(folder, PID_FILE)) as file:
            pid, _, address = file.read().strip().partition(" ")
        process = psutil.Process(int(pid))
        words, where = process.cmdline(), process.cwd()
    except (OSError, ValueError, psutil.Error):
        return None  # such as after a `kill -9`: the number may be another process's by now
    folders = {os.path.realpath(os.path.join(where, word)) for word in words}
    runs = "broker" in words and os.path.realpath(folder) in folders
    return (int(pid), address) if runs else None


_WAITS_S = 5.0  # it is no news before that


async def _serves(broker: Broker) -> None:
    """Wait until it serves, and say once what it waits for."""
    serves = asyncio.ensure_future(broker.serves())
    try:
        await asyncio.wait([serves], timeout=_WAITS_S)
        quorum, replication = broker.config.quorum, broker.replication
        if not serves.done() and quorum is not None and replication is not None:
            voters = ", ".join(map(str, sorted(quorum.voters)))
            if broker.controller_id < 0:
                say(f"waiting for a majority of the voters {voters}")
            elif not replication.refused:  # else that was said
                say(f"waiting to be taken in by broker {broker.controller_id}, the controller")
        await serves
    finally:
        serves.cancel()


async def _either(*waiting: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of them."""
    tasks = [asyncio.ensure_future(one) for one in waiting]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


@contextmanager
def _metrics(broker: Broker, address: Address | None) -> Iterator[None]:
    if address is None:
        yield
        return
    from craft2.apps.broker_metrics import serve_metrics

    end = serve_metrics(broker, address)
    try:
        yield
    finally:
        end()


def _end_with_stdin(ending: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1):
        ending.set()
