"""`craft2 cluster up` and what is done to its brokers: as an operator does it, with processes."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from craft2.apps import cli_cluster_brokers
from craft2.apps.broker_process import read_pid_file
from craft2.apps.cli_cluster import shown
from craft2.apps.cluster_admin import AdminError, PartitionStatus, read_status
from craft2.local_process import LocalProcess, NotStarted
from craft2.net import free_ports
from phase3_raft.cluster_folder import (
    FIRST_NAME,
    NAME_FILE,
    DamagedOptions,
    keep_options,
    option,
    read_options,
)
from phase3_raft.local_cluster import LocalCluster, NoBroker

SOON_S = 60


def craft2(*words, of="cluster"):
    command = [sys.executable, "-P", "-m", "craft2.apps.cli", of, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SOON_S, check=False)
    return done.returncode, done.stdout + done.stderr


class Running:
    """A command that goes on, after it has said `ready`. said: the lines before that, and the one
    behind it that `up` has."""

    def __init__(self, process, *, has_more):
        self.process, self.said = process, []
        while (line := self.line()) != "ready":
            self.said.append(line)
        if has_more:
            self.said.append(self.line())

    def line(self):
        line = self.process.stdout.readline()
        assert line, "it has ended"
        return line.rstrip("\n")

    @property
    def brokers(self):
        """Where each listens, and its process."""
        words = [line.split() for line in self.said if line.startswith("broker ")]
        return {int(one[1]): (one[4], int(one[3])) for one in words}

    @property
    def bootstrap(self):
        return ",".join(where for where, _ in self.brokers.values())

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SOON_S)


@contextlib.contextmanager
def going_on(*words):
    command = [sys.executable, "-P", "-m", "craft2.apps.cli", "cluster", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Running(process, has_more=words[0] == "up")
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)


def produce(bootstrap, value):
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("t", value)
    assert producer.flush(SOON_S) == 0


def consumed(bootstrap, count):
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["t"])
    found = consumer.consume(count, SOON_S)
    consumer.close()
    return [one.value() for one in found]


def test_a_folder_goes_on_with_the_brokers_that_were_added_where_they_were(tmp_path):
    at = ("--data-dir", tmp_path)
    with going_on("up", *at, "--base-port", 0) as up:
        assert up.said[-1] == f"what the brokers say is in {tmp_path}/broker-N/broker.log"
        with going_on("add-broker", *at) as added:
            assert option(read_options(tmp_path, 4), "--replicas") == "3"
            produce(up.bootstrap, b"1")
            status, told = craft2("add-broker", *at, "--broker-id", 2)
            assert (status, "craft2 cluster start-broker 2" in told) == (1, True)
            new = ("--data-dir", tmp_path / "new", "--port", 0)
            joins = (*new, "--join", up.bootstrap, "--broker-id", 2)
            status, told = craft2(*joins, of="broker")
            assert (status, "--broker-id 2 is that of a voter of this cluster" in told) == (1, True)
            assert added.end() == up.end() == 0
    status, told = craft2("up", *at, "--brokers", 5)
    assert status == 1
    assert "was founded by the brokers 1, 2, 3, and not by 5. Fix: start it with 3" in told
    assert "; or, if nothing was produced to it, remove the folder, and begin anew" in told
    with going_on("up", *at, "--base-port", 0) as up:
        assert sorted(up.brokers) == [1, 2, 3, 4]
        assert up.brokers[4][0] == added.brokers[4][0]
        assert consumed(up.bootstrap, 1) == [b"1"]
        assert craft2("stop-broker", 4, *at, "--remove")[0] == 0
        up.end()
    before = {number: up.brokers[number][0] for number in (1, 2, 3)}
    with going_on("up", *at) as up:  # one that was forgotten does not come back
        assert {number: where for number, (where, _) in up.brokers.items()} == before


def test_a_broker_that_was_killed_is_started_again_where_it_was(tmp_path):
    at = ("--data-dir", tmp_path)
    with going_on("up", *at, "--base-port", 0) as up:
        where, pid = up.brokers[2]
        status, told = craft2("start-broker", 2, *at)
        assert (status, f"runs already, as process {pid}" in told) == (1, True)
        status, told = craft2("start-broker", 9, *at)
        assert (status, "no broker 9" in told, "name one of 1, 2, 3, or" in told) == (1, True, True)
        os.kill(pid, signal.SIGKILL)
        assert up.line() == "broker 2 was ended by SIGKILL"
        produce(up.bootstrap, b"1")
        with going_on("start-broker", 2, *at) as again:
            assert again.brokers[2][0] == where
            assert {one.id for one in read_status(where).brokers} == {1, 2, 3}
            assert craft2("stop-broker", 2, *at) == (0, "broker 2 has ended\n")
            assert again.process.wait(SOON_S) == 0
        assert "no controller" not in craft2("status", *at)[1]
        os.kill(up.brokers[1][1], signal.SIGKILL)
        while "no controller" not in craft2("status", *at)[1]:
            assert up.process.poll() is None, "broker 3 hears of it within an election's time"
        status, told = craft2("up", *at)
        assert (status, "broker 3 runs already" in told, "stop-broker 3" in told) == (1, True, True)
        os.kill(up.brokers[3][1], signal.SIGKILL)
        assert [up.line()[-7:], up.line()[-7:]] == ["SIGKILL", "SIGKILL"]
        assert up.line().startswith("none of these brokers is left")
        assert up.process.wait(SOON_S) == 1


def row_of_ports(count):
    """The first of so many that are free, below those that the system gives to whoever asks."""
    while True:
        first = random.randrange(10_000, 30_000)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first


def test_brokers_whose_folders_are_lost_come_again_where_they_were(tmp_path):
    at = ("--data-dir", os.path.relpath(tmp_path))  # another spelling of it
    with going_on("up", "--data-dir", tmp_path, "--base-port", row_of_ports(6)) as up:
        produce(up.bootstrap, b"1")
        with going_on("add-broker", *at) as added:
            os.kill(added.brokers[4][1], signal.SIGKILL)
            added.process.wait(SOON_S)
        shutil.rmtree(tmp_path / "broker-4")
        status, told = craft2("start-broker", 4, *at)
        assert (status, "add-broker --broker-id 4 --data-dir" in told) == (1, True)
        with going_on("add-broker", *at, "--broker-id", 4) as again:
            assert {one.id for one in read_status(up.bootstrap).brokers} == {1, 2, 3, 4}
            os.kill(again.brokers[4][1], signal.SIGKILL)
        shutil.rmtree(tmp_path / "broker-4")
        assert "broker 4 is forgotten\n" in craft2("stop-broker", 4, *at, "--remove")[1]
        where, pid = up.brokers[3]
        os.kill(pid, signal.SIGKILL)
        assert up.line() == "broker 3 was ended by SIGKILL"
        shutil.rmtree(tmp_path / "broker-3")
        with going_on("start-broker", 3, *at) as again:
            assert again.brokers[3][0] == where
            again.end()
        up.end()
    shutil.rmtree(tmp_path / "broker-3")
    with going_on("up", *at) as up_again:
        assert up_again.brokers[3][0] == where
        assert consumed(up_again.bootstrap, 1) == [b"1"]


def test_brokers_that_were_started_elsewhere_are_named_when_up_ends_and_when_it_begins(tmp_path):
    at = ("--data-dir", tmp_path)
    one = ("--brokers", 1, "--replicas", 1, "--base-port", 0)
    add = ("add-broker", *at)
    with going_on("up", *at, *one) as up, going_on(*add) as second, going_on(*add) as third:
        assert up.end() == 0
        stop = [f"craft2 cluster stop-broker {n} --data-dir {tmp_path}" for n in (2, 3)]
        assert up.process.stdout.read().splitlines() == [
            f"broker 2 still runs, since this did not start it; to end it: {stop[0]}",
            f"broker 3 still runs, since this did not start it; to end it: {stop[1]}",
        ]
        status, told = craft2("up", *at)
        assert status == 1
        assert told == (
            f"craft2: the brokers 2, 3 run already in {str(tmp_path)!r}. Fix: end each with "
            f"Ctrl-C where it was started, or: {stop[0]}; {stop[1]}\n"
        )
        for number, process in ((2, second.process), (3, third.process)):
            assert craft2("stop-broker", number, *at)[0] == 0
            assert process.wait(SOON_S) == 0
    with going_on("up", *at) as up:
        assert sorted(up.brokers) == [1, 2, 3]


def test_up_does_not_begin_while_a_broker_of_its_folder_waits_for_the_others(tmp_path):
    with going_on("up", "--data-dir", tmp_path, "--base-port", 0) as up:
        up.end()
    command = [sys.executable, "-P", "-m", "craft2.apps.cli", "cluster", "start-broker", "1"]
    with subprocess.Popen([*command, "--data-dir", tmp_path], stderr=subprocess.PIPE) as process:
        assert b" begins" in process.stderr.readline()
        while (runs := read_pid_file(str(tmp_path / "broker-1"))) is None:
            assert process.poll() is None
        status, told = craft2("up", "--data-dir", tmp_path)
        process.terminate()
    assert runs[1] == ""
    assert (status, "broker 1 runs already in" in told) == (1, True)


def test_why_a_broker_has_ended_is_said_though_its_disk_is_full(tmp_path):
    if not hasattr(resource, "prlimit"):
        pytest.skip("the limit of another process cannot be set here")
    with going_on("up", "--data-dir", tmp_path, "--base-port", 0) as up:
        admin = AdminClient({"bootstrap.servers": up.bootstrap})
        admin.create_topics([NewTopic("t", 1, 3)])["t"].result(SOON_S)
        resource.prlimit(up.brokers[2][1], resource.RLIMIT_FSIZE, (0, 0))
        produce(up.bootstrap, b"1")
        said = up.line()
        assert said.startswith("broker 2 has ended with status 1: broker 2 ends: ")
        assert "File too large" in said


def test_what_a_broker_has_said_is_in_its_folder_after_what_it_said_before(tmp_path):
    log = tmp_path / "broker-1" / "broker.log"
    log.parent.mkdir()
    log.write_text("before\n")
    with LocalCluster(1, tmp_path) as cluster:
        assert cluster.errors() == {1: ""}
        with pytest.raises(NotStarted, match="is in use by process") as refused:
            LocalCluster(1, tmp_path)
        assert str(refused.value).count("Fix: ") == 1
        assert str(cluster.pids[1]) in str(refused.value)
        assert cluster.errors()[1].startswith("craft2: the folder "), "cells compare it: no times"
    before, *lines = log.read_text().splitlines()
    assert before == "before"
    assert lines[0].split(" ", 1)[1].startswith("craft2: the folder ")
    for line in lines:
        at = datetime.fromisoformat(line.split()[0])
        assert timedelta(0) <= datetime.now(UTC) - at < timedelta(seconds=SOON_S)


def test_brokers_that_are_not_there_are_named_with_those_that_are():
    for count in (0, -1):
        with pytest.raises(NotStarted, match=f"a cluster of {count} brokers. Fix: "):
            LocalCluster(count)
    with LocalCluster(1, replicas=1) as cluster:
        for call in (cluster.kill, cluster.stop, cluster.start):
            with pytest.raises(NoBroker, match=r"no broker 9\. Fix: name one of 1, or `add"):
                call(9)
        with pytest.raises(NoBroker, match="broker 1 runs already"):
            cluster.start(1)
        cluster.kill(1)
        for call in (cluster.kill, cluster.stop, lambda n: cluster.send_signal(n, signal.SIGSTOP)):
            with pytest.raises(NoBroker, match=r"broker 1 does not run. Fix: .*: start\(1\)"):
                call(1)


@pytest.mark.parametrize("text", ["--port abc", "--port", "--voters 1=h", "--voters 'x=h:1", "'"])
def test_options_that_are_damaged_are_named_with_their_file(tmp_path, text):
    root, number = made(tmp_path, 1)
    path = root / f"broker-{number}" / "broker.options"
    path.write_text(f"{text}\n")
    with pytest.raises(DamagedOptions) as refused:
        LocalCluster(1, tmp_path, base_port=None)
    assert str(refused.value).startswith(f"{str(path)!r} is damaged: {text!r}. Fix: correct it")


def test_each_broker_serves_its_metrics_at_a_port_of_its_own(tmp_path):
    [port] = free_ports(1)
    with LocalCluster(1, tmp_path, metrics_port=port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            assert b"craft2_active_controller 1.0" in reply.read()
        assert read_options(tmp_path, 1)[-2:] == ["--metrics-port", str(port)]


# What `status` shows.


def part(topic, number, isr=(1, 2)):
    return PartitionStatus(topic, number, isr[0] if isr else -1, (1, 2), tuple(isr))


def test_of_the_brokers_own_topics_a_line_is_shown_and_what_nobody_leads():
    mine = [part("t", 0), part("t", 1, ())]
    own = [part("__consumer_offsets", number, isr) for number, isr in enumerate(((1, 2), (2,), ()))]
    rows, lines = shown([own[0], *mine])
    assert rows == mine
    assert lines == ["__consumer_offsets: 1 partition, all in sync"]
    rows, lines = shown([*own, *mine])
    assert rows == [own[2], *mine]
    assert lines == [
        "__consumer_offsets: 3 partitions, 1 with all replicas in sync; broker 1 is missing in 2; "
        "broker 2 is missing in 1"
    ]
    assert shown([*own, *mine], "__consumer_offsets") == (own, [])


def test_a_topic_that_is_not_there_is_named(tmp_path):
    with LocalCluster(1, Path(tmp_path)) as cluster:
        status, told = craft2("status", "--bootstrap", cluster.bootstrap_servers, "--topic", "nope")
        assert (status, "there is no topic 'nope'. Fix: make one" in told) == (1, True)


def test_a_folder_without_brokers_is_told_how_to_get_some(tmp_path):
    up = f"craft2 cluster up --data-dir {tmp_path}"
    assert f"Fix: begin a cluster: {up}\n" in craft2("start-broker", 1, "--data-dir", tmp_path)[1]
    told = craft2("stop-broker", 1, "--data-dir", tmp_path)[1]
    assert "Fix: correct --data-dir: no broker runs in this one" in told
    keep_options(*made(tmp_path, 4), ["--broker-id", "4"])
    told = craft2("stop-broker", 4, "--data-dir", tmp_path, "--remove")[1]
    assert f"Fix: start one: craft2 cluster start-broker N --data-dir {tmp_path}\n" in told


def made(root, number):
    (root / f"broker-{number}").mkdir()
    return root, number


def test_a_broker_that_does_not_end_is_named_with_what_ends_it(monkeypatch):
    monkeypatch.setattr(cli_cluster_brokers, "END_S", 0.0)
    with pytest.raises(AdminError, match=r"Fix: read what it says; at the worst: kill -9 \d+$"):
        cli_cluster_brokers._wait_for_end(os.getpid(), "broker 1")


def test_a_process_that_says_nothing_and_ends_is_named_with_its_command(tmp_path):
    with open(tmp_path / "errors", "w+") as errors, pytest.raises(NotStarted) as refused:
        LocalProcess("broker", "--data-dir", "a b", errors=errors, within=("false",))
    assert str(refused.value).endswith(
        "it has said nothing. Fix: start it by itself, and see: craft2 broker --data-dir 'a b'"
    )


def test_a_folder_of_another_cluster_or_of_one_broker_is_refused(tmp_path):
    """Else a broker serves what is of one cluster to the clients of the other."""
    mine, other, single = tmp_path / "mine", tmp_path / "other", ("--brokers", "1")
    with going_on("up", "--data-dir", mine, "--base-port", 0, *single) as here:
        with going_on("add-broker", "--data-dir", mine) as added:
            assert added.end() == 0
        status, said = craft2("--data-dir", mine, "--port", 0, of="broker")
        assert status
        assert "is the folder of a cluster" in said
        with going_on("up", "--data-dir", other, "--base-port", 0, *single) as there:
            where = ("--data-dir", mine, "--bootstrap", there.bootstrap)
            status, said = craft2("add-broker", *where)
            assert status
            assert "are of cluster" in said
            assert there.end() == 0
        assert here.end() == 0
    folder = mine / "broker-2"
    status, said = craft2("--data-dir", folder, "--port", 0, of="broker")
    assert status
    assert "belongs to a broker of a cluster" in said
    status, said = craft2("up", "--data-dir", folder)
    assert status
    assert f"name the cluster's: {mine}" in " ".join(said.split())
    shutil.copytree(folder, other / "broker-2")
    status, said = craft2("up", "--data-dir", other)
    assert status
    assert "belongs to cluster" in said


def test_who_joins_takes_the_clusters_name_and_keeps_it(tmp_path):
    with LocalCluster(1, tmp_path / "c") as cluster:
        name = read_status(cluster.bootstrap_servers).cluster
        join = ("--port", "0", "--broker-id", "2", "--join", cluster.bootstrap_servers)
        status, said = craft2(
            "--data-dir", tmp_path / "b", *join, "--cluster", "another", of="broker"
        )
        assert status
        assert f"are those of {name}" in " ".join(said.split())
        with open(tmp_path / "said", "w+") as said:
            joined = LocalProcess("broker", "--data-dir", tmp_path / "b", *join, errors=said)
            assert read_status(joined.address).cluster == name
            joined.stop()
    with LocalCluster(1, tmp_path / "c") as cluster:
        assert read_status(cluster.bootstrap_servers).cluster == name


def test_a_cluster_that_was_founded_without_a_name_of_its_own_goes_on(tmp_path):
    with LocalCluster(1, tmp_path, options=("--cluster", FIRST_NAME)) as cluster:
        assert read_status(cluster.bootstrap_servers).cluster == FIRST_NAME
    assert not (tmp_path / NAME_FILE).exists()
    with LocalCluster(1, tmp_path) as cluster:
        assert read_status(cluster.bootstrap_servers).cluster == FIRST_NAME
