"""A broker that dies on simulated machines keeps its promises; one that does not is found."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from craft2.apps.simulate.broker_world import BrokerWorld
from craft2.apps.simulate.raft_rules import Broken
from phase2_groups.error_codes import ErrorCode
from phase3_raft.broker import Broker
from phase3_raft.partition import Partition
from phase3_raft.topic_config import TopicConfig


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_what_was_acknowledged_is_there_once_after_every_crash(seed, power):
    world = BrokerWorld(seed, power=power)
    report = world.run()
    assert world.crashes
    assert report.counts["acknowledged"] > 300
    assert world.committed > 20


@pytest.mark.prove
@pytest.mark.parametrize("power", [True, False])
def test_many_seeds_break_no_promise(power):
    for seed in range(100):
        BrokerWorld(seed, power=power).run()


class AcknowledgesUnsynced(Broker):
    """Does not wait for the disk, whatever the topic's settings say."""

    def partition(self, topic, number):
        found = super().partition(topic, number)
        if isinstance(found, Partition):
            found.config = TopicConfig({})
        return found


class CommitsNowhere(Broker):
    """Keeps what groups commit in memory."""

    def _offsets_partition(self, number):
        found = super()._offsets_partition(number)
        if not isinstance(found, ErrorCode):
            found._write = lambda records: None
        return found


@pytest.mark.parametrize(
    ("broker", "power", "rule"),
    [
        (AcknowledgesUnsynced, True, "OUT_OF_ORDER|lost-write"),
        (CommitsNowhere, False, "acknowledged, "),
    ],
)
def test_a_broker_that_breaks_its_promise_is_found(broker, power, rule):
    def run_seeds():
        for seed in range(5):
            BrokerWorld(seed, power=power, broker=broker).run()

    with pytest.raises(Broken, match=rule):
        run_seeds()


def test_one_seed_is_one_course_of_events_in_every_process():
    code = (
        "from craft2.apps.simulate.broker_world import BrokerWorld;"
        "world = BrokerWorld(3); world.run(); print(world.digest)"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
