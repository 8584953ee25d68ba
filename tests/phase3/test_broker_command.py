"""`craft2 broker` as it is started: flags, environment, broker.yaml, and what Prometheus reads."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from craft2.apps import broker_process
from craft2.apps.broker_file import BadBrokerFile, read_settings
from craft2.apps.cli_broker import register
from craft2.net import free_ports
from phase3_raft.local_broker import LocalBroker

KNOWN = {"data_dir", "port", "partitions", "metrics_port"}


def test_a_file_has_the_options_by_name(tmp_path):
    path = tmp_path / "broker.yaml"
    path.write_text("data-dir: data\nport: 0\n")
    assert read_settings(path, KNOWN) == {"data_dir": "data", "port": 0}


@pytest.mark.parametrize(
    ("text", "problem"),
    [("prot: 1\n", "sets prot"), ("- 1\n", "cannot be read"), ("port: [\n", "cannot be read")],
)
def test_a_file_that_makes_no_sense_is_refused(tmp_path, text, problem):
    path = tmp_path / "broker.yaml"
    path.write_text(text)
    with pytest.raises(BadBrokerFile, match=problem):
        read_settings(path, KNOWN)


def test_a_broker_of_a_cell_is_of_its_session_and_ctrl_c_is_not_for_it():
    with LocalBroker() as broker:
        assert os.getsid(broker.pid) == os.getsid(0)
        assert os.getpgid(broker.pid) == broker.pid != os.getpgid(0)


def test_flags_go_before_the_environment_and_that_before_the_file(tmp_path):
    path = tmp_path / "broker.yaml"
    path.write_text("partitions: 3\nmax-connections: 0\ndata-dir: nowhere\n")
    command = [sys.executable, "-P", "-m", "craft2.apps.cli", "broker", "--config", str(path)]
    data = {"CRAFT2_DATA_DIR": str(tmp_path / "data")}
    refused = subprocess.run(
        command, env=os.environ | data, capture_output=True, text=True, check=False
    )
    assert refused.returncode != 0
    assert "max-connections" in refused.stderr + refused.stdout
    assert not (tmp_path / "nowhere").exists()
    options = ("--config", str(path), "--max-connections", "5")
    with LocalBroker(tmp_path / "data", options=options) as broker:
        assert broker.bootstrap_servers
    assert (tmp_path / "data" / "__cluster_metadata-0").exists()


def test_how_long_a_new_group_waits_can_be_said(tmp_path, monkeypatch):
    configs = []
    monkeypatch.setattr(broker_process, "serve", lambda config, **_: configs.append(config))
    app = typer.Typer()
    register(app)
    words = ["--data-dir", str(tmp_path)]
    for more in ([], ["--group-initial-rebalance-delay-ms", "7"]):
        assert CliRunner().invoke(app, words + more).exit_code == 0
    assert [one.group_limits.initial_rebalance_delay_ms for one in configs] == [3_000, 7]


def test_prometheus_reads_what_was_counted(tmp_path):
    confluent = pytest.importorskip("confluent_kafka")
    [port] = free_ports(1)
    with LocalBroker(tmp_path, options=("--metrics-port", str(port))) as broker:
        producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers})
        for _ in range(10):
            producer.produce("t", b"x")
        assert producer.flush(30) == 0
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as reply:
            families = text_string_to_metric_families(reply.read().decode())
            samples = {
                (one.name, *one.labels.values()): one.value
                for family in families
                for one in family.samples
            }
    assert samples["craft2_api_requests_total", "produce"] >= 1
    assert samples["craft2_api_received_total", "produce"] > 50
    counted = samples["craft2_api_seconds_bucket", "produce", "+Inf"]
    assert counted == samples["craft2_api_requests_total", "produce"]
    assert samples["craft2_log_end", "0", "t"] == 10
    assert samples["craft2_connections",] >= 1
