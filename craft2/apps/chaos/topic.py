"""The topic of a run, made when all brokers are there: it has no more replicas than they are."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from craft2.apps.chaos.brokers import Brokers, NotWell
from craft2.apps.chaos.timeline import Timeline

REPLICAS, IN_SYNC = 3, 2
_PATIENCE_S = 90.0


def make_topic(brokers: Brokers, name: str, partitions: int, timeline: Timeline) -> None:
    """Wait for all brokers, and make it. Raises NotWell, KafkaException."""
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers, "log_level": 0})
    until = timeline.now() + _PATIENCE_S
    while (found := _seen(admin)) < len(brokers.numbers):
        if timeline.now() > until:
            raise NotWell(
                f"after {_PATIENCE_S:.0f} s {found} brokers are there", "see their errors"
            )
    config = {"min.insync.replicas": str(IN_SYNC)}
    topic = NewTopic(name, partitions, REPLICAS, config=config)
    [made] = admin.create_topics([topic], operation_timeout=30, request_timeout=60).values()
    made.result()


def _seen(admin: AdminClient) -> int:
    """How many brokers there are, as far as the first that answers knows."""
    try:
        return len(admin.list_topics(timeout=1.0).brokers)
    except KafkaException:
        return 0
