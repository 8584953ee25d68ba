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
        # What one of that name before it has asked is none of its business.
        self.waiting = {t: asked for t, asked in self.waiting.items() if asked[0] != name}
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

    def step(self, name, *, moved=True, tells=True):
        """What one member does now, if anything: tell its application, or ask the group."""
        core = self.members[name]
        while tells and (tell := core.next_tell()) is not None:
            self.tells.append((name, *tell))
            core.told(tell)
        if topics := core.leads():
            core.share_out({t: n for t, n in self.partitions.items() if t in topics})
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


def test_the_leader_notices_growth_of_what_only_others_read():
    world = World(t=1, u=1)
    world.add("a")
    world.settle()
    world.add("b", topics=("u",))
    world.settle()
    leader = world.members["a"]
    assert leader.watched() == {"t", "u"}
    world.partitions["u"] = 3
    leader.poll(world.now, world.partitions)
    world.settle()
    assert world.owned() == {"a": [0], "b": [0, 1, 2]}


def test_a_topic_that_did_not_exist_when_the_leader_counted_has_grown_when_it_does():
    world = World()
    world.add("a")
    world.settle()
    world.partitions["t"] = 2
    world.members["a"].poll(world.now, world.partitions)
    world.settle()
    assert world.owned() == {"a": [0, 1]}


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
    core = world.members["a"]
    assert core.next_tell().kind == "lost"
    core.told(core.next_tell())
    assert core.next_ask(world.now) is None, "it would leave again at once"
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


@pytest.mark.parametrize(
    "assignors", [("range",), ("sticky",), ("cooperative-sticky",), ("range", "cooperative-sticky")]
)
def test_a_static_member_restarts_without_a_rebalance_whatever_the_assignor(assignors):
    world = World(t=4)
    world.add("a", *assignors, instance="machine-1")
    world.settle()
    world.add("b", *assignors, instance="machine-2")
    world.settle()
    before, generation = world.owned(), world.machine.group.generation
    for name, instance in (("a", "machine-1"), ("b", "machine-2")):
        world.add(name, *assignors, instance=instance)
        world.settle()
        assert (world.owned(), world.machine.group.generation) == (before, generation)
    world.add("b", *assignors, instance="machine-2", topics=("t", "u"))
    world.settle()
    assert world.machine.group.generation > generation, "it reads something else now"


def test_a_static_leader_notices_what_has_grown_while_it_was_away():
    world = World(t=3)
    world.add("a", instance="machine-1")
    world.settle()
    world.add("b", instance="machine-2")
    world.settle()
    world.partitions["t"] = 4  # range would give a the same two as before
    generation = world.machine.group.generation
    world.add("a", instance="machine-1")
    world.settle()
    assert world.machine.group.generation == generation, "its return alone changes nothing"
    world.members["a"].poll(world.now, world.partitions)
    world.settle()
    assert world.owned() == {"a": [0, 1], "b": [2, 3]}
    assert world.machine.group.because == "t grew from 3 to 4 partitions"


NAMES = st.sampled_from("abd")


class Members(RuleBasedStateMachine):
    """Members come, fall silent, poll late and go; requests get lost; topics grow."""

    @initialize(assignor=st.sampled_from(["range", "roundrobin", "sticky", "cooperative-sticky"]))
    def begin(self, assignor):
        self.assignor = assignor
        self.world = World(t=5)
        self.silent = set()
        self.telling = {}  # member -> what its listener is busy with
        self.buffers = {}  # member -> the partitions that it reads
        self.come("a")
        self.come("b")
        self.settle(30)

    def tell(self, name, fails=False):
        """The thread that polls: a listener begins, or ends if it has begun, or raises."""
        core, buffer = self.world.members[name], self.buffers[name]
        tell = self.telling.pop(name, None)
        if tell is not None:
            if not fails:
                core.told(tell)
                buffer.difference_update(tell.partitions if tell.kind != "assigned" else ())
        elif tell := core.next_tell():
            self.telling[name] = tell
            if tell.kind == "assigned":
                buffer.update(tell.partitions)
            else:
                assert buffer.issuperset(tell.partitions), "nothing is taken twice"

    @rule(name=NAMES)
    def come(self, name):
        if name not in self.world.members:
            instance = "i" if name == "d" else None
            self.world.add(name, self.assignor, instance=instance)
            self.silent.discard(name)
            self.buffers[name] = set()

    @rule(
        name=NAMES,
        moved=st.booleans(),
        polls=st.booleans(),
        lost=st.sampled_from([0, 0, 0, 1, 2]),
        fails=st.sampled_from([False, False, True]),
        times=st.integers(1, 4),
    )
    def go_on(self, name, moved, polls, lost, fails, times):
        """The thread that polls, or the other one, a few times.

        lost=1: what it asks does not arrive; 2: the reply does not, and it gives up waiting.
        """
        for _ in range(times):
            if name not in self.world.members or name in self.silent:
                return
            if polls:
                self.tell(name, fails)
            else:
                self.ask(name, moved, lost)

    def ask(self, name, moved, lost):
        world = self.world
        core = world.members[name]
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
        if name in self.world.members and name not in {*self.silent, *self.telling}:
            self.world.members[name].poll(self.world.now, self.world.partitions)

    @rule(name=NAMES, silent=st.sampled_from([False, False, True]))
    def fall_silent_or_wake(self, name, silent):
        self.silent = self.silent | {name} if silent else self.silent - {name}

    @rule(name=NAMES)
    def go(self, name):
        core = self.world.members.get(name)
        if core is not None and name not in {*self.silent, *self.telling}:
            if tell := core.give_up_all():
                core.told(tell)
            ask = core.leave("closed")
            del self.world.members[name]
            if ask is not None:
                self.world.handle(ask.request)

    @rule(ms=st.sampled_from([10, 100, 300, 1100, 5100]))
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

    @invariant()
    def a_member_reads_what_it_owns(self):
        for name, core in self.world.members.items() if hasattr(self, "world") else ():
            assert self.buffers[name] == core.owned

    def settle(self, rounds):
        for _ in range(rounds):
            for name in list(self.world.members):
                self.poll(name)
                self.tell(name)
                self.world.step(name, tells=False)
            self.world.now += 50
            self.world.handle(Tick())
            for token, (name, request) in list(self.world.waiting.items()):
                group = self.world.machine.group
                tokens = {t for m in group.members.values() for t in (m.joining, m.syncing)}
                if token not in tokens and name in self.world.members:
                    del self.world.waiting[token]
                    self.world.members[name].received(request, None, self.world.now)

    def teardown(self):
        """Faults stop: everybody there gets a share, and every partition has one owner."""
        if not hasattr(self, "world"):
            return
        self.come("a")
        self.silent.clear()
        self.settle(120)
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


@pytest.mark.parametrize("raises", [False, True])
def test_what_the_listener_is_just_told_to_be_ours_is_lost_as_well(raises):
    world = World(t=2)
    world.add("a")
    core = world.members["a"]
    while (tell := core.next_tell()) is None:
        world.step("a")
    assert tell == ("assigned", (("t", 0), ("t", 1)))
    core.commit_refused(commit_of(core), ErrorCode.UNKNOWN_MEMBER_ID)  # while the listener runs
    if not raises:
        core.told(tell)
    assert core.next_ask(world.now) is None
    assert core.next_tell() == ("lost", (("t", 0), ("t", 1)))
    core.told(core.next_tell())
    assert not core.owned
    assert core.next_ask(world.now) is not None


@pytest.mark.parametrize(("raises", "then"), [(False, None), (True, "lost")])
def test_what_the_listener_is_just_giving_up_is_not_lost_unless_it_raises(raises, then):
    world = World(t=2)
    world.add("a")
    world.settle()
    core = world.members["a"]
    core.subscribe(("t", "u"))
    tell = core.next_tell()
    assert tell.kind == "revoked"
    core.commit_refused(commit_of(core), ErrorCode.UNKNOWN_MEMBER_ID)  # while the listener runs
    if not raises:
        core.told(tell)
    after = core.next_tell()
    assert (after and after.kind) == then
    assert len(core.owned) == (2 if raises else 0)


def test_who_closes_after_it_was_given_up_has_lost_its_partitions():
    world = World(t=2)
    world.add("a")
    world.settle()
    core = world.members["a"]
    assert core.give_up_all().kind == "revoked"
    core.commit_refused(commit_of(core), ErrorCode.UNKNOWN_MEMBER_ID)
    assert core.give_up_all().kind == "lost"


def test_the_reply_to_a_join_does_not_bring_back_what_was_lost_meanwhile():
    world = World(t=2, u=1)
    world.add("a", "cooperative-sticky")
    world.settle()
    core = world.members["a"]
    core.subscribe(("t", "u"))
    assert core.next_tell() is None
    join = core.next_ask(world.now)
    core.commit_refused(commit_of(core), ErrorCode.UNKNOWN_MEMBER_ID)
    world.send("a", join)
    assert core.next_tell().kind == "lost"
    assert core.next_ask(world.now) is None
