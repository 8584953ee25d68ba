"""The service as a process of its own, from a cell or a test: it ends when its starter does.

with LocalService(QueueMode.FILE, root=folder) as service:
    print(service.address)
"""

from __future__ import annotations

import os
import tempfile
from types import TracebackType

from craft2.apps.ingestion.sinks import QueueMode
from craft2.local_process import LocalProcess
from craft2.net import Address, parse_address


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
        """Raises NotStarted."""
        where = {"--root": root, "--bootstrap": bootstrap}
        given = [part for name, value in where.items() if value for part in (name, str(value))]
        with tempfile.TemporaryFile("w+") as errors:  # the process keeps it
            self.process = LocalProcess(
                *("ingest", "--mode", mode.value, "--port", str(port), *given, *options),
                errors=errors,
            )
        self.address: Address = parse_address(self.process.address)

    def stop(self) -> int:
        """`kill -TERM`: it answers what was asked and drains its queue; returns the exit status."""
        return self.process.stop()

    def __enter__(self) -> LocalService:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if self.process.runs:
            self.stop()
