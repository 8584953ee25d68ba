"""kafka-python, which works out what a broker can do from the versions that it advertises."""

from __future__ import annotations

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

pytestmark = pytest.mark.prove
SOON_S = 30


@pytest.fixture
def topic(bootstrap, name):
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name, 2, 1)])
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name, 2, 1)])
    admin.close()
    return name


def read(consumer, count):
    """So many records."""
    found = []
    while len(found) < count:
        came = consumer.poll(SOON_S * 1_000, max_records=count - len(found))
        assert came, f"{len(found)} of {count} came"
        found += [record for records in came.values() for record in records]
    return found


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(bootstrap, topic, codec):
    sent = [(b"k", b"first", [("source", b"gate 7")]), (None, b"no key", []), (b"k2", None, [])]
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec)
    placed = [
        producer.send(topic, value, key, headers, partition=0, timestamp_ms=1_700_000_000_000)
        for key, value, headers in sent
    ]
    assert [future.get(SOON_S).offset for future in placed] == [0, 1, 2]
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    found = read(consumer, len(sent))
    assert [(r.key, r.value, list(r.headers)) for r in found] == sent
    assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 3}
    consumer.close()


def test_a_group_commits_and_goes_on(bootstrap, topic, name):
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    for n in range(100):
        producer.send(topic, b"%d" % n, partition=n % 2)
    producer.flush(SOON_S)
    producer.close()
    seen = []
    for part in (40, 60):
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        seen += [int(record.value) for record in read(consumer, part)]
        consumer.commit()
        consumer.close()
    assert sorted(seen) == list(range(100))


def test_a_commit_by_hand_is_there_for_the_next(bootstrap, topic, name):
    place = TopicPartition(topic, 1)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=name)
    consumer.assign([place])
    assert consumer.committed(place) is None
    consumer.commit({place: OffsetAndMetadata(7, "a note", -1)})
    consumer.close()
    other = KafkaConsumer(bootstrap_servers=bootstrap, group_id=name)
    assert other.committed(place) == 7
    other.close()
