"""Members and their coordinator, both pure, played against each other."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_machine import GroupMachine
from phase2_groups.group_messages import (
    Commit,
    Happened,
    Heartbeat,
    Reply,
    Store,
    Stored,
    Tick,
)
from phase2_groups.group_state import Group, GroupLimits, State
from phase2_groups.membership import (
    FencedInstance,
    GroupError,
    MemberConfig,
    Membership,
    MemberState,
)

COUNT = itertools.count()


def member(name, *assignors, instance=None, topics=("t",)):
    config = MemberConfig(
        group_id="g",
        client_id=name,
        group_instance_id=instance,
        session_timeout_ms=1000,
        heartbeat_interval_ms=300,
        max_poll_interval_ms=5000,
        retry_backoff_ms=50,
        assignors=assignors or ("range",),
    )
    core = Membership(config, lambda: f"{name}:{next(COUNT)}", lambda: f"{name}-{next(COUNT)}")
    core.subscribe(topics)
    return core


class World:
    """A coordinator, members, and the time; everything that is sent arrives at once."""

    def __init__(self, **partitions):
        limits = GroupLimits(initial_rebalance_delay_ms=0, min_session_timeout_ms=1)
        self.machine = GroupMachine(Group(group_id="g"), limits)
        self.partitions = partitions
        self.members = {}
        self.now = 0
        self.waiting = {}  # token -> (member's name, request)
        self.tells = []
        self.happened = []

    def add(self, name, *assignors, **kwargs):
        self.members[name] = member(name, *assignors, **kwargs)
        self.members[name].poll(self.now, self.partitions)

    def send(self, name, ask):
        self.waiting[ask.request.token] = name, ask.request
        self.handle(ask.request)

    def handle(self, event):
        effects = self.machine.handle(event, self.now)
        for effect in effects:
            match effect:
                case Store():
                    effects += self.machine.handle(Stored(number=effect.number), self.now)
                case Happened():
                    self.happened.append(effect)
                case Reply() if effect.token in self.waiting:
                    name, request = self.waiting.pop(effect.token)
                    if name in self.members:
                        self.members[name].received(request, effect, self.now)

    def step(self, name, *, moved=True):
        """What one member does now, if anything: tell its application, or ask the group."""
        core = self.members[name]
        while (tell := core.next_tell()) is not None:
            self.tells.append((name, *tell))
            core.told(tell)
        if topics := core.leads():
            core.share_out({topic: self.partitions[topic] for topic in topics})
        if ask := core.heartbeat(self.now, moved) or core.next_ask(self.now):
            self.send(name, ask)

    def settle(self, steps=30):
        for _ in range(steps):
            for name in self.members:
                self.step(name)
            self.now += 20
            self.handle(Tick())

    def owned(self):
        return {name: sorted(n for _, n in core.owned) for name, core in self.members.items()}


def test_members_share_a_topic_and_a_third_one_gets_its_part():
    world = World(t=6)
    world.add("a")
    world.add("b")
    world.settle()
    assert world.owned() == {"a": [0, 1, 2], "b": [3, 4, 5]}
    world.add("c")
    world.settle()
    assert world.owned() == {"a": [0, 1], "b": [2, 3], "c": [4, 5]}


def test_an_eager_member_gives_everything_up_and_a_cooperative_one_what_moves():
    for assignor, given_up in [("range", 6), ("cooperative-sticky", 2)]:
        world = World(t=6)
        world.add("a", assignor)
        world.add("b", assignor)
        world.settle()
        world.tells.clear()
        world.add("c", assignor)
        world.settle()
        assert sum(len(p) for _, kind, p in world.tells if kind == "revoked") == given_up, assignor
        assert sorted(len(owned) for owned in world.owned().values()) == [2, 2, 2]


def test_the_sticky_assignor_gives_back_what_an_eager_member_had():
    world = World(t=6)
    for name in "ab":
        world.add(name, "sticky")
    world.settle()
    before = world.owned()
    world.add("c", "sticky")
    world.settle()
    after = world.owned()
    assert all(set(after[name]) <= set(before[name]) for name in "ab")


def test_the_leader_says_that_a_topic_has_grown():
    world = World(t=4)
    world.add("a")
    world.settle()
    world.partitions["t"] = 8
    world.members["a"].poll(world.now, world.partitions)
    world.settle()
    assert world.owned() == {"a": list(range(8))}
    assert world.machine.group.because == "t grew from 4 to 8 partitions"


def test_who_does_not_poll_leaves_and_says_why_and_joins_again_with_its_next_poll():
    world = World(t=2)
    world.add("a")
    world.settle()
    for _ in range(30):
        world.now += 200
        ask = world.members["a"].heartbeat(world.now, moved=False)
        if ask is not None:
            world.send("a", ask)
    assert not world.machine.group.members
    assert "poll was not called for 5." in world.happened[-1].because
    assert world.members["a"].next_tell().kind == "lost"
    world.members["a"].poll(world.now, world.partitions)
    world.settle()
    assert world.owned() == {"a": [0, 1]}


def test_a_second_member_with_the_same_instance_id_fences_the_first():
    world = World(t=2)
    world.add("a", instance="machine-1")
    world.settle()
    world.add("b", instance="machine-1")
    world.step("b")
    world.now += 400
    with pytest.raises(FencedInstance, match="group_instance_id 'machine-1'"):
        world.step("a")


def test_a_member_without_an_assignor_in_common_is_told_so():
    world = World(t=2)
    world.add("a", "range")
    world.settle()
    world.add("b", "sticky")
    with pytest.raises(GroupError, match="partition_assignment_strategy"):
        world.settle()


def test_a_static_leader_that_restarts_still_notices_growth():
    world = World(t=2)
    world.add("a", instance="machine-1")
    world.settle()
    world.add("a", instance="machine-1")
    world.settle()
    assert world.machine.group.generation == 1
    world.partitions["t"] = 3
    world.members["a"].poll(world.now, world.partitions)
    world.settle()
    assert world.owned() == {"a": [0, 1, 2]}


NAMES = st.sampled_from("abcd")


class Members(RuleBasedStateMachine):
    """Members come, fall silent, poll late and go; requests get lost; topics grow."""

    @initialize(assignor=st.sampled_from(["range", "roundrobin", "sticky", "cooperative-sticky"]))
    def begin(self, assignor):
        self.assignor = assignor
        self.world = World(t=5)
        self.silent = set()

    @rule(name=NAMES)
    def come(self, name):
        if name not in self.world.members:
            instance = "i" if name == "d" else None
            self.world.add(name, self.assignor, instance=instance)
            self.silent.discard(name)

    @rule(
        name=NAMES,
        moved=st.booleans(),
        polls=st.booleans(),
        lost=st.sampled_from([0, 0, 0, 1, 2]),
    )
    def go_on(self, name, moved, polls, lost):
        """The thread that polls, or the other one.

        lost=1: what it asks does not arrive; 2: the reply does not, and it gives up waiting.
        """
        world = self.world
        if name not in world.members or name in self.silent:
            return
        core = world.members[name]
        if polls:
            if tell := core.next_tell():
                core.told(tell)
            return
        if topics := core.leads():
            core.share_out({topic: world.partitions[topic] for topic in topics})
        ask = core.heartbeat(world.now, moved) or core.next_ask(world.now)
        if ask is None:
            return
        if lost == 1:
            core.received(ask.request, None, world.now)
        elif lost == 2:
            world.handle(ask.request)
            core.received(ask.request, None, world.now)
        else:
            world.send(name, ask)

    @rule(name=NAMES)
    def poll(self, name):
        if name in self.world.members and name not in self.silent:
            self.world.members[name].poll(self.world.now, self.world.partitions)

    @rule(name=NAMES)
    def fall_silent_or_wake(self, name):
        self.silent ^= {name}

    @rule(name=NAMES)
    def go(self, name):
        core = self.world.members.get(name)
        if core is not None and name not in self.silent:
            if tell := core.give_up_all():
                core.told(tell)
            ask = core.leave("closed")
            del self.world.members[name]
            if ask is not None:
                self.world.handle(ask.request)

    @rule(ms=st.sampled_from([10, 100, 300, 1100]))
    def time_passes(self, ms):
        self.world.now += ms
        self.world.handle(Tick())

    @rule()
    def grow(self):
        self.world.partitions["t"] = min(8, self.world.partitions["t"] + 1)

    @invariant()
    def no_two_members_of_the_group_own_one_partition(self):
        if not hasattr(self, "world"):
            return
        group = self.world.machine.group
        known = [c for c in self.world.members.values() if c.member_id in group.members]
        for one, other in itertools.combinations(known, 2):
            assert not one.owned & other.owned, (one.config.client_id, other.config.client_id)

    def teardown(self):
        """Faults stop: everybody there gets a share, and every partition has one owner."""
        if not hasattr(self, "world"):
            return
        self.come("a")
        self.silent.clear()
        for _ in range(120):
            for name in list(self.world.members):
                self.poll(name)
                self.world.step(name)
            self.world.now += 50
            self.world.handle(Tick())
            for token, (name, request) in list(self.world.waiting.items()):
                group = self.world.machine.group
                tokens = {t for m in group.members.values() for t in (m.joining, m.syncing)}
                if token not in tokens and name in self.world.members:
                    del self.world.waiting[token]
                    self.world.members[name].received(request, None, self.world.now)
        world = self.world
        assert world.machine.group.state is State.STABLE
        owned = sorted(n for numbers in world.owned().values() for n in numbers)
        assert owned == list(range(world.partitions["t"])), world.owned()
        assert all(c.state is MemberState.STABLE for c in world.members.values())


TestMembers = Members.TestCase
TestMembers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def commit_of(core, generation=None):
    generation = core.generation if generation is None else generation
    return Commit(token="c", member_id=core.member_id, generation=generation, offsets=())


def test_a_member_of_an_old_generation_joins_again_as_who_it_was():
    world = World(t=2)
    world.add("a")
    world.settle()
    core = world.members["a"]
    member_id = core.member_id
    told = core.commit_refused(commit_of(core), ErrorCode.ILLEGAL_GENERATION)
    assert told is ErrorCode.ILLEGAL_GENERATION
    assert core.member_id == member_id
    assert core.next_tell().kind == "lost"


def test_a_commit_that_crosses_the_next_generation_loses_nothing():
    world = World(t=2)
    world.add("a", "cooperative-sticky")
    world.settle()
    core = world.members["a"]
    commit, owned = commit_of(core), core.owned
    core.subscribe(("t", "u"))
    assert core.next_tell() is None
    join = core.next_ask(world.now)  # the next generation may begin now, before a knows of it
    told = core.commit_refused(commit, ErrorCode.ILLEGAL_GENERATION)
    assert told is ErrorCode.REBALANCE_IN_PROGRESS
    world.partitions["u"] = 1
    world.send("a", join)
    world.settle()
    told = core.commit_refused(commit, ErrorCode.ILLEGAL_GENERATION)
    assert told is ErrorCode.REBALANCE_IN_PROGRESS
    assert owned < core.owned
    assert [kind for _, kind, _ in world.tells] == ["assigned", "assigned"]


def test_nothing_is_asked_while_the_application_has_to_be_told_something():
    world = World(t=2)
    world.add("a", "cooperative-sticky")
    world.settle()
    core = world.members["a"]
    core.commit_refused(commit_of(core), ErrorCode.UNKNOWN_MEMBER_ID)
    assert core.next_ask(world.now) is None
    core.told(core.next_tell())
    assert core.next_ask(world.now) is not None


def test_a_late_answer_to_an_old_heartbeat_changes_nothing():
    world = World(t=2)
    world.add("a")
    world.settle()
    core = world.members["a"]
    old = Heartbeat(token="x", member_id=core.member_id, generation=core.generation - 1)
    core.received(old, Reply(token="x", error=ErrorCode.ILLEGAL_GENERATION), world.now)
    assert core.state is MemberState.STABLE
    assert core.next_tell() is None
