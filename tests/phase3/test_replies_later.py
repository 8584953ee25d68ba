"""Replies that come later: the next requests of a connection are taken meanwhile, and all replies
leave in the order of the requests."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import asynccontextmanager

import pytest
from brokers import make_topic

from craft2.apps.lessons.wire import fetch_request
from craft2.disk import DiskError
from craft2.net import Address
from craft2.record_batch import encode_values
from phase3_raft import schemas, server
from phase3_raft.broker import Broker, BrokerConfig

PRODUCE, METADATA = (0, 7), (3, 4)


def frame(api, correlation_id, body):
    data = struct.pack(">hhih", *api, correlation_id, -1) + body
    return struct.pack(">i", len(data)) + data


def produce(correlation_id, topic="t", acks=1, size=1):
    data = {"index": 0, "records": encode_values([bytes(size)], timestamps=1)}
    fields = {
        "transactional_id": None,
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [data]}],
    }
    return frame(PRODUCE, correlation_id, schemas.encode("produce", 7, fields, "request"))


def metadata(correlation_id):
    return frame(METADATA, correlation_id, struct.pack(">i?", 0, False))


class Scene:
    """A broker with a topic `t` whose records are on disk when we say so, and a client."""

    def __init__(self, broker, reader, writer, said):
        self.broker, self.reader, self.writer, self.said = broker, reader, writer, said
        self.partition = broker.partition("t", 0)
        self.syncs = []  # a future for each request that waits for the disk
        self.partition.flushed = self._flushed

    async def _flushed(self):
        self.syncs.append(asyncio.get_running_loop().create_future())
        await self.syncs[-1]

    async def until(self, reached):
        async with asyncio.timeout(20):
            while not reached():
                await asyncio.sleep(0)

    async def reply(self):
        """The correlation id of the next reply; None: they have hung up."""
        async with asyncio.timeout(20):
            try:
                size, correlation_id = struct.unpack(">ii", await self.reader.readexactly(8))
            except asyncio.IncompleteReadError:
                return None
            await self.reader.readexactly(size - 4)
            return correlation_id

    async def nothing_comes(self):
        for _ in range(50):
            await asyncio.sleep(0)
        assert not self.reader._buffer


@asynccontextmanager
async def scene(tmp_path):
    said = []
    config = BrokerConfig(str(tmp_path), listen=Address("127.0.0.1", 0))
    async with Broker(config, trouble=said.append) as broker:
        make_topic(broker, "t", 1, {"flush.messages": "1"})
        make_topic(broker, "u", 1)
        make_topic(broker, "v", 1)
        reader, writer = await asyncio.open_connection(*broker.address)
        yield Scene(broker, reader, writer, said)
        writer.close()


def play(tmp_path, story):
    async def whole():
        async with scene(tmp_path) as some:
            await story(some)

    asyncio.run(whole())


def test_the_next_requests_are_taken_and_answered_in_order(tmp_path):
    async def story(some):
        some.writer.write(produce(1) + produce(2) + produce(3, "u") + metadata(4))
        await some.until(lambda: len(some.syncs) == 2)
        await some.until(lambda: some.broker.partition("u", 0).log.end_offset == 1)
        some.syncs[1].set_result(None)  # the second is done first
        await some.nothing_comes()
        some.syncs[0].set_result(None)
        assert [await some.reply() for _ in range(4)] == [1, 2, 3, 4]
        assert some.partition.log.end_offset == 2
        assert some.said == []

    play(tmp_path, story)


def test_a_reply_leaves_although_nothing_more_is_asked(tmp_path):
    async def story(some):
        some.writer.write(produce(1))
        await some.until(lambda: some.syncs)
        await some.nothing_comes()
        some.syncs[0].set_result(None)
        assert await some.reply() == 1
        some.writer.write(produce(2) + metadata(3))
        await some.until(lambda: len(some.syncs) == 2)
        some.syncs[1].set_result(None)
        assert [await some.reply(), await some.reply()] == [2, 3]

    play(tmp_path, story)


def test_a_client_that_says_no_more_is_still_answered(tmp_path):
    async def story(some):
        some.writer.write(produce(1) + produce(2))
        some.writer.write_eof()
        await some.until(lambda: len(some.syncs) == 2)
        for sync in some.syncs:
            sync.set_result(None)
        assert [await some.reply() for _ in range(3)] == [1, 2, None]

    play(tmp_path, story)


def test_a_client_that_says_no_more_has_what_is_due_and_is_not_waited_with(tmp_path):
    """A consumer that has gone would keep its connection until something comes for it."""

    async def story(some):
        before = some.broker.server.connections
        some.writer.write(produce(1))
        await some.until(lambda: some.syncs)
        some.writer.write(fetch(2, "u"))
        some.writer.write_eof()
        await some.nothing_comes()
        some.syncs[0].set_result(None)
        assert [await some.reply(), await some.reply()] == [1, None]
        await some.until(lambda: some.broker.server.connections == before - 1)

    play(tmp_path, story)


def test_fetches_of_what_is_there_are_answered_to_one_that_says_no_more(tmp_path):
    async def story(some):
        some.writer.write(produce(1, "u"))
        assert await some.reply() == 1
        some.writer.write(b"".join(fetch(number) for number in range(2, 22)))
        some.writer.write_eof()
        assert [await some.reply() for _ in range(21)] == [*range(2, 22), None]

    play(tmp_path, story)


def test_no_more_are_underway_than_may_be(tmp_path, monkeypatch):
    monkeypatch.setattr(server, "_UNDERWAY", 2)

    async def story(some):
        some.writer.write(b"".join(produce(number) for number in range(1, 6)))
        for number in range(5):
            taken = min(number + 2, 5)  # two wait, and no third one is taken
            await some.until(lambda n=taken: len(some.syncs) == n)
            await some.nothing_comes()
            assert some.partition.log.end_offset == taken
            some.syncs[number].set_result(None)
            assert await some.reply() == number + 1

    play(tmp_path, story)


def test_what_goes_wrong_later_closes_the_connection_after_the_replies_before_it(tmp_path):
    async def story(some):
        some.writer.write(produce(1) + produce(2, acks=0) + produce(3))
        await some.until(lambda: len(some.syncs) == 3)
        some.syncs[1].set_exception(DiskError("the disk is broken", "get another one"))
        some.syncs[2].set_result(None)
        await some.nothing_comes()
        some.syncs[0].set_result(None)
        assert [await some.reply(), await some.reply()] == [1, None]
        await some.until(lambda: some.broker.server.connections == 0)
        [line] = some.said
        assert "closed: a request with acks=0 failed" in line

    play(tmp_path, story)


def test_what_was_asked_before_a_bad_request_is_answered(tmp_path):
    async def story(some):
        some.writer.write(produce(1) + frame((999, 0), 2, b""))
        await some.until(lambda: some.said)
        await some.nothing_comes()
        some.syncs[0].set_result(None)
        assert [await some.reply(), await some.reply()] == [1, None]
        assert "API 999" in some.said[0]

    play(tmp_path, story)


def test_replies_to_a_client_that_is_gone_are_lost_without_a_word(tmp_path):
    async def story(some):
        some.writer.write(produce(1) + produce(2))
        await some.until(lambda: len(some.syncs) == 2)
        some.writer.transport.abort()
        for sync in some.syncs:
            sync.set_result(None)
        await some.until(lambda: some.broker.server.connections == 0)
        assert some.partition.log.end_offset == 2  # what was appended stays
        assert some.said == []

    play(tmp_path, story)


@pytest.mark.parametrize("count", [1, 3])
def test_a_broker_that_ends_answers_what_it_has_begun(tmp_path, count):
    async def story(some):
        some.writer.write(b"".join(produce(number) for number in range(count)))
        await some.until(lambda: len(some.syncs) == count)
        ending = asyncio.ensure_future(some.broker.close())
        await some.nothing_comes()
        assert not ending.done()
        for sync in some.syncs:
            sync.set_result(None)
        await ending
        assert [await some.reply() for _ in range(count + 1)] == [*range(count), None]

    play(tmp_path, story)


def fetch(correlation_id, topic="u"):
    return fetch_request(topic, 0, 0, wait_ms=60_000, correlation_id=correlation_id)


def test_who_asks_on_and_on_behind_a_long_poll_is_not_read_on(tmp_path):
    many = 300

    async def story(some):
        large = [produce(number, "u", size=30_000) for number in range(1, many)]
        some.writer.write(fetch(0, "v") + b"".join(large))
        [connection] = some.broker.server._connections
        await some.until(lambda: connection._to_begin)
        for _ in range(1_000):  # would be enough to read it all
            await asyncio.sleep(0)
        held = connection.held
        assert held < 1_000_000 < sum(map(len, large))
        some.broker.partition("v", 0).append(encode_values([b"x"], timestamps=1))
        assert [await some.reply() for _ in range(many)] == [*range(many)]

    play(tmp_path, story)


def test_what_waits_behind_long_polls_has_a_limit_for_all_together(tmp_path):
    async def story(some):
        some.broker.server._most_held = 150_000
        _, writer = await asyncio.open_connection(*some.broker.address)
        for one in (some.writer, writer):
            one.write(fetch(0, "v") + produce(1, "u", size=90_000))
        await some.until(lambda: some.said)
        assert "or wait for others. Fix: send" in some.said[0]
        assert 90_000 < some.broker.server._held < 91_000
        some.broker.partition("v", 0).append(encode_values([b"x"], timestamps=1))
        await some.until(lambda: some.broker.partition("u", 0).log.end_offset == 1)
        await some.until(lambda: some.broker.server.connections == 1)  # one is hung up on
        assert some.broker.server._held == 0
        writer.close()

    play(tmp_path, story)


def test_who_has_just_come_is_served_before_what_others_have_sent_in_advance(tmp_path):
    many, clients = 400, 20

    async def story(some):
        opened = [await asyncio.open_connection(*some.broker.address) for _ in range(clients)]
        for _, writer in opened:
            writer.write(b"".join(map(metadata, range(many))))
        meter = some.broker.dispatch.meters["metadata"]
        await some.until(lambda: meter.requests)
        reader, writer = await asyncio.open_connection(*some.broker.address)
        writer.write(metadata(7))
        await reader.readexactly(8)
        assert meter.requests < many * clients / 4
        drained = [asyncio.ensure_future(one.read(-1)) for one, _ in opened]
        await some.until(lambda: meter.requests == many * clients + 1)
        for one in [writer, *(writer for _, writer in opened)]:
            one.close()
        await asyncio.wait(drained)
        assert not some.broker.server.is_busy

    play(tmp_path, story)


def test_what_came_before_a_size_that_no_request_has_is_answered(tmp_path):
    async def story(some):
        some.writer.write(metadata(1) + produce(2, "u") + b"\xff\xff\xff\xff")
        assert [await some.reply() for _ in range(3)] == [1, 2, None]
        assert some.broker.partition("u", 0).log.end_offset == 1
        assert "a request of -1 bytes" in some.said[0]

    play(tmp_path, story)


def test_a_request_that_only_asks_has_a_limit_of_its_own(tmp_path):
    async def story(some):
        names = [{"name": f"topic-{number}"} for number in range(100_000)]
        fields = {"topics": names, "allow_auto_topic_creation": False}
        body = schemas.encode("metadata", 4, fields, "request")
        some.writer.write(metadata(1) + frame(METADATA, 2, body))
        assert [await some.reply() for _ in range(2)] == [1, None]
        assert f"a request of {len(body) + 10} bytes for metadata" in some.said[0]

    play(tmp_path, story)


def test_what_is_asked_behind_a_large_reply_comes_after_it(tmp_path):
    async def story(some):
        partition = some.broker.partition("u", 0)
        for _ in range(40):
            partition.append(encode_values([bytes(500_000)], timestamps=1))
        some.writer.write(fetch(1) + metadata(2) + fetch(3) + produce(4, "u"))
        assert [await some.reply() for _ in range(4)] == [1, 2, 3, 4]
        assert partition.log.end_offset == 41

    play(tmp_path, story)


def test_a_client_that_goes_away_while_it_waits_leaves_nothing_behind(tmp_path):
    async def story(some):
        partition = some.broker.partition("u", 0)
        some.writer.write(produce(1) + fetch(2))
        await some.until(lambda: some.syncs and partition._watchers)
        link = some.writer.get_extra_info("socket")
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
        some.writer.transport.abort()
        await some.until(lambda: not partition._watchers)
        assert some.broker.server.connections == 0
        assert some.said == []

    play(tmp_path, story)
