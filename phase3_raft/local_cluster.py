"""A cluster of brokers, each a process of its own, from a cell: they end when its kernel does.

with LocalCluster(brokers=3) as cluster:
    Producer({"bootstrap.servers": cluster.bootstrap_servers}).produce("flights", b"departed")
    cluster.kill(1)
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from types import TracebackType
from typing import IO

from craft2.local_process import LocalProcess, complaints
from craft2.net import free_ports


class LocalCluster:
    """See the module. Brokers are numbered from 1.

    data_dir: a folder with one for each broker; a temporary one, removed at the end, if None.
    base_port: brokers listen there and at the next ports, their Raft servers behind these; 0: at
    any that are free. options: more of `craft2 broker`.
    """

    def __init__(
        self,
        brokers: int = 3,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        base_port: int = 0,
        replicas: int = 3,
        options: Sequence[str] = (),
    ) -> None:
        """Raises NotStarted."""
        self._temporary = tempfile.mkdtemp(prefix="craft2-cluster-") if data_dir is None else None
        self.data_dir = os.fspath(data_dir or self._temporary or "")
        ports = free_ports(2 * brokers)
        if base_port:
            ports = list(range(base_port, base_port + 2 * brokers))
        self.addresses = {n + 1: f"127.0.0.1:{ports[n]}" for n in range(brokers)}
        voters = ",".join(f"{n + 1}=127.0.0.1:{ports[brokers + n]}" for n in range(brokers))
        self._options = ("--replicas", str(replicas), *options)
        self._belongs = dict.fromkeys(self.addresses, ("--voters", voters))
        self._errors: dict[int, IO[str]] = {}
        self._processes: dict[int, LocalProcess] = {}
        try:
            self.start(*self.addresses)
        except BaseException:
            self.close()
            raise

    @property
    def bootstrap_servers(self) -> str:
        """Where all of them are."""
        return ",".join(self.addresses.values())

    @property
    def pids(self) -> dict[int, int]:
        """The processes that run, by broker."""
        return {number: one.pid for number, one in self._processes.items()}

    def start(self, *numbers: int) -> None:
        """Start brokers, again after `kill` or `stop`, all at once. Raises NotStarted."""
        for number in numbers:
            if number not in self._errors:
                self._errors[number] = tempfile.TemporaryFile("w+")  # noqa: SIM115  # see `close`
            port = self.addresses[number].rpartition(":")[2]
            folder = os.path.join(self.data_dir, f"broker-{number}")
            os.makedirs(folder, exist_ok=True)
            self._processes[number] = LocalProcess(
                *("broker", "--data-dir", folder, "--port", port, "--broker-id", str(number)),
                *self._belongs[number],
                *self._options,
                errors=self._errors[number],
                wait=False,
            )
        for number in numbers:
            self._processes[number].ready()

    def add(self) -> int:
        """One more broker, which joins those that run; returns its number. Raises NotStarted."""
        number = max(self.addresses) + 1
        self._belongs[number] = ("--join", self.bootstrap_servers)
        self.addresses[number] = f"127.0.0.1:{free_ports(1)[0]}"
        self.start(number)
        return number

    def kill(self, number: int) -> None:
        """`kill -9`."""
        self._processes.pop(number).kill()

    def stop(self, number: int) -> int:
        """`kill -TERM`: others lead what it led before it goes; returns the exit status."""
        return self._processes.pop(number).stop()

    def ended(self) -> dict[int, int]:
        """Those that have ended by themselves since the last call, and their exit status."""
        gone = [number for number, one in self._processes.items() if not one.runs]
        return {number: self._processes.pop(number).wait() for number in gone}

    def stop_all(self) -> None:
        """`kill -TERM` to all of them at once."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for number in list(self._processes):
            self._processes.pop(number).wait()

    def send_signal(self, number: int, which: int) -> None:
        """Such as SIGSTOP, after which it stands still until SIGCONT."""
        self._processes[number].send_signal(which)

    def errors(self) -> dict[int, str]:
        """What each has complained about so far."""
        return {number: complaints(file) for number, file in self._errors.items()}

    def close(self) -> None:
        """End all of them, and remove a temporary folder."""
        for number in list(self._processes):
            self._processes.pop(number).kill()
        for file in self._errors.values():
            file.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()
