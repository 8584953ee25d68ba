"""A broker of a cluster that has just begun says nothing of topics until it knows them."""

from __future__ import annotations

import asyncio

import pytest
from three_brokers import Brokers, brokers, running

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
