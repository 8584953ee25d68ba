"""aiokafka, whose first question is ApiVersions 0.

Its AlterConfigs is the request that sets all other settings back. Its administrator does not raise
what a topic is refused for, it returns it.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError, for_code

SOON_MS = 30_000
AT_MS = 1_700_000_000_000


class Clients(AsyncExitStack):
    """Makes clients, starts them, and stops them at the end."""

    def __init__(self, bootstrap):
        super().__init__()
        self._bootstrap = bootstrap

    async def _started(self, client, stop):
        await client.start()
        self.push_async_callback(stop)
        return client

    async def admin(self):
        client = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        return await self._started(client, client.close)

    async def producer(self, **settings):
        client = AIOKafkaProducer(bootstrap_servers=self._bootstrap, **settings)
        return await self._started(client, client.stop)

    async def consumer(self, *topics, **settings):
        settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
        client = AIOKafkaConsumer(*topics, bootstrap_servers=self._bootstrap, **settings)
        return await self._started(client, client.stop)


@pytest.fixture
def run(bootstrap, name):
    """Run a coroutine, in time, with clients and a topic of two partitions."""

    async def main(work):
        async with Clients(bootstrap) as clients:
            admin = await clients.admin()
            await admin.create_topics([NewTopic(name, 2, 1)])
            await work(clients, admin)

    return lambda work: asyncio.run(asyncio.wait_for(main(work), SOON_MS / 1_000))


async def read(consumer, count):
    """So many records."""
    found = []
    while len(found) < count:
        came = await consumer.getmany(timeout_ms=SOON_MS, max_records=count - len(found))
        assert came, f"{len(found)} of {count} came"
        found += [record for records in came.values() for record in records]
    return found


def errors(created):
    """What the topics of a reply were refused for."""
    return [for_code(code).__name__ for _, code, *_ in created.topic_errors]


def test_topics_are_made_grown_described_emptied_and_deleted(run, name):
    async def work(clients, admin):
        assert errors(await admin.create_topics([NewTopic(name, 2, 1)])) == [
            "TopicAlreadyExistsError"
        ]
        await admin.create_partitions({name: NewPartitions(3)})
        while len((await admin.describe_topics([name]))[0]["partitions"]) != 3:
            pass
        asked = ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": None})
        for kept in ("60000", "604800000"):
            changes = {"retention.ms": kept} if kept == "60000" else {"segment.bytes": "20000"}
            await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, changes)])
            setting, value = "", ""
            while value != kept:
                [told] = await admin.describe_configs([asked])
                [(code, _, _, _, [(setting, value, *_)])] = told.resources
            assert (code, setting) == (0, "retention.ms")
        producer = await clients.producer()
        for n in range(3):
            await producer.send_and_wait(name, b"%d" % n, partition=0)
        place = TopicPartition(name, 0)
        assert await admin.delete_records({place: RecordsToDelete(2)}) == {place: 2}
        await admin.delete_topics([name])
        while name in await admin.list_topics():
            pass

    run(work)


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic("a topic", 1, 1), "InvalidTopicError"),
        (NewTopic("none", 0, 1), "InvalidPartitionsError"),
        (NewTopic("far", 1, 3), "InvalidReplicationFactorError"),
        (NewTopic("odd", 1, 1, topic_configs={"retention.ms": "x"}), "InvalidConfigurationError"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(run, topic, error):
    async def work(clients, admin):
        assert errors(await admin.create_topics([topic])) == [error]

    run(work)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(run, name, codec):
    sent = [
        (b"k", b"first", (("source", b"gate 7"), ("empty", None))),
        (None, b"no key", ()),
        (b"k2", None, ()),
        (b"", b"", ()),
        (b"large", b"x" * 900_000, ()),
    ]

    async def work(clients, admin):
        producer = await clients.producer(compression_type=codec, enable_idempotence=True)
        for place, (key, value, headers) in enumerate(sent):
            at = AT_MS + place
            found = await producer.send_and_wait(name, value, key, 0, at, list(headers))
            assert found.offset == place
        consumer, place = await clients.consumer(), TopicPartition(name, 0)
        consumer.assign([place])
        found = await read(consumer, len(sent))
        assert [(r.key, r.value, r.headers) for r in found] == sent
        assert [r.timestamp for r in found] == [AT_MS + n for n in range(len(sent))]
        consumer.seek(place, 1)
        assert (await read(consumer, 1))[0].value == b"no key"

    run(work)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_each_kind_of_acknowledgement(run, name, acks):
    async def work(clients, admin):
        producer = await clients.producer(acks=acks)
        for n in range(100):
            await producer.send(name, b"%d" % n, partition=0)
        await producer.flush()
        consumer = await clients.consumer()
        consumer.assign([TopicPartition(name, 0)])
        assert [int(record.value) for record in await read(consumer, 100)] == list(range(100))

    run(work)


def test_offsets_by_time(run, name):
    async def work(clients, admin):
        producer = await clients.producer()
        for n in range(10):
            await producer.send_and_wait(name, b"x", partition=0, timestamp_ms=AT_MS + 1_000 * n)
        consumer, place, empty = (
            await clients.consumer(),
            *(TopicPartition(name, n) for n in (0, 1)),
        )
        found = await consumer.offsets_for_times({place: AT_MS + 3_500, empty: AT_MS})
        assert (found[place].offset, found[place].timestamp) == (4, AT_MS + 4_000)
        assert found[empty] is None
        assert await consumer.beginning_offsets([place]) == {place: 0}
        assert await consumer.end_offsets([place, empty]) == {place: 10, empty: 0}

    run(work)


def test_a_message_that_is_too_large_is_refused(run, name):
    async def work(clients, admin):
        producer = await clients.producer(max_request_size=3_000_000)
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(name, b"x" * 2_000_000)

    run(work)


def test_what_cannot_be_read_is_an_error(run, name):
    async def work(clients, admin):
        consumer, place = await clients.consumer(auto_offset_reset="none"), TopicPartition(name, 0)
        consumer.assign([place])
        consumer.seek(place, 1_000)
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.getone()

    run(work)


def test_a_group_commits_and_goes_on(run, name):
    async def work(clients, admin):
        producer = await clients.producer()
        for n in range(100):
            await producer.send(name, b"%d" % n, partition=n % 2)
        await producer.flush()
        seen = []
        for part in (40, 60):
            consumer = await clients.consumer(name, group_id=name)
            seen += [int(record.value) for record in await read(consumer, part)]
            await consumer.commit()
            await consumer.stop()
        assert sorted(seen) == list(range(100))
        offsets = await admin.list_consumer_group_offsets(name)
        assert {place.partition: at.offset for place, at in offsets.items()} == {0: 50, 1: 50}
        assert (name, "consumer") in [one[:2] for one in await admin.list_consumer_groups()]

    run(work)


def test_two_members_share_the_partitions_and_one_takes_over(run, name):
    async def settled(wanted, *members):
        """Wait until each has so many partitions; aiokafka rebalances in the background."""
        while [len(member.assignment()) for member in members] != wanted:
            await members[0].getmany(timeout_ms=10)

    async def work(clients, admin):
        settings = {"group_id": name, "heartbeat_interval_ms": 300}
        first = await clients.consumer(name, **settings)
        await settled([2], first)
        second = await clients.consumer(name, **settings)
        await settled([1, 1], first, second)
        assert first.assignment() != second.assignment()
        [told] = await admin.describe_consumer_groups([name])
        [(_, _, state, _, _, members, *_)] = told.groups
        assert (state, len(members)) == ("Stable", 2)
        await first.stop()
        await settled([2], second)

    run(work)
