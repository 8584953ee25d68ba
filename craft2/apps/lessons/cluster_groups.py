"""A group whose members read from a cluster: what notebook 27 starts, kills and counts.

Members are processes. One kind is this project's consumer, the other one librdkafka's; both can be
in one group, since who reads what is agreed on in Kafka's own bytes.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from craft2.apps.cluster_admin import AdminError, ask
from craft2.apps.ingestion.kafka_source import KafkaSource
from craft2.apps.ingestion.sources import read_to_end
from craft2.apps.lessons.processes import Worker, acknowledge
from craft2.clock import SystemClock
from phase2_groups.consumer_protocol import decode_assignment
from phase2_groups.error_codes import ErrorCode
from phase2_groups.offset_records import OffsetKey, read_key, read_offset
from phase3_raft.client.network_transport import NetworkTransport

LIMIT_S = 40.0
_SESSION_MS, _HEARTBEAT_MS = 6_000, 500


def read_with_ours(bootstrap: str, topic: str, group: str) -> None:
    """A member, with our consumer: acknowledge each record's partition and offset, commit often."""
    import phase3_raft.client  # noqa: F401  # makes `host:port` an address
    from phase2_groups.consumer import Consumer
    from phase2_groups.consumer_config import ConsumerConfig

    config = ConsumerConfig(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
        session_timeout_ms=_SESSION_MS,
        heartbeat_interval_ms=_HEARTBEAT_MS,
        max_poll_records=50,
    )
    clock, never = SystemClock(), threading.Event()
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        while True:
            for record in consumer.poll(200):
                acknowledge(record.partition, record.offset)
                clock.wait(never, 0.001)


def read_with_librdkafka(bootstrap: str, topic: str, group: str) -> None:
    """The same, with librdkafka's."""
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "session.timeout.ms": _SESSION_MS,
            "heartbeat.interval.ms": _HEARTBEAT_MS,
            "partition.assignment.strategy": "range",
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    clock, never = SystemClock(), threading.Event()
    while True:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            acknowledge(message.partition(), message.offset())
            clock.wait(never, 0.001)


class Handled(NamedTuple):
    """How many of `total` records were handled, and how many of them more than once."""

    never: int
    once: int
    twice: int


def handled(members: Iterable[Worker], total: int) -> Handled:
    """What they have acknowledged together."""
    times = Counter(place for one in members for place in list(one.acks))
    twice = sum(count > 1 for count in times.values())
    return Handled(total - len(times), len(times) - twice, twice)


def wait_until_handled(members: Sequence[Worker], count: int) -> None:
    """Until so many different records are. Raises TimeoutError."""
    clock, never = SystemClock(), threading.Event()
    until = clock.monotonic() + LIMIT_S
    while len({place for one in members for place in list(one.acks)}) < count:
        if clock.monotonic() > until:
            raise TimeoutError(f"{count} records were not handled within {LIMIT_S:g} s")
        clock.wait(never, 0.05)


def start_members(bootstrap: str, topic: str, group: str) -> list[Worker]:
    """One of each kind."""
    members = [
        Worker(read, bootstrap, topic, group) for read in (read_with_ours, read_with_librdkafka)
    ]
    for one in members:
        one.follow()
    return members


def read_offsets_topic(bootstrap: str, group: str) -> list[str]:
    """The latest record of each of the group's partitions in `__consumer_offsets`, in words."""
    latest: dict[tuple[str, int], str] = {}
    for row in read_to_end(KafkaSource(bootstrap, "__consumer_offsets", None)):
        key = read_key(row.key or b"")
        if isinstance(key, OffsetKey) and key.group == group and row.value is not None:
            offset = read_offset(row.value).offset
            latest[key.topic, key.partition] = f"{group} / {key.topic}-{key.partition}: {offset}"
    return [latest[place] for place in sorted(latest)]


class Group:
    """A group, as its coordinator describes it.

    (Not asked with librdkafka's admin client: one that has asked a dead coordinator stays silent,
    and cannot be closed.)
    """

    def __init__(self, bootstrap: str, name: str, topic: str = "flights") -> None:
        self._bootstrap, self._name, self._topic = bootstrap, name, topic

    def coordinator(self) -> int:
        """The broker that looks after it. Raises TimeoutError if there is none."""
        return self._described()[0]

    def partitions(self) -> dict[str, list[int]]:
        """Client -> the partitions that it reads. Raises TimeoutError."""
        members = {one.client_id: one.member_assignment for one in self._described()[1]}
        return {
            client: sorted(number for _, number in decode_assignment(members[client]).partitions)
            for client in sorted(members)
        }

    def _described(self) -> tuple[int, Any]:
        """(its coordinator, its members)."""
        clock, never = SystemClock(), threading.Event()
        until = clock.monotonic() + LIMIT_S
        with ThreadPoolExecutor(1) as other:  # a notebook's thread has an event loop already
            while True:
                with suppress(AdminError):
                    key = {"key": self._name, "key_type": 0}
                    there = other.submit(ask, self._bootstrap, "find_coordinator", 1, key).result()
                    if not there.error_code:
                        address, fields = f"{there.host}:{there.port}", {"groups": [self._name]}
                        told = other.submit(ask, address, "describe_groups", 0, fields).result()
                        return int(there.node_id), told.groups[0].members
                if clock.monotonic() > until:
                    raise TimeoutError(f"{self._name} has no coordinator")
                clock.wait(never, 0.2)

    def committed(self, timeout_s: float = 20.0) -> dict[int, int] | str:
        """Partition -> the offset to go on from; or what was answered, if there is none by then."""
        clock, never = SystemClock(), threading.Event()
        until = clock.monotonic() + timeout_s
        with NetworkTransport(self._bootstrap) as transport:
            count = transport.metadata([self._topic])[self._topic]
            places = [(self._topic, n) for n in range(0 if isinstance(count, ErrorCode) else count)]
            while True:
                found = transport.committed(self._name, places)
                errors = [one.name for one in found.values() if isinstance(one, ErrorCode)]
                if not errors:
                    break
                if clock.monotonic() > until:
                    return errors[0]
                clock.wait(never, 0.2)
        return {
            place[1]: one.offset
            for place, one in sorted(found.items())
            if not isinstance(one, ErrorCode)
        }
