"""A controller that leads no more before it knows what became of a change, or is hung up on."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from craft2.clock import ManualClock
from phase2_groups.error_codes import ErrorCode
from phase3_raft.metadata import broker_changes
from phase3_raft.metadata.controller import PART, Controller
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import (
    BrokerRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from phase3_raft.metadata.topic_changes import create, grow
from phase3_raft.refused import InDoubt, Refused


class Deposed:
    """A quorum in which another one leads before a change is known to be committed."""

    def __init__(self):
        self.image, self.controller, self.term = Image(), 1, 1
        self.outcome = asyncio.get_running_loop().create_future()

    async def commit(self, records):
        self.controller = 2
        raise InDoubt("broker 1 leads no more", "look first", records, self.outcome)

    async def catch_up(self):
        pass

    async def keep_members(self):
        return []


class Ruling(Deposed):
    """One in which all is committed at once."""

    commits = 0

    async def commit(self, records):
        self.commits += 1
        for record in records:
            self.image.apply(record)


def controller_of(quorum, accepts=None):
    return Controller(
        1,
        quorum,
        ManualClock(),
        session_ms=2_000,
        doubt_ms=500,
        prefer_ms=10_000,
        accepts=accepts,
        trouble=lambda words: None,
    )


def deposed():
    quorum = Deposed()
    return quorum, controller_of(quorum)


@pytest.mark.parametrize(
    ("outcome", "told"),
    [(True, range(1_000)), (False, ErrorCode.NOT_CONTROLLER), (None, ErrorCode.REQUEST_TIMED_OUT)],
)
def test_who_asked_for_a_change_is_told_what_became_of_it(outcome, told):
    async def test():
        quorum, controller = deposed()
        asked = asyncio.ensure_future(controller.producer_ids())
        await asyncio.sleep(0)
        assert not asked.done()
        quorum.outcome.set_result(outcome)
        if outcome:
            assert await asked == told
        else:
            with pytest.raises(Refused) as caught:
                await asked
            assert caught.value.code == told

    asyncio.run(test())


def test_others_do_not_wait_for_what_one_change_has_become():
    async def test():
        quorum, controller = deposed()
        asked = asyncio.ensure_future(controller.producer_ids())
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="not the controller"):
            await controller.change(lambda image: [ProducerIdsRecord(7)])
        quorum.outcome.set_result(True)
        await asked

    asyncio.run(test())


def test_whoever_is_gone_before_its_change_is_committed_does_not_let_the_next_one_in():
    """Two deletions of one topic, decided from one image, ended every broker for good."""

    async def test():
        quorum = Ruling()
        controller, commits = controller_of(quorum), asyncio.Event()
        commit, seen = quorum.commit, []

        async def slow_commit(records):
            await commits.wait()
            await commit(records)

        quorum.commit = slow_commit
        first = asyncio.ensure_future(controller.change(lambda image: [ProducerIdsRecord(7)]))
        await asyncio.sleep(0.01)
        first.cancel()
        second = asyncio.ensure_future(
            controller.change(lambda image: seen.append(image.next_producer_id) or [])
        )
        await asyncio.sleep(0.01)
        assert not seen
        commits.set()
        await second
        assert seen == [7]

    asyncio.run(test())


def test_a_record_of_a_topic_that_is_not_there_changes_nothing():
    image = Image()
    for record in (
        RemoveTopicRecord("t"),
        PartitionRecord("t", 0, (1,), (1,), 1, 0, 0),
        ConfigRecord("topic", "t", "retention.ms", "1"),
    ):
        image.apply(record)
    assert (image.topics, image.removed, image.version) == ({}, set(), 3)


def creation(name, partitions=1):
    return partial(
        create, name=name, topic_id="0" * 32, partitions=partitions, replicas=1, config={}
    )


def codes(outcomes):
    return [error and error.code for error in outcomes]


def test_several_changes_are_one_commit_each_decided_on_what_those_before_made():
    async def test():
        quorum = Ruling()
        controller = controller_of(quorum)
        quorum.image.apply(BrokerRecord(1, "127.0.0.1", 9_001))
        wanted = [
            creation("t"),
            creation("u", 0),
            creation("t"),
            partial(grow, name="t", partitions=3),
        ]
        expected = [None, ErrorCode.INVALID_PARTITIONS, ErrorCode.TOPIC_ALREADY_EXISTS, None]
        checked = await controller.change_each(wanted, only_check=True)
        assert codes(checked) == expected
        assert not quorum.image.topics
        assert codes(await controller.change_each(wanted)) == expected
        assert {name: len(it.partitions) for name, it in quorum.image.topics.items()} == {"t": 3}
        assert quorum.commits == 2

    asyncio.run(test())


@pytest.mark.parametrize("outcome", [True, False, None])
def test_of_several_changes_all_or_none_are_made_when_another_controller_leads(outcome):
    async def test():
        quorum, controller = deposed()
        quorum.image.apply(BrokerRecord(1, "127.0.0.1", 9_001))
        quorum.outcome.set_result(outcome)
        told = await controller.change_each([creation("t"), creation("u"), creation("u")])
        assert (
            codes(told)
            == {
                True: [None, None, ErrorCode.TOPIC_ALREADY_EXISTS],
                False: [ErrorCode.NOT_CONTROLLER] * 3,
                None: [ErrorCode.REQUEST_TIMED_OUT] * 3,
            }[outcome]
        )

    asyncio.run(test())


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("rules", [True, False])
def test_who_hangs_up_is_fenced_at_once_if_nobody_listens_there_any_more(listens, rules):
    async def test():
        quorum, called = Ruling(), []

        async def accepts(address):
            called.append(address.port)
            return listens

        controller = controller_of(quorum, accepts)
        for number in (1, 2):
            quorum.image.apply(BrokerRecord(number, "127.0.0.1", 9_000 + number))
        quorum.controller = 1 if rules else 2
        await controller.hung_up(2)
        await controller.hung_up(3)  # nobody knows it
        assert called == [9_002] * rules
        assert quorum.image.live() == ([1] if rules and not listens else [1, 2])

    asyncio.run(test())


class Narrow(Ruling):
    """One that commits little at once."""

    async def commit(self, records):
        assert len(records) <= PART
        await super().commit(records)


def test_a_broker_with_more_partitions_than_are_committed_at_once_goes_and_comes():
    async def main():
        quorum = Narrow()
        image, count = quorum.image, 2 * PART + 500
        for n in (1, 2):
            image.apply(BrokerRecord(n, f"h{n}", 1, epoch=n, incarnation=f"first {n}"))
        image.apply(TopicRecord("t", "id"))
        for n in range(count):
            leader = 1 + n % 2
            image.apply(PartitionRecord("t", n, (leader, 3 - leader), (1, 2), leader, 1, 0))
        controller = controller_of(quorum)

        def led_by(broker):
            return sum(one.leader == broker for one in image.partitions())

        await controller.fence(2, "it was not heard of")
        assert image.live() == [1]
        assert led_by(1) == count
        assert {one.isr for one in image.partitions()} == {(1,)}
        epoch = await controller.register(BrokerRecord(2, "h2", 1, incarnation="second"))
        assert not await controller.heartbeat(2, epoch, image.version, leaving=False)
        for n in range(count):
            image.apply(msgspec.structs.replace(image.partition("t", n), isr=(1, 2)))
        assert await controller.change_in_parts(broker_changes.prefer)
        assert led_by(2) == count // 2
        await controller.heartbeat(2, epoch, image.version, leaving=True)
        assert led_by(1) == count
        assert len({about.epoch for about in image.brokers.values()}) == 2

    asyncio.run(main())
