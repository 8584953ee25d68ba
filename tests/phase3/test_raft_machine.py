"""Hypothesis plays chance: it decides what happens to three Raft servers, and no rule breaks.

The simulator draws from a seed, in proportions that somebody has chosen; here nothing is unlikely.
What Hypothesis finds it makes short itself.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from craft2.apps.simulate.raft_bugs import BUGS, Bug
from craft2.apps.simulate.raft_nodes import Nodes
from craft2.apps.simulate.raft_rules import Broken

SERVERS = (1, 2, 3)
server = st.sampled_from(SERVERS)


class Box(Nodes):
    """Messages stay in the box: each may arrive never, once, or again and again."""

    def __init__(self, bug):
        super().__init__(len(SERVERS), bug.server, bug.disk)
        self.sent = []

    def carry(self, message):
        self.sent.append(message)


class Machine(RuleBasedStateMachine):
    """Everything that can happen to a server, in any order."""

    bug = Bug("none")

    def __init__(self):
        super().__init__()
        self.nodes = Box(self.bug)
        self.value = 0

    @initialize()
    def begin(self):
        for one in SERVERS:
            self.nodes.start(one, 0)

    @rule(ms=st.integers(1, 700))
    def time_passes(self, ms):
        self.nodes.now_ms += ms

    @rule(one=server)
    def start(self, one):
        self.nodes.start(one, self.nodes.now_ms)

    @rule(one=server)
    def crash(self, one):
        self.nodes.crash(one, self.nodes.now_ms)

    @rule(one=server, step=st.integers(0, 3), share=st.floats(0, 1))
    def crash_soon(self, one, step, share):
        self.nodes.crash_soon(one, self.nodes.now_ms, step, share)

    @rule(one=server, slow=st.booleans())
    def slow_disk(self, one, slow):
        self.nodes.slow_disk(one, self.nodes.now_ms, slow)

    @rule(one=server)
    def written(self, one):
        self.nodes.written(one, self.nodes.now_ms)

    @rule(one=server)
    def ring(self, one):
        self.nodes.ring(one, self.nodes.now_ms)

    @rule(one=server)
    def beat(self, one):
        self.nodes.beat(one, self.nodes.now_ms)

    @rule(back=st.integers(0, 30))
    def deliver_one(self, back):
        if back < len(self.nodes.sent):
            message = self.nodes.sent[-1 - back]
            self.nodes.deliver(message.to, self.nodes.now_ms, message)

    @rule(among=st.sets(server, min_size=2))
    def deliver_all(self, among):
        """What is sent from now on among some of them arrives, until nothing moves."""
        place = max(0, len(self.nodes.sent) - 12)
        for _ in range(60):
            if place == len(self.nodes.sent):
                return
            message = self.nodes.sent[place]
            place += 1
            if {message.sender, message.to} <= among:
                self.nodes.deliver(message.to, self.nodes.now_ms, message)

    @rule(
        one=server,
        client=st.integers(0, 1),
        kind=st.sampled_from(("append", "write", "list", "read")),
        more=st.sampled_from((0, 0, 9)),
    )
    def ask(self, one, client, kind, more):
        self.value += 1
        value = self.value if kind in ("append", "write") else None
        now = self.nodes.now_ms
        self.nodes.ask(one, now, client, kind, value, now, more)

    @rule(one=server, voters=st.sets(server, min_size=2), learners=st.sets(server))
    def change(self, one, voters, learners):
        members = sorted(voters), sorted(learners - voters)
        self.nodes.change(one, self.nodes.now_ms, *members)

    @rule(one=server, to=server)
    def transfer(self, one, to):
        self.nodes.transfer(one, self.nodes.now_ms, to)

    @rule(one=server)
    def compact(self, one):
        self.nodes.compact(one, self.nodes.now_ms)

    def teardown(self):
        self.nodes.judge_history()


TestRaftMachine = Machine.TestCase
TestRaftMachine.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)


@pytest.mark.prove
def test_many_more_orders_of_events_break_no_rule():
    some = settings(max_examples=3_000, stateful_step_count=150, deadline=None)
    run_state_machine_as_test(Machine, settings=some)


@pytest.mark.parametrize("name", ["half-elects", "half-commits"])
def test_it_finds_a_planted_bug(name):
    class Buggy(Machine):
        bug = BUGS[name]

    some = settings(
        max_examples=2_000,
        stateful_step_count=60,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],  # to make it short takes longer than to find it
        suppress_health_check=list(HealthCheck),
    )
    with pytest.raises(Broken):
        run_state_machine_as_test(Buggy, settings=some)
