"""Simulated clusters: no seed breaks a rule, and each planted bug breaks one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest
import typer
from typer.testing import CliRunner

from craft2.apps import cli_cluster_simulate
from craft2.apps.simulate.cluster_admin import Topics
from craft2.apps.simulate.cluster_bugs import BUGS, NoSuchBug, planted
from craft2.apps.simulate.cluster_clients import BROKERS
from craft2.apps.simulate.cluster_faults import KINDS, plan
from craft2.apps.simulate.cluster_rules import ClusterRules
from craft2.apps.simulate.cluster_seeds import (
    BadRun,
    ClusterRun,
    run_cluster_seed,
    run_cluster_seeds,
    shortened,
)
from craft2.apps.simulate.raft_rules import Broken
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import PartitionRecord, TopicRecord
from phase3_raft.partition import Partition

# bug -> a seed with which it shows
FOUND = {
    "reads-to-the-end": 0,
    "answers-at-append": 0,
    "own-end-only": 0,
    "one-too-far": 0,
    "proposed-uncounted": 21,
    "isr-without-controller": 0,
    "refusal-unheard": 18,
    "empty-in-sync": 99,
    "unclean": 7,
    "epoch-kept": 0,
    "led-by-anybody": 7,
    "two-decisions": 0,
    "cuts-at-watermark": 0,
    "offsets-alone": 9,
    "longer-is-out-of-range": 21,
    "follower-unsynced": 4,
    "deletes-alone": 0,
    "joins-with-deleted": 110,
    "resigned-writes-on": 15,
    "commits-alone": 0,
    "compacts-at-once": 12,
    "sequences-forgotten": 3,
    "ids-given-twice": 0,
}
# Each showed something wrong in the brokers before it was mended, with the world as it was then.
ONCE_BROKEN = (2, 15, 21, 44, 58, 81, 83, 86, 96, 205, 496, 594, 818, 867, 1201, 1262, 1976)
BOUND = 200  # seeds: each bug shows within so many


@cache
def clean(seed):
    """Its run, without a bug."""
    return run_cluster_seed(seed)


@pytest.mark.parametrize("seed", sorted({*range(20), *ONCE_BROKEN}))
def test_no_seed_breaks_a_rule(seed):
    run = clean(seed)
    assert run.rule is None, f"{run.rule}: {run.what}"
    assert run.counts["acknowledged sends"] > 100


def test_every_fault_happens():
    kinds = Counter(fault.kind for seed in range(20) for fault in plan(seed, 7_000))
    assert kinds.keys() == KINDS.keys()


@pytest.mark.parametrize("name", FOUND)
def test_a_planted_bug_is_found(name):
    assert run_cluster_seed(FOUND[name], name).is_broken
    assert not clean(FOUND[name]).is_broken  # without the bug the same seed is fine


def test_every_bug_is_tried():
    assert FOUND.keys() == BUGS.keys()


@pytest.mark.prove
def test_two_thousand_seeds_break_no_rule():
    broken = [(run.seed, run.rule, run.what) for run in run_cluster_seeds(range(2_000)) if run.rule]
    assert not broken


@pytest.mark.prove
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_within_bounds(name):
    assert any(run.is_broken for run in run_cluster_seeds(range(BOUND), name))


def test_one_seed_is_one_run_whatever_the_order_of_hashes():
    code = """if True:
        from craft2.apps.simulate.cluster_world import ClusterWorld
        for seed in (3, 4):
            world = ClusterWorld(seed)
            world.run()
            print(world.digest, world.crashes, world.timeline.count)"""
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hashes in ("1", "2")
    }
    assert len(seen) == 1


def test_a_bug_is_gone_behind_its_block():
    before = vars(Partition)["when_replicated"]
    with planted("answers-at-append"):
        assert vars(Partition)["when_replicated"] is not before
    assert vars(Partition)["when_replicated"] is before


def test_a_story_is_short_and_ends_with_what_broke(tmp_path):
    failed = run_cluster_seed(FOUND["unclean"], "unclean")
    short = shortened(failed)
    assert short.rule == failed.rule
    assert 0 < len(short.faults) <= len(failed.faults)
    moments = [ms for ms, _, _ in short.timeline]
    assert moments == sorted(moments)
    assert short.timeline[-1][1:] == ("broken", f"{short.rule}: {short.what}")
    again = run_cluster_seed(short.seed, short.bug, short.without)
    assert (again.rule, again.timeline) == (short.rule, short.timeline)
    short.save(tmp_path / "story.json")
    assert ClusterRun.load(tmp_path / "story.json") == short


def test_what_is_no_story_is_refused(tmp_path):
    (tmp_path / "story.json").write_text("[]")
    with pytest.raises(BadRun, match=r"story\.json.* holds no run of a cluster"):
        ClusterRun.load(tmp_path / "story.json")


def test_what_clients_are_told_is_held_against_each_other():
    rules = ClusterRules(lambda who, what: None)
    rules.is_told("producer-0", ("t", 0), 7, "a")
    rules.is_told("reader", ("t", 0), 7, "a")
    with pytest.raises(Broken, match="t-0, offset 7: reader has 'b', and there was 'a'"):
        rules.is_told("reader", ("t", 0), 7, "b")


@pytest.mark.parametrize(
    ("name", "mark", "words"),
    [
        ("lost", "there", "lost: broker-1 does not know it"),
        ("kept", "gone", "kept: broker-1 knows it still"),
        ("kept", "grown", "kept: broker-1 knows 1 of its 2 partitions"),
        ("kept", "set", "kept: broker-1 has the settings {} for it"),
    ],
)
def test_topics_are_held_against_what_was_told_of_them(name, mark, words):
    image, told = Image(), Topics()
    image.apply(TopicRecord("kept", "0" * 32))
    image.apply(PartitionRecord("kept", 0, (1,), (1,), 1, 0, 0))
    told.there = {"kept"}
    told.compare("broker-1", image)
    getattr(told, mark).add(name)
    with pytest.raises(Broken, match=re.escape(words)):
        told.compare("broker-1", image)


# The command.

app = typer.Typer()
cli_cluster_simulate.register(app)


@app.callback()
def _verbs():
    """So that the verb has to be named."""


def simulate(*arguments):
    return CliRunner().invoke(app, ["simulate", *arguments])


def test_seeds_that_break_nothing_are_summed_up():
    done = simulate("--seeds", "1", "--jobs", "1")
    assert done.exit_code == 0
    assert f"1 seeds of {len(BROKERS)} brokers" in done.stdout
    for words in ("leaders", "crashes", "acknowledged sends", "events a second"):
        assert words in done.stdout


def test_a_failure_is_told_kept_and_told_again(tmp_path):
    seed = str(FOUND["epoch-kept"])
    planted = ("--bug", "epoch-kept", "--first-seed", seed)
    done = simulate(*planted, "--jobs", "1", "--out", str(tmp_path))
    assert done.exit_code == 1
    assert f"one leader an epoch is broken with seed {seed} (run 1 of 100)" in done.stdout
    again = f"craft2 cluster simulate --seeds 1 --first-seed {seed} --bug epoch-kept"
    assert again in done.stdout
    told = simulate("--replay", str(tmp_path / f"cluster-seed-{seed}.json"))
    assert told.exit_code == 1
    assert told.stdout in done.stdout


def test_bugs_are_listed_and_others_refused():
    done = simulate("--list-bugs")
    assert all(name in done.stdout for name in BUGS)
    error = simulate("--bug", "uncleam").exception
    assert isinstance(error, NoSuchBug)
    assert "did you mean unclean? craft2 cluster simulate --list-bugs" in str(error)
    assert "cannot be made" in str(simulate("--out", "/dev/null/x").exception)
