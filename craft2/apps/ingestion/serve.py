"""The service as a process: what `craft2 ingest` runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn

from craft2.apps.ingestion.service import IngestionService
from craft2.apps.ingestion.sinks import QueueMode, Sink
from craft2.clock import SystemClock
from craft2.net import BACKLOG, Address, NetError, raise_file_limit

GRACE_S = 30  # for requests in hand, once the process is told to end


def listen(address: Address) -> socket.socket:
    """A socket that listens; port 0 is any free one. Raises NetError."""
    try:
        return socket.create_server(address, backlog=BACKLOG)
    except OSError as error:
        why = str(error.strerror or error).partition(" (while")[0]  # the address is said already
        raise NetError(
            f"cannot listen at {address}: {why}",
            "choose another --port (0: any free one), or end what listens there",
        ) from error


def serve(
    sink: Sink, mode: QueueMode, listener: socket.socket, *, rate_limit: float, with_stdin: bool
) -> None:
    """Serve until SIGTERM or Ctrl-C; then answer what was asked, drain the sink, and return.

    with_stdin: also end when standard input does.
    """
    raise_file_limit()
    service = IngestionService(sink, mode, SystemClock(), rate_limit=rate_limit)
    config = uvicorn.Config(
        service.app,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=GRACE_S,
    )
    with listener:
        _Server(config, with_stdin).run(sockets=[listener])


class _Server(uvicorn.Server):
    """uvicorn's, which says when it is ready, and returns after a signal instead of dying of it."""

    def __init__(self, config: uvicorn.Config, with_stdin: bool) -> None:
        super().__init__(config)
        self._with_stdin = with_stdin

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._end)
        if self._with_stdin:
            loop.add_reader(sys.stdin.fileno(), self._end_with_stdin)
        assert sockets is not None
        print(f"ready {Address(*sockets[0].getsockname()[:2])}", flush=True)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # `startup` does

    def _end(self) -> None:
        self.should_exit = True

    def _end_with_stdin(self) -> None:
        if not os.read(sys.stdin.fileno(), 1):
            self._end()
