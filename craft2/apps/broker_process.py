"""One broker as a process: what `craft2 broker` runs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from craft2.apps.broker_log import BrokerLog, say
from craft2.net import Address, raise_file_limit
from phase3_raft.broker import Broker, BrokerConfig


def serve(config: BrokerConfig, *, metrics: Address | None, with_stdin: bool) -> None:
    """Run until SIGTERM or Ctrl-C. Raises NetError, LogInUse, CorruptLog, DiskError.

    metrics: where Prometheus may ask.
    with_stdin: also end when standard input does, which is when the process that holds the other
        end of a pipe is no more.
    """
    raise_file_limit()
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


async def _run(config: BrokerConfig, metrics: Address | None, with_stdin: bool) -> None:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.set)
    if with_stdin:
        loop.add_reader(sys.stdin.fileno(), _end_with_stdin, ending)
    log = BrokerLog()
    async with Broker(config, trouble=log) as broker:
        with _metrics(broker, metrics):
            failed = asyncio.ensure_future(broker.failed())
            failed.add_done_callback(lambda _: ending.set())
            await _either(broker.serves(), ending.wait())
            with _pid_file(config.data_dir, broker.address):
                if not ending.is_set():
                    print(f"ready {broker.address}", flush=True)
                await ending.wait()
            log.tell_left_out()
            if failed.done():
                say(failed.result())
                raise SystemExit(1)
            failed.cancel()


PID_FILE = "broker.pid"


@contextmanager
def _pid_file(folder: str, address: Address) -> Iterator[None]:
    """While it runs, the folder says which process it is, and where it listens."""
    path = os.path.join(folder, PID_FILE)
    with open(path, "w") as file:
        file.write(f"{os.getpid()} {address}\n")
    try:
        yield
    finally:
        os.unlink(path)


def read_pid_file(folder: str) -> tuple[int, str] | None:
    """The broker that runs in a folder: its process, and where it listens; None: nobody does."""
    import psutil

    try:
        with open(os.path.join(folder, PID_FILE)) as file:
            pid, _, address = file.read().strip().partition(" ")
        words = psutil.Process(int(pid)).cmdline()
    except (OSError, ValueError, psutil.Error):
        return None  # such as after a `kill -9`: the number may be another process's by now
    return (int(pid), address) if "broker" in words and folder in words else None


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
