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
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from craft2.apps.maven import Artifact, jars
from craft2.apps.peer_process import PeerProcess
from craft2.net import free_ports

VERSION = "4.1.0"
_ARTIFACTS = (
    Artifact("org.apache.kafka", "kafka_2.13", VERSION),
    Artifact("org.apache.kafka", "kafka-tools", VERSION),
    Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3"),
)
_CLUSTER_ID = "Y3JhZnQyLXBlZXItMDAwMQ"
_HEAP = ("-Xms1g", "-Xmx1g")  # as Kafka's own start script


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
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


class KafkaPeer(PeerProcess):
    """See the module."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        port: int = 0,
        number: int = 1,
        controllers: Mapping[int, int] | None = None,
    ) -> None:
        """number: of the node; controllers: the ports of all nodes' controllers, if it is one of
        several, and then call `ready`. Raises PeerError, MavenError."""
        super().__init__(folder)
        try:
            free, controller = free_ports(2)
            self._launch(number, port or free, controllers or {1: controller})
            if controllers is None:
                self.ready()
        except BaseException:
            self.close()
            raise

    def _launch(self, number: int, port: int, controllers: Mapping[int, int]) -> None:
        settings = self.folder / "server.properties"
        settings.write_text(_settings(number, port, controllers, self.folder / "data"))
        storage = ("format", "-t", _CLUSTER_ID, "-c", str(settings), "--ignore-formatted")
        self.run(java("kafka.tools.StorageTool", *storage))
        self.launch(java("kafka.Kafka", str(settings), heap=_HEAP), port)


class KafkaNodes:
    """Several of them, each broker and controller, numbered from 1, as one cluster.

    folder: with one for each; a temporary one each, removed at the end, if None.
    """

    def __init__(self, count: int = 3, folder: Path | None = None) -> None:
        """Raises PeerError, MavenError."""
        self.nodes: list[KafkaPeer] = []
        ports = free_ports(2 * count)
        controllers = {n + 1: ports[count + n] for n in range(count)}
        with ExitStack() as stack:
            for n in range(count):
                own = None if folder is None else folder / f"node-{n + 1}"
                node = KafkaPeer(own, port=ports[n], number=n + 1, controllers=controllers)
                self.nodes.append(stack.enter_context(node))
            for node in self.nodes:
                node.ready()
            self._stack = stack.pop_all()

    @property
    def bootstrap_servers(self) -> str:
        """Where all of them are."""
        return ",".join(node.bootstrap_servers for node in self.nodes)

    @property
    def pids(self) -> list[int]:
        """Their processes."""
        return [node.pid for node in self.nodes]

    def __enter__(self) -> KafkaNodes:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stack.close()


def _settings(number: int, port: int, controllers: Mapping[int, int], data: Path) -> str:
    here, copies = "127.0.0.1", min(3, len(controllers))
    voters = ",".join(f"{n}@{here}:{where}" for n, where in controllers.items())
    settings = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{here}:{port},CONTROLLER://{here}:{controllers[number]}",
        "advertised.listeners": f"PLAINTEXT://{here}:{port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
