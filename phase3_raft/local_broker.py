"""A broker as a process of its own, from a cell: it ends when the cell's kernel does.

with LocalBroker() as broker:
    Producer({"bootstrap.servers": broker.bootstrap_servers}).produce("flights", b"departed")
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from types import TracebackType

from craft2.errors import Craft2Error


class BrokerNotStarted(Craft2Error):
    """The process has ended before it was ready."""


class LocalBroker:
    """See the module.

    data_dir: where it keeps its data; a temporary folder, removed at the end, if None.
    options: more of `craft2 broker`.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        port: int = 0,
        options: tuple[str, ...] = (),
    ) -> None:
        """Raises BrokerNotStarted."""
        self._temporary = tempfile.mkdtemp(prefix="craft2-broker-") if data_dir is None else None
        self.data_dir = os.fspath(data_dir or self._temporary or "")
        self._options, self._port = options, port
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # `close` does
        self._process: subprocess.Popen[str] | None = None
        self.bootstrap_servers = ""
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start it, again after `kill` or `stop`; at the port that it had. Raises as above."""
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "craft2.apps.cli", "broker", "--with-stdin"),
                *("--data-dir", self.data_dir, "--port", str(self._port), *self._options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        said = self._process.stdout.readline().split()
        if len(said) != 2:
            self._process.wait()
            raise BrokerNotStarted(f"the broker has not started: {self.errors()}", "see there")
        self.bootstrap_servers = said[1]
        self._port = int(said[1].rpartition(":")[2])

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def errors(self) -> str:
        """What it has complained about so far."""
        self._errors.seek(0)
        return self._errors.read().strip()

    def kill(self) -> None:
        """`kill -9`."""
        assert self._process is not None
        self._process.kill()
        self._end()

    def stop(self) -> int:
        """`kill -TERM`: it closes its logs; returns the exit status."""
        assert self._process is not None
        self._process.terminate()
        return self._end()

    def _end(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        status = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        return status

    def close(self) -> None:
        """End it, and remove a temporary folder."""
        if self._process is not None:
            self.stop()
        self._errors.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> LocalBroker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()
