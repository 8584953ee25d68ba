"""Another broker that speaks Kafka's protocol, as a process beside ours."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from craft2.errors import Craft2Error

_READY_S = 60.0
_API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


class PeerError(Craft2Error):
    """The other broker cannot be started here."""


class PeerProcess:
    """See the module. What the process says is in the file peer.log of `folder`.

    folder: where it keeps its data; a temporary one, removed at the end, if None.
    """

    def __init__(self, folder: Path | None) -> None:
        self._temporary = tempfile.mkdtemp(prefix="craft2-peer-") if folder is None else None
        self.folder = Path(folder or self._temporary or "")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.bootstrap_servers = ""
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str]) -> None:
        """Run something before it. Raises PeerError if that fails."""
        with self._said.open("ab") as output:
            done = subprocess.run(command, stdout=output, stderr=output, check=False)
        if done.returncode:
            raise self._not_started()

    def start(self, command: Sequence[str], port: int) -> None:
        """Start it; returns when it answers at that port of this machine. Raises PeerError."""
        self.launch(command, port)
        self.ready()

    def launch(self, command: Sequence[str], port: int) -> None:
        """Start it, and do not wait."""
        self.bootstrap_servers = f"127.0.0.1:{port}"
        with self._said.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                process_group=0,
            )

    def ready(self) -> None:
        """Wait until it answers. Raises PeerError."""
        assert self._process is not None
        port = int(self.bootstrap_servers.rpartition(":")[2])
        deadline = time.monotonic() + _READY_S
        while not _answers(port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise self._not_started()
            time.sleep(0.1)

    @property
    def _said(self) -> Path:
        return self.folder / "peer.log"

    def _not_started(self) -> PeerError:
        return PeerError(
            f"{type(self).__name__} has not started: {self._said.read_text()[-600:]}", "see there"
        )

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    def wait(self) -> None:
        """Until it ends."""
        assert self._process is not None
        self._process.wait()

    def close(self) -> None:
        """End it, and remove a temporary folder."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def _answers(port: int) -> bool:
    """Whether somebody there answers in Kafka's protocol."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(5)
            connection.sendall(_API_VERSIONS)
            return len(connection.recv(8)) == 8
    except OSError:
        return False
