"""Partitions move while somebody else is at the same cluster, and a broker is stopped for good."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from craft2.apps import broker_process, cli_cluster_admin, cli_cluster_brokers, cluster_admin
from craft2.apps.cli_cluster_admin import carry_out
from craft2.apps.cluster_admin import AdminError, BrokerStatus, ClusterStatus, PartitionStatus
from phase3_raft.local_cluster import LocalCluster

NOBODY = 2**22 + 1  # more than any process can have


class Cluster:
    """What a cluster answers. new: partitions that are made when others have moved, in turn."""

    def __init__(self, *partitions, new=()):
        self.replicas = dict(partitions)
        self.leaderless, self.called_off = set(), set()
        self.targets = {}
        self.new = list(new)
        self.forgotten = []
        self.refusals = []
        self.lags = 0  # so often it has not heard of the moves yet

    def read_status(self, _):
        brokers = [BrokerStatus(n, f"h:{n}", None, 0, 0) for n in (1, 2, 3, 4)]
        parts = [
            PartitionStatus(*who, -1 if who in self.leaderless else some[0], some, some)
            for who, some in self.replicas.items()
        ]
        return ClusterStatus("c", 1, brokers, parts)

    def move(self, _, moves):
        self.targets = {one: to for one, to in moves.items() if one not in self.called_off}

    def moving(self, _):
        if self.lags:
            self.lags -= 1
            return set()
        for one, target in self.targets.items():
            if one in self.replicas:
                self.replicas[one] = target
        self.targets = {}
        if self.new:
            self.replicas.update([self.new.pop(0)])
        return set()

    def unregister(self, _, broker):
        if self.refusals:
            self.replicas.update([self.refusals.pop(0)])
        if any(broker in some for some in self.replicas.values()):
            raise AdminError(f"broker {broker} has replicas", "move them")
        self.forgotten.append(broker)


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster()
    for name in ("read_status", "move", "moving", "unregister"):
        monkeypatch.setattr(cluster_admin, name, getattr(made, name))
    monkeypatch.setattr(cli_cluster_admin, "_LOOK_S", 0.0)
    monkeypatch.setattr(cli_cluster_brokers, "PAUSE_S", 0.0)
    return made


MOVES = {("t", 0): (2, 3), ("t", 1): (3, 4)}


def test_moves_that_another_one_calls_off_are_no_success(cluster, monkeypatch, capsys):
    monkeypatch.setattr(cli_cluster_admin, "SETTLE_S", 0.0)
    cluster.replicas = dict.fromkeys(MOVES, (1, 2))
    cluster.called_off = {("t", 1)}
    with pytest.raises(AdminError, match=r"^1 of 2 partitions did not move, such as t-1: somebody"):
        carry_out("h:1", MOVES)
    assert capsys.readouterr().out == "2 partitions move\n"


def test_a_broker_that_has_not_heard_of_the_moves_yet_is_asked_again(cluster, capsys):
    cluster.replicas = dict.fromkeys(MOVES, (1, 2))
    cluster.lags = 3
    carry_out("h:1", MOVES)
    assert cluster.replicas == MOVES
    assert capsys.readouterr().out == "2 partitions move\nall have moved\n"


def test_a_topic_that_is_deleted_while_it_moves_has_nothing_left_to_move(cluster, capsys):
    carry_out("h:1", {("t", 0): (2, 3)})
    assert capsys.readouterr().out == "1 partition moves\nall have moved\n"


# Brokers that go for good.


class Leaving:
    """`stop-broker 4 --remove`. pid: what its pid file has; dies: as soon as it has no partitions.
    sent: the processes that were told to end."""

    pid, dies = NOBODY, False

    def __init__(self, cluster, folder):
        self.cluster, self.folder = cluster, folder
        self.sent = []

    def read_pid_file(self, _):
        needed = any(4 in some for some in self.cluster.replicas.values())
        return None if self.dies and not needed else (self.pid, "h:4")

    def kill(self, pid, number):
        assert number == signal.SIGTERM
        self.sent.append(pid)
        raise ProcessLookupError(3, "No such process")

    def stop(self):
        cli_cluster_brokers.stop_broker(4, self.folder, remove=True)


@pytest.fixture
def leaving(cluster, monkeypatch, tmp_path):
    made = Leaving(cluster, tmp_path)
    cluster.replicas = {("t", 0): (4, 1)}
    monkeypatch.setattr(cli_cluster_brokers, "running", lambda _: {1: "h:1", 4: "h:4"})
    monkeypatch.setattr(cli_cluster_brokers, "_check_removable", lambda *_: None)
    monkeypatch.setattr(broker_process, "read_pid_file", made.read_pid_file)
    monkeypatch.setattr(os, "kill", made.kill)
    return made


def test_what_a_broker_is_given_while_its_partitions_move_moves_before_it_ends(leaving, cluster):
    cluster.new = [(("new", n), (4, 2)) for n in range(2)]
    leaving.stop()
    assert len(cluster.replicas) == 3
    assert leaving.sent == [NOBODY]
    assert cluster.forgotten == [4]


def test_a_broker_that_is_given_partitions_all_the_time_is_not_stopped(leaving, cluster):
    cluster.new = [(("new", n), (4, 2)) for n in range(99)]
    with pytest.raises(AdminError, match="broker 4 is given new partitions all the time"):
        leaving.stop()
    assert (leaving.sent, cluster.forgotten) == ([], [])


def test_a_broker_whose_moves_another_one_calls_off_is_not_stopped(leaving, cluster, monkeypatch):
    monkeypatch.setattr(cli_cluster_admin, "SETTLE_S", 0.0)
    cluster.called_off = {("t", 0)}
    with pytest.raises(AdminError, match="did not move, such as t-0"):
        leaving.stop()
    assert (leaving.sent, cluster.forgotten) == ([], [])


def test_what_a_broker_was_given_at_the_last_moves_before_it_is_forgotten(leaving, cluster):
    cluster.refusals = [(("new", 0), (4, 2)), (("new", 1), (2, 4))]
    leaving.stop()
    assert set(cluster.replicas) == {("t", 0), ("new", 0), ("new", 1)}
    assert not any(4 in some for some in cluster.replicas.values())
    assert cluster.forgotten == [4]


def test_a_broker_that_dies_while_its_partitions_move_is_forgotten_all_the_same(leaving, cluster):
    leaving.dies = True
    leaving.stop()
    assert leaving.sent == [], "the number may be that of another process by now"
    assert cluster.forgotten == [4]


def test_a_partition_that_nobody_can_copy_does_not_let_a_broker_go(leaving, cluster):
    cluster.leaderless = {("t", 0)}
    with pytest.raises(AdminError, match="nobody leads t-0, so it cannot move away from broker 4"):
        leaving.stop()
    assert leaving.sent == []


def craft2(*words):
    return [sys.executable, "-P", "-m", "craft2.apps.cli", "cluster", *map(str, words)]


def test_a_move_that_is_called_off_is_no_success_for_whoever_waits_for_it(tmp_path):
    at = ("--data-dir", tmp_path)
    with LocalCluster(1, tmp_path, replicas=1) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for _ in range(3):  # more than one fetch brings
            producer.produce("t", b"x" * 700_000)
            assert producer.flush(60) == 0
        second = cluster.add()
        cluster_admin.throttle(cluster.bootstrap_servers, {("t", 0): (1, second)}, 1)
        to = ("--topic", "t", "--to", second)
        with subprocess.Popen(
            craft2("move-partitions", *at, *to),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as moving:
            try:
                assert [moving.stdout.readline() for _ in range(2)] == [
                    "1 partition moves\n",
                    "1 is on its way\n",
                ]
                done = subprocess.run(
                    craft2("move-partitions", *at, "--cancel"), capture_output=True
                )
                assert (done.returncode, done.stdout) == (0, b"1 move called off\n")
                said = moving.communicate(timeout=60)
            finally:
                moving.kill()
        assert (moving.returncode, said[0]) == (1, "")
        assert said[1].startswith("craft2: 1 of 1 partition did not move, such as t-0: somebody")
        assert cluster_admin.read_status(cluster.bootstrap_servers).partitions[0].replicas == (1,)
