"""A broker as a process of its own, from a cell: it ends when the cell's kernel does.

with LocalBroker() as broker:
    Producer({"bootstrap.servers": broker.bootstrap_servers}).produce("flights", b"departed")
"""

from __future__ import annotations

import os
import shutil
import tempfile
from types import TracebackType

from craft2.local_process import LocalProcess, complaints
from craft2.net import parse_address


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
        """Raises NotStarted."""
        self._temporary = tempfile.mkdtemp(prefix="craft2-broker-") if data_dir is None else None
        self.data_dir = os.fspath(data_dir or self._temporary or "")
        self._options, self._port = options, port
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # `close` does
        self._process: LocalProcess | None = None
        self.bootstrap_servers = ""
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start it, again after `kill` or `stop`; at the port that it had. Raises as above."""
        self._process = LocalProcess(
            *("broker", "--data-dir", self.data_dir, "--port", str(self._port), *self._options),
            errors=self._errors,
        )
        self.bootstrap_servers = self._process.address
        self._port = parse_address(self.bootstrap_servers).port

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process is not None
        return self._process.pid

    def errors(self) -> str:
        """What it has complained about so far, without the times of the lines."""
        return complaints(self._errors)

    def kill(self) -> None:
        """`kill -9`."""
        self._ending().kill()

    def stop(self) -> int:
        """`kill -TERM`: it closes its logs; returns the exit status."""
        return self._ending().stop()

    def _ending(self) -> LocalProcess:
        process, self._process = self._process, None
        assert process is not None
        return process

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
