"""The service as a process of its own, from a cell or a test: it ends when its starter does.

with LocalService(QueueMode.FILE, root=folder) as service:
    print(service.address)
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from types import TracebackType

from craft2.apps.ingestion.sinks import QueueMode
from craft2.errors import Craft2Error
from craft2.net import Address, parse_address


class ServiceNotStarted(Craft2Error):
    """The process has ended before it was ready."""


class LocalService:
    """See the module.

    root, bootstrap: where its queue is, by mode. options: more of `craft2 ingest`.
    address: where it listens. process: what runs it.
    """

    def __init__(
        self,
        mode: QueueMode,
        *,
        root: str | os.PathLike[str] | None = None,
        bootstrap: str | None = None,
        port: int = 0,
        options: tuple[str, ...] = (),
    ) -> None:
        """Raises ServiceNotStarted."""
        where = {"--root": root, "--bootstrap": bootstrap}
        given = [part for name, value in where.items() if value for part in (name, str(value))]
        # Not a pipe: nobody reads it, and a full one would stop the service.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # `_end` does
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "craft2.apps.cli", "ingest", "--with-stdin"),
                *("--mode", mode.value, "--port", str(port), *given, *options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        said = self.process.stdout.readline().split()
        if len(said) != 2:
            self.process.wait()
            raise ServiceNotStarted(f"the service has not started: {self._end()}", "see there")
        self.address: Address = parse_address(said[1])

    def kill(self) -> None:
        """`kill -9`."""
        self.process.kill()
        self.process.wait()
        self._end()

    def stop(self) -> int:
        """`kill -TERM`: it answers what was asked and drains its queue; returns the exit status."""
        self.process.terminate()
        status = self.process.wait()
        self._end()
        return status

    def _end(self) -> str:
        """Close what is open; returns what it has complained about."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        if self._errors.closed:
            return ""
        self._errors.seek(0)
        with self._errors:
            return self._errors.read().strip()

    def __enter__(self) -> LocalService:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.stop()
