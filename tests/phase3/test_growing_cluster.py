"""Brokers that join a cluster while it runs, and leave it for good; partitions that move."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from three_brokers import brokers, running, until

from craft2.apps import cluster_admin
from craft2.apps.cluster_admin import read_members, read_status
from craft2.net import Address, free_ports
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.local_cluster import LocalCluster
from phase3_raft.metadata.quorum import QuorumConfig
from phase3_raft.replication.fetcher import Fetcher
from phase3_raft.replication.throttle import Throttle


@asynccontextmanager
async def joined(cluster, root, number=4, through=(1, 2, 3)):
    """One more broker, which founds nothing."""
    quorum = QuorumConfig(
        cluster="c",
        voters=cluster.all[1].config.quorum.voters,
        seeds=[cluster.all[n].address for n in through],
    )
    [port] = free_ports(1)
    config = BrokerConfig(
        str(root / str(number)),
        broker_id=number,
        listen=Address("127.0.0.1", port),
        quorum=quorum,
        offsets_partitions=2,
        drain_s=0.5,
    )
    broker = Broker(config, trouble=cluster.said.append)
    await broker.open()
    try:
        cluster.all[number] = broker
        await broker.serves()
        yield broker
    finally:
        del cluster.all[number]
        await broker.close()


def quorum_of(reply):
    [topic] = reply.topics
    [partition] = topic.partitions
    return [
        [one.replica_id for one in some] for some in (partition.current_voters, partition.observers)
    ]


def led_by(broker, leader):
    return broker.image.partition("t", 0).leader == leader


QUORUM = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}


@running
async def test_a_broker_joins_is_given_partitions_and_comes_again(tmp_path):
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t") == ErrorCode.NONE
        assert await cluster.produce("t", "before") == ErrorCode.NONE
        for leader in (4, 2):  # the second time it has a disk
            async with joined(cluster, tmp_path) as fourth:
                assert fourth.image.live() == [1, 2, 3, 4]
                reply = await cluster.ask(4, "describe_quorum", 2, QUORUM)
                assert quorum_of(reply) == [[1, 2, 3], [4]]
                assert [node.node_id for node in reply.nodes] == [1, 2, 3, 4]
                partition = {"partition_index": 0, "replicas": (4, 2)}
                moves = {"timeout": 1_000, "topics": [{"name": "t", "partitions": [partition]}]}
                await cluster.ask(4, "alter_partition_reassignments", 0, moves)
                await until(lambda: cluster.all[4].image.partition("t", 0).isr == (4, 2))
                await until(partial(led_by, fourth, leader))
                assert await cluster.produce("t", "after") == ErrorCode.NONE
                await until(lambda: len(cluster.logs("t")[4]) == len(cluster.logs("t")[2]))
            assert cluster.all[1].image.live() == [1, 2, 3]
        assert cluster.logs("t")[2] == ["before", "after", "after"]


def voters(broker):
    return broker.metadata.node.members.voters


@running
async def test_a_voter_whose_folder_was_emptied_copies_everything_and_votes_again(tmp_path):
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t", min_insync_replicas="2") == ErrorCode.NONE
        assert await cluster.produce("t", "before") == ErrorCode.NONE
        leads = cluster.all[1].controller_id
        lost, other = {1, 2, 3} - {leads}
        await cluster.all[lost].close()
        shutil.rmtree(tmp_path / str(lost))
        await until(lambda: lost not in cluster.all[leads].image.live())
        await cluster.again(lost)
        await until(lambda: len(cluster.all[leads].image.partition("t", 0).isr) == 3)
        await until(lambda: voters(cluster.all[lost]) == (1, 2, 3))
        assert any("was emptied" in line for line in cluster.said)
        await cluster.all.pop(other).close()  # now the one that was lost is needed
        try:
            await until(lambda: cluster.leader("t") not in (other, -1))
            assert await cluster.produce("t", "after") == ErrorCode.NONE
            assert cluster.logs("t")[lost] == ["before", "after"]
        finally:
            await cluster.all[lost].close()


@running
async def test_a_broker_that_had_joined_and_whose_folder_was_emptied_copies_everything(tmp_path):
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t", partitions=8) == ErrorCode.NONE
        for _ in range(2):
            async with joined(cluster, tmp_path) as fourth:
                assert fourth.image.live() == [1, 2, 3, 4]
                assert len(fourth.image.topics["t"].partitions) == 8
            shutil.rmtree(tmp_path / "4")


def in_sync(broker):
    about = broker.image.partition("t", 0)
    return () if about is None else about.isr


@running
async def test_the_last_one_that_went_comes_back_without_its_disk_and_cuts_nobodys_log(tmp_path):
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t") == ErrorCode.NONE
        assert await cluster.produce("t", "a", "b") == ErrorCode.NONE
        for gone, left in ((2, (1, 3)), (3, (1,))):
            await cluster.all[gone].close()
            await until(lambda: in_sync(cluster.all[1]) == left)  # noqa: B023
        await cluster.all[1].close()
        shutil.rmtree(tmp_path / "1")
        for number in (1, 3, 2):
            await cluster.again(number)
        await until(lambda: len(in_sync(cluster.all[3])) == 3)
        assert list(cluster.logs("t").values()) == [["a", "b"]] * 3
        [line] = [line for line in cluster.said if "alone was in sync for t-0: " in line]
        assert line.startswith("broker 1 alone")


@running
async def test_another_list_of_voters_replaces_one_that_is_no_more(tmp_path):
    """Brokers are started with it one after the other, and it is the same cluster all the time."""
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t", replicas=2) == ErrorCode.NONE
        async with joined(cluster, tmp_path) as fourth:
            assert fourth.image.live() == [1, 2, 3, 4]
        await cluster.all.pop(3).close()
        quorum = cluster.all[1].config.quorum
        [port] = free_ports(1)
        listed = {n: quorum.voters[n] for n in (1, 2)} | {4: Address("127.0.0.1", port)}
        cluster.all[4] = fourth
        for number in (1, 2, 4):
            if number != 4:
                await cluster.all[number].close()
            config = cluster.all[number].config
            config = replace(config, quorum=replace(config.quorum, voters=listed, seeds=()))
            cluster.all[number] = Broker(config, trouble=cluster.said.append)
            await cluster.all[number].open()
            await cluster.all[number].serves()
        await until(lambda: {voters(one) for one in cluster.all.values()} == {(1, 2, 4)})
        await cluster.all.pop(1).close()  # now the new one is needed
        await until(lambda: cluster.all[2].controller_id in (2, 4))
        assert await cluster.make_topic("u", replicas=2, asked=2) == ErrorCode.NONE


@running
async def test_a_broker_that_has_gone_is_forgotten_when_nothing_needs_it(tmp_path):
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t") == ErrorCode.NONE

        async def unregister(number):
            reply = await cluster.ask(2, "unregister_broker", 0, {"broker_id": number})
            return ErrorCode(reply.error_code), reply.error_message

        assert (await unregister(9))[0] == ErrorCode.BROKER_ID_NOT_REGISTERED
        error, words = await unregister(1)
        assert error == ErrorCode.INVALID_REQUEST
        assert "one of the voters" in words
        async with joined(cluster, tmp_path):
            error, words = await unregister(4)
            assert error == ErrorCode.INVALID_REQUEST
            assert "broker 4 runs" in words
            for replicas in ((4, 1), (2, 1)):
                partition = {"partition_index": 0, "replicas": replicas}
                moves = {"timeout": 1_000, "topics": [{"name": "t", "partitions": [partition]}]}
                if replicas == (2, 1):
                    break
                await cluster.ask(1, "alter_partition_reassignments", 0, moves)
                await until(lambda: cluster.all[2].image.partition("t", 0).replicas == (4, 1))
        error, words = await unregister(4)
        assert error == ErrorCode.INVALID_REQUEST
        assert "replicas of 1 partitions" in words
        await cluster.ask(1, "alter_partition_reassignments", 0, moves)
        await until(lambda: cluster.all[2].image.partition("t", 0).replicas == (2, 1))
        assert (await unregister(4))[0] == ErrorCode.NONE
        await until(lambda: all(4 not in one.image.brokers for one in cluster.all.values()))

        async def observers():
            return quorum_of(await cluster.ask(1, "describe_quorum", 2, QUORUM))[1]

        async with asyncio.timeout(20):
            while await observers():
                await asyncio.sleep(0.02)


@running
async def test_one_that_can_reach_no_broker_waits_and_begins_when_there_is_one(tmp_path):
    async with brokers(tmp_path) as cluster:
        nobody = Address("127.0.0.1", free_ports(1)[0])
        cluster.all[0] = type("Nobody", (), {"address": nobody})
        try:
            async with joined(cluster, tmp_path, through=(0, 3)) as fourth:
                assert fourth.image.live() == [1, 2, 3, 4]
        finally:
            del cluster.all[0]


@running
async def test_the_first_replica_leads_again_after_a_while(tmp_path):
    async with brokers(tmp_path, leader_rebalance_s=0.3) as cluster:
        assert await cluster.make_topic("t", 3) == ErrorCode.NONE
        again = cluster.all[1]
        await again.close()
        assert all(one.leader != 1 for one in cluster.all[2].image.partitions())
        cluster.all[1] = Broker(again.config, trouble=cluster.said.append)
        await cluster.all[1].open()
        firsts = [one.replicas[0] for one in cluster.all[2].image.partitions()]
        assert 1 in firsts
        await until(lambda: [one.leader for one in cluster.all[2].image.partitions()] == firsts)


def settings(kind, name, **values):
    configs = [
        {"name": key.replace("_", "."), "config_operation": value is None, "value": value}
        for key, value in values.items()
    ]
    return {"resource_type": kind, "resource_name": name, "configs": configs}


@running
async def test_throttled_replicas_are_held_back_and_no_others(tmp_path):
    async with brokers(tmp_path) as cluster:

        async def configure(*resources):
            fields = {"resources": resources, "validate_only": False}
            reply = await cluster.ask(1, "incremental_alter_configs", 1, fields)
            return [ErrorCode(one.error_code) for one in reply.responses]

        async def move(topic, *replicas):
            partition = {"partition_index": 0, "replicas": replicas}
            moves = {"timeout": 1_000, "topics": [{"name": topic, "partitions": [partition]}]}
            await cluster.ask(1, "alter_partition_reassignments", 0, moves)
            return lambda: cluster.all[1].image.partition(topic, 0).replicas == replicas

        bad = settings(4, "", follower_replication_throttled_rate="0")
        assert await configure(bad) == [ErrorCode.INVALID_CONFIG]
        bad = settings(4, "9", follower_replication_throttled_rate="1")
        assert await configure(bad) == [ErrorCode.INVALID_REQUEST]
        for name in ("held", "free"):
            assert await cluster.make_topic(name, replicas=1) == ErrorCode.NONE
            for _ in range(3):  # more than one fetch brings, which ends in the second batch
                assert await cluster.produce(name, "x" * 700_000) == ErrorCode.NONE
        throttled = settings(2, "held", follower_replication_throttled_replicas="*")
        limit = settings(4, "", follower_replication_throttled_rate="1")
        assert await configure(throttled, limit) == [ErrorCode.NONE] * 2
        where = cluster.all[1].image.partition("held", 0).replicas
        others = [n for n in (1, 2, 3) if n not in where]
        held = await move("held", *others)
        await until(await move("free", *others))
        for _ in range(20):  # rounds of a fetcher that could
            assert not held()
            await asyncio.sleep(0)
        assert await configure(settings(4, "", follower_replication_throttled_rate=None)) == [0]
        await until(held)
        await until(lambda: all(len(cluster.logs("held").get(n, ())) == 3 for n in others))


@running
async def test_a_fetcher_leaves_a_partition_alone_that_was_closed_meanwhile(tmp_path):
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t") == ErrorCode.NONE
        leader = cluster.leader("t")
        me = leader % 3 + 1
        broker = cluster.all[me]
        await until(lambda: ("t", 0) in dict(broker.partitions.all()))
        partition = dict(broker.partitions.all())["t", 0]
        fetcher = Fetcher(me, leader, broker.peers, print, Throttle(), lambda: None)
        fetcher.set({("t", 0): partition})
        partition.forget()
        partition.close()
        assert not await fetcher._round()
        assert (
            await partition.replicated(9, partition.record.leader_epoch)
            == ErrorCode.NOT_LEADER_OR_FOLLOWER
        )


def craft2(*words):
    command = [sys.executable, "-P", "-m", "craft2.apps.cli", "cluster", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_the_commands_of_an_administrator(tmp_path):
    at = ["--data-dir", tmp_path]
    with LocalCluster(data_dir=tmp_path) as cluster:
        fourth, port = cluster.add(), cluster.addresses[2].rpartition(":")[2]
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce("t", b"x")
        assert producer.flush(20) == 0

        def replicas():
            [found] = read_status(cluster.bootstrap_servers).partitions
            return found.replicas, found.leader

        status, said = craft2(
            "move-partitions", *at, "--topic", "t", "--to", f"{fourth},1", "--throttle", 10**6
        )
        assert (status, said.splitlines()[-1]) == (0, "all have moved")
        again = craft2("move-partitions", *at, "--topic", "t", "--to", f"{fourth},1")
        assert again == (0, "nothing to move\n")
        assert craft2("elect-leaders", *at)[0] == 0
        assert replicas() == ((4, 1), 4)
        assert craft2("stop-broker", 2, *at) == (0, "broker 2 has ended\n")
        status, said = craft2("stop-broker", fourth, *at, "--remove")
        assert (status, said.splitlines()[-1][:21]) == (0, "broker 4 is forgotten")
        assert replicas() == ((3, 1), 3)
        assert craft2("move-partitions", *at, "--cancel") == (0, "0 moves called off\n")
        other = tmp_path / "other"
        elsewhere = ("add-broker", "--data-dir", other, "--bootstrap", cluster.addresses[1])
        for words, told in (
            (("move-partitions", *at), "it is not said where to"),
            (("move-partitions", *at, "--to", "1", "--cancel"), "--to and --cancel exclude each"),
            (("move-partitions", *at, "--cancel", "--throttle", 9), "--throttle and --cancel"),
            (("move-partitions", *at, "--to", "9"), "no broker 9 is there"),
            (("move-partitions", *at, "--to", "1,1"), "one is named twice"),
            (("move-partitions", *at, "--away-from", 77), "no broker 77 is there"),
            (("move-partitions", *at, "--to", "one"), "give numbers of brokers"),
            (("move-partitions", *at, "--to", "1", "--topic", "u"), "there is no topic 'u'"),
            (
                ("move-partitions", *at, "--to", "1", "--topic", "t", "--partition", 7),
                "topic 't' has no partition 7",
            ),
            (("move-partitions", "--to", "1"), "no cluster is named"),
            (
                ("move-partitions", "--to", "1", "--data-dir", tmp_path / "x"),
                f"no broker runs in '{tmp_path}/x'. Fix: start some: craft2 cluster up --data-dir "
                f"{tmp_path}/x",
            ),
            (
                ("stop-broker", 9, *at),
                f"broker 9 does not run in {tmp_path}. Fix: name one of 1, 3",
            ),
            (("stop-broker", 1, *at, "--remove"), "broker 1 is one of the voters"),
            (("stop-broker", 2, *at, "--remove"), "broker 2 is one of the voters"),
            (
                ("stop-broker", 4, *at, "--remove"),
                "no broker 4 in the cluster. Fix: name one of 1, 2, 3",
            ),
            (("elect-leaders", *at, "--partition", 0), "--partition 0: it is not said of which"),
            (("elect-leaders", "--bootstrap", "127.0.0.1:1"), "no broker answers"),
            (("add-broker", *at, "--broker-id", 2), "craft2 cluster start-broker 2"),
            (("add-broker", *at, "--port", port), f"--port {port} is where broker 2 listens"),
            ((*elsewhere, "--broker-id", 2), "broker 2 belongs to the cluster already"),
        ):
            status, said = craft2(*words)
            assert status == 1, said
            assert told in said
        assert replicas() == ((3, 1), 3), "what was refused has changed nothing"
        assert set(cluster.ended()) == {2, fourth}
        assert not other.exists()
        assert read_members(cluster.bootstrap_servers) == {1, 2, 3}, "though 2 does not run"


# What an administrator is told when it fails.


@pytest.mark.parametrize(
    ("code", "message", "told"),
    [
        (
            ErrorCode.INVALID_REQUEST,
            "broker 4 runs. Fix: stop it, and try again",
            "broker 4 runs. Fix: stop it, and try again",
        ),
        (ErrorCode.INVALID_REQUEST, "does it run? Fix: look", "does it run? Fix: look"),
        (ErrorCode.INVALID_REQUEST, None, "INVALID_REQUEST. Fix: see `craft2 cluster status`"),
        (
            ErrorCode.NOT_CONTROLLER,
            "broker 1 is not the controller. Fix: ask broker None",
            "no controller answers. Fix: wait until one is elected",
        ),
        (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            None,
            "no controller answers. Fix: wait until one is elected",
        ),
    ],
)
def test_an_error_of_the_cluster_is_told_with_one_fix(monkeypatch, code, message, told):
    reply = SimpleNamespace(error_code=code, error_message=message)
    monkeypatch.setattr(cluster_admin, "ask", lambda *_: reply)
    with pytest.raises(cluster_admin.AdminError) as refused:
        cluster_admin.unregister("h:1", 4)
    assert str(refused.value).startswith(f"forgetting broker 4 was refused: {told}")
    assert str(refused.value).count("Fix: ") == 1


def test_a_broker_that_does_not_answer_in_time_is_told_of(monkeypatch):
    monkeypatch.setattr(cluster_admin, "TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(cluster_admin.AdminError, match=f"answers at {where}: not within 0.1 s"):
            read_status(where)
