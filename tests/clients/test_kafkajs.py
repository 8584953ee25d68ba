"""kafkajs, the client of Node programs: ignores the oldest versions, asks for ApiVersions 2.

It cannot consume without a group: it has no `assign`. Its programs fetch it from npm: so this is
run by `make prove`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from craft2.apps.cluster_admin import read_status
from phase3_raft.groups.coordinator import partition_of
from phase3_raft.local_cluster import LocalCluster

pytestmark = pytest.mark.prove
HERE = Path(__file__).parent / "kafkajs"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "craft2" / "kafkajs-judge"


@pytest.fixture(scope="module")
def judge():
    """The folder with the program and its package, which is fetched once."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "judge.js"):
        shutil.copy(HERE / name, CACHE / name)
    if not (CACHE / "node_modules" / "zstd-codec").exists():
        fetched = subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund"],
            cwd=CACHE,
            capture_output=True,
            text=True,
            check=False,
        )
        if fetched.returncode:
            pytest.skip(f"npm cannot fetch kafkajs: {fetched.stderr[-300:]}")
    return CACHE


def run(judge, bootstrap, name, work):
    done = subprocess.run(
        ["node", "judge.js", bootstrap, name, work],
        cwd=judge,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_records_come_back_as_they_were_sent_with_each_codec(judge, bootstrap, name):
    found = run(judge, bootstrap, name, "records")
    assert [one["offset"] for one in found] == [str(n) for n in range(25)]
    for start in range(0, 25, 5):
        part = found[start : start + 5]
        assert [(one["key"], one["value"]) for one in part] == [
            ("k", "first"),
            (None, "no key"),
            ("k2", None),
            ("", ""),
            ("large", "900000 bytes"),
        ]
        assert part[0]["headers"] == {"source": "gate 7", "empty": ""}
        assert [one["timestamp"] for one in part] == [str(1_700_000_000_000 + n) for n in range(5)]


def test_each_kind_of_acknowledgement(judge, bootstrap, name):
    assert run(judge, bootstrap, name, "acks") == ["-1", "0", "1"]


def test_offsets_by_time(judge, bootstrap, name):
    result = run(judge, bootstrap, name, "times")
    by_partition = {one["partition"]: one["offset"] for one in result["between"]}
    assert by_partition == {0: "4", 1: "0"}  # where nothing is later, kafkajs says the end
    ends = {one["partition"]: (one["low"], one["high"]) for one in result["all"]}
    assert ends == {0: ("0", "10"), 1: ("0", "0")}


def test_a_group_commits_and_goes_on(judge, bootstrap, name):
    result = run(judge, bootstrap, name, "group")
    assert [one["value"] for one in result["first"] + result["second"]] == [
        str(n) for n in range(10)
    ]
    [topic] = result["offsets"]
    assert [one["offset"] for one in topic["partitions"]] == ["4"]


def test_an_administrator_makes_grows_describes_and_deletes(judge, bootstrap, name):
    result = run(judge, bootstrap, name, "admin")
    assert result["again"] is False
    assert result["partitions"] == len(result["offsets"]) == 3
    assert result["brokers"] >= 1
    assert result["retention"] == "60000"
    assert result["deleted"]


def test_two_members_share_the_partitions_and_one_takes_over(judge, bootstrap, name):
    result = run(judge, bootstrap, name, "rebalance")
    assert result == {"shared": [0, 1], "state": "Stable", "known": 2, "deleted": 0}


def test_what_cannot_be_is_refused(judge, bootstrap, name):
    assert run(judge, bootstrap, name, "refused") == {
        "large": "MESSAGE_TOO_LARGE",
        "name": "INVALID_TOPIC_EXCEPTION",
        "none": "INVALID_PARTITIONS",
        "far": "INVALID_REPLICATION_FACTOR",
        "unknown": "UNKNOWN_TOPIC_OR_PARTITION",
    }


def test_a_producer_and_a_group_go_on_when_brokers_die(judge, name):
    options = ("--group-initial-rebalance-delay-ms", "0")
    with LocalCluster(options=options) as cluster:
        servers = cluster.bootstrap_servers

        def kill(topic, number):
            found = read_status(servers).partitions
            cluster.kill(
                next(one.leader for one in found if (one.topic, one.partition) == (topic, number))
            )

        command = ["node", "judge.js", servers, name, "failover"]
        with subprocess.Popen(command, cwd=judge, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                if line == "sending\n":
                    kill(name, 0)
                elif line == "reading\n":
                    cluster.start(*(n for n in cluster.addresses if n not in cluster.pids))
                    kill("__consumer_offsets", partition_of(name, 50))
        assert process.returncode == 0
    found = json.loads(line)
    assert list(dict.fromkeys(found)) == [str(n) for n in range(200)]
