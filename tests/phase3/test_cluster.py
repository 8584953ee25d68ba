"""Three brokers: what any of them is asked, what the others then know, and what a death leaves."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from uuid import UUID

import msgspec
import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from three_brokers import brokers, producing, running, until

from craft2.disk import DiskError, RealDisk
from craft2.net import Address, RealNet
from phase2_groups.error_codes import ErrorCode
from phase3_raft import peers, schemas
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.client.broker_connection import BrokerConnection
from phase3_raft.groups.coordinator import OFFSETS_TOPIC, partition_of
from phase3_raft.local_cluster import LocalCluster
from phase3_raft.metadata.quorum import QuorumConfig
from phase3_raft.raft.messages import RaftError
from phase3_raft.replication import fetcher
from phase3_raft.replication.replication import Replication

SOON = 30.0


@running
async def test_any_broker_makes_a_topic_and_all_of_them_know_it(tmp_path):
    async with brokers(tmp_path) as cluster:
        for asked in (1, 2, 3):
            assert await cluster.make_topic(f"t{asked}", 3, asked=asked) == ErrorCode.NONE
            again = await cluster.make_topic(f"t{asked}", asked=asked)
            assert again == ErrorCode.TOPIC_ALREADY_EXISTS
        assert await cluster.make_topic("u", replicas=4) == ErrorCode.INVALID_REPLICATION_FACTOR
        leaders = {one.leader for one in cluster.all[1].image.partitions()}
        assert leaders == {1, 2, 3}


@running
async def test_what_is_acknowledged_by_all_is_in_every_log(tmp_path):
    async with brokers(tmp_path) as cluster:
        await cluster.make_topic("t")
        for n in range(20):
            assert await cluster.produce("t", str(n)) == ErrorCode.NONE
            assert set(map(len, cluster.logs("t").values())) == {n + 1}
        values = [str(n) for n in range(20)]
        assert cluster.logs("t") == {1: values, 2: values, 3: values}


@running
async def test_a_follower_that_is_gone_leaves_the_isr_and_too_few_are_told(tmp_path):
    async with brokers(tmp_path, session_ms=500) as cluster:
        await cluster.make_topic("t", min_insync_replicas="3")
        assert await cluster.produce("t", "a") == ErrorCode.NONE
        leader = cluster.leader("t")
        gone = next(n for n in (2, 3, 1) if n not in (leader, cluster.all[1].controller_id))
        await cluster.all.pop(gone).close()
        await until(lambda: len(cluster.all[leader].image.partition("t", 0).isr) == 2)
        assert await cluster.produce("t", "b") == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await cluster.produce("t", "c", acks=1) == ErrorCode.NONE
        assert cluster.logs("t")[leader] == ["a", "c"]


async def delete_before(cluster, topic, offset, timeout_ms=20_000):
    """The error, and where all replicas begin by then."""
    wanted = {"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}
    fields = {"topics": [wanted], "timeout": timeout_ms}
    reply = await cluster.ask(cluster.leader(topic), "delete_records", 2, fields)
    [one] = reply.topics[0].partitions
    return ErrorCode(one.error_code), one.low_watermark


def replica(cluster, number, topic):
    return dict(cluster.all[number].partitions.all())[topic, 0]


def begins(cluster, topic):
    return {n: replica(cluster, n, topic).log.log_start for n in cluster.all}


@running
async def test_records_are_deleted_when_they_are_on_every_replica(tmp_path, monkeypatch):
    """Or the next leader would have them again. A follower waits for nothing but to be told."""
    monkeypatch.setattr(fetcher, "WAIT_MS", 60_000)
    async with brokers(tmp_path) as cluster:
        await cluster.make_topic("t")
        await cluster.produce("t", "a")
        await cluster.produce("t", "b")
        assert await delete_before(cluster, "t", 1) == (ErrorCode.NONE, 1)
        assert begins(cluster, "t") == {1: 1, 2: 1, 3: 1}
        assert await delete_before(cluster, "t", -1) == (ErrorCode.NONE, 2)
        assert await delete_before(cluster, "t", 0) == (ErrorCode.NONE, 2)


@running
async def test_a_replica_that_deletes_nothing_is_waited_for_until_its_broker_is_dead(tmp_path):
    async with brokers(tmp_path, session_ms=500) as cluster:
        await cluster.make_topic("t")
        await cluster.produce("t", "a")
        leader = cluster.leader("t")
        slow = next(n for n in (2, 3, 1) if n not in (leader, cluster.all[1].controller_id))
        partition = replica(cluster, slow, "t")
        partition.follow_to = lambda high_watermark, log_start: None
        asked = await delete_before(cluster, "t", 1, timeout_ms=50)
        assert asked == (ErrorCode.REQUEST_TIMED_OUT, 0)
        assert begins(cluster, "t")[leader] == 1  # it is on its way: nothing brings it back here
        waiting = asyncio.ensure_future(delete_before(cluster, "t", 1))
        await cluster.all.pop(slow).close()
        assert await waiting == (ErrorCode.NONE, 1)


@running
async def test_a_replica_that_began_anew_behind_all_that_was_deleted_can_be_followed(tmp_path):
    """It knows of no epoch, and those that follow it know of one, and have no record of it."""
    async with brokers(tmp_path) as cluster:
        await cluster.make_topic("t")
        await cluster.produce("t", "a")
        assert await delete_before(cluster, "t", -1) == (ErrorCode.NONE, 1)
        leader, heir, other = replica(cluster, 1, "t").record.replicas
        replica(cluster, heir, "t").reset_to(1)  # as one that was down meanwhile
        await cluster.all.pop(leader).close()
        await until(lambda: cluster.all[heir].image.partition("t", 0).leader == heir)
        assert await cluster.produce("t", "b") == ErrorCode.NONE
        record = cluster.all[heir].image.partition
        await until(lambda: set(record("t", 0).isr) == {heir, other})
        assert cluster.logs("t") == {heir: ["b"], other: ["b"]}


@running
async def test_a_client_that_hangs_up_does_not_wait_for_a_deletion(tmp_path):
    async with brokers(tmp_path) as cluster:
        await cluster.make_topic("t")
        await cluster.produce("t", "a")
        for n in cluster.all:
            replica(cluster, n, "t").follow_to = lambda high_watermark, log_start: None
        wanted = {"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}
        fields = {"topics": [wanted], "timeout": 2**31 - 1}
        body = schemas.encode("delete_records", 1, fields, "request")
        frame = struct.pack(">hhih", 21, 1, 7, -1) + body
        address = cluster.all[cluster.leader("t")].address
        reader, writer = await asyncio.open_connection(*address)
        writer.write(len(frame).to_bytes(4) + frame)
        partition = replica(cluster, cluster.leader("t"), "t")
        await until(lambda: partition.log.log_start == 1 and partition._watchers)
        writer.write_eof()
        async with asyncio.timeout(SOON):
            assert await reader.read() == b""
        await until(lambda: not partition._watchers)
        writer.close()


@running
async def test_who_waits_for_a_deletion_hears_when_another_broker_leads(tmp_path):
    async with brokers(tmp_path) as cluster:
        await cluster.make_topic("t")
        await cluster.produce("t", "a")
        leader = cluster.leader("t")
        for n in cluster.all:
            replica(cluster, n, "t").follow_to = lambda high_watermark, log_start: None
        waiting = asyncio.ensure_future(delete_before(cluster, "t", 1))
        partition = replica(cluster, leader, "t")
        await until(lambda: partition.log.log_start == 1)
        other = next(n for n in (1, 2, 3) if n != leader)
        record = partition.record
        epoch = record.leader_epoch + 1
        partition.become(msgspec.structs.replace(record, leader=other, leader_epoch=epoch))
        assert await waiting == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


GROUP = "g"


async def with_commits(cluster, **config):
    """The topics t and u, and a group's commit for each."""
    await cluster.make_topic(OFFSETS_TOPIC, 2, **config)
    one = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
    topics = [{"name": name, "partitions": [one]} for name in "tu"]
    member = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": ""}
    for name in "tu":
        await cluster.make_topic(name)
    while await committed(cluster) != ["t", "u"]:
        fields = {**member, "topics": topics}
        await cluster.ask(coordinator_of(cluster), "offset_commit", 8, fields)


def coordinator_of(cluster):
    return cluster.leader(OFFSETS_TOPIC, partition_of(GROUP, 2))


async def committed(cluster):
    """The topics for which the group's coordinator knows a commit."""
    found = await cluster.all[coordinator_of(cluster)].groups.committed(GROUP)
    return sorted(topic for topic, _ in found) if isinstance(found, dict) else None


async def delete_topic(cluster, topic):
    asked = cluster.all[next(iter(cluster.all))].controller_id
    fields = {"topic_names": [topic], "timeout": 5_000}
    reply = await cluster.ask(asked, "delete_topics", 4, fields)
    assert reply.responses[0].error_code == 0
    await until(lambda: all(topic not in one.image.topics for one in cluster.all.values()))


def spare(cluster):
    """A broker that neither coordinates nor controls."""
    controller = cluster.all[1].controller_id
    return next(n for n in cluster.all if n not in (coordinator_of(cluster), controller))


@running
async def test_commits_for_a_topic_that_is_gone_go_when_enough_replicas_are_in_sync(tmp_path):
    """A topic of that name that is made anew must not begin where groups were in the old one."""
    async with brokers(tmp_path, session_ms=500) as cluster:
        await with_commits(cluster, min_insync_replicas="3")
        gone = spare(cluster)
        closed = cluster.all.pop(gone)
        await closed.close()
        image = next(iter(cluster.all.values())).image
        await until(lambda: len(image.partition(OFFSETS_TOPIC, partition_of(GROUP, 2)).isr) == 2)
        await delete_topic(cluster, "t")
        assert await committed(cluster) == ["t", "u"]
        cluster.all[gone] = closed
        await cluster.again(gone)
        async with asyncio.timeout(SOON):
            while await committed(cluster) != ["u"]:
                await asyncio.sleep(0.01)
        assert not [line for line in cluster.said if "task" in line]


@running
async def test_who_coordinates_next_forgets_what_the_last_one_had_no_time_for(tmp_path):
    async with brokers(tmp_path, session_ms=500) as cluster:
        await with_commits(cluster)
        last = coordinator_of(cluster)
        cluster.all[last].groups.forget_topic = lambda name: None
        await delete_topic(cluster, "t")
        assert await committed(cluster) == ["t", "u"]
        await cluster.all.pop(last).close()
        await until(lambda: coordinator_of(cluster) != last)
        async with asyncio.timeout(SOON):
            while await committed(cluster) != ["u"]:
                await asyncio.sleep(0.01)


@running
async def test_a_broker_that_shuts_down_hands_over_before_it_goes(tmp_path):
    async with brokers(tmp_path) as cluster:
        await cluster.make_topic("t", 3)
        await cluster.all.pop(1).close()
        left = cluster.all[2].image
        assert all(one.leader in (2, 3) for one in left.partitions())
        assert all(1 not in one.isr for one in left.partitions())


@running
async def test_when_the_controller_has_shut_down_there_is_another_and_nobody_waits_for_it(tmp_path):
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t", 3) == ErrorCode.NONE
        gone = cluster.all[1].controller_id
        await cluster.all.pop(gone).close()
        for number, one in cluster.all.items():
            assert one.controller_id in cluster.all, f"broker {number} waits for an election"
            assert gone not in one.image.live()
            assert all(gone not in record.isr for record in one.image.partitions())


@running
async def test_a_controller_hands_over_to_who_is_fenced_if_there_is_nobody_else(tmp_path):
    async with brokers(tmp_path) as cluster:
        gone = cluster.all[1].controller_id
        for number in cluster.all.keys() - {gone}:
            await cluster.all[number].replication.goodbye(1.0)
        await until(lambda: set(cluster.all[gone].image.live()) == {gone})
        await cluster.all.pop(gone).close()
        for number, one in cluster.all.items():
            assert one.controller_id in cluster.all, f"broker {number} waits for an election"


@running
async def test_who_sends_to_a_broker_that_shuts_down_is_told_who_leads(tmp_path):
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t") == ErrorCode.NONE
        leader = cluster.leader("t")
        address = cluster.all[leader].address
        connection = await BrokerConnection.open(RealNet(), address)
        ending = asyncio.ensure_future(cluster.all.pop(leader).close())
        errors = []
        while ErrorCode.NOT_LEADER_OR_FOLLOWER not in errors:
            reply = await connection.ask("produce", 7, producing("t", "a"))
            errors.append(reply.responses[0].partition_responses[0].error_code)
        await ending
        connection.close()
        await until(lambda: len(set(map(tuple, cluster.logs("t").values()))) == 1)
        [log] = set(map(tuple, cluster.logs("t").values()))
        assert len(log) >= errors.count(ErrorCode.NONE)


@running
async def test_a_leader_that_cannot_write_lets_another_lead(tmp_path):
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t") == ErrorCode.NONE
        assert await cluster.produce("t", "a") == ErrorCode.NONE
        leader = cluster.leader("t")
        log = dict(cluster.all[leader].partitions.all())["t", 0].log

        def full(*_):
            raise DiskError("no space is left", "free some")

        log.append_checked = full
        assert await cluster.produce("t", "b") == ErrorCode.KAFKA_STORAGE_ERROR
        await until(
            lambda: all(one.image.partition("t", 0).leader != leader for one in all_of(cluster))
        )
        assert await cluster.produce("t", "c") == ErrorCode.NONE
        await until(lambda: list(cluster.logs("t").values()) == [["a", "c"]] * 3)


class NoInodes(RealDisk):
    """A disk that makes no folders while it is full."""

    full = False

    def mkdir(self, path):
        if self.full:
            raise DiskError(f"{path!r}: no space is left", "free some")
        super().mkdir(path)


@running
async def test_a_partition_that_cannot_be_opened_is_led_by_others_until_it_can(tmp_path):
    disk = NoInodes()
    async with brokers(tmp_path, disks={3: disk}, max_lag_ms=1_000) as cluster:
        disk.full = True
        assert await cluster.make_topic("t", 3) == ErrorCode.NONE
        parts = [("t", number) for number in range(3)]
        await until(
            lambda: all(
                3 not in (image.partition(*part).leader, *image.partition(*part).isr)
                for part in parts
                for image in (one.image for one in all_of(cluster))
            )
        )
        for _, number in parts:
            assert await cluster.produce("t", "a", number=number) == ErrorCode.NONE
        for part in parts:  # told once, though it is tried again and again
            name = f"{part[0]}-{part[1]}"
            assert len([line for line in cluster.said if line.startswith(f"{name} cannot")]) == 1
        disk.full = False
        await until(lambda: all(3 in cluster.all[1].image.partition(*part).isr for part in parts))
        assert [cluster.logs(*part)[3] for part in parts] == [["a"]] * 3


def all_of(cluster):
    return cluster.all.values()


@running
async def test_nobody_waits_for_a_controller_that_hangs_and_was_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(peers.Peers._limited.__wrapped__, "__defaults__", (1_000.0,))
    async with brokers(tmp_path) as cluster:
        old = cluster.all[1].controller_id
        new, third = (n for n in cluster.all if n != old)
        hanging = []

        async def hang(broker, *_, **__):
            hanging.append(broker)
            await asyncio.Event().wait()

        cluster.all[old].controller.heartbeat = hang
        await until(lambda: {new, third} <= set(hanging))
        looked, heard = [], []
        controller = cluster.all[new].controller
        look_after, heartbeat = controller.look_after, controller.heartbeat

        async def look():
            looked.append(controller.is_here)
            await look_after()

        async def hear(broker, *args, **given):
            heard.append(broker)
            return await heartbeat(broker, *args, **given)

        controller.look_after, controller.heartbeat = look, hear
        cluster.all[old].metadata.node.transfer(new)
        await until(lambda: any(looked) and {old, third} <= set(heard))


@running
async def test_two_brokers_with_one_number_the_second_is_told(tmp_path):
    async with brokers(tmp_path) as cluster:
        fields = {
            "broker_id": 2,
            "cluster_id": "c",
            "incarnation_id": UUID(int=7),
            "listeners": [{"name": "PLAINTEXT", "host": "h", "port": 1, "security_protocol": 0}],
            "features": [],
            "rack": None,
            "log_dirs": [UUID(int=8)],
        }
        controller = cluster.all[1].controller_id
        reply = await cluster.ask(controller, "broker_registration", 2, fields)
        assert reply.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        nowhere = [{"name": "PLAINTEXT", "host": "a..b", "port": 1, "security_protocol": 0}]
        new = {"broker_id": 9, "listeners": nowhere}  # all would try to call it, for ever
        reply = await cluster.ask(controller, "broker_registration", 2, fields | new)
        assert reply.error_code == ErrorCode.INVALID_REQUEST
        for wrong in ({"broker_id": -1}, {"log_dirs": []}):
            reply = await cluster.ask(controller, "broker_registration", 2, fields | wrong)
            assert reply.error_code == ErrorCode.INVALID_REQUEST
        other = fields | {"cluster_id": "other"}
        reply = await cluster.ask(controller, "broker_registration", 2, other)
        assert reply.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_the_directory_of_another_cluster_is_refused(tmp_path):
    def broker(cluster):
        voters = {1: Address("127.0.0.1", 1)}
        quorum = QuorumConfig(cluster=cluster, voters=voters)
        return Broker(BrokerConfig(str(tmp_path), quorum=quorum))

    broker("a").metadata.close()
    with pytest.raises(RaftError, match="belongs to cluster and server a 1"):
        broker("b")


# Processes, and librdkafka.


@pytest.fixture(scope="module")
def processes():
    with LocalCluster(options=("--session-ms", "1500")) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        [made] = admin.create_topics([NewTopic("t", 1, 3)]).values()
        made.result()
        yield cluster


def leader_of(cluster, topic="t"):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    return admin.list_topics(topic, timeout=SOON).topics[topic].partitions[0].leader


def test_librdkafka_loses_nothing_when_leaders_are_killed(processes):
    settings = {"bootstrap.servers": processes.bootstrap_servers, "enable.idempotence": True}
    producer, acknowledged = Producer(settings), []

    def delivered(error, message):
        assert error is None
        acknowledged.append((message.offset(), message.value()))

    sent = 0
    for _ in range(2):
        for _ in range(50):
            producer.produce("t", str(sent).encode(), on_delivery=delivered)
            sent += 1
        producer.poll(0.01)
        killed = leader_of(processes)
        processes.kill(killed)
        for _ in range(50):
            producer.produce("t", str(sent).encode(), on_delivery=delivered)
            sent += 1
        assert producer.flush(SOON) == 0
        processes.start(killed)
    consumer = Consumer({"bootstrap.servers": processes.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    found = []
    while len(found) < sent:
        [message] = consumer.consume(1, SOON) or [None]
        assert message is not None, f"{len(found)} of {sent}"
        assert message.error() is None
        found.append((message.offset(), message.value()))
    consumer.close()
    assert found == sorted(acknowledged)
    assert [value for _, value in found] == [str(n).encode() for n in range(sent)]


def test_a_groups_commits_survive_its_coordinator(processes):
    servers = processes.bootstrap_servers
    settings = {"bootstrap.servers": servers, "group.id": "kept", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.commit(offsets=[TopicPartition("t", 0, 7)], asynchronous=False)
    killed = leader_of(processes, "__consumer_offsets")
    processes.kill(killed)
    try:
        [found] = consumer.committed([TopicPartition("t", 0)], timeout=SOON)
        assert found.offset == 7
        consumer.commit(offsets=[TopicPartition("t", 0, 8)], asynchronous=False)
        [found] = consumer.committed([TopicPartition("t", 0)], timeout=SOON)
        assert found.offset == 8
    finally:
        consumer.close()
        processes.start(killed)


def test_the_command_runs_a_cluster_says_how_it_is_and_ends_all_of_it(tmp_path):
    command = [sys.executable, "-P", "-m", "craft2.apps.cli", "cluster"]
    with subprocess.Popen(
        [*command, "up", "--data-dir", tmp_path, "--base-port", str(free_range(6))],
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            said = [running.stdout.readline().split() for _ in range(4)]
            assert [words[:2] for words in said[:3]] == [["broker", str(n)] for n in (1, 2, 3)]
            assert said[3] == ["ready"]
            pids, addresses = (
                [int(words[3]) for words in said[:3]],
                [words[4] for words in said[:3]],
            )
            producer = Producer({"bootstrap.servers": addresses[0]})
            producer.produce("made", b"x")
            assert producer.flush(SOON) == 0
            asked = [*command, "status", "--bootstrap", addresses[2]]
            told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
            assert "(controller)" in told
            assert re.search(r"made +│ 0 +│ [123] +│", told)
            running.send_signal(signal.SIGINT)
            assert running.wait(SOON) == 0
        finally:
            running.kill()  # its brokers end with it
    assert not [pid for pid in pids if psutil.pid_exists(pid)]


def free_range(count):
    """The first of so many ports in a row that are free."""
    for first in range(20_000, 30_000, count):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    pytest.fail("no ports")


@running
async def test_a_partition_moves_to_other_brokers_and_its_first_replica_leads(tmp_path):
    async with brokers(tmp_path) as cluster:
        topic = {
            "name": "t",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": (1, 2)}],
            "configs": [],
        }
        fields = {"topics": [topic], "timeout": 1_000, "validate_only": False}
        await cluster.ask(1, "create_topics", 4, fields)
        await until(lambda: all("t" in one.image.topics for one in cluster.all.values()))
        for n in range(10):
            assert await cluster.produce("t", str(n)) == ErrorCode.NONE

        partition = {"partition_index": 0, "replicas": (3, 2)}
        moves = {"timeout": 1_000, "topics": [{"name": "t", "partitions": [partition]}]}
        reply = await cluster.ask(2, "alter_partition_reassignments", 0, moves)
        assert reply.responses[0].partitions[0].error_code == ErrorCode.NONE
        image = cluster.all[2].image
        await until(lambda: image.partition("t", 0).replicas == (3, 2))
        assert image.partition("t", 0).leader == 3
        asked = {"timeout": 1_000, "topics": None}
        assert (await cluster.ask(3, "list_partition_reassignments", 0, asked)).topics == ()
        await until(lambda: set(cluster.logs("t")) == {2, 3})
        assert cluster.logs("t")[3] == [str(n) for n in range(10)]
        assert not (tmp_path / "1" / "t-0").exists()

        named = [{"topic": "t", "partitions": (0,)}]
        fields = {"election_type": 0, "topic_partitions": named, "timeout": 1_000}
        reply = await cluster.ask(1, "elect_leaders", 2, fields)
        told = reply.replica_election_results[0].partition_result[0].error_code
        assert told == ErrorCode.ELECTION_NOT_NEEDED
        reply = await cluster.ask(1, "elect_leaders", 2, {**fields, "election_type": 5})
        assert reply.error_code == ErrorCode.INVALID_REQUEST


def test_a_replica_that_lost_its_records_is_not_in_sync_before_it_has_them_again(
    tmp_path, monkeypatch
):
    """However long it takes to open its partitions: what it had counts in its last life only."""
    gate, follow = asyncio.Event(), Replication._follow

    async def later(self):
        await gate.wait()
        await follow(self)

    @running
    async def test():
        async with brokers(tmp_path) as cluster:
            assert await cluster.make_topic("t") == ErrorCode.NONE
            assert await cluster.produce("t", *map(str, range(100))) == ErrorCode.NONE
            leads = cluster.leader("t")
            [lost, *_] = {1, 2, 3} - {leads, cluster.all[1].controller_id}
            await cluster.all[lost].close()
            shutil.rmtree(tmp_path / str(lost) / "t-0")
            await until(lambda: lost not in cluster.all[leads].image.live())
            monkeypatch.setattr(Replication, "_follow", later)
            await cluster.again(lost)
            await until(lambda: lost in cluster.all[leads].image.live())
            await cluster.all[leads].replication._ask_for_isr()
            assert lost not in cluster.all[leads].image.partition("t", 0).isr
            gate.set()
            await until(lambda: lost in cluster.all[leads].image.partition("t", 0).isr)
            assert len(cluster.logs("t")[lost]) == 100

    test()


@running
async def test_a_leader_that_knows_of_a_former_life_is_refused(tmp_path):
    """KIP-903: its request may have been on its way while the replica was started again."""
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t") == ErrorCode.NONE
        leads = cluster.leader("t")
        image = cluster.all[leads].image
        one = image.partition("t", 0)
        for change, error in ((-1, ErrorCode.INELIGIBLE_REPLICA), (0, ErrorCode.NONE)):
            epochs = {who: image.brokers[who].epoch for who in one.isr}
            epochs[max(set(one.isr) - {leads})] += change
            partition = {
                "partition_index": 0,
                "leader_epoch": one.leader_epoch,
                "new_isr_with_epochs": [
                    {"broker_id": who, "broker_epoch": epoch} for who, epoch in epochs.items()
                ],
                "leader_recovery_state": 0,
                "partition_epoch": one.partition_epoch,
            }
            topic = {"topic_id": UUID(image.topics["t"].topic_id), "partitions": [partition]}
            asked = {
                "broker_id": leads,
                "broker_epoch": image.brokers[leads].epoch,
                "topics": [topic],
            }
            reply = await cluster.ask(cluster.all[1].controller_id, "alter_partition", 3, asked)
            assert reply.topics[0].partitions[0].error_code == error
