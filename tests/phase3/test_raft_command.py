"""What `craft2 raft serve` refuses before anything is written or listened to."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from craft2.apps.cli_raft import raft
from craft2.errors import Craft2Error

ONE, TWO = "1=127.0.0.1:7001", "1=127.0.0.1:7001,2=127.0.0.1:7002"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--peers", TWO, "--voters", "1,7"], "--voters 1,7 names 7, which is not in --peers 1="),
        (["--peers", f"{ONE},2=127.0.0.1:7001"], "has 127.0.0.1:7001 twice"),
        (["--peers", ONE, "--compact-every", "0"], "--compact-every 0"),
        (["--peers", ONE, "--events", "/nowhere/at/all"], "event file '/nowhere/at/all'"),
        (["--peers", "0=127.0.0.1:7001", "--id", "0"], "--id 0"),
        (["--peers", f"{ONE},0=127.0.0.1:7002"], "each number once"),
        (["--peers", ONE, "--cluster", ""], "--cluster is empty"),
    ],
)
def test_what_cannot_work_is_refused_at_the_start(tmp_path, monkeypatch, arguments, words):
    monkeypatch.setattr("craft2.apps.raft_process.asyncio.run", lambda run: run.close())
    folder = tmp_path / "data"
    outcome = CliRunner().invoke(raft, ["serve", "--id", "1", "--dir", str(folder), *arguments])
    assert isinstance(outcome.exception, Craft2Error)
    assert words in str(outcome.exception)
    assert "Fix: " in str(outcome.exception)
    assert not folder.exists()
