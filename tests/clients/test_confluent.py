"""confluent-kafka, which is librdkafka in C: what most programs that are not Java use."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from eventually import eventually

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SOON = 30


@pytest.fixture
def topic(bootstrap, name):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result(SOON)
    return name


def producer(bootstrap, **settings):
    return Producer({"bootstrap.servers": bootstrap, **settings})


def consumer(bootstrap, group, **settings):
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 300,
            **settings,
        }
    )


def take(reader, count):
    """So many records, whoever they come from."""
    found = []
    while len(found) < count:
        records = reader.consume(count - len(found), SOON)
        assert records, f"{len(found)} of {count} came"
        for record in records:
            assert record.error() is None
        found += records
    return found


def test_topics_are_made_listed_and_not_made_twice(bootstrap, name):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(SOON)
    assert len(admin.list_topics(name, SOON).topics[name].partitions) == 3
    with pytest.raises(KafkaException) as found:
        admin.create_topics([NewTopic(name, 3, 1)])[name].result(SOON)
    assert found.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_a_name_that_only_dots_tell_from_another_is_refused(bootstrap, name):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(f"{name}.a", 1, 1)])[f"{name}.a"].result(SOON)
    with pytest.raises(KafkaException) as found:
        admin.create_topics([NewTopic(f"{name}_a", 1, 1)])[f"{name}_a"].result(SOON)
    assert found.value.args[0].code() == KafkaError.TOPIC_EXCEPTION


def test_topics_are_grown_set_emptied_and_deleted(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(SOON)
    eventually(lambda: len(admin.list_topics(topic, SOON).topics[topic].partitions), 3)
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource("topic", topic, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(SOON)
    asked = ConfigResource("topic", topic)
    eventually(
        lambda: admin.describe_configs([asked])[asked].result(SOON)["retention.ms"].value, "60000"
    )
    writer = producer(bootstrap)
    for n in range(3):
        writer.produce(topic, b"%d" % n, partition=0)
    assert writer.flush(SOON) == 0
    upto = TopicPartition(topic, 0, 2)
    assert admin.delete_records([upto])[upto].result(SOON).low_watermark == 2
    admin.delete_topics([topic])[topic].result(SOON)
    eventually(lambda: topic in admin.list_topics(timeout=SOON).topics, False)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("a topic", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("none", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("far", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("odd", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused(bootstrap, topic, code):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([topic])
    with pytest.raises(KafkaException) as found:
        made[topic.topic].result(SOON)
    assert found.value.args[0].code() == code


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(bootstrap, topic, name, codec):
    sent = [
        (b"k1", b"first", [("source", b"gate 7"), ("empty", None)]),
        (None, b"no key", []),
        (b"k2", None, []),
        (b"", b"", []),
        (b"large", b"x" * 900_000, []),
    ]
    writer = producer(bootstrap, **{"compression.type": codec, "enable.idempotence": True})
    delivered = []
    for key, value, headers in sent:
        writer.produce(
            topic,
            value,
            key,
            partition=1,
            timestamp=1_700_000_000_000,
            headers=headers,
            on_delivery=lambda error, record: delivered.append((error, record.offset())),
        )
    assert writer.flush(SOON) == 0
    assert delivered == [(None, n) for n in range(len(sent))]
    reader = consumer(bootstrap, name)
    reader.assign([TopicPartition(topic, 1, 0)])
    found = take(reader, len(sent))
    assert [(r.key(), r.value(), r.headers() or []) for r in found] == sent
    assert {r.timestamp()[1] for r in found} == {1_700_000_000_000}
    reader.close()


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_each_kind_of_acknowledgement(bootstrap, topic, name, acks):
    writer = producer(bootstrap, acks=acks)
    for n in range(100):
        writer.produce(topic, b"%d" % n, partition=0)
    assert writer.flush(SOON) == 0
    reader = consumer(bootstrap, name)
    reader.assign([TopicPartition(topic, 0, 0)])
    assert [int(record.value()) for record in take(reader, 100)] == list(range(100))
    reader.close()


def test_offsets_by_time(bootstrap, topic, name):
    writer = producer(bootstrap)
    for n in range(10):
        writer.produce(topic, b"%d" % n, partition=0, timestamp=1_000 * (n + 1))
        writer.flush(SOON)
    reader = consumer(bootstrap, name)
    found = reader.offsets_for_times(
        [TopicPartition(topic, 0, 4_500), TopicPartition(topic, 1, 0)], timeout=SOON
    )
    assert [one.offset for one in found] == [4, -1]
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), SOON) == (0, 10)
    reader.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    largest = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.max_timestamp()})
    assert largest[TopicPartition(topic, 0)].result(SOON).offset == 9


def test_a_message_that_is_too_large_is_refused(bootstrap, topic):
    writer = producer(bootstrap, **{"message.max.bytes": 3_000_000})
    errors = []
    writer.produce(topic, b"x" * 2_000_000, on_delivery=lambda error, record: errors.append(error))
    writer.flush(SOON)
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_the_topic_of_the_groups_cannot_be_written_to(bootstrap, topic, name):
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": name})
    reader.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)  # it is there now
    reader.close()
    writer, errors = producer(bootstrap), []
    writer.produce(
        "__consumer_offsets", b"x", partition=0, on_delivery=lambda error, _: errors.append(error)
    )
    writer.flush(SOON)
    assert [error.code() for error in errors] == [KafkaError.TOPIC_EXCEPTION]


def test_a_group_shares_out_commits_and_goes_on(bootstrap, topic, name):
    writer = producer(bootstrap)
    for n in range(200):
        writer.produce(topic, b"%d" % n, partition=n % 2)
    writer.flush(SOON)
    first = consumer(bootstrap, name)
    first.subscribe([topic])
    seen = take(first, 50)
    first.commit(asynchronous=False)
    first.close()
    second = consumer(bootstrap, name)
    second.subscribe([topic])
    seen += take(second, 150)
    assert sorted(int(record.value()) for record in seen) == list(range(200))
    second.close()


def test_two_members_share_the_partitions_and_one_takes_over(bootstrap, topic, name):
    owned = {"a": set(), "b": set()}
    both, stop = threading.Event(), {"a": threading.Event(), "b": threading.Event()}

    def run(who):
        def assigned(_, partitions):
            owned[who] = {one.partition for one in partitions}
            if owned["a"] and owned["b"] and not owned["a"] & owned["b"]:
                both.set()

        member = consumer(bootstrap, name)
        member.subscribe([topic], on_assign=assigned)
        while not stop[who].is_set():
            member.poll(0.05)
        owned[who] = set()
        member.close()

    threads = {who: threading.Thread(target=run, args=(who,)) for who in owned}
    for thread in threads.values():
        thread.start()
    assert both.wait(SOON)
    assert owned["a"] | owned["b"] == {0, 1}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    described = admin.describe_consumer_groups([name])[name].result(SOON)
    assert len(described.members) == 2
    stop["a"].set()
    threads["a"].join()
    alone = threading.Event()
    while owned["b"] != {0, 1}:
        assert not alone.wait(0.01)
    stop["b"].set()
    threads["b"].join()


def test_what_cannot_be_read_is_an_error(bootstrap, topic, name):
    reader = consumer(bootstrap, name, **{"auto.offset.reset": "error"})
    reader.assign([TopicPartition(topic, 0, 1_000)])
    record = reader.poll(SOON)
    assert record.error().code() == KafkaError._AUTO_OFFSET_RESET
    reader.close()


def test_a_topic_that_is_used_is_made(bootstrap, name):
    writer = producer(bootstrap)
    writer.produce(name, b"first")
    assert writer.flush(SOON) == 0
    assert name in AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=SOON).topics
