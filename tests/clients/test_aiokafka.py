"""aiokafka, whose first question is ApiVersions 0."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

pytestmark = pytest.mark.prove
SOON_MS = 30_000


def run(work):
    """Run a coroutine, in time."""
    return asyncio.run(asyncio.wait_for(work, SOON_MS / 1_000))


async def make(bootstrap, name):
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(name, 2, 1)])
    await admin.close()


async def read(consumer, count):
    """So many records."""
    found = []
    while len(found) < count:
        came = await consumer.getmany(timeout_ms=SOON_MS, max_records=count - len(found))
        assert came, f"{len(found)} of {count} came"
        found += [record for records in came.values() for record in records]
    return found


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(bootstrap, name, codec):
    sent = [(b"k", b"first", (("source", b"gate 7"),)), (None, b"no key", ()), (b"k2", None, ())]

    async def work():
        await make(bootstrap, name)
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec, enable_idempotence=True
        ) as producer:
            for place, (key, value, headers) in enumerate(sent):
                found = await producer.send_and_wait(
                    name, value, key, 0, 1_700_000_000_000, list(headers)
                )
                assert found.offset == place
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TopicPartition(name, 0)])
        found = await read(consumer, len(sent))
        assert [(r.key, r.value, r.headers) for r in found] == sent
        await consumer.stop()

    run(work())


def test_a_group_commits_and_goes_on(bootstrap, name):
    async def work():
        await make(bootstrap, name)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for n in range(100):
                await producer.send_and_wait(name, b"%d" % n, partition=n % 2)
        seen = []
        for part in (40, 60):
            consumer = AIOKafkaConsumer(
                name,
                bootstrap_servers=bootstrap,
                group_id=name,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            await consumer.start()
            seen += [int(record.value) for record in await read(consumer, part)]
            await consumer.commit()
            await consumer.stop()
        assert sorted(seen) == list(range(100))

    run(work())
