"""kafka-python, which works out what a broker can do from the versions that it advertises."""

from __future__ import annotations

import pytest
from eventually import eventually
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource
from kafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafka.structs import OffsetAndMetadata

SOON_S = 30
AT_MS = 1_700_000_000_000


@pytest.fixture
def admin(bootstrap):
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.fixture
def topic(admin, name):
    admin.create_topics({name: {"num_partitions": 2}}, wait_for_metadata=True)
    return name


@pytest.fixture
def producer(bootstrap):
    """Makes producers, and closes them."""
    made = []

    def producer(**settings):
        made.append(KafkaProducer(bootstrap_servers=bootstrap, **settings))
        return made[-1]

    yield producer
    for one in made:
        one.close()


@pytest.fixture
def consumer(bootstrap):
    """Makes consumers, and closes them."""
    made = []

    def consumer(*topics, **settings):
        usual = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 500}
        settings = {**usual, "enable_auto_commit": False, **settings}
        made.append(KafkaConsumer(*topics, bootstrap_servers=bootstrap, **settings))
        for one in topics:  # or it may join before it has heard of it, and be given nothing:
            made[-1].partitions_for_topic(one)  # on a busy machine, by Apache Kafka as well
        return made[-1]

    yield consumer
    for one in made:
        one.close()


def read(consumer, count):
    """So many records."""
    found = []
    while len(found) < count:
        came = consumer.poll(SOON_S * 1_000, max_records=count - len(found))
        assert came, f"{len(found)} of {count} came"
        found += [record for records in came.values() for record in records]
    return found


def test_topics_are_made_grown_set_emptied_and_deleted(admin, producer, topic):
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics({topic: {"num_partitions": 2}})
    admin.create_partitions({topic: 3})
    eventually(lambda: len(admin.describe_topics([topic])[0]["partitions"]), 3)
    admin.alter_configs([ConfigResource("TOPIC", topic, {"retention.ms": "60000"})])
    asked = ConfigResource("TOPIC", topic, {"retention.ms": None, "segment.bytes": None})
    told = admin.describe_configs([asked], config_filter="all")["topic"][topic]
    assert told["retention.ms"]["value"] == "60000"
    assert told["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert told["segment.bytes"]["value"] == str(1024**3)
    writer = producer()
    for n in range(3):
        writer.send(topic, b"%d" % n, partition=0).get(SOON_S)
    place = TopicPartition(topic, 0)
    assert admin.delete_records({place: 2})[place]["low_watermark"] == 2
    admin.delete_topics([topic])
    eventually(lambda: topic in admin.list_topics(), False)


@pytest.mark.parametrize(
    ("name", "topic", "error"),
    [
        ("a topic", {"num_partitions": 1}, InvalidTopicError),
        ("none", {"num_partitions": 0}, InvalidPartitionsError),
        ("far", {"replication_factor": 3}, InvalidReplicationFactorError),
    ],
)
def test_a_topic_that_cannot_be_is_refused(admin, name, topic, error):
    with pytest.raises(error):
        admin.create_topics({name: topic})


def test_what_is_not_there_is_told(admin, name):
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(producer, consumer, topic, codec):
    sent = [
        (b"k", b"first", [("source", b"gate 7"), ("empty", b"")]),
        (None, b"no key", []),
        (b"k2", None, []),
        (b"", b"", []),
        (b"large", b"x" * 900_000, []),
    ]
    writer = producer(compression_type=codec)
    placed = [
        writer.send(topic, value, key, headers, partition=0, timestamp_ms=AT_MS + n)
        for n, (key, value, headers) in enumerate(sent)
    ]
    assert [future.get(SOON_S).offset for future in placed] == list(range(len(sent)))
    reader = consumer()
    reader.assign([TopicPartition(topic, 0)])
    found = read(reader, len(sent))
    assert [(r.key, r.value, list(r.headers)) for r in found] == sent
    assert [r.timestamp for r in found] == [AT_MS + n for n in range(len(sent))]
    reader.seek(TopicPartition(topic, 0), 1)
    assert read(reader, 1)[0].value == b"no key"


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_each_kind_of_acknowledgement(producer, consumer, topic, acks):
    writer = producer(acks=acks, enable_idempotence=acks == "all")
    for n in range(100):
        writer.send(topic, b"%d" % n, partition=0)
    writer.flush(SOON_S)
    reader = consumer()
    reader.assign([TopicPartition(topic, 0)])
    assert [int(record.value) for record in read(reader, 100)] == list(range(100))


def test_offsets_by_time(producer, consumer, topic):
    writer = producer()
    for n in range(10):
        writer.send(topic, b"x", partition=0, timestamp_ms=AT_MS + 1_000 * n).get(SOON_S)
    reader, place, empty = consumer(), TopicPartition(topic, 0), TopicPartition(topic, 1)
    found = reader.offsets_for_times({place: AT_MS + 3_500, empty: AT_MS})
    assert (found[place].offset, found[place].timestamp) == (4, AT_MS + 4_000)
    assert found[empty] is None
    assert reader.offsets_for_times({place: AT_MS + 9_001})[place] is None
    assert reader.beginning_offsets([place, empty]) == {place: 0, empty: 0}
    assert reader.end_offsets([place, empty]) == {place: 10, empty: 0}


def test_a_message_that_is_too_large_is_refused(producer, topic):
    writer = producer(max_request_size=3_000_000)
    with pytest.raises(MessageSizeTooLargeError):
        writer.send(topic, b"x" * 2_000_000).get(SOON_S)


def test_what_cannot_be_read_is_an_error(consumer, topic):
    reader, place = consumer(auto_offset_reset="none"), TopicPartition(topic, 0)
    reader.assign([place])
    reader.seek(place, 1_000)
    with pytest.raises(OffsetOutOfRangeError):
        reader.poll(SOON_S * 1_000)


def test_a_group_commits_and_goes_on(admin, producer, consumer, topic, name):
    writer = producer(acks="all")
    for n in range(100):
        writer.send(topic, b"%d" % n, partition=n % 2)
    writer.flush(SOON_S)
    seen = []
    for part in (40, 60):
        reader = consumer(topic, group_id=name)
        seen += [int(record.value) for record in read(reader, part)]
        reader.commit()
        reader.close()
    assert sorted(seen) == list(range(100))
    committed = admin.list_group_offsets(name)[name]
    assert {place.partition: at.offset for place, at in committed.items()} == {0: 50, 1: 50}
    assert name in [group["group_id"] for group in admin.list_groups()]
    assert admin.delete_groups([name]) == {name: "OK"}
    assert admin.delete_groups([name]) == {name: "GroupIdNotFoundError"}


def test_a_commit_by_hand_is_there_for_the_next(consumer, topic, name):
    place = TopicPartition(topic, 1)
    reader = consumer(group_id=name)
    reader.assign([place])
    assert reader.committed(place) is None
    reader.commit({place: OffsetAndMetadata(7, "a note", -1)})
    reader.close()
    assert consumer(group_id=name).committed(place, metadata=True)[:2] == (7, "a note")


def test_two_members_share_the_partitions_and_one_takes_over(admin, consumer, topic, name):
    def settle(wanted, *members):
        """Poll until each has so many partitions."""
        for _ in range(SOON_S * 20):
            for member in members:
                member.poll(50)
            if [len(member.assignment()) for member in members] == wanted:
                return
        raise AssertionError([member.assignment() for member in members])

    first = consumer(topic, group_id=name, heartbeat_interval_ms=300)
    settle([2], first)
    second = consumer(topic, group_id=name, heartbeat_interval_ms=300)
    settle([1, 1], first, second)
    assert first.assignment() != second.assignment()
    described = admin.describe_groups([name])[name]
    assert (described["group_state"], len(described["members"])) == ("Stable", 2)
    first.close()
    settle([2], second)
