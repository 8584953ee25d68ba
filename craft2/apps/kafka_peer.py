"""Apache Kafka itself, beside our broker: the judge of what is right, and of what is fast.

    with KafkaPeer() as kafka:
        print(kafka.bootstrap_servers)

One node in KRaft mode, from the artifacts that the Kafka project publishes for Maven. They are
fetched once, 60 MB, into the user's cache. The command lines of Kafka's own tools are in there as
well: see `tool`.

Source: kafka.apache.org/documentation/#kraft
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from craft2.apps.maven import Artifact, jars
from craft2.errors import Craft2Error
from craft2.net import free_ports

VERSION = "4.1.0"
_ARTIFACTS = (
    Artifact("org.apache.kafka", "kafka_2.13", VERSION),
    Artifact("org.apache.kafka", "kafka-tools", VERSION),
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
)
_CLUSTER_ID = "Y3JhZnQyLXBlZXItMDAwMQ"
_HEAP = ("-Xms1g", "-Xmx1g")  # as Kafka's own start script
_READY_S = 60.0
_API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")


class PeerError(Craft2Error):
    """Apache Kafka cannot be started here."""


def libraries() -> Path:
    """The folder with Kafka's jars, fetched if it is not there. Raises MavenError."""
    return jars(f"kafka-{VERSION}", _ARTIFACTS)


def java(main_class: str, *arguments: str, heap: Sequence[str] = ()) -> list[str]:
    """The command that runs one of Kafka's classes. Raises MavenError, SparkError without Java."""
    from craft2.apps.spark import java_home

    class_path = f"{libraries()}{os.sep}*"
    return [str(java_home() / "bin" / "java"), *heap, "-cp", class_path, main_class, *arguments]


def tool(name: str, *arguments: str) -> list[str]:
    """The command of one of Kafka's tools: "topics", "console-producer", and so on."""
    return java(_TOOLS[name], *arguments, heap=("-Xmx256m",))


_TOOLS = {
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


class KafkaPeer:
    """See the module. data_dir: a temporary folder, removed at the end, if None."""

    def __init__(self, data_dir: str | os.PathLike[str] | None = None, *, port: int = 0) -> None:
        """Raises PeerError."""
        self._temporary = tempfile.mkdtemp(prefix="craft2-kafka-") if data_dir is None else None
        self._folder = Path(data_dir or self._temporary or "")
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start(port)
        except BaseException:
            self.close()
            raise

    def _start(self, port: int) -> None:
        free, controller = free_ports(2)
        port = port or free
        self.bootstrap_servers = f"127.0.0.1:{port}"
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = self._folder / "server.properties"
        settings.write_text(_settings(port, controller, self._folder / "data"))
        said = self._folder / "kafka.log"
        with said.open("ab") as output:
            storage = ("format", "-t", _CLUSTER_ID, "-c", str(settings), "--ignore-formatted")
            done = subprocess.run(
                java("kafka.tools.StorageTool", *storage),
                stdout=output,
                stderr=output,
                check=False,
            )
            if done.returncode == 0:
                self._process = subprocess.Popen(
                    java("kafka.Kafka", str(settings), heap=_HEAP),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
        deadline = time.monotonic() + _READY_S
        while self._process is not None and self._process.poll() is None:
            if _answers(port):
                return
            if time.monotonic() > deadline:
                break
            time.sleep(0.1)
        raise PeerError(f"Kafka has not started: {said.read_text()[-600:]}", "see there")

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

    def __enter__(self) -> KafkaPeer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def _settings(port: int, controller_port: int, data: Path) -> str:
    here = "127.0.0.1"
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{here}:{controller_port}",
        "listeners": f"PLAINTEXT://{here}:{port},CONTROLLER://{here}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{here}:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _answers(port: int) -> bool:
    """Whether somebody there answers in Kafka's protocol."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(5)
            connection.sendall(_API_VERSIONS)
            return len(connection.recv(8)) == 8
    except OSError:
        return False
