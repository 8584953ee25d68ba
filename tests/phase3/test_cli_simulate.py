"""`craft2 raft simulate`, as somebody at a terminal meets it."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from craft2.apps import cli_simulate
from phase3_raft.raft.messages import RaftError

app = typer.Typer()
cli_simulate.register(app)


@app.callback()
def _verbs():
    """So that the verb has to be named."""


def simulate(*arguments):
    return CliRunner().invoke(app, ["simulate", *arguments])


def test_seeds_that_break_nothing_are_summed_up():
    done = simulate("--seeds", "6", "--nodes", "3", "--jobs", "1")
    assert done.exit_code == 0
    assert "6 seeds of 3 servers" in done.stdout
    for words in ("elections", "crashes", "commits", "events a second", "one-way partition"):
        assert words in done.stdout


def test_a_failure_is_shown_kept_and_played_again(tmp_path):
    trace = tmp_path / "trace.json"
    done = simulate("--bug", "votes-twice", "--jobs", "1", "--trace", str(trace))
    assert done.exit_code == 1
    assert "promises kept is broken with seed 6 (run 7 of 1,000)" in done.stdout
    again = "craft2 raft simulate --seeds 1 --first-seed 6 --nodes 5 --bug votes-twice"
    assert again in done.stdout
    assert f"craft2 raft simulate --replay {trace}" in done.stdout
    played = simulate("--replay", str(trace))
    assert played.exit_code == 1
    assert played.stdout.strip() in done.stdout


def test_the_headline_is_of_the_run_that_was_made_short(tmp_path):
    """Another operation may fail in it than in the whole run."""
    done = simulate("--bug", "reads-at-once", "--jobs", "1", "--out", str(tmp_path))
    headline = done.stdout.split("\n\n")[0].splitlines()[-1].strip()
    assert done.stdout.count(headline) == 2  # and it is the last line of the trace


def test_traces_are_kept_in_the_folder_that_was_named(tmp_path):
    done = simulate("--bug", "half-elects", "--jobs", "1", "--out", str(tmp_path / "new"))
    kept = tmp_path / "new" / "raft-seed-0.json"
    assert kept.exists()
    assert f"this trace is in:     {kept}" in done.stdout
    assert f"craft2 raft simulate --replay {kept}" in done.stdout


def test_bugs_are_listed():
    done = simulate("--list-bugs")
    assert done.exit_code == 0
    assert "older-term-counted" in done.stdout


def test_what_cannot_be_is_refused():
    done = simulate("--bug", "vote-twice")
    assert isinstance(done.exception, RaftError)
    assert "did you mean votes-twice" in str(done.exception)
    assert "craft2 raft simulate --list-bugs" in str(done.exception)
    far = str(simulate("--bug", "sausage").exception)
    assert "did you mean" not in far
    assert "craft2 raft simulate --list-bugs" in far
    missing = simulate("--replay", "/nowhere.json").exception
    assert isinstance(missing, RaftError)
    assert "'/nowhere.json' cannot be read: No such file" in str(missing)
    assert "--out '/dev/null/x' cannot be made" in str(simulate("--out", "/dev/null/x").exception)


@pytest.mark.parametrize(
    ("option", "value", "fix"),
    [
        ("--seeds", "0", "give 1 or more"),
        ("--nodes", "2", "give 3 to 9"),
        ("--nodes", "10", "give 3 to 9"),
        ("--jobs", "0", "give 1 or more"),
    ],
)
def test_a_number_that_cannot_be_is_named_with_what_would_do(option, value, fix):
    error = simulate(option, value).exception
    assert isinstance(error, RaftError)
    assert str(error).startswith(f"{option} {value}: ")
    assert str(error).endswith(f"Fix: {fix}")
