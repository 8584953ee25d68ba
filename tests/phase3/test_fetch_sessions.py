"""Fetch sessions: a client in one learns as much as a client that names everything each time."""

from __future__ import annotations

import asyncio
import random

import pytest
from brokers import delete_topic, make_topic
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from craft2.clock import ManualClock
from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import encode_values
from phase2_groups.error_codes import ErrorCode
from phase3_raft import fetch_messages, fetch_sessions
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.dispatch import Asked
from phase3_raft.fetch_messages import FetchPartition, FetchRequest
from phase3_raft.handlers import fetch
from phase3_raft.metadata.records import BrokerRecord

TOPIC, COUNT = "t", 4
MAX_BYTES = 10**6


def broker_on_virtual_disk(clock=None):
    broker = Broker(
        BrokerConfig("data", topic_defaults={"segment.index.bytes": "4096"}),
        disk=FaultyDisk(),
        clock=clock,
        chance=random.Random(1).random,
    )
    make_topic(broker, TOPIC, COUNT)
    return broker


def one_value(text=b"x"):
    return encode_values([text], timestamps=1)


class Client:
    """A client as it may be: it asks, and remembers what it is told. follower: -1 for none."""

    def __init__(self, broker, runner, follower=-1):
        self.broker, self.runner, self.follower = broker, runner, follower
        self.session, self.epoch = 0, 0

    leader_epoch = -1

    def ask(self, offsets, forgotten=(), *, max_bytes=MAX_BYTES, wait_ms=0, epoch=None):
        """The reply; offsets: by partition, of those that are named."""
        reply = self.runner.run(self._ask(offsets, forgotten, max_bytes, wait_ms, epoch))
        if not reply.error:
            self.session = reply.session_id
            self.epoch = self.epoch + 1 if reply.session_id else 0
        return reply

    async def _ask(self, offsets, forgotten, max_bytes, wait_ms, epoch):
        request = FetchRequest(
            self.follower,
            wait_ms,
            1,
            max_bytes,
            self.session,
            self.epoch if epoch is None else epoch,
            [
                FetchPartition(TOPIC, number, offset, MAX_BYTES, self.leader_epoch)
                for number, offset in offsets.items()
            ],
            [(TOPIC, number) for number in forgotten],
        )
        pieces = fetch.handle(self.broker, request, Asked(12, "me", "/here"))
        if not isinstance(pieces, list):
            pieces = await pieces.wait()
        data = b"".join(one if isinstance(one, bytes) else one.read() for one in pieces)
        return fetch_messages.read_reply(data, 0)


def told(reply):
    return {one.number: one.error or len(one.records) for one in reply.partitions}


@pytest.fixture
def runner():
    with asyncio.Runner() as some:
        yield some


@pytest.fixture
def client(runner):
    return Client(broker_on_virtual_disk(), runner)


def test_a_session_tells_of_news_alone(client):
    size = len(one_value())
    assert told(client.ask({0: 0, 1: 0, 2: 0})) == {0: 0, 1: 0, 2: 0}  # the first tells of all
    assert client.session > 0
    assert told(client.ask({})) == {}
    client.broker.partition(TOPIC, 1).append(one_value())
    assert told(client.ask({})) == {1: size}
    assert told(client.ask({})) == {1: size}  # it has not said that it has it
    assert told(client.ask({1: 1})) == {}
    client.broker.partition(TOPIC, 3).append(one_value())
    assert told(client.ask({})) == {}  # nobody has asked for that one
    assert told(client.ask({3: 0}, forgotten=[0])) == {3: size}
    client.broker.partition(TOPIC, 0).append(one_value())
    assert told(client.ask({3: 1})) == {}


def test_who_waits_is_answered_within_the_round_of_the_append(client):
    client.ask({0: 0, 1: 0})

    async def wait():
        request = FetchRequest(-1, 60_000, 1, MAX_BYTES, client.session, client.epoch, [], [])
        reply = fetch.handle(client.broker, request, Asked(12, "me", "/here"))
        assert not reply.is_kept
        client.broker.partition(TOPIC, 1).append(one_value())
        assert not reply.is_kept  # not in the middle of what is done
        client.broker.afterwards.run()
        return b"".join(one if isinstance(one, bytes) else one.read() for one in reply.result())

    data = client.runner.run(wait())
    assert told(fetch_messages.read_reply(data, 0)) == {1: len(one_value())}


def test_who_names_a_partition_and_forgets_it_at_once_does_not_ask_for_it(client):
    client.ask({0: 0, 1: 0})
    client.ask({0: 0}, forgotten=[0])
    for number in (0, 1):
        client.broker.partition(TOPIC, number).append(one_value())
    assert told(client.ask({})) == {1: len(one_value())}


def test_a_partition_whose_beginning_has_moved_is_news(client):
    client.broker.partition(TOPIC, 0).append(one_value())
    assert told(client.ask({0: 1, 1: 0})) == {0: 0, 1: 0}
    assert told(client.ask({})) == {}
    client.broker.partition(TOPIC, 0).advance_start(1)
    [one] = client.ask({}).partitions
    assert (one.number, one.log_start) == (0, 1)
    assert told(client.ask({})) == {}


def test_an_error_is_told_until_it_is_over(client):
    nowhere = int(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert told(client.ask({0: 5, 1: 0})) == {0: nowhere, 1: 0}
    assert told(client.ask({})) == {0: nowhere}
    assert told(client.ask({0: 0})) == {0: 0}
    assert told(client.ask({})) == {}
    client.broker.partitions._forget(TOPIC)
    gone = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    client.broker.image.topics.pop(TOPIC)
    assert told(client.ask({})) == {0: gone, 1: gone}


def test_it_is_told_when_all_is_well_again(client):
    """The client has heard of a new leader before the broker has."""
    assert told(client.ask({0: 0})) == {0: 0}
    partition = client.broker.partition(TOPIC, 0)
    client.leader_epoch = partition.record.leader_epoch + 1
    assert told(client.ask({0: 0})) == {0: int(ErrorCode.UNKNOWN_LEADER_EPOCH)}
    partition.become(replace(partition.record, leader_epoch=client.leader_epoch))
    assert told(client.ask({})) == {0: 0}
    assert told(client.ask({})) == {}


def test_what_finds_no_room_comes_with_the_next_reply(client):
    size = len(one_value())
    for number in range(3):
        client.broker.partition(TOPIC, number).append(one_value())
    reply = client.ask({0: 0, 1: 0, 2: 0}, max_bytes=size)
    assert told(reply) == {0: size, 1: 0, 2: 0}
    assert told(client.ask({0: 1}, max_bytes=size)) == {1: size}
    assert told(client.ask({1: 1}, max_bytes=size)) == {2: size}
    assert told(client.ask({2: 1}, max_bytes=size)) == {}


def test_a_long_poll_in_a_session_is_woken_wherever_the_append_comes(client):
    client.ask({0: 0, 1: 0})
    partition = client.broker.partition(TOPIC, 1)

    async def poll_while(turns):
        task = asyncio.ensure_future(client._ask({}, (), MAX_BYTES, 30_000, client.epoch))
        for turn in range(turns):
            await asyncio.sleep(0)
            if turn == turns - 1:
                partition.append(one_value())
        return await task

    for turns in range(1, 6):
        reply = client.runner.run(poll_while(turns))
        client.epoch += 1
        assert told(reply) == {1: len(one_value())}
        assert told(client.ask({1: turns})) == {}


def test_a_partition_that_goes_after_the_last_look_is_told_of_next_time(client):
    client.ask({0: 0, 1: 0})
    session = client.broker.fetch_sessions.go_on(client.session, client.epoch)
    client.epoch += 1
    session.change([session._wanted[TOPIC, 0]], ())
    wanted = session.due()
    found = fetch.look(wanted, MAX_BYTES)
    client.broker.partitions._forget(TOPIC)
    client.broker.image.topics.pop(TOPIC)
    assert session.news(wanted, found) == ([], [])
    gone = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert told(client.ask({})) == {0: gone, 1: gone}


def test_requests_of_a_session_that_is_not_there_are_refused(client):
    client.ask({0: 0})
    session = client.session
    for epoch in (7, -5):
        assert client.ask({}, epoch=epoch).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    client.session = session + 1
    assert client.ask({}, epoch=1).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    client.session = session
    assert told(client.ask({}, epoch=1)) == {}  # what was refused has changed nothing
    client.epoch = 0
    client.ask({0: 0})  # a new one takes its place
    assert client.session != session
    assert len(client.broker.fetch_sessions) == 1
    assert told(client.ask({0: 0}, epoch=-1)) == {0: 0}
    assert client.session == len(client.broker.fetch_sessions) == 0
    assert not client.broker.partition(TOPIC, 0)._watchers


def test_two_requests_of_one_session_at_once_are_both_answered(client):
    """The second has the number after the first one's, from another connection."""
    client.ask({0: 0, 1: 0})

    async def both(forgotten):
        waiting = asyncio.ensure_future(client._ask({0: 0}, (), MAX_BYTES, 30, client.epoch))
        await asyncio.sleep(0)
        second = await client._ask({}, forgotten, MAX_BYTES, 0, client.epoch + 1)
        client.epoch += 2
        return told(await waiting), told(second)

    assert client.runner.run(both([])) == ({}, {})
    assert client.runner.run(both([0])) == ({}, {})
    client.broker.partition(TOPIC, 0).append(one_value())
    assert told(client.ask({})) == {}
    client.broker.partition(TOPIC, 1).append(one_value())
    assert told(client.ask({})) == {1: len(one_value())}


def test_a_follower_of_a_topic_that_was_made_again_has_to_say_where_it_is(runner):
    """What it has is of the old topic, and must not be counted for the new one."""
    broker = broker_on_virtual_disk()
    follower = Client(broker, runner, follower=2)
    broker.partition(TOPIC, 0).append(one_value())
    follower.ask({0: 0})
    follower.ask({0: 1})
    delete_topic(broker, TOPIC)
    make_topic(broker, TOPIC, COUNT)
    partition = broker.partition(TOPIC, 0)
    partition.replicas.changed((1, 2), (1, 2), 0)
    partition.append(one_value())
    assert told(follower.ask({})) == {0: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}
    assert partition.replicas.followers[2].end < 1
    assert told(follower.ask({0: 0})) == {0: len(one_value())}


def test_idle_sessions_end_for_others_and_clients_for_brokers(runner, monkeypatch):
    monkeypatch.setattr(fetch_sessions, "MOST_SESSIONS", 2)
    clock = ManualClock()
    broker = broker_on_virtual_disk(clock)
    clients = [Client(broker, runner) for _ in range(4)]
    broker.metadata.write([BrokerRecord(2, "there", 9092)])
    follower, nobody = Client(broker, runner, follower=2), Client(broker, runner, follower=3)
    for one in clients[:3]:
        one.ask({0: 0})
    assert [one.session > 0 for one in clients] == [True, True, False, False]
    nobody.ask({0: 0})
    assert nobody.session == 0  # it only says that it is a broker
    clock.advance(fetch_sessions.IDLE_MS / 1000 + 1)
    clients[1].ask({})
    clients[3].ask({0: 0})
    assert clients[3].session > 0
    assert clients[0].ask({}).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    follower.ask({0: 0})
    assert follower.session > 0
    assert clients[1].ask({}).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(broker.fetch_sessions) == 2
    monkeypatch.setattr(fetch_sessions, "MOST_PARTITIONS", 3)
    clients[0].epoch = 0
    clients[0].ask({0: 0, 1: 0, 2: 0})
    assert clients[0].session == 0


def test_a_follower_that_begins_anew_ends_the_session_that_it_has_not_heard_of(runner):
    broker = broker_on_virtual_disk()
    broker.metadata.write([BrokerRecord(2, "there", 9092)])
    Client(broker, runner).ask({0: 0})
    for _ in range(3):
        Client(broker, runner, follower=2).ask({0: 0})
    assert len(broker.fetch_sessions) == 2
    assert len(broker.partition(TOPIC, 0)._copiers) == 1


class SessionAndNone(RuleBasedStateMachine):
    """A client does what clients do. Whatever it lacks, and does not ask for anew, is due."""

    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.broker = broker_on_virtual_disk()
        self.client = Client(self.broker, self.runner)
        self.wanted = {}  # partition -> the offset that the client is at
        self.unsaid = {}
        self.forgotten = set()

    def teardown(self):
        self.runner.close()

    @rule(number=st.integers(0, COUNT - 1), size=st.integers(1, 50))
    def append(self, number, size):
        self.broker.partition(TOPIC, number).append(one_value(b"v" * size))

    @rule(number=st.integers(0, COUNT - 1))
    def begin_later(self, number):
        partition = self.broker.partition(TOPIC, number)
        partition.advance_start(partition.log.end_offset)

    @rule(number=st.integers(0, COUNT - 1), offset=st.integers(0, 3))
    def want(self, number, offset):
        self.wanted[number] = self.unsaid[number] = offset
        self.forgotten.discard(number)

    @rule(number=st.integers(0, COUNT - 1))
    def forget(self, number):
        if self.wanted.pop(number, None) is not None:
            self.unsaid.pop(number, None)
            self.forgotten.add(number)

    @rule()
    def lose_the_session(self):
        self.client.epoch = 0

    @rule(max_bytes=st.sampled_from([1, 150, 300, MAX_BYTES]))
    def ask(self, max_bytes):
        named = self.wanted if self.client.epoch == 0 else self.unsaid
        reply = self.client.ask(named, self.forgotten, max_bytes=max_bytes)
        assert not reply.error
        self.unsaid, self.forgotten = {}, set()
        for one in reply.partitions:
            assert one.number in self.wanted
            if one.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                start = self.broker.partition(TOPIC, one.number).log.log_start
                self.wanted[one.number] = self.unsaid[one.number] = start
            elif one.records:
                self.wanted[one.number] += 1
                self.unsaid[one.number] = self.wanted[one.number]

    @invariant()
    def what_it_lacks_is_due(self):
        session = self.broker.fetch_sessions._sessions.get(self.client.session)
        if session is None or self.client.epoch == 0:
            return
        due = {number for _, number in session._due}
        for number, offset in self.wanted.items():
            partition = self.broker.partition(TOPIC, number)
            start, end = partition.log.bounds
            if number not in self.unsaid and offset != end:
                assert number in due, (number, offset, start, end)


SessionAndNone.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestSessionAndNone = SessionAndNone.TestCase


def test_a_follower_that_has_everything_is_in_sync_without_saying_so(runner):
    """Of a partition in which nothing happens nothing is said; when something does, it counts that
    the follower has asked for the others meanwhile."""
    clock = ManualClock()
    broker = broker_on_virtual_disk(clock)
    partition = broker.partition(TOPIC, 0)
    partition.replicas.changed((1, 2), (1, 2), partition._now_ms())
    follower = Client(broker, runner, follower=2)
    partition.append(one_value())
    follower.ask({0: 0})
    follower.ask({0: 1})
    lag_s = partition.replicas.max_lag_ms / 1000
    for _ in range(5):
        clock.advance(lag_s / 2)
        assert told(follower.ask({})) == {}
    partition.append(one_value())
    assert partition.replicas.wanted_isr(2, partition._now_ms()) is None
    clock.advance(lag_s + 1)
    assert partition.replicas.wanted_isr(2, partition._now_ms()) == (1,)


def test_a_follower_that_asks_no_more_is_slow_as_soon_as_there_is_more(runner):
    clock = ManualClock()
    broker = broker_on_virtual_disk(clock)
    partition = broker.partition(TOPIC, 0)
    partition.replicas.changed((1, 2), (1, 2), partition._now_ms())
    follower = Client(broker, runner, follower=2)
    follower.ask({0: 0})
    clock.advance(partition.replicas.max_lag_ms / 1000 + 1)
    assert partition.replicas.wanted_isr(0, partition._now_ms()) is None
    partition.append(one_value())
    assert partition.replicas.wanted_isr(1, partition._now_ms()) == (1,)
