"""`craft2 broker` as it is started: flags, environment, broker.yaml, and what Prometheus reads."""

from __future__ import annotations

import asyncio
import io
import os
import platform
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from typer.testing import CliRunner

from craft2.apps import broker_metrics, broker_process
from craft2.apps.broker_file import BadBrokerFile, read_settings
from craft2.apps.broker_log import BrokerLog
from craft2.apps.broker_process import read_pid_file
from craft2.apps.cli_broker import _quorum, register
from craft2.apps.inspect import inspect
from craft2.local_process import NotStarted
from craft2.net import Address, NetError, free_ports
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.local_broker import LocalBroker
from phase3_raft.metadata.quorum import QuorumConfig
from phase3_raft.metadata.records import ConfigRecord, PartitionRecord, TopicRecord

ALARMS = {
    "offline_partitions",
    "under_replicated_partitions",
    "under_min_isr_partitions",
    "controller_known",
    "active_controller",
    "disk_free_bytes",
    "failed_logs",
}
KNOWN = {"data_dir", "port", "partitions", "metrics_port"}


@pytest.mark.parametrize(
    ("session_ms", "elections"),
    [(2_000, (1_000, 2_000)), (8_000, (4_000, 8_000)), (100, (300, 600))],
)
def test_how_long_a_controller_may_be_silent_follows_the_session(session_ms, elections):
    quorum = _quorum(1, "c", "1=127.0.0.1:9093", None, None, session_ms)
    assert quorum.raft.election_timeout_ms == elections
    assert quorum.raft.heartbeat_ms == elections[0] // 5
    assert quorum.raft.first_election_ms == (elections[0] // 10, elections[0] // 2)


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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("port: [1, 2]", "sets port to [1, 2], and it takes a whole number"),
        ("port: {a: 1}", "sets port to {'a': 1}, and it takes a whole number"),
        ("port: true", "sets port to True, and it takes a whole number"),
        ("port: 24500.5", "sets port to 24500.5, and it takes a whole number"),
        ("max-lag-ms: 1e3", "sets max-lag-ms to '1e3', and it takes a whole number"),
        ("max-lag-ms: 1", "sets max-lag-ms to 1: 1 is not in the range x>=100"),
        ("retention-check-s: [1]", "sets retention-check-s to [1], and it takes a number"),
        ("host: [a]", "sets host to ['a'], and it takes text"),
        ("topic-default: [a=b, [c]]", "sets topic-default to ['a=b', ['c']], and it takes text"),
        ("data-dir: 5", "sets data-dir to 5, and it takes a path"),
        ("auto-create: nope", "sets auto-create to 'nope', and it takes true or false"),
        ("auto-create: 1", "sets auto-create to 1, and it takes true or false"),
    ],
)
def test_a_value_of_another_kind_is_refused_with_its_setting_and_the_file(tmp_path, text, told):
    path = tmp_path / "broker.yaml"
    path.write_text(text)
    app = typer.Typer()
    register(app)
    refused = CliRunner().invoke(app, ["--data-dir", str(tmp_path / "b"), "--config", str(path)])
    assert isinstance(refused.exception, BadBrokerFile)
    name = text.partition(":")[0]
    fix = f"correct it; what {name} may be: craft2 broker --help"
    assert str(refused.exception) == f"{str(path)!r} {told}. Fix: {fix}"


@pytest.mark.parametrize("name", ["with-stdin", "with_stdin"])
def test_what_is_only_a_flag_is_named_as_it_was_written(tmp_path, name):
    path = tmp_path / "broker.yaml"
    path.write_text(f"{name}: true\n")
    with pytest.raises(BadBrokerFile, match=f"sets {name}, which is only a flag. Fix: give --with"):
        read_settings(path, KNOWN | {"with_stdin"})


def test_a_file_of_comments_sets_nothing(tmp_path):
    path = tmp_path / "broker.yaml"
    path.write_text("#port: 9092\n")
    assert read_settings(path, KNOWN) == {}


def test_a_file_that_is_not_there_and_a_list_that_is_none_are_named_with_their_fix(tmp_path):
    path = tmp_path / "broker.yaml"
    with pytest.raises(BadBrokerFile, match=r"No such file or directory\. Fix: correct the path"):
        read_settings(path, KNOWN)
    path.write_text("topic-default: retention.ms=1\n")
    known = KNOWN | {"topic_default"}
    with pytest.raises(BadBrokerFile, match=r"is a list.*Fix: topic-default: \[retention\.ms=1\]"):
        read_settings(path, known, {"topic_default"})
    path.write_text("topic-default: [retention.ms=1]\n")
    assert read_settings(path, known, {"topic_default"}) == {"topic_default": ["retention.ms=1"]}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--voters", "2=h:1,3=h:2"], "--voters names 2, 3 and not this broker, 1. Fix: add 1="),
        (["--voters", "1=foo"], "--voters '1=foo': the address 'foo'. Fix: give host:port"),
        (["--join", "foo"], "--join 'foo': the address 'foo'"),
        (["--advertised", "foo"], "--advertised 'foo': the address 'foo'"),
        (["--voters", "1=h:1", "--raft-listen", "foo"], "--raft-listen 'foo': the address 'foo'"),
    ],
)
def test_an_address_that_is_none_is_named_with_its_setting(tmp_path, words, problem):
    app = typer.Typer()
    register(app)
    refused = CliRunner().invoke(app, ["--data-dir", str(tmp_path), *words])
    assert problem in str(refused.exception)


def test_a_folder_in_use_is_named_with_the_process_that_has_it(tmp_path):
    with LocalBroker(tmp_path) as broker:
        with pytest.raises(NotStarted) as refused:
            LocalBroker(tmp_path)
        assert f"the folder {str(tmp_path)!r} is in use by process {broker.pid}" in str(
            refused.value
        )
        assert str(refused.value).endswith("end that process, or give another --data-dir")
        broker.kill()
        broker.start()


def test_a_broker_that_waits_for_the_others_says_so_once(tmp_path):
    ports = free_ports(4)
    voters = ",".join(f"{n}=127.0.0.1:{ports[n]}" for n in (1, 2, 3))
    words = ["--data-dir", str(tmp_path), "--port", str(ports[0]), "--voters", voters]
    command = [sys.executable, "-P", "-m", "craft2.apps.cli", "broker", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        at, _, words = process.stderr.readline().partition(" ")
        runs = read_pid_file(str(tmp_path))
        process.terminate()
        assert "waiting" not in process.stderr.read()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", at)
    assert words == "waiting for a majority of the voters 1, 2, 3\n"
    assert runs == (process.pid, "")
    assert read_pid_file(str(tmp_path)) is None


@pytest.mark.parametrize("option", [("--join", "127.0.0.1:9"), ("--voters", "1=127.0.0.1:9")])
def test_the_folder_of_a_broker_that_runs_alone_is_refused_to_a_cluster(tmp_path, option):
    with LocalBroker(tmp_path):
        pass
    with pytest.raises(NotStarted, match="belongs to a broker that runs alone"):
        LocalBroker(tmp_path, options=(*option, "--broker-id", "1"))


def test_what_was_left_out_of_the_log_is_shown_by_one_of_its_lines():
    said, now = [], [0.0]
    log = BrokerLog(said.append, now=lambda: now[0])
    for number in range(8):
        log(f"t-{number}: not written")
    now[0] = 60.0
    log("all is well")
    assert said[5:] == ["t-7: not written (3 like it were left out)", "all is well"]


def test_a_broker_of_a_cell_is_of_its_session_and_ctrl_c_is_not_for_it():
    with LocalBroker() as broker:
        assert os.getsid(broker.pid) == os.getsid(0)
        assert os.getpgid(broker.pid) == broker.pid != os.getpgid(0)


def test_a_broker_that_cannot_serve_listens_to_the_other_voters_no_more(tmp_path):
    """Else they connect while its loop ends, and it complains of tasks that were destroyed."""
    mine, other = (Address("127.0.0.1", port) for port in free_ports(2))
    quorum = QuorumConfig(cluster="c", voters={1: mine, 2: other})

    async def begin(at):
        config = BrokerConfig(str(tmp_path), broker_id=1, listen=at, quorum=quorum)
        with pytest.raises(NetError, match="cannot listen at"):
            await broker_process._run(config, None, with_stdin=False)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*mine)

    with socket.create_server(("127.0.0.1", 0)) as taken:
        asyncio.run(begin(Address(*taken.getsockname())))
    with socket.create_server(mine) as taken:
        config = BrokerConfig(str(tmp_path), broker_id=1, listen=other, quorum=quorum)
        with pytest.raises(NetError, match=f"cannot listen at {mine}"):
            asyncio.run(broker_process._run(config, None, with_stdin=False))


def test_flags_go_before_the_environment_and_that_before_the_file(tmp_path):
    path = tmp_path / "broker.yaml"
    path.write_text("partitions: 3\nmax-connections: 0\ndata-dir: nowhere\n")
    command = [sys.executable, "-P", "-m", "craft2.apps.cli", "broker", "--config", str(path)]
    data = {"CRAFT2_DATA_DIR": str(tmp_path / "data")}
    refused = subprocess.run(
        command, env=os.environ | data, capture_output=True, text=True, check=False
    )
    assert refused.returncode != 0
    assert f"'{path}' sets max-connections to 0: 0 is not in" in refused.stderr
    assert not (tmp_path / "nowhere").exists()
    path.write_text("partitions: 3\nmax-connections: 7\ndata-dir: nowhere\n")
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
    alarms = {name: samples[f"craft2_{name}",] for name in ALARMS}
    assert alarms.pop("disk_free_bytes") > 0
    assert alarms == dict.fromkeys(alarms, 0) | {"controller_known": 1, "active_controller": 1}


def test_the_alarms_count_what_is_wrong(tmp_path):
    config = BrokerConfig(str(tmp_path), topic_defaults={"min.insync.replicas": "2"})
    broker = Broker(config)
    try:
        broker.image.apply(TopicRecord("t", "0" * 32))
        for number, (isr, leader) in enumerate([((1, 2), 1), ((1,), 1), ((2,), 2), ((), -1)]):
            broker.image.apply(PartitionRecord("t", number, (1, 2), isr, leader, 0, 0))
        values = {one.name: one.samples[0].value for one in broker_metrics._of_cluster(broker)}
        assert values["craft2_offline_partitions"] == 1
        assert values["craft2_under_replicated_partitions"] == 1
        assert values["craft2_under_min_isr_partitions"] == 1
        broker.image.apply(ConfigRecord("topic", "t", "min.insync.replicas", "1"))
        values = {one.name: one.samples[0].value for one in broker_metrics._of_cluster(broker)}
        assert values["craft2_under_min_isr_partitions"] == 0
    finally:
        broker.metadata.close()


def test_the_guide_names_the_alarms_that_there_are():
    guide = Path(__file__).resolve().parents[2] / "docs/operations.md"
    assert set(re.findall(r"`craft2_(\w+)`", guide.read_text())) == ALARMS


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is one of glibc")
def test_what_is_freed_is_kept_for_the_next_batch():
    code = """if True:
        import resource
        from craft2.apps.broker_process import _keep_freed_memory
        _keep_freed_memory()
        [bytearray(2**20) for _ in range(8)]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(50):
            [bytearray(2**20) for _ in range(8)]
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 1_000  # of 102,400 pages


def test_inspect_says_whether_a_broker_runs_in_its_folder(tmp_path):
    console = Console(file=io.StringIO(), width=160)
    with LocalBroker(str(tmp_path)) as broker:
        assert inspect(tmp_path, console)
        assert f"process {broker.pid} runs" in console.file.getvalue()
    assert inspect(tmp_path, console)
    assert "it does not run" in console.file.getvalue()
