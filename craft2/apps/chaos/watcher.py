"""Somebody who asks the cluster how it is, twice a second: who leads what, is all of it well?"""

from __future__ import annotations

import threading

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from craft2.apps.chaos.timeline import Timeline

_EACH_S, _ASK_S = 0.5, 3.0


class Watcher(threading.Thread):
    """See the module. leaders: partition of `topic` -> the broker that leads it, or -1."""

    def __init__(self, servers: str, topic: str, brokers: int, timeline: Timeline) -> None:
        super().__init__(daemon=True, name="watcher")
        self._admin = AdminClient(
            {"bootstrap.servers": servers, "socket.timeout.ms": 3_000, "log_level": 0}
        )
        self._topic, self._brokers, self._timeline = topic, brokers, timeline
        self._ending = threading.Event()
        self._looked = threading.Condition()
        self._well_at = -1.0
        self.leaders: dict[int, int] = {}
        self.controller = -1
        self.unwell = "nobody has looked yet"

    def run(self) -> None:
        while not self._ending.wait(_EACH_S):
            began = self._timeline.now()
            try:
                found = self._admin.list_topics(timeout=_ASK_S)
            except KafkaException as error:
                self.unwell = f"nobody answers: {error}"
                continue
            self._note(found, began)

    def _note(self, found: object, began: float) -> None:
        brokers, topics = found.brokers, found.topics  # type: ignore[attr-defined]
        self.controller = found.controller_id  # type: ignore[attr-defined]
        bad = [f"only brokers {sorted(brokers)} are there"] if len(brokers) < self._brokers else []
        for topic in topics.values():
            for number, partition in topic.partitions.items():
                if topic.topic == self._topic and self.leaders.get(number) != partition.leader:
                    self.leaders[number] = partition.leader
                    self._timeline.leaders.append((began, number, partition.leader))
                if len(partition.isrs) < len(partition.replicas) or partition.leader < 0:
                    told = f"led by {partition.leader}, in sync {sorted(partition.isrs)}"
                    bad.append(f"{topic.topic}-{number} {told}")
        if self._topic not in topics:
            bad.append(f"there is no topic {self._topic}")
        self.unwell = "; ".join([*bad[:3], *([f"{len(bad) - 3} more"] if len(bad) > 3 else [])])
        if not bad:
            with self._looked:
                self._well_at = began
                self._looked.notify_all()

    def wait_well(self, timeout_s: float) -> bool:
        """Whether all brokers are there and all replicas in sync, as seen from now on."""
        asked = self._timeline.now()
        with self._looked:
            return self._looked.wait_for(lambda: self._well_at >= asked, timeout_s)

    def close(self) -> None:
        """No more questions."""
        self._ending.set()
        self.join()
