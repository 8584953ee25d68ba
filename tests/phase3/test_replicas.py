"""What a leader knows of its replicas, where logs part, and where replicas are placed."""

from __future__ import annotations

import doctest
from collections import Counter
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from phase3_raft.metadata import placement
from phase3_raft.metadata.placement import place
from phase3_raft.replication import replicas, truncation
from phase3_raft.replication.replicas import Replicas
from phase3_raft.replication.truncation import truncate_at

ALL = (1, 2, 3)


@pytest.mark.parametrize("module", [placement, replicas, truncation], ids=lambda m: m.__name__)
def test_the_examples_in_the_text_are_true(module):
    assert doctest.testmod(module).failed == 0


class Leading(RuleBasedStateMachine):
    """A leader, its followers' logs, and a controller whose answers may be lost or late."""

    def __init__(self):
        super().__init__()
        self.now, self.end, self.told = 0, 0, 0
        self.ends = dict.fromkeys(ALL[1:], 0)
        self.isr, self.version = (1, 2), 0  # the controller's
        self.known = 0  # the version that the leader knows
        self.asked = None  # (ISR, version): a request on its way
        self.replicas = Replicas(1, max_lag_ms=100)
        self.replicas.lead(self.isr, ALL, 0, 0)

    @rule(count=st.integers(1, 5))
    def append(self, count):
        self.end += count

    @rule(ms=st.integers(1, 80))
    def wait(self, ms):
        self.now += ms

    @rule(who=st.sampled_from(ALL[1:]), most=st.integers(0, 10))
    def fetch(self, who, most):
        self.replicas.fetched(who, self.ends[who], end=self.end, now_ms=self.now)
        self.ends[who] = min(self.end, self.ends[who] + most)

    @rule()
    def propose(self):
        wanted = self.replicas.wanted_isr(self.end, self.now)
        if wanted is not None:
            assert 1 in wanted
            assert set(wanted) <= set(ALL)
            # The same again only to hear what became of another one.
            assert set(wanted) != set(self.replicas.isr) or self.replicas.proposed
            self.replicas.propose(wanted)
            self.asked = wanted, self.known

    @rule(may=st.booleans(), answered=st.booleans())
    def decide(self, may, answered):
        """The controller gets the request; its answer may be lost."""
        if self.asked is None:
            return
        (wanted, version), self.asked = self.asked, None
        granted = may and version == self.version
        if granted:
            self.isr, self.version = wanted, version + 1
        if not answered:
            self.replicas.answered(refused=False)
        elif not granted:
            self.replicas.answered(refused=version == self.version)

    @rule()
    def hear(self):
        """What the metadata say arrives."""
        if self.known < self.version:
            self.known = self.version
            self.replicas.changed(self.isr, ALL, self.now)

    @invariant()
    def what_consumers_see_is_on_every_replica_in_sync(self):
        watermark = self.replicas.high_watermark(self.end)
        assert self.told <= watermark <= self.end
        self.told = watermark
        for who in set(self.isr) - {1}:
            assert watermark <= self.ends[who]


TestLeading = Leading.TestCase


def test_a_replica_is_slow_by_time_and_not_by_messages():
    leads = Replicas(1, max_lag_ms=100)
    leads.lead((1, 2, 3), (1, 2, 3), 0, 0)
    leads.fetched(2, 0, end=10_000, now_ms=50)  # far behind, and it has just had everything
    leads.fetched(3, 0, end=10_000, now_ms=50)
    assert leads.wanted_isr(10_000, now_ms=100) is None
    leads.fetched(2, 10_000, end=20_000, now_ms=120)  # it has what there was at 50
    assert leads.wanted_isr(20_000, now_ms=140) == (1, 2)


def test_who_is_not_where_the_leader_began_is_not_taken_in():
    leads = Replicas(1, max_lag_ms=100)
    leads.lead((1,), (1, 2), begin=10, now_ms=0)
    leads.fetched(2, 9, end=12, now_ms=1)
    assert leads.wanted_isr(12, now_ms=2) is None
    leads.fetched(2, 12, end=12, now_ms=3)
    assert leads.wanted_isr(12, now_ms=4) == (1, 2)


def test_a_proposal_of_which_nothing_was_heard_is_made_anew():
    """The controller was lost, and the replica that was to be taken in has died since."""
    leads = Replicas(1, max_lag_ms=100)
    leads.lead((1,), (1, 2), begin=10, now_ms=0)
    leads.fetched(2, 10, end=10, now_ms=1)
    assert leads.wanted_isr(10, now_ms=2) == (1, 2)
    leads.propose((1, 2))
    assert leads.wanted_isr(20, now_ms=3) is None
    leads.answered(refused=False)  # it may be in force, so it counts
    assert leads.high_watermark(20) == 10
    assert leads.wanted_isr(20, now_ms=200, fenced={2}) == (1,)
    leads.propose((1,))
    leads.changed((1,), (1, 2), now_ms=201)
    assert leads.high_watermark(20) == 20
    assert leads.wanted_isr(20, now_ms=202, fenced={2}) is None


LOG = st.lists(st.integers(0, 3), max_size=12)


def epochs(steps):
    """A log by the epochs of its records, which never fall."""
    log, epoch = [], 0
    for step in steps:
        epoch += step
        log.append(epoch)
    return log


def end_of(log, epoch):
    """As `PartitionLog.epoch_end_offset`."""
    below = [one for one in log if one <= epoch]
    return (below[-1], len(below)) if below else (-1, -1)


@given(shared=LOG, ours=LOG, theirs=LOG)
def test_two_logs_that_parted_agree_after_some_rounds_and_keep_what_they_share(
    shared, ours, theirs
):
    """Epochs of one log that the other one has not are different ones, as no two leaders share."""
    start = epochs(shared)
    last = start[-1] if start else 0
    leader = start + [last + 2 * (one + 1) for one in epochs(theirs)]
    follower = start + [last + 2 * (one + 1) - 1 for one in epochs(ours)]
    for _ in range(50):
        if not follower:
            break
        epoch, end = there = end_of(leader, follower[-1])
        if epoch == follower[-1] and end >= len(follower):
            break
        there = there if epoch >= 0 else (-1, 0)
        cut = truncate_at(there, partial(end_of, follower))
        assert cut < len(follower)
        follower = follower[:cut]
    assert follower == leader[: len(follower)]
    assert len(follower) >= len(start)


@given(
    racks=st.dictionaries(st.integers(1, 9), st.sampled_from("abc"), min_size=1, max_size=9),
    replicas=st.integers(1, 9),
)
def test_replicas_are_spread_over_brokers_and_racks(racks, replicas):
    replicas = min(replicas, len(racks))
    placed = [place(number, replicas, racks) for number in range(len(racks) * 4)]
    assert set(Counter(one[0] for one in placed).values()) == {4}  # leaders are even
    for one in placed:
        assert len(set(one)) == replicas
        used = {racks[broker] for broker in one}
        assert len(used) == min(replicas, len(set(racks.values())))


def test_a_leader_that_cannot_write_leaves_itself_out_if_another_is_in_sync():
    leads = Replicas(1, max_lag_ms=100)
    leads.lead((1, 2, 3), (1, 2, 3), begin=0, now_ms=0)
    for who in (2, 3):
        leads.fetched(who, 10, end=10, now_ms=1)
    assert leads.wanted_isr(10, now_ms=2, writes=True) is None
    assert leads.wanted_isr(10, now_ms=2, writes=False) == (2, 3)
    leads.changed((1,), (1, 2, 3), now_ms=3)
    assert leads.wanted_isr(20, now_ms=4, writes=False) is None  # it is the only one
