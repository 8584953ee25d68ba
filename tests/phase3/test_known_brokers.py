"""Which brokers clients are told of."""

from __future__ import annotations

from craft2.clock import ManualClock
from phase3_raft.known_brokers import NAMED_S, KnownBrokers
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import BrokerRecord, RemoveBrokerRecord


class World:
    def __init__(self):
        self.image, self.clock = Image(), ManualClock()
        self.known = KnownBrokers(lambda: self.image, self.clock)

    def say(self, *records):
        for record in records:
            self.image.apply(record)
        self.known.changed(records)

    def named(self):
        return [one.id for one in self.known.named()]


def broker(number, *, fenced=False):
    return BrokerRecord(number, "127.0.0.1", 9_000 + number, fenced=fenced)


def test_who_is_gone_is_named_some_seconds_longer():
    world = World()
    world.say(broker(1), broker(2))
    world.say(broker(2, fenced=True))
    world.clock.advance(NAMED_S - 0.01)
    assert world.named() == [1, 2]
    world.clock.advance(0.01)
    assert world.named() == [1]


def test_who_comes_back_and_goes_again_is_named_from_then_on():
    world = World()
    world.say(broker(1), broker(1, fenced=True))
    world.clock.advance(NAMED_S)
    world.say(broker(1))
    assert world.named() == [1]
    world.say(broker(1, fenced=True))
    world.clock.advance(NAMED_S - 1)
    assert world.named() == [1]


def test_who_was_never_there_or_is_removed_is_not_named():
    world = World()
    world.say(broker(1, fenced=True), broker(2))
    world.say(broker(2, fenced=True), broker(1, fenced=True))
    assert world.named() == [2]
    world.say(RemoveBrokerRecord(2))
    assert world.named() == []
