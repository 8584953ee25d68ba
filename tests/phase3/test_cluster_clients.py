"""Every client goes on when a leader dies under it: nothing acknowledged is lost, groups go on.

Each sends numbers, one after the other, while the leader of what it sends to is killed, and a group
reads them while the broker that coordinates it is. Librdkafka has the same in `test_cluster`.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import threading

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer

import phase3_raft.client  # noqa: F401
from craft2.apps.cluster_admin import read_status
from craft2.apps.kafka_peer import libraries, tool
from craft2.apps.maven import MavenError
from phase2_groups.consumer import Consumer
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig
from phase3_raft.local_cluster import LocalCluster

COUNT, SOON_S = 200, 60
NUMBERS = [str(n) for n in range(COUNT)]


@pytest.fixture(scope="module")
def cluster():
    options = (
        "--group-initial-rebalance-delay-ms",
        "0",
        "--topic-default",
        "min.insync.replicas=2",
    )
    with LocalCluster(options=options) as running:
        yield running


@pytest.fixture
def topic(cluster, request):
    """A topic of one partition; at the end all brokers are there again."""
    name = request.node.name.replace("[", "-").strip("]")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, 1, 3)])[name].result(SOON_S)
    yield name
    cluster.start(*(n for n in cluster.addresses if n not in cluster.pids))


def leader(cluster, topic):
    found = read_status(cluster.bootstrap_servers).partitions
    return next(one.leader for one in found if one.topic == topic)


def kill_leader(cluster, topic):
    cluster.kill(leader(cluster, topic))


# What each client does: send the numbers, calling `half` in the middle; read as many.


def ours_sends(bootstrap, topic, half):
    config = ProducerConfig(bootstrap_servers=bootstrap, acks="all", delivery_timeout_ms=60_000)
    with Producer(config) as producer:
        for n, value in enumerate(NUMBERS):
            if n == COUNT // 2:
                half()
            producer.send(topic, value).result(SOON_S)


def ours_reads(bootstrap, topic, half):
    config = ConsumerConfig(
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        max_poll_records=COUNT // 2,
        enable_auto_commit=False,
    )
    found = []
    with Consumer(config) as consumer:
        consumer.subscribe([topic])
        while len(found) < COUNT:
            records = consumer.poll(1_000)
            if records and not found:
                half()
            found += [record.value.decode() for record in records]
        consumer.commit()
    return found


def kafka_python_sends(bootstrap, topic, half):
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", retries=100)
    for n, value in enumerate(NUMBERS):
        if n == COUNT // 2:
            half()
        producer.send(topic, value.encode()).get(SOON_S)
    producer.close()


def kafka_python_reads(bootstrap, topic, half):
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=500,
    )
    found = []
    while len(found) < COUNT:
        for records in consumer.poll(1_000, max_records=COUNT // 2).values():
            if not found:
                half()
            found += [record.value.decode() for record in records]
    consumer.commit()
    consumer.close()
    return found


def aiokafka_sends(bootstrap, topic, half):
    async def send():
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True
        ) as producer:
            for n, value in enumerate(NUMBERS):
                if n == COUNT // 2:
                    await asyncio.to_thread(half)
                await producer.send_and_wait(topic, value.encode())

    asyncio.run(asyncio.wait_for(send(), 2 * SOON_S))


def aiokafka_reads(bootstrap, topic, half):
    async def read():
        found = []
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            while len(found) < COUNT:
                some = await consumer.getmany(timeout_ms=1_000, max_records=COUNT // 2)
                for records in some.values():
                    if not found:
                        await asyncio.to_thread(half)
                    found += [record.value.decode() for record in records]
            await consumer.commit()
        return found

    return asyncio.run(asyncio.wait_for(read(), 2 * SOON_S))


CLIENTS = {
    "ours": (ours_sends, ours_reads),
    "kafka-python": (kafka_python_sends, kafka_python_reads),
    "aiokafka": (aiokafka_sends, aiokafka_reads),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_producer_and_a_group_go_on(cluster, topic, client):
    send, read = CLIENTS[client]
    send(cluster.bootstrap_servers, topic, lambda: kill_leader(cluster, topic))
    cluster.start(*(n for n in cluster.addresses if n not in cluster.pids))

    def kill_coordinator():
        found = coordinator(cluster, topic)
        cluster.kill(found)

    found = read(cluster.bootstrap_servers, topic, kill_coordinator)
    # Whoever retries without idempotence may write a number twice; nobody may lose one.
    assert list(dict.fromkeys(found)) == NUMBERS
    if client != "kafka-python":
        assert found == NUMBERS


def coordinator(cluster, group):
    """The broker that has a group."""
    from phase3_raft.groups.coordinator import partition_of

    parts = [
        one
        for one in read_status(cluster.bootstrap_servers).partitions
        if one.topic == "__consumer_offsets"
    ]
    return parts[partition_of(group, len(parts))].leader


def test_kcat_goes_on(cluster, topic):
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not installed")
    command = ["kcat", "-P", "-b", cluster.bootstrap_servers, "-t", topic, "-X", "acks=all", "-q"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        for n, value in enumerate(NUMBERS):
            if n == COUNT // 2:
                kill_leader(cluster, topic)
            process.stdin.write(f"{value}\n")
            process.stdin.flush()
        process.stdin.close()
        assert process.wait(SOON_S) == 0
    command = ["kcat", "-C", "-b", cluster.bootstrap_servers, "-t", topic, "-e", "-q"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=SOON_S).stdout.split()
    assert list(dict.fromkeys(found)) == NUMBERS


@pytest.mark.prove
def test_the_java_producer_and_a_group_of_its_consumer_go_on(cluster, topic):
    try:
        libraries()
    except MavenError as error:
        pytest.skip(str(error))
    count = 3_000
    words = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", topic)
    send = tool(
        "producer-perf-test",
        *("--topic", topic, "--num-records", str(count), "--throughput", "300"),
        *("--record-size", "100", "--print-metrics"),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}", "acks=all"),
    )
    with subprocess.Popen(
        send, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        said = ""
        for line in process.stdout:
            if "records sent" in line and not said:
                kill_leader(cluster, topic)
            said += line
    assert process.returncode == 0, said
    assert f"{count} records sent" in said
    assert "Exception" not in said, said
    cluster.start(*(n for n in cluster.addresses if n not in cluster.pids))
    group = ("--group-id", topic, "--max-messages", str(count), "--verbose", "--reset-policy")
    read = tool("verifiable-consumer", *words, *group, "earliest")
    with subprocess.Popen(read, stdout=subprocess.PIPE, text=True) as process:
        killed, found = False, []
        for line in process.stdout:
            event = json.loads(line)
            if event["name"] == "record_data":
                found.append(event["offset"])
            if found and not killed:
                killed = True
                threading.Thread(target=lambda: cluster.kill(coordinator(cluster, topic))).start()
    assert set(found) == set(range(count))
