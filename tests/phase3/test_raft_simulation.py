"""Raft clusters in virtual time: no seed breaks a rule, and each planted bug breaks one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from craft2.apps.simulate.linear import Operation, check_list, check_register
from craft2.apps.simulate.raft_bugs import BUGS
from craft2.apps.simulate.raft_faults import FAULTS
from craft2.apps.simulate.raft_world import World
from craft2.apps.simulate.seeds import run_seed, run_seeds

# bug -> a seed with which it shows, with five servers
FOUND = {
    "answered-before-sync": 0,
    "changes-too-soon": 27,
    "commits-beyond": 9,
    "cuts-always": 0,
    "follows-the-past": 23,
    "half-commits": 0,
    "half-elects": 0,
    "heartbeats-late": 207,
    "keeps-vote": 0,
    "last-entry-unwritten": 0,
    "leader-counts-unsynced": 0,
    "matches-one-off": 30,
    "never-cuts": 0,
    "never-goes-back": 0,
    "no-no-op": 0,
    "older-term-counted": 1,
    "reads-at-once": 83,
    "reads-one-answer": 477,
    "reads-share-round": 7,
    "reads-too-early": 15,
    "sent-is-stored": 0,
    "snapshot-keeps-rest": 100,
    "snapshot-members": 1,
    "snapshot-one-off": 6,
    "takes-anything": 30,
    "term-forgotten": 0,
    "transfer-unchecked": 511,
    "two-changes": 1,
    "vote-forgotten": 0,
    "votes-by-length": 485,
    "votes-for-shorter": 0,
    "votes-twice": 6,
}


@pytest.mark.parametrize("nodes", [3, 5, 7])
def test_no_seed_breaks_a_rule_and_every_fault_happens(nodes):
    counts = Counter()
    for seed in range(30):
        outcome = run_seed(seed, nodes)
        assert outcome.broken is None, f"seed {seed}: {outcome.broken}"
        assert outcome.counts["elections"]
        counts += outcome.counts
    network = {f"messages {what}" for what in ("lost", "doubled", "overtaken")}
    for name in {*FAULTS, *network, "crashes", "writes torn", "snapshots installed"}:
        assert counts[name], name


@pytest.mark.prove
@pytest.mark.parametrize("nodes", [3, 5, 7])
def test_a_thousand_seeds_break_no_rule(nodes):
    broken = [o for o in run_seeds(range(1_000), nodes) if o.broken]
    assert not broken


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name):
    assert run_seed(FOUND[name], bug=name).broken is not None
    assert run_seed(FOUND[name]).broken is None  # without the bug the same seed is fine


@pytest.mark.prove
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found_within_2_000_seeds(name):
    assert any(outcome.broken for outcome in run_seeds(range(2_000), bug=name))


def test_two_processes_find_what_one_finds():
    one, two = (
        [(o.seed, o.broken, o.counts) for o in run_seeds(range(12), 3, jobs=jobs)]
        for jobs in (1, 2)
    )
    assert one == two


@pytest.mark.parametrize("nodes", [3, 5])
def test_one_seed_is_one_run_whatever_the_order_of_hashes(nodes):
    code = f"""if True:
        from craft2.apps.simulate.raft_world import World
        for seed in range(5):
            world = World(seed, {nodes}, traced=True)
            world.run()
            print(world.digest, world.timeline.count, world.faults)"""
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1


def test_to_record_a_run_does_not_change_it():
    bare, recorded = World(5, traced=True), World(5, traced=True, recorded=True)
    bare.run()
    recorded.run()
    assert bare.digest == recorded.digest
    assert bare.actions is None
    assert len(recorded.actions) > 1_000


def test_without_one_fault_the_others_are_the_same():
    whole, less = World(5), World(5, without=frozenset({0}))
    whole.run()
    less.run()
    assert less.planned_faults == whole.planned_faults > 5


# What the clients' histories are judged by.


def append(value, called, answered=float("inf")):
    return Operation("append", value, called, answered)


def listed(called, answered, *seen):
    return Operation("list", None, called, answered, seen)


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ([append(1, 0, 1), listed(2, 3, 1)], None),
        ([append(1, 0, 5), listed(1, 2), listed(3, 4, 1)], None),
        ([append(1, 0), listed(2, 3)], None),  # never answered: perhaps never done
        ([append(1, 0, 1), listed(2, 3)], "has []"),
        ([listed(0, 1, 7)], "which nobody had appended"),
        ([append(1, 0, 9), append(2, 0, 9), listed(1, 2, 1), listed(3, 4, 2)], "neither begins"),
        ([append(1, 0, 9), listed(1, 2, 1), listed(3, 4)], "a later one has 0"),
        ([append(1, 5, 6), append(2, 0, 1), listed(7, 8, 1, 2)], "before one that precedes it"),
        ([append(1, 0, 9), listed(1, 2, 1, 1)], "twice"),
    ],
)
def test_a_list_is_judged(history, words):
    found = check_list(history)
    assert (found is None) if words is None else (words in found)


def write(value, called, answered=float("inf")):
    return Operation("write", value, called, answered)


def read(value, called, answered):
    return Operation("read", value, called, answered)


@pytest.mark.parametrize(
    ("history", "words"),
    [
        ([write(1, 0, 1), read(1, 2, 3)], None),
        ([write(1, 0, 9), read(None, 1, 2), read(1, 3, 4)], None),
        ([write(1, 0, 1), write(2, 2, 3), read(1, 4, 5)], "while"),
        ([write(1, 0, 1), read(None, 2, 3)], "while"),
        ([read(7, 0, 1)], "nobody wrote"),
        ([write(1, 5, 6), read(1, 0, 1)], "before it was written"),
        ([write(1, 0, 9), write(2, 0, 9), read(1, 1, 2), read(2, 3, 4), read(1, 5, 6)], "while"),
    ],
)
def test_a_register_is_judged(history, words):
    found = check_register(history)
    assert (found is None) if words is None else (words in found)
