"""The fuzzer of `fuzz_requests` finds nothing for a minute, and finds what is planted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("atheris", reason="atheris is not installed")

_FUZZER = Path(__file__).parent / "fuzz_requests.py"
_PLANTED = """
import runpy, sys
from phase3_raft import produce_messages
whole = produce_messages.read_request
def broken(version, data, at):
    request = whole(version, data, at)
    assert request.acks != -2, "planted"
    return request
produce_messages.read_request = broken
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def fuzz(folder, seconds, *command):
    limits = [f"-max_total_time={seconds}", "-rss_limit_mb=2000", "-timeout=10"]
    return subprocess.run(
        [sys.executable, *command, str(_FUZZER), str(folder / "corpus"), *limits],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds + 120,
        check=False,
    )


@pytest.mark.prove
def test_a_minute_of_bytes_that_follow_the_branches_finds_nothing(tmp_path):
    done = fuzz(tmp_path, 60)
    assert done.returncode == 0, done.stderr[-3000:]
    assert not list(tmp_path.glob("crash-*"))


@pytest.mark.prove
def test_what_is_planted_behind_a_correct_request_is_found(tmp_path):
    done = fuzz(tmp_path, 120, "-c", _PLANTED)
    assert done.returncode != 0
    assert "planted" in done.stdout + done.stderr
