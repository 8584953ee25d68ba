"""A broker that has just begun says nothing of topics until it knows them; one that is not the
controller asks it, and the next one if it does not answer."""

from __future__ import annotations

import asyncio

import pytest
from three_brokers import Brokers, brokers, running, until

from phase2_groups.error_codes import ErrorCode
from phase3_raft import dispatch

METADATA = {
    "topics": [{"name": "t"}],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


@running
async def test_after_all_were_gone_nobody_hears_that_a_topic_is_not_there(tmp_path):
    """librdkafka believes it: what it was about to send it fails, and sends no more."""
    async with brokers(tmp_path) as cluster:
        await cluster.make_topic("t")
        await asyncio.gather(*(one.close() for one in cluster.all.values()))

        async def begin(number):
            await cluster.again(number)
            return await cluster.ask(number, "metadata", 9, METADATA)

        replies = await asyncio.gather(*map(begin, (1, 2, 3)))
        assert [reply.topics[0].error_code for reply in replies] == [0, 0, 0]


def test_what_a_frozen_controller_does_not_answer_the_next_one_does(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "DECIDE_S", 0.1)

    @running
    async def test(tmp_path):
        async with brokers(tmp_path) as cluster:
            frozen = cluster.all[1].controller_id
            asked, next_one = (n for n in cluster.all if n != frozen)
            peers, kept = cluster.all[asked].peers, []
            pass_on, thaws = peers.pass_on, asyncio.Event()

            async def pass_on_or_hang(to, frame, host):
                if to == frozen:
                    kept.append(frame)
                    await thaws.wait()
                return await pass_on(to, frame, host)

            peers.pass_on = pass_on_or_hang
            made = asyncio.create_task(cluster.make_topic("t", asked=asked))
            await until(lambda: kept)
            cluster.all[frozen].metadata.node.transfer(next_one)
            assert await made == ErrorCode.NONE
            thaws.set()
            # What it had not read then, it must not do now, nor have done.
            assert await pass_on(frozen, kept[0], "") is None

    test(tmp_path)


def test_a_request_whose_controller_never_answers_is_in_doubt(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "DECIDE_S", 0.1)

    @running
    async def test(tmp_path):
        async with brokers(tmp_path) as cluster:
            controller = cluster.all[1].controller_id
            asked = next(n for n in cluster.all if n != controller)

            async def breaks(to, frame, host):
                raise ConnectionResetError

            cluster.all[asked].peers.pass_on = breaks
            assert await cluster.make_topic("t", asked=asked) == ErrorCode.REQUEST_TIMED_OUT

    test(tmp_path)


def test_one_that_is_left_alone_hangs_up_on_who_asks_it_for_topics(tmp_path, monkeypatch):
    monkeypatch.setattr(dispatch, "BEGIN_S", 0.05)

    async def main():
        cluster = Brokers(tmp_path)
        await cluster.all[1].open()
        try:
            with pytest.raises(ConnectionError):
                await cluster.ask(1, "metadata", 9, METADATA)
            fields = {"include_cluster_authorized_operations": False}
            reply = await cluster.ask(1, "describe_cluster", 0, fields)
            assert (reply.cluster_id, reply.controller_id) == ("c", -1)
        finally:
            for one in cluster.all.values():
                await one.close()

    asyncio.run(main())
