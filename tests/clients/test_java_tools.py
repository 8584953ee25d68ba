"""The Java client, in Apache Kafka's own tools: what administrators type."""

from __future__ import annotations

import json
import subprocess
import threading
from contextlib import contextmanager

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


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("a topic", (), "InvalidTopicException"),
        ("odd", ("--config", "retention.ms=soon"), "Invalid value soon"),
        ("far", ("--replication-factor", "3"), "InvalidReplicationFactorException"),
    ],
)
def test_a_topic_that_cannot_be_is_refused(run, name, options, error):
    assert error in run("topics", "--create", "--topic", name, *options, status=1)


def test_lines_come_back_from_the_console_with_all_that_a_record_has(run, name):
    run("topics", "--create", "--topic", name, "--partitions", "2")
    write = ("parse.key=true", "key.separator=|", "parse.headers=true", "null.marker=NULL")
    lines = "source:gate 7\ta|1\nsource:NULL\tNULL|2\nn:3\tb|NULL\n"
    run("console-producer", "--topic", name, *properties(*write), text=lines)
    shown = ("key", "headers", "offset", "partition", "timestamp", "value")
    read = ("--topic", name, "--from-beginning", "--max-messages", "3", "--timeout-ms", "20000")
    found = run("console-consumer", *read, *properties(*(f"print.{one}=true" for one in shown)))
    records = [line.split("\t") for line in found.splitlines() if "CreateTime" in line]
    assert sorted(one[3:] for one in records) == [
        ["n:3", "b", "null"],
        ["source:gate 7", "a", "1"],
        ["source:null", "null", "2"],
    ]
    at_ms = min(int(one[0].partition(":")[2]) for one in records)
    first_ones = run("get-offsets", "--topic", name, "--time", str(at_ms)).splitlines()
    assert any(line.startswith(name) and line.endswith(":0") for line in first_ones)


def properties(*settings):
    """As options of the consoles."""
    return [word for one in settings for word in ("--property", one)]


@pytest.fixture
def perf(bootstrap):
    """Produce so many records of a size; returns what the tool says."""

    def perf(name, count, size, *settings):
        settings = ("--producer-props", f"bootstrap.servers={bootstrap}", *settings)
        counts = ("--num-records", str(count), "--record-size", str(size), "--throughput", "-1")
        done = subprocess.run(
            tool("producer-perf-test", "--topic", name, *counts, *settings),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout + done.stderr

    return perf


@pytest.mark.parametrize(
    ("codec", "acks"),
    [("none", "0"), ("gzip", "1"), ("snappy", "1"), ("lz4", "all"), ("zstd", "all")],
)
def test_what_each_codec_packs_is_read_from_a_partition(run, perf, name, codec, acks):
    settings = (f"compression.type={codec}", f"acks={acks}", "enable.idempotence=false")
    assert "1000 records sent" in perf(name, 1_000, 100, *settings)
    read = ("--topic", name, "--partition", "0", "--offset", "400", "--max-messages", "600")
    said = run("console-consumer", *read, "--timeout-ms", "20000")
    assert "Processed a total of 600 messages" in said


def test_large_messages_come_back_and_larger_ones_are_refused(run, perf, name):
    assert "3 records sent" in perf(name, 3, 900_000)
    read = ("--topic", name, "--from-beginning", "--max-messages", "3", "--timeout-ms", "20000")
    found = run("console-consumer", *read).splitlines()
    assert [len(line) for line in found if len(line) > 1_000] == [900_000] * 3
    settings = ("max.request.size=3000000", "buffer.memory=30000000")
    assert "RecordTooLargeException" in perf(name, 1, 2_000_000, *settings)


def test_a_group_reads_everything_is_described_set_back_and_deleted(run, perf, name):
    run("topics", "--create", "--topic", name, "--partitions", "2")

    def lags():
        told = run("consumer-groups", "--describe", "--group", name)
        return [int(line.split()[5]) for line in told.splitlines() if line.split()[1:2] == [name]]

    assert "1000 records sent" in perf(name, 1_000, 100)
    for count, left in ((400, 600), (600, 0)):
        read = ("--topic", name, "--group", name, "--from-beginning", "--timeout-ms", "20000")
        said = run("console-consumer", *read, "--max-messages", str(count))
        assert f"Processed a total of {count} messages" in said
        assert sum(lags()) == left
    back = ("--reset-offsets", "--to-earliest", "--execute")
    run("consumer-groups", "--group", name, "--topic", name, *back)
    assert sum(lags()) == 1_000
    assert "successful" in run("consumer-groups", "--delete", "--group", name)


@contextmanager
def member(bootstrap, group):
    """A verifiable consumer. Yields it, with a function that waits for so many partitions."""
    options = ("--topic", group, "--group-id", group, "--session-timeout", "6000")
    with subprocess.Popen(
        tool("verifiable-consumer", "--bootstrap-server", bootstrap, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        timer = threading.Timer(120, process.kill)
        timer.start()

        def assigned(count):
            for line in process.stdout:
                event = json.loads(line)
                found = {one["partition"] for one in event.get("partitions", ())}
                if event["name"] == "partitions_assigned" and len(found) == count:
                    return found
            raise AssertionError(f"{count} partitions were not assigned")

        yield process, assigned
        timer.cancel()
        process.terminate()


def test_two_members_share_the_partitions_and_one_takes_over(run, bootstrap, name):
    run("topics", "--create", "--topic", name, "--partitions", "2")
    with member(bootstrap, name) as (first, owned_by_first):
        assert owned_by_first(2) == {0, 1}
        with member(bootstrap, name) as (_, owned_by_second):
            assert owned_by_first(1) | owned_by_second(1) == {0, 1}
            told = run("consumer-groups", "--describe", "--group", name, "--members")
            assert told.count("consumer-") >= 2
            first.terminate()
            assert owned_by_second(2) == {0, 1}


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
