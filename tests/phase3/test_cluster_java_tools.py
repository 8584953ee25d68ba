"""Apache Kafka's own tools on a cluster: quorums, moves, leaders, brokers that go."""

from __future__ import annotations

import json
import subprocess

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from craft2.apps.cluster_admin import read_status
from craft2.apps.kafka_peer import libraries, tool
from craft2.apps.maven import MavenError
from phase3_raft.local_cluster import LocalCluster

pytestmark = pytest.mark.prove


@pytest.fixture(scope="module")
def cluster():
    try:
        libraries()
    except MavenError as error:
        pytest.skip(str(error))
    with LocalCluster() as running:
        running.add()
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        admin.create_topics([NewTopic("t", 2, 3)])["t"].result(30)
        yield running


def run(cluster, name, *words, first=(), status=0):
    command = tool(name, *first, "--bootstrap-server", cluster.bootstrap_servers, *words)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    return said


def test_the_quorum_is_described(cluster):
    told = run(cluster, "metadata-quorum", "describe", "--status")
    assert told.count("RAFT://") == 4
    assert "MaxFollowerLag:         0" in told
    rows = run(cluster, "metadata-quorum", "describe", "--replication").split()
    assert [rows.count(one) for one in ("Leader", "Follower", "Observer")] == [1, 2, 1]


def test_partitions_move_throttled_and_their_first_replica_leads(cluster, tmp_path):
    plan = tmp_path / "plan.json"

    def move(*replicas, more=()):
        part = {"topic": "t", "partition": 0, "replicas": replicas}
        plan.write_text(json.dumps({"version": 1, "partitions": [part]}))
        file = ("--reassignment-json-file", str(plan))
        run(cluster, "reassign-partitions", *file, "--execute", *more)
        done = ""
        while "is completed" not in done:
            done = run(cluster, "reassign-partitions", *file, "--verify")
        assert "Clearing broker-level throttles" in done
        return read_status(cluster.bootstrap_servers).partitions[0].replicas

    assert move(4, 2) == (4, 2)
    everything = ("--election-type", "preferred", "--all-topic-partitions")
    run(cluster, "leader-election", *everything)
    assert read_status(cluster.bootstrap_servers).partitions[0].leader == 4
    assert move(1, 4, more=("--throttle", "1000000")) == (1, 4)
    assert "No partition reassignments" in run(cluster, "reassign-partitions", "--list")


def test_a_broker_that_is_still_needed_is_not_forgotten(cluster):
    told = run(cluster, "cluster", "--id", "4", first=("unregister",), status=1)
    assert "broker 4 runs" in told
