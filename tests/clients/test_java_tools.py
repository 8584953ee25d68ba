"""The Java client, in Apache Kafka's own tools: what administrators type."""

from __future__ import annotations

import json
import subprocess

import pytest

from craft2.apps.kafka_peer import libraries, tool
from craft2.apps.maven import MavenError

pytestmark = pytest.mark.prove


@pytest.fixture(scope="module", autouse=True)
def _jars():
    try:
        libraries()
    except MavenError as error:
        pytest.skip(str(error))


@pytest.fixture
def run(bootstrap):
    """Run one of the tools; returns what it says."""

    def run(name, *arguments, text="", server="--bootstrap-server", status=0):
        done = subprocess.run(
            tool(name, server, bootstrap, *arguments),
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == status, said
        return said

    return run


def test_topics_are_made_described_grown_configured_and_deleted(run, name):
    made = ("--create", "--partitions", "2", "--replication-factor", "1")
    run("topics", *made, "--topic", name, "--config", "retention.ms=60000")
    assert "TopicExistsException" in run("topics", *made, "--topic", name, status=1)
    run("topics", "--alter", "--topic", name, "--partitions", "3")
    change = "max.message.bytes=1000000"
    run("configs", "--alter", "--topic", name, "--add-config", change)
    run("configs", "--alter", "--topic", name, "--delete-config", "retention.ms")
    told = run("topics", "--describe", "--topic", name)
    assert "PartitionCount: 3" in told
    assert change in told
    assert "retention.ms" not in told
    assert name in run("topics", "--list")
    run("topics", "--delete", "--topic", name)
    assert name not in run("topics", "--list").split()


def test_a_setting_that_cannot_be_is_refused(run, name):
    run("topics", "--create", "--topic", name)
    said = run("configs", "--alter", "--topic", name, "--add-config", "retention.ms=soon", status=1)
    assert "InvalidConfigurationException" in said


def test_lines_come_back_from_the_console(run, name):
    run("topics", "--create", "--topic", name)
    properties = ("--property", "parse.key=true", "--property", "key.separator=:")
    run("console-producer", "--topic", name, *properties, text="a:1\nb:2\n")
    keys = ("--property", "print.key=true")
    read = ("--topic", name, "--from-beginning", "--max-messages", "2", "--timeout-ms", "20000")
    found = run("console-consumer", *read, *keys)
    assert [line for line in found.splitlines() if "\t" in line] == ["a\t1", "b\t2"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_group_reads_what_each_codec_packs_and_can_be_set_back(run, bootstrap, name, codec):
    run("topics", "--create", "--topic", name, "--partitions", "2")
    settings = ("--producer-props", f"bootstrap.servers={bootstrap}", f"compression.type={codec}")
    perf = ("--topic", name, "--num-records", "1000", "--record-size", "100")
    done = subprocess.run(
        tool("producer-perf-test", *perf, "--throughput", "-1", *settings),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1000 records sent" in done.stdout, done.stdout + done.stderr
    if codec not in ("none", "zstd"):
        return
    read = ("--topic", name, "--group", name, "--from-beginning", "--max-messages", "1000")
    run("console-consumer", *read, "--timeout-ms", "20000")
    told = run("consumer-groups", "--describe", "--group", name)
    lags = [line.split()[5] for line in told.splitlines() if line.split()[1:2] == [name]]
    assert lags == ["0", "0"]
    run(
        "consumer-groups",
        "--group",
        name,
        "--topic",
        name,
        "--reset-offsets",
        "--to-earliest",
        "--execute",
    )
    assert run("get-offsets", "--topic", name, "--time", "-1").count(":") == 4
    told = run("consumer-groups", "--describe", "--group", name)
    lags = [line.split()[5] for line in told.splitlines() if line.split()[1:2] == [name]]
    assert sum(map(int, lags)) == 1000
    assert "successful" in run("consumer-groups", "--delete", "--group", name)


def test_an_idempotent_producer_verifies_what_it_sent(run, name):
    run("topics", "--create", "--topic", name)
    said = run("verifiable-producer", "--topic", name, "--max-messages", "50", "--acks", "-1")
    events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert sum(event["name"] == "producer_send_success" for event in events) == 50


def test_records_are_deleted(run, name, tmp_path):
    run("topics", "--create", "--topic", name)
    run("console-producer", "--topic", name, text="1\n2\n3\n")
    wanted = {"partitions": [{"topic": name, "partition": 0, "offset": 2}], "version": 1}
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps(wanted))
    assert "low_watermark: 2" in run("delete-records", "--offset-json-file", str(path))
    assert f"{name}:0:2" in run("get-offsets", "--topic", name, "--time", "-2")
