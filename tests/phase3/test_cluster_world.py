"""Three simulated brokers keep their promises through crashes and cuts; broken ones are found."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from craft2.apps.simulate.cluster_world import ClusterWorld
from craft2.apps.simulate.raft_rules import Broken
from phase2_groups.error_codes import ErrorCode
from phase3_raft.metadata import broker_changes
from phase3_raft.partition import Partition
from phase3_raft.replication.replicas import Replicas

ONCE_BROKEN = (83, 86, 96)  # a controller's refusal was never heard: the ISR stayed as it was


@pytest.mark.parametrize("seed", [0, 1, *ONCE_BROKEN])
def test_what_all_have_acknowledged_is_there_once_after_every_fault(seed):
    world = ClusterWorld(seed)
    report = world.run()
    assert report.counts["acknowledged"] > 100


def run(seeds):
    for seed in seeds:
        ClusterWorld(seed).run()


@pytest.mark.prove
def test_many_seeds_break_no_promise():
    run(range(300))


async def nobody_waits(partition, offset):
    """acks=all is answered as acks=1 is."""
    return ErrorCode.NONE


def own_end_only(replicas, end, high_watermark=Replicas.high_watermark):
    """The leader's own log is enough."""
    return end if replicas.me in replicas.isr else high_watermark(replicas, end)


def one_too_far(replicas, who, offset, *, end, now_ms, fetched=Replicas.fetched):
    """A follower that asks for an offset has it."""
    fetched(replicas, who, min(end, offset + 1), end=end, now_ms=now_ms)


@pytest.mark.parametrize(
    ("place", "name", "bug", "seed"),
    [
        (Partition, "replicated", nobody_waits, 5),
        (Replicas, "high_watermark", own_end_only, 0),
        (Replicas, "fetched", one_too_far, 8),
        (broker_changes, "_may_lose", lambda image, topic: True, 2),
    ],
    ids=["answers-before-the-others", "own-end-only", "one-too-far", "unclean-always"],
)
def test_a_planted_bug_is_found(monkeypatch, place, name, bug, seed):
    monkeypatch.setattr(place, name, bug)
    with pytest.raises(Broken):
        run(range(seed, seed + 20))


def test_one_seed_is_one_run_whatever_the_order_of_hashes():
    code = f"""if True:
        from craft2.apps.simulate.cluster_world import ClusterWorld
        for seed in {ONCE_BROKEN[:2]}:
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
