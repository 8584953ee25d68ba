"""What becomes of partitions when brokers come and go, and what a snapshot of it all says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from phase2_groups.error_codes import ErrorCode
from phase3_raft.metadata import topic_changes
from phase3_raft.metadata.broker_changes import (
    change_isr,
    elect,
    fence,
    losses,
    move,
    register,
    shut_down,
    unfence,
)
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import (
    BrokerRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    decode_many,
    encode_many,
)
from phase3_raft.refused import Refused

BROKERS = (1, 2, 3, 4)


class World:
    """An image, and what one does to it."""

    def __init__(self, brokers=BROKERS, partitions=2, replicas=3, config=None):
        self.image = Image()
        for number in brokers:
            self.do(register(self.image, BrokerRecord(number, "h", 9000 + number)))
            self.do(unfence(self.image, number))
        self.do(topic_changes.create(self.image, "t", "0" * 32, partitions, replicas, config or {}))

    def do(self, records):
        for record in records:
            self.image.apply(record)
        return records

    def __getitem__(self, number):
        return self.image.partition("t", number)

    def isr(self, number, *isr):
        one = self[number]
        changed = change_isr(
            self.image, one.leader, "t", number, one.leader_epoch, one.partition_epoch, isr
        )
        if isinstance(changed, PartitionRecord):
            self.do([changed])
        return changed


def test_another_replica_in_sync_leads_when_a_broker_goes():
    world = World()
    before = world[0]
    world.do(fence(world.image, before.leader))
    after = world[0]
    assert (before.leader, after.leader) == (1, 2)
    assert after.isr == (2, 3)
    assert after.leader_epoch == before.leader_epoch + 1
    assert not fence(world.image, before.leader), "twice is once"


def test_the_last_one_in_sync_stays_in_the_isr_and_nobody_else_may_lead():
    world = World()
    world.isr(0, 1)
    world.do(fence(world.image, 1))
    assert (world[0].leader, world[0].isr) == (-1, (1,))
    epoch = world[0].leader_epoch
    world.do(unfence(world.image, 1))
    assert (world[0].leader, world[0].leader_epoch) == (1, epoch + 1)


def test_a_topic_may_prefer_a_loss_to_standing_still():
    world = World(config={"unclean.leader.election.enable": "true"})
    world.isr(0, 1)
    world.do(fence(world.image, 1))
    assert (world[0].leader, world[0].isr) == (2, (2,))


def test_a_broker_that_shuts_down_hands_over_and_is_still_there():
    world = World()
    world.do(shut_down(world.image, 1))
    assert world[0].leader == 2
    assert 1 not in world[0].isr
    assert 1 in world.image.live()


def test_a_broker_that_starts_again_leads_no_more_until_it_has_caught_up():
    world = World()
    epoch = world.image.brokers[1].epoch
    world.do(register(world.image, BrokerRecord(1, "h", 9001, incarnation="b")))
    assert world.image.brokers[1].epoch > epoch
    assert 1 not in world.image.live()
    assert world[0].leader == 2


def emptied(world, broker):
    """A broker is registered with another directory than before."""
    before = world.image.brokers[broker]
    again = BrokerRecord(broker, "h", 9000 + broker, incarnation="again", directory="new")
    world.do([replace(before, directory="old")])
    lines = losses(world.image, again)
    world.do(register(world.image, again))
    return lines


def test_a_broker_without_its_disk_is_in_sync_with_nothing():
    world = World()
    world.do(fence(world.image, 2))
    for broker in (1, 3):  # nobody is there when 1 comes back, and says that it has nothing
        world.do([replace(world.image.brokers[broker], fenced=True)])
    world.do([replace(world[0], isr=(1, 3), leader=-1)])
    assert len(emptied(world, 1)) == 1
    world.do(unfence(world.image, 1))
    assert (world[0].isr, world[0].leader) == ((3,), -1)
    world.do(unfence(world.image, 3))
    assert (world[0].isr, world[0].leader) == ((3,), 3)


def test_who_left_last_takes_the_place_of_the_only_one_in_sync_that_lost_its_disk():
    world = World()
    for broker in (3, 2, 1):
        world.do(fence(world.image, broker))
    assert world[0].isr == (1,)
    assert "1 alone was in sync for t-0: " in emptied(world, 1)[1]
    assert (world[0].isr, world[0].leader) == ((2,), -1)
    world.do(unfence(world.image, 3))
    assert world[0].leader == -1, "it has less than 2"
    world.do(unfence(world.image, 2))
    assert world[0].leader == 2


def test_one_that_lost_its_disk_as_well_takes_nobodys_place():
    world = World()
    for broker in (3, 2, 1):
        world.do(fence(world.image, broker))
    emptied(world, 2)
    emptied(world, 1)
    assert world[0].isr == (3,)


def test_the_only_replica_leads_on_without_its_disk():
    world = World(replicas=1)
    assert "1 alone was in sync for t-0: " in emptied(world, 1)[1]
    world.do(unfence(world.image, 1))
    assert (world[0].isr, world[0].leader) == ((1,), 1)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"broker": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": 7}, ErrorCode.INVALID_UPDATE_VERSION),
        ({"isr": ()}, ErrorCode.INVALID_REQUEST),
        ({"isr": (1, 9)}, ErrorCode.INVALID_REQUEST),
        ({"topic": "u"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_change_of_the_isr_that_cannot_be_is_refused(change, error):
    world = World()
    asked = {"broker": 1, "topic": "t", "number": 0, "leader_epoch": 0, "partition_epoch": 0}
    assert change_isr(world.image, **(asked | {"isr": (1, 2)} | change)) is error


def test_a_leader_that_leaves_itself_out_is_followed_by_another_if_one_is_there():
    world = World()
    asked = {"broker": 1, "topic": "t", "number": 0, "leader_epoch": 0, "partition_epoch": 0}
    new = change_isr(world.image, **asked, isr=(2, 3))
    assert (new.leader, new.isr, new.leader_epoch) == (2, (2, 3), 1)
    new = change_isr(world.image, **asked, isr=(2, 3), leaving={2, 3})
    assert new is ErrorCode.INVALID_REQUEST  # nobody could lead


def test_who_is_about_to_go_is_not_taken_into_an_isr_again():
    world = World()
    world.do(shut_down(world.image, 3))
    one = world[0]
    asked = (1, "t", 0, one.leader_epoch, one.partition_epoch, (1, 2, 3))
    assert change_isr(world.image, *asked, leaving={3}) is ErrorCode.INELIGIBLE_REPLICA
    assert change_isr(world.image, *asked).isr == (1, 2, 3)


def test_a_topic_made_while_a_broker_is_away_has_a_replica_there():
    world = World()
    world.do(fence(world.image, 2))
    world.do(topic_changes.create(world.image, "u", "1" * 32, 3, 4, {}))
    for number in range(3):
        one = world.image.partition("u", number)
        assert set(one.replicas) == {1, 2, 3, 4}
        assert set(one.isr) == {1, 3, 4}
        assert one.leader in (1, 3, 4)
    with pytest.raises(Refused, match="replication factor of 5"):
        topic_changes.create(world.image, "v", "2" * 32, 3, 5, {})


def test_who_is_fenced_is_not_taken_into_an_isr():
    world = World()
    world.do(fence(world.image, 3))
    assert world[0].isr == (1, 2)
    assert world.isr(0, 1, 2, 3) is ErrorCode.INELIGIBLE_REPLICA


def test_the_first_replica_leads_again_when_it_may():
    world = World()
    world.do(fence(world.image, 1))
    missing = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert elect(world.image, "t", 0) is missing, "it is not there"
    world.do(unfence(world.image, 1))
    assert elect(world.image, "t", 0) is missing, "it is not in sync"
    world.isr(0, 1, 2, 3)
    world.do([elect(world.image, "t", 0)])
    assert world[0].leader == 1
    assert elect(world.image, "t", 0) is ErrorCode.ELECTION_NOT_NEEDED
    assert elect(world.image, "u", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_somebody_may_decide_that_a_loss_is_better_than_waiting():
    world = World()
    world.isr(0, 1)
    assert elect(world.image, "t", 0, unclean=True) is ErrorCode.ELECTION_NOT_NEEDED
    world.do(fence(world.image, 1))
    assert elect(world.image, "t", 0) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    world.do([elect(world.image, "t", 0, unclean=True)])
    assert (world[0].leader, world[0].isr) == (2, (2,))


def test_a_partition_moves_when_the_new_replicas_have_everything():
    world = World()
    world.do([move(world.image, "t", 0, (4, 3))])
    moving = world[0]
    assert (moving.replicas, moving.adding, moving.removing) == ((4, 3, 1, 2), (4,), (1, 2))
    assert moving.leader == 1
    world.isr(0, 1, 2, 3, 4)
    moved = world[0]
    assert (moved.replicas, moved.isr, moved.leader) == ((4, 3), (4, 3), 4)
    assert moved.leader_epoch == moving.leader_epoch + 1
    assert (moved.adding, moved.removing) == ((), ())


def test_a_move_does_not_wait_for_a_replica_that_stays_and_is_away():
    world = World()
    world.do(fence(world.image, 2))
    world.do([move(world.image, "t", 0, (4, 1, 2))])
    world.isr(0, 1, 3, 4)
    assert (world[0].replicas, world[0].isr, world[0].leader) == ((4, 1, 2), (4, 1), 1)


def test_a_move_can_be_called_off():
    world = World()
    before = world[0].replicas
    world.do([move(world.image, "t", 0, (4, 1))])
    world.do([move(world.image, "t", 0, None)])
    assert sorted(world[0].replicas) == sorted(before)
    assert (world[0].adding, world[0].removing) == ((), ())
    assert move(world.image, "t", 0, None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert move(world.image, "t", 0, (1, 9)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"replicas": 5}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"replicas": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"assignment": [(1, 1)]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": [(1, 9)]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": [(1, 2), (3,)]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"assignment": [()]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_replicas_that_cannot_be_are_refused(asked, code):
    world = World()
    usual = {"partitions": 1, "replicas": 1, "config": {}}
    with pytest.raises(Refused) as refused:
        topic_changes.create(world.image, "u", "1" * 32, **(usual | asked))
    assert refused.value.code is code


def test_small_topics_are_led_by_all_brokers():
    world = World(partitions=3)  # led by 1, 2 and 3
    for number in range(5):
        world.do(topic_changes.create(world.image, f"u{number}", f"{number}" * 32, 1, 2, {}))
    small = [world.image.partition(f"u{number}", 0).replicas for number in range(5)]
    assert small == [(4, 1), (1, 2), (2, 3), (3, 4), (4, 1)]
    grown = topic_changes.grow(world.image, "t", 5)
    assert [one.replicas[0] for one in grown] == [1, 2]


def test_names_that_metrics_cannot_tell_apart_are_refused():
    world = World()
    for name, alike in (("a.b", "a_b"), ("c_d.e", "c.d_e"), ("_f", ".f")):
        world.do(topic_changes.create(world.image, name, "1" * 32, 1, 1, {}))
        with pytest.raises(Refused, match=f"{alike!r} collides with {name!r}") as refused:
            topic_changes.create(world.image, alike, "2" * 32, 1, 1, {})
        assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert topic_changes.create(world.image, "ab", "2" * 32, 1, 1, {})


class Cluster(RuleBasedStateMachine):
    """Brokers come and go, ISRs change, partitions move: the rules of `broker_changes` hold."""

    def __init__(self):
        super().__init__()
        self.world = World(partitions=2)
        self.before = {n: self.world[n] for n in range(2)}

    @rule(broker=st.sampled_from(BROKERS))
    def goes(self, broker):
        self.world.do(fence(self.world.image, broker))

    @rule(broker=st.sampled_from(BROKERS))
    def comes(self, broker):
        self.world.do(unfence(self.world.image, broker))

    @rule(broker=st.sampled_from(BROKERS))
    def leaves(self, broker):
        self.world.do(shut_down(self.world.image, broker))

    @rule(
        broker=st.sampled_from(BROKERS),
        again=st.text("abc", max_size=2),
        directory=st.sampled_from("ab"),
    )
    def starts_again(self, broker, again, directory):
        had = self.world.image.brokers[broker].directory
        about = BrokerRecord(broker, "h", 9000 + broker, incarnation=again, directory=directory)
        self.world.do(register(self.world.image, about))
        if had not in ("", directory):
            for one in self.world.image.partitions():
                assert broker not in one.isr or one.replicas == (broker,)

    @rule(number=st.integers(0, 1), isr=st.sets(st.sampled_from(BROKERS)))
    def isr(self, number, isr):
        self.world.isr(number, *sorted(isr))

    @rule(number=st.integers(0, 1), unclean=st.booleans())
    def elects(self, number, unclean):
        new = elect(self.world.image, "t", number, unclean=unclean)
        if isinstance(new, PartitionRecord):
            self.world.do([new])

    @rule(number=st.integers(0, 1), to=st.lists(st.sampled_from(BROKERS), max_size=3))
    def moves(self, number, to):
        changed = move(self.world.image, "t", number, to or None)
        if isinstance(changed, PartitionRecord):
            self.world.do([changed])

    @invariant()
    def a_leader_is_there_and_in_sync_and_epochs_grow(self):
        live = self.world.image.live()
        for number, before in self.before.items():
            now = self.world[number]
            if now.leader >= 0:
                assert now.leader in live
                assert now.leader in now.isr
            assert now.isr
            assert set(now.isr) <= set(now.replicas)
            if now != before:
                assert now.partition_epoch > before.partition_epoch
                changed = now.leader != before.leader
                assert (now.leader_epoch > before.leader_epoch) == changed
            if now.leader < 0:
                assert not set(now.isr) & set(live), "somebody in sync could lead"
            self.before[number] = now


TestCluster = Cluster.TestCase

RECORDS = st.lists(
    st.one_of(
        st.builds(BrokerRecord, st.integers(1, 3), st.text(), st.integers(0, 9), st.none()),
        st.builds(ProducerIdsRecord, st.integers(0, 9)),
        st.builds(ConfigRecord, st.just("topic"), st.just("t"), st.text(), st.none() | st.text()),
    ),
    max_size=8,
)


@given(RECORDS)
def test_a_snapshot_makes_an_equal_image(records):
    world = World()
    world.do(records)
    world.do(topic_changes.create(world.image, "u", "2" * 32, 1, 1, {"retention.ms": "5"}))
    world.do([RemoveTopicRecord("u")])
    again = Image()
    for record in decode_many(encode_many(world.image.records())):
        again.apply(record)
    again.version = world.image.version
    assert vars(again) == vars(world.image)
