"""One broker as a process: what `craft2 broker` runs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

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
    async with Broker(config, trouble=_say) as broker:
        with _metrics(broker, metrics):
            await _either(broker.serves(), ending.wait())
            print(f"ready {broker.address}", flush=True)
            await ending.wait()


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


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _end_with_stdin(ending: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1):
        ending.set()
