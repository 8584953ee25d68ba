"""What the environment says, and what was typed, when several brokers are meant."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import typer

from craft2.apps import cli, cluster_admin, cluster_running
from craft2.apps.cli_cluster_brokers import add_broker
from craft2.apps.cluster_admin import AdminError, BrokerStatus, ClusterStatus, read_status
from craft2.apps.cluster_running import bootstrap_to_join
from phase3_raft.local_cluster import _OWN, LocalCluster

SHARED = {  # what brokers of a cluster may well have in common
    *("PARTITIONS", "REPLICAS", "SESSION_MS", "MAX_LAG_MS", "LEADER_REBALANCE_S", "AUTO_CREATE"),
    *("MAX_CONNECTIONS", "GROUP_INITIAL_REBALANCE_DELAY_MS", "RETENTION_CHECK_S"),
}


@pytest.fixture
def asked(monkeypatch):
    """Whom commands have asked how the cluster is. A broker runs in the folder `mine`."""
    found = []

    def answer(bootstrap):
        found.append(bootstrap)
        return ClusterStatus("c", 1, [BrokerStatus(1, "h:1", None, 0, 0)], [])

    runs = {Path("mine"): {1: "h:1"}}
    monkeypatch.setattr(cluster_running, "running", lambda folder: runs.get(folder, {}))
    monkeypatch.setattr(cluster_admin, "read_status", answer)
    monkeypatch.setattr(cluster_admin, "elect", lambda at, *_, **__: found.append(at) or {})
    monkeypatch.setenv("CRAFT2_BOOTSTRAP", "other:9")
    return found


def run(*words):
    typer.main.get_command(cli.commands()).main(["cluster", *words], standalone_mode=False)


@pytest.mark.parametrize(
    "words", [("status",), ("elect-leaders",), ("move-partitions", "--to", "1", "--no-wait")]
)
def test_a_folder_that_was_typed_goes_before_the_variable(asked, words):
    for more in (("--data-dir", "mine"), ("--bootstrap", "h:2"), ()):
        run(*words, *more)
    assert asked == ["h:1", "h:2", "other:9"]
    with pytest.raises(AdminError, match=r"--bootstrap h:2 and --data-dir mine .*\. Fix: give one"):
        run(*words, "--data-dir", "mine", "--bootstrap", "h:2")
    assert len(asked) == 3


def test_a_new_broker_joins_those_of_its_folder_before_those_of_the_variable(asked):
    app = typer.Typer()
    app.command()(add_broker)
    command = typer.main.get_command(app)

    def joins(*words):
        context = command.make_context("add-broker", [*words])
        given = context.params["bootstrap"], Path(context.params["data_dir"])
        return bootstrap_to_join(context, *given)

    assert joins("--data-dir", "mine") == "h:1"
    assert joins("--data-dir", "mine", "--bootstrap", "h:2") == "h:2"
    assert joins("--data-dir", "new") == "other:9"


def test_which_variables_several_brokers_may_share_is_decided_for_each():
    params = typer.main.get_command(cli.commands()).commands["broker"].params
    known = {str(one.envvar) for one in params if getattr(one, "envvar", None)}
    assert known == {f"CRAFT2_{name}" for name in {*_OWN, *SHARED}}


def test_variables_of_one_broker_are_not_for_those_of_a_cluster(tmp_path, monkeypatch):
    for name, value in (("ADVERTISED", "10.0.0.1:9"), ("JOIN", "10.0.0.1:9"), ("HOST", "10.0.0.1")):
        monkeypatch.setenv(f"CRAFT2_{name}", value)
    with LocalCluster(1, tmp_path) as cluster:
        command = ("cluster", "add-broker", "--data-dir", tmp_path)
        with subprocess.Popen(
            [sys.executable, "-P", "-m", "craft2.apps.cli", *map(str, command)],
            stdout=subprocess.PIPE,
            text=True,
        ) as added:
            try:
                where = {2: added.stdout.readline().split()[-1]}
                brokers = read_status(cluster.bootstrap_servers).brokers
            finally:
                added.terminate()
        assert {one.id: one.address for one in brokers} == cluster.addresses | where
