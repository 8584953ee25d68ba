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
from typing import IO, NamedTuple

from craft2.errors import Craft2Error
from craft2.local_process import LocalProcess, NotStarted, complaints
from craft2.net import free_ports
from phase3_raft.cluster_folder import (
    LOG_FILE,
    broker_folder,
    cluster_name,
    is_brokers,
    joined,
    keep_options,
    known_ports,
    known_voters,
    option,
)

_OWN = (  # options of one broker alone, which variables can set
    *("DATA_DIR", "CONFIG", "HOST", "PORT", "ADVERTISED", "BROKER_ID", "RACK", "CLUSTER"),
    *("VOTERS", "JOIN", "RAFT_LISTEN", "METRICS_PORT"),
)


def own_variables() -> list[str]:
    """Those of the environment that are meant for one broker: each of several would take them."""
    return [name for name in (f"CRAFT2_{one}" for one in _OWN) if name in os.environ]


class Ended(NamedTuple):
    """How a broker has ended. status: its exit status, or minus the signal. said: while it ran."""

    status: int
    said: str


class NoBroker(Craft2Error):
    """A broker that is not there, or not as it would have to be for that."""


class LocalCluster:
    """See the module. Brokers are numbered from 1.

    data_dir: a folder with one for each broker (see `cluster_folder`); a temporary one, removed at
    the end, if None. One that was used before goes on, with the brokers that were added to it.
    base_port: brokers listen there and at the next ports, their Raft servers behind these; 0: at
    any that are free; None: where they were, in a folder that was used before. metrics_port:
    Prometheus may ask them there and at the next ports; 0: not at all. options: more of `craft2
    broker`.
    """

    def __init__(
        self,
        brokers: int = 3,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        base_port: int | None = 0,
        metrics_port: int = 0,
        replicas: int = 3,
        options: Sequence[str] = (),
    ) -> None:
        """Raises NotStarted, DamagedOptions."""
        if brokers < 1:
            raise NotStarted(f"a cluster of {brokers} brokers", "give a number from 1 on")
        self._temporary = tempfile.mkdtemp(prefix="craft2-cluster-") if data_dir is None else None
        self.data_dir = os.fspath(data_dir or self._temporary or "")
        self._check_folder(brokers)
        ports = known_ports(self.data_dir) if base_port is None else []
        if base_port:
            ports = list(range(base_port, base_port + 2 * brokers))
        ports = [port or free_ports(1)[0] for port in ports] or free_ports(2 * brokers)
        self.addresses = {n + 1: f"127.0.0.1:{ports[n]}" for n in range(brokers)}
        voters = ",".join(f"{n + 1}=127.0.0.1:{ports[brokers + n]}" for n in range(brokers))
        self._metrics_port = metrics_port
        self._common = ["--replicas", str(replicas), *options]
        if "--cluster" not in options:
            self._common += ["--cluster", cluster_name(self.data_dir)]
        self._options: dict[int, list[str]] = {
            number: self._options_of(number, "--voters", voters) for number in self.addresses
        }
        self._errors: dict[int, IO[str]] = {}
        self._begins: dict[int, int] = {}  # where in them this object's time begins
        self._processes: dict[int, LocalProcess] = {}
        try:
            self.start(*self.addresses)
            self._start_joined()
        except BaseException:
            self.close()
            raise

    def _check_folder(self, brokers: int) -> None:
        if is_brokers(self.data_dir):
            raise NotStarted(
                f"{self.data_dir!r} is the folder of one broker",
                f"name the cluster's: {os.path.dirname(os.path.abspath(self.data_dir))}",
            )
        known = known_voters(self.data_dir)
        if known and known != tuple(range(1, brokers + 1)):
            raise NotStarted(
                f"the cluster in {self.data_dir!r} was founded by the brokers "
                f"{', '.join(map(str, known))}, and not by {brokers}",
                f"start it with {len(known)}, and add others: craft2 cluster add-broker; or, if "
                "nothing was produced to it, remove the folder, and begin anew",
            )

    def _options_of(self, number: int, *belongs: str) -> list[str]:
        port = self.addresses[number].rpartition(":")[2]
        metrics: tuple[str, ...] = ()
        if self._metrics_port:
            metrics = ("--metrics-port", str(self._metrics_port + number - 1))
        return [
            *("--broker-id", str(number), "--port", port, *belongs),
            *(*self._common, *metrics),
        ]

    def _start_joined(self) -> None:
        """Those that were added by somebody, at the ports that they had."""
        known, added = self.bootstrap_servers, joined(self.data_dir)
        for number, options in added.items():
            self.addresses[number] = f"127.0.0.1:{option(options, '--port')}"
            self._options[number] = self._options_of(number, "--join", known)
        self.start(*added)

    @property
    def bootstrap_servers(self) -> str:
        """Where all of them are."""
        return ",".join(self.addresses.values())

    @property
    def pids(self) -> dict[int, int]:
        """The processes that run, by broker."""
        return {number: one.pid for number, one in self._processes.items()}

    def start(self, *numbers: int) -> None:
        """Start brokers, again after `kill` or `stop`, all at once. Raises NotStarted, NoBroker."""
        for number in numbers:
            self._check_known(number)
            if number in self._processes and self._processes[number].runs:
                raise NoBroker(f"broker {number} runs already", "end it first, or leave it")
        without = [word for name in own_variables() for word in ("-u", name)]
        for number in numbers:
            folder = broker_folder(self.data_dir, number)
            os.makedirs(folder, exist_ok=True)
            if number not in self._errors:
                file = open(os.path.join(folder, LOG_FILE), "a+", errors="replace")  # noqa: SIM115
                self._errors[number] = file  # `close` closes it
                self._begins[number] = file.seek(0, os.SEEK_END)
            self._processes[number] = LocalProcess(
                *("broker", "--data-dir", folder, *self._options[number]),
                errors=self._errors[number],
                wait=False,
                within=("env", *without) if without else (),
            )
        for number in numbers:
            try:
                self._processes[number].ready()
            except NotStarted as error:
                raise NotStarted(f"broker {number}: {error.problem}", error.fix) from None
            keep_options(self.data_dir, number, self._options[number])

    def add(self) -> int:
        """One more broker, which joins those that run; returns its number. Raises NotStarted."""
        number, known = max(self.addresses) + 1, self.bootstrap_servers
        self.addresses[number] = f"127.0.0.1:{free_ports(1)[0]}"
        self._options[number] = self._options_of(number, "--join", known)
        self.start(number)
        return number

    def kill(self, number: int) -> None:
        """`kill -9`. Raises NoBroker."""
        self._running(number)
        self._processes.pop(number).kill()

    def stop(self, number: int) -> int:
        """`kill -TERM`: others lead what it led before it goes; returns the exit status. Raises
        NoBroker."""
        self._running(number)
        return self._processes.pop(number).stop()

    def _running(self, number: int) -> LocalProcess:
        """The process of a broker that was started, and not ended. Raises NoBroker."""
        self._check_known(number)
        if number not in self._processes:
            raise NoBroker(f"broker {number} does not run", f"start it first: start({number})")
        return self._processes[number]

    def _check_known(self, number: int) -> None:
        if number not in self._options:
            there = ", ".join(map(str, sorted(self._options)))
            raise NoBroker(f"there is no broker {number}", f"name one of {there}, or `add` one")

    def ended(self) -> dict[int, Ended]:
        """Those that have ended by themselves since the last call, and how."""
        gone = {n: one for n, one in self._processes.items() if not one.runs}
        for number in gone:
            del self._processes[number]
        return {number: Ended(one.wait(), one.said()) for number, one in gone.items()}

    def stop_all(self) -> None:
        """`kill -TERM` to all of them at once."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for number in list(self._processes):
            self._processes.pop(number).wait()

    def send_signal(self, number: int, which: int) -> None:
        """Such as SIGSTOP, after which it stands still until SIGCONT. Raises NoBroker."""
        self._running(number).send_signal(which)

    def errors(self) -> dict[int, str]:
        """What each has complained about since this was made; `broker.log` has what was before, and
        the times."""
        begins = self._begins
        return {number: complaints(file, begins[number]) for number, file in self._errors.items()}

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
