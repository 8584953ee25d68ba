"""kafkajs, the client of Node programs: ignores the oldest versions, asks for ApiVersions 2."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.prove
HERE = Path(__file__).parent / "kafkajs"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "craft2" / "kafkajs-2.2.4"


@pytest.fixture(scope="module")
def judge():
    """The folder with the program and its package, which is fetched once."""
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "judge.js"):
        shutil.copy(HERE / name, CACHE / name)
    if not (CACHE / "node_modules" / "kafkajs").exists():
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


def test_records_come_back_as_they_were_sent(judge, bootstrap, name):
    found = run(judge, bootstrap, name, "records")
    assert [one["offset"] for one in found] == [str(n) for n in range(6)]
    for half in (found[:3], found[3:]):
        assert [(one["key"], one["value"]) for one in half] == [
            ("k", "first"),
            (None, "no key"),
            ("k2", None),
        ]
        assert half[0]["headers"] == {"source": "gate 7"}
        assert [one["timestamp"] for one in half] == [str(1_700_000_000_000 + n) for n in range(3)]


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
    assert result["retention"] == "604800000"
    assert result["deleted"]


def test_a_message_that_is_too_large_is_refused(judge, bootstrap, name):
    assert run(judge, bootstrap, name, "large") == "MESSAGE_TOO_LARGE"
