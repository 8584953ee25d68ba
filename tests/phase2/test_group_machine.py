"""The group state machine: transcripts, its table of moves, invariants under random members."""

from __future__ import annotations

import copy

import msgspec
import pytest
from group_transcripts import FOLDER, replay
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_machine import GroupMachine
from phase2_groups.group_messages import (
    Commit,
    Happened,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    OffsetToCommit,
    Reply,
    Store,
    Stored,
    Sync,
    Tick,
)
from phase2_groups.group_state import MOVES, Group, GroupLimits, IllegalMove, State


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_machine_does_what_its_transcripts_say(path):
    assert replay(path.read_text()) == path.read_text()


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_a_move_that_the_table_does_not_list_raises(before, after):
    group = Group(group_id="g", state=before)
    if after in MOVES[before]:
        group.move(after)
        assert group.state is after
    else:
        with pytest.raises(IllegalMove, match=f"from {before.value} to {after.value}"):
            group.move(after)


def test_who_assigns_partitions_to_itself_may_commit_while_the_group_is_empty():
    machine = GroupMachine(Group(group_id="g"))
    offsets = (("t", 0, OffsetToCommit(offset=5)),)
    commit = Commit(token="a", member_id="", generation=-1, offsets=offsets)
    [store] = machine.handle(commit, 0)
    [reply] = machine.handle(Stored(number=store.number), 0)
    assert reply.partitions == (("t", 0, ErrorCode.NONE),)


def test_a_full_group_takes_nobody_more_and_counts_those_who_have_an_id():
    machine = GroupMachine(Group(group_id="g"), GroupLimits(max_size=1))
    first = Join(token="a", member_id="", new_member_id="m-1", protocols=(("range", b""),))
    assert machine.handle(first, 0)[0].error is ErrorCode.MEMBER_ID_REQUIRED
    second = Join(token="b", member_id="", new_member_id="m-2", protocols=(("range", b""),))
    assert machine.handle(second, 0)[0].error is ErrorCode.GROUP_MAX_SIZE_REACHED
    machine.handle(Tick(), 45_000)  # the first never came back
    assert machine.handle(second, 45_000)[0].error is ErrorCode.MEMBER_ID_REQUIRED


def test_nothing_is_due_in_an_empty_group_and_the_earliest_deadline_otherwise():
    machine = GroupMachine(Group(group_id="g"))
    assert machine.group.next_deadline_ms() is None
    join = Join(token="a", member_id="", new_member_id="m", protocols=(("range", b""),))
    machine.handle(join, 7)
    assert machine.group.next_deadline_ms() == 45_007


PARTITIONS = 5


class Client:
    """A member as a client would be: what it last heard, and what it waits for."""

    def __init__(self, name, instance):
        self.name, self.instance = name, instance
        self.member_id, self.generation, self.leads = "", -1, False
        self.members = ()
        self.waits = None  # the token of a join or sync without a reply
        self.wants = "join"
        self.owned = None


class Groups(RuleBasedStateMachine):
    """Members that join, fall silent, restart, leave, and whose requests or replies get lost."""

    def __init__(self):
        super().__init__()
        limits = GroupLimits(initial_rebalance_delay_ms=500, min_session_timeout_ms=1)
        self.machine = GroupMachine(Group(group_id="g"), limits)
        self.clients = {f"c{n}": Client(f"c{n}", f"i{n}" if n == 2 else None) for n in range(4)}
        self.silent = set()
        self.now = self.count = self.highest = 0
        self.tokens = {}
        self.owners = {}  # (generation, partition) -> member id
        self.unstored = []

    # What members do.

    @rule(name=st.sampled_from(["c0", "c1", "c2", "c3"]), lost=st.sampled_from([0, 0, 0, 1, 2]))
    def go_on(self, name, lost):
        """The member's next request; lost=1: it never arrives, 2: its reply does not."""
        client = self.clients[name]
        if name in self.silent:
            return
        self.count += 1
        token = f"{client.wants}-{self.count}"
        request = self.request(client, token)
        if lost == 1:
            return
        if lost != 2:
            self.tokens[token] = client
        client.waits = token if client.wants in ("join", "sync") else None
        self.handle(request)

    def request(self, client, token):
        if client.wants == "join":
            return Join(
                token=token,
                member_id=client.member_id,
                new_member_id=f"{client.name}-{self.count}",
                group_instance_id=client.instance,
                session_timeout_ms=1000,
                rebalance_timeout_ms=2000,
                protocols=(("range", b"t"),),
            )
        said = {
            "token": token,
            "member_id": client.member_id,
            "generation": client.generation,
            "group_instance_id": client.instance,
        }
        if client.wants == "heartbeat":
            return Heartbeat(**said)
        everybody = [member_id for member_id, *_ in client.members]
        shares = {member_id: [] for member_id in everybody}
        for number in range(PARTITIONS if client.leads and everybody else 0):
            shares[everybody[number % len(everybody)]].append(number)
        encoded = tuple((one, bytes(share)) for one, share in shares.items())
        return Sync(**said, assignments=encoded)

    @rule(name=st.sampled_from(["c0", "c1", "c2", "c3"]), stale=st.booleans())
    def commit(self, name, stale):
        client = self.clients[name]
        generation = client.generation - stale
        offsets = (("t", 0, OffsetToCommit(offset=1)),)
        token = f"commit-{self.count}"
        before = copy.deepcopy(self.machine.group)
        effects = self.handle(
            Commit(
                token=token,
                member_id=client.member_id,
                generation=generation,
                group_instance_id=client.instance,
                offsets=offsets,
            )
        )
        if any(isinstance(effect, Store) for effect in effects):
            outsider = before.state is State.EMPTY and not client.member_id and generation < 0
            assert outsider or generation == before.generation
            assert outsider or client.member_id in before.members

    @rule(name=st.sampled_from(["c0", "c1", "c2", "c3"]))
    def fall_silent(self, name):
        self.silent.add(name)

    @rule(name=st.sampled_from(["c0", "c1", "c2", "c3"]))
    def restart(self, name):
        old = self.clients[name]
        self.clients[name] = Client(name, old.instance)
        self.silent.discard(name)

    @rule(name=st.sampled_from(["c0", "c1", "c2", "c3"]))
    def leave(self, name):
        client = self.clients[name]
        if client.member_id and name not in self.silent:
            leaver = Leaver(member_id=client.member_id, group_instance_id=client.instance)
            self.handle(Leave(token="bye", members=(leaver,)))
            self.restart(name)

    # What happens to them.

    @rule(ms=st.sampled_from([1, 100, 500, 900, 1100, -700]))
    def time_passes(self, ms):
        self.now += ms
        self.handle(Tick())

    @rule(error=st.sampled_from([ErrorCode.NONE] * 4 + [ErrorCode.NOT_ENOUGH_REPLICAS]))
    def stored(self, error):
        if self.unstored:
            self.handle(Stored(number=self.unstored.pop(0), error=error))

    def handle(self, event):
        # Whoever does the next step has read the state from a file.
        written = msgspec.json.encode(self.machine.group)
        self.machine.group = msgspec.json.decode(written, type=Group)
        effects = self.machine.handle(event, self.now)
        for effect in effects:
            match effect:
                case Store():
                    self.unstored.append(effect.number)
                case Reply():
                    self.heard(effect)
                case Happened():
                    assert effect.because, effect
        return effects

    def heard(self, reply):
        client = self.tokens.pop(reply.token, None)
        if client is None or (client.waits and reply.token != client.waits):
            return
        client.waits = None
        verb = reply.token.split("-")[0]
        match reply.error:
            case ErrorCode.NONE if verb == "join":
                client.member_id, client.generation = reply.member_id, reply.generation
                client.leads, client.members = reply.leader == reply.member_id, reply.members
                client.wants = "sync"
            case ErrorCode.NONE if verb == "sync":
                client.wants = "heartbeat"
                for number in reply.assignment:
                    owner = self.owners.setdefault((client.generation, number), client.name)
                    assert owner == client.name, "two owners in one generation"
            case ErrorCode.NONE:
                pass
            case ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id, client.wants = reply.member_id, "join"
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID:
                client.member_id, client.generation, client.wants = "", -1, "join"
            case _:
                client.wants = "join"

    # What always holds.

    @invariant()
    def generations_only_grow(self):
        assert self.machine.group.generation >= self.highest
        self.highest = self.machine.group.generation

    @invariant()
    def the_fields_agree_with_the_state(self):
        group = self.machine.group
        assert (group.state is State.PREPARING_REBALANCE) == (
            group.rebalance_deadline_ms is not None
        )
        assert group.leader in group.members or not group.members
        assert group.members or group.state in (State.EMPTY, State.PREPARING_REBALANCE)
        if group.state is State.STABLE:
            assert not any(m.joining or m.syncing for m in group.members.values())
            shares = [number for m in group.members.values() for number in m.assignment]
            assert sorted(shares) == list(range(PARTITIONS)), "each is owned by one"

    @invariant()
    def whoever_waits_will_be_answered(self):
        group = self.machine.group
        waits = any(m.joining or m.syncing for m in group.members.values())
        assert not waits or group.next_deadline_ms() is not None or group.storing

    def teardown(self):
        """Faults stop: within a bounded time the group is stable and every partition owned."""
        self.silent = {name for name in self.clients if name != "c1"}
        for name in ("c0", "c2", "c3"):
            self.restart(name)
        for _ in range(60):
            self.now += 100
            self.handle(Tick())
            for name, client in self.clients.items():
                if client.waits is None or not self.waiting(client):
                    client.waits = None
                    self.go_on(name, 0)
            while self.unstored:
                self.stored(ErrorCode.NONE)
        group = self.machine.group
        assert group.state is State.STABLE, group
        assert len(group.members) == 4
        shares = [number for member in group.members.values() for number in member.assignment]
        assert sorted(shares) == list(range(PARTITIONS))

    def waiting(self, client):
        members = self.machine.group.members.values()
        return any(client.waits in (m.joining, m.syncing) for m in members)


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@pytest.mark.prove
def test_many_more_histories_keep_the_invariants():
    class Long(Groups):
        pass

    Long.TestCase.settings = settings(max_examples=3000, stateful_step_count=60, deadline=None)
    Long.TestCase().runTest()
