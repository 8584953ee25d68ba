"""Our own Producer and Consumer over the network: at our broker, and at Apache Kafka's."""

from __future__ import annotations

import pytest

from phase2_groups.consumer import Consumer
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.error_codes import ErrorCode
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig
from phase2_groups.transport import EARLIEST, LATEST
from phase3_raft.client import NetworkTransport

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def producer(bootstrap, **settings):
    return Producer(ProducerConfig(bootstrap_servers=bootstrap, **settings))


def consumer(bootstrap, group, **settings):
    return Consumer(
        ConsumerConfig(
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
            **settings,
        )
    )


def take(reader, count):
    found = []
    for _ in range(200):
        found += reader.poll(500)
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} came")


@pytest.fixture
def topic(bootstrap, name):
    """A topic of two partitions, made by librdkafka: administration is not in our client."""
    confluent_admin = pytest.importorskip("confluent_kafka.admin")
    admin = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([confluent_admin.NewTopic(name, 2, 1)])[name].result(30)
    return name


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(bootstrap, topic, name, codec):
    with producer(bootstrap, compression_type=codec, acks="all") as writer:
        sent = [
            writer.send(topic, f"value {n}", key=b"k", headers=[("source", b"gate 7")])
            for n in range(50)
        ]
        places = [future.result(20) for future in sent]
    assert [place.offset for place in places] == list(range(50))
    with consumer(bootstrap, name) as reader:
        reader.subscribe([topic])
        found = take(reader, 50)
    assert [record.value.decode() for record in found] == [f"value {n}" for n in range(50)]
    assert {record.key for record in found} == {b"k"}
    assert found[0].headers == (("source", b"gate 7"),)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_each_kind_of_acknowledgement(bootstrap, topic, name, acks):
    idempotent = acks == "all"
    with producer(bootstrap, acks=acks, enable_idempotence=idempotent) as writer:
        for n in range(20):
            writer.send(topic, str(n), partition=0)
    with consumer(bootstrap, name) as reader:
        reader.assign([(topic, 0)])
        assert [int(record.value) for record in take(reader, 20)] == list(range(20))


def test_a_group_commits_and_goes_on(bootstrap, topic, name):
    with producer(bootstrap) as writer:
        for n in range(10):
            writer.send(topic, str(n), partition=0)
    with consumer(bootstrap, name, max_poll_records=4) as reader:
        reader.subscribe([topic])
        first = take(reader, 4)
        reader.commit()
    with consumer(bootstrap, name) as reader:
        reader.subscribe([topic])
        assert reader.committed([(topic, 0)])[topic, 0].offset == 4
        assert [int(record.value) for record in first + take(reader, 6)] == list(range(10))


def test_two_members_share_the_partitions(bootstrap, topic, name):
    with consumer(bootstrap, name) as one:
        one.subscribe([topic])
        for _ in range(100):
            one.poll(100)
            if len(one.assignment()) == 2:
                break
        with consumer(bootstrap, name) as other:
            other.subscribe([topic])
            for _ in range(200):
                one.poll(50)
                other.poll(50)
                if len(one.assignment()) == len(other.assignment()) == 1:
                    break
            assert len(one.assignment()) == len(other.assignment()) == 1
            assert one.assignment() | other.assignment() == {(topic, 0), (topic, 1)}
        for _ in range(200):
            one.poll(50)
            if len(one.assignment()) == 2:
                break
        assert len(one.assignment()) == 2


def test_offsets_by_time_and_what_is_not_there(bootstrap, topic):
    with producer(bootstrap) as writer:
        for n in range(5):
            writer.send(topic, str(n), partition=0, timestamp_ms=1_700_000_000_000 + 1_000 * n)
    with NetworkTransport(bootstrap) as transport:
        asked = {(topic, 0): 1_700_000_002_500, (topic, 1): LATEST, ("nowhere-here", 9): EARLIEST}
        found = transport.list_offsets(asked)
        assert found[topic, 0].offset == 3
        assert found[topic, 1].offset == 0
        assert found["nowhere-here", 9].error is not ErrorCode.NONE
        assert transport.metadata([topic]) == {topic: 2}
