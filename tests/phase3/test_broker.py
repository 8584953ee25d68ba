"""The broker without a socket: frames, versions, byte limits, waiting, and what outlives it."""

from __future__ import annotations

import asyncio
import doctest
import struct
from itertools import pairwise

import pytest
from brokers import make_topic
from hypothesis import given, settings
from hypothesis import strategies as st

from craft2 import local_process
from craft2.faulty_disk import FaultyDisk
from craft2.local_process import NotStarted
from craft2.net import Address
from craft2.record_batch import decode, encode_values, iter_headers
from phase2_groups.error_codes import ErrorCode
from phase2_groups.topics import create_topic
from phase3_raft import connection, schemas, topic_config
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.codec import BadMessage
from phase3_raft.connection import Frames
from phase3_raft.dispatch import Dispatch
from phase3_raft.groups import coordinator
from phase3_raft.handlers import APIS
from phase3_raft.handlers.fetch import Wanted, look, wait_for_bytes
from phase3_raft.local_broker import LocalBroker
from phase3_raft.metadata import image, records
from phase3_raft.refused import Refused


@pytest.mark.parametrize(
    "module",
    [connection, schemas, topic_config, coordinator, image, records],
    ids=lambda m: m.__name__,
)
def test_the_examples_in_the_text_are_true(module):
    assert doctest.testmod(module).failed == 0


# Bytes in, requests out.


@given(st.lists(st.binary(max_size=40), max_size=12), st.lists(st.integers(1, 30), min_size=1))
def test_frames_come_out_whole_however_the_bytes_were_cut(bodies, cuts):
    stream = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    frames, found, at, turn = Frames(100), [], 0, 0
    while at < len(stream):
        size = cuts[turn % len(cuts)]
        found += frames.feed(stream[at : at + size])
        at, turn = at + size, turn + 1
    assert found == bodies


@pytest.mark.parametrize("size", [-1, 101, 2**31 - 1, int.from_bytes(b"GET ", "big")])
def test_a_size_that_no_request_has_is_refused_before_its_bytes_come(size):
    with pytest.raises(BadMessage, match="a request of"):
        Frames(100).feed(struct.pack(">i", size))


def request(key, version, body=b"", client=b"me"):
    return struct.pack(">hhih", key, version, 7, len(client)) + client + body


@pytest.fixture
def broker(tmp_path):
    said = []
    with asyncio.Runner() as runner:
        made = Broker(
            BrokerConfig(str(tmp_path), listen=Address("127.0.0.1", 0)), trouble=said.append
        )
        runner.run(made.open())
        made.runner, made.said = runner, said
        yield made
        runner.run(made.close())


def answer(broker, frame):
    pieces = broker.runner.run(Dispatch(broker, APIS).answer(frame, "/127.0.0.1"))
    return (
        None
        if pieces is None
        else b"".join(p if isinstance(p, bytes) else p.read() for p in pieces)
    )


def test_an_unknown_version_of_api_versions_is_answered_in_the_oldest(broker):
    reply = answer(broker, request(18, 99))
    assert reply == struct.pack(">iihihhh", 16, 7, 35, 1, 18, 0, 3)


@pytest.mark.parametrize(("key", "version"), [(0, 2), (1, 3), (1, 13), (999, 0), (-1, 0)])
def test_what_is_not_served_closes_the_connection(broker, key, version):
    with pytest.raises(BadMessage, match="is not served"):
        answer(broker, request(key, version))


# Records.


def values(count, size=100):
    return encode_values([b"x" * size] * count, timestamps=1)


def wanted(broker, offsets, max_bytes=10**6, topic="t"):
    return [
        Wanted(topic, number, broker.partition(topic, number), offset, max_bytes, -1)
        for number, offset in enumerate(offsets)
    ]


def found_bytes(found):
    return [0 if one.records is None else one.records.size for one in found]


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=4),
    st.integers(0, 6_000),
    st.integers(0, 3_000),
)
def test_a_fetch_keeps_to_its_limits_but_for_one_batch(counts, max_bytes, partition_bytes):
    broker = Broker(BrokerConfig("data"), disk=FaultyDisk())
    make_topic(broker, "t", len(counts))
    for number, batches in enumerate(counts):
        for count in batches:
            broker.partition("t", number).append(values(count))
    found = look(wanted(broker, [0] * len(counts), partition_bytes), max_bytes)
    first = next((n for n, batches in enumerate(counts) if batches), None)
    sizes = found_bytes(found)
    if first is None:
        assert not any(sizes)
        return
    least = len(values(counts[first][0]))
    assert sizes[first] >= least
    assert sizes[first] <= max(least, min(partition_bytes, max_bytes))
    assert all(size <= partition_bytes for n, size in enumerate(sizes) if n != first)
    assert sum(sizes) <= max(max_bytes, least)


def test_a_long_poll_is_woken_by_an_append_wherever_that_comes(broker):
    make_topic(broker, "t", 2)

    async def poll_while(appends):
        asked = wanted(broker, [broker.partition("t", n).log.end_offset for n in range(2)])
        task = asyncio.ensure_future(wait_for_bytes(asked, 10**6, 1, 30.0))
        for pause in range(appends):
            await asyncio.sleep(0)
            if pause == appends - 1:
                broker.partition("t", 1).append(values(1))
        return found_bytes(await task)

    for appends in range(1, 6):
        assert broker.runner.run(poll_while(appends)) == [0, len(values(1))]
    assert not broker.partition("t", 1)._watchers


def test_a_long_poll_ends_with_nothing_when_its_time_is_over(broker):
    make_topic(broker, "t", 1)
    found = broker.runner.run(wait_for_bytes(wanted(broker, [0]), 10**6, 1, 0.01))
    assert found_bytes(found) == [0]


@pytest.mark.parametrize(
    ("topic", "number", "offset", "epoch", "error"),
    [
        ("t", 0, 1, -1, ErrorCode.NONE),
        ("t", 0, 2, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 0, -1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        ("t", 1, 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", 0, 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, 0, 5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_fetch_of_what_cannot_be_has_kafkas_error(broker, topic, number, offset, epoch, error):
    make_topic(broker, "t", 1)
    broker.partition("t", 0).append(values(1))
    [found] = look(
        [Wanted(topic, number, broker.partition(topic, number), offset, 100, epoch)], 100
    )
    assert found.error == error


def test_the_broker_stamps_records_if_the_topic_says_so(broker):
    make_topic(broker, "t", 1, {"message.timestamp.type": "LogAppendTime"})
    partition = broker.partition("t", 0)
    result, stamped = partition.append(values(1))
    [record] = decode(partition.read(0, 1_000).read())
    assert record.timestamp == stamped > 1_600_000_000_000
    assert result.first_offset == 0


def test_what_must_be_flushed_shares_a_sync(tmp_path):
    async def work():
        broker = Broker(BrokerConfig(str(tmp_path)))
        make_topic(broker, "t", 1, {"flush.messages": "1"})
        partition = broker.partition("t", 0)
        for _ in range(3):
            partition.append(values(1))
        assert partition.must_flush
        assert partition.log.flushed == 0
        await asyncio.gather(*(partition.flushed() for _ in range(3)))
        assert partition.log.flushed == 3
        assert not partition.must_flush
        await broker.close()

    asyncio.run(work())


# Metadata.


def test_topics_settings_and_producer_ids_outlive_the_broker(tmp_path):
    async def life(work):
        broker = Broker(BrokerConfig(str(tmp_path)))
        try:
            return await work(broker)
        finally:
            await broker.close()

    async def make(broker):
        creation = broker.topics.creation("t", 3, config={"retention.ms": "1000"})
        await broker.controller.change(creation)

    asyncio.run(life(make))
    first = asyncio.run(life(Broker.new_producer_id))

    async def look_again(broker):
        assert len(broker.image.topics["t"].partitions) == 3
        assert broker.partition("t", 0).config.number("retention.ms") == 1000
        assert await broker.new_producer_id() > first
        with pytest.raises(Refused, match="exists already"):
            make_topic(broker, "t", 1)

    asyncio.run(life(look_again))


def test_topics_of_phase_2_are_served(tmp_path):
    create_topic(tmp_path, "flights", 3)
    broker = Broker(BrokerConfig(str(tmp_path)))
    assert len(broker.image.topics["flights"].partitions) == 3
    asyncio.run(broker.close())


# A process.


def test_a_killed_broker_has_what_it_acknowledged(tmp_path):
    confluent = pytest.importorskip("confluent_kafka")
    with LocalBroker(tmp_path) as local:
        writer = confluent.Producer({"bootstrap.servers": local.bootstrap_servers})
        acknowledged = []
        for n in range(500):
            writer.produce("t", b"%d" % n, on_delivery=lambda e, r: acknowledged.append(r.offset()))
        writer.flush(30)
        reader_settings = {
            "bootstrap.servers": local.bootstrap_servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        reader = confluent.Consumer(reader_settings)
        reader.subscribe(["t"])
        seen = []
        while len(seen) < 200:
            seen += reader.consume(200 - len(seen), 30)
        reader.commit(asynchronous=False)
        local.kill()
        local.start()
        reader.close()  # the broker knows it still: one that is there and does not poll has a share
        other = confluent.Consumer(reader_settings)
        other.subscribe(["t"])
        while len(seen) < 500:
            seen += [record for record in other.consume(500 - len(seen), 30) if not record.error()]
        assert [int(record.value()) for record in seen] == list(range(500))
        assert sorted(acknowledged) == list(range(500))
        other.close()
        assert local.stop() == 0


def test_a_directory_in_use_is_told_in_one_line(tmp_path):
    with LocalBroker(tmp_path), pytest.raises(NotStarted, match="is in use by process"):
        LocalBroker(tmp_path)


def test_a_broker_that_is_never_ready_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(local_process, "READY_S", 0.0)
    with pytest.raises(NotStarted, match="is not ready after 0 s"):
        LocalBroker(tmp_path)


def test_batches_in_a_reply_are_those_of_the_log(broker):
    make_topic(broker, "t", 1)
    for count in (3, 2):
        broker.partition("t", 0).append(values(count))
    [found] = look(wanted(broker, [0]), 10**6)
    assert [header.count for _, header in iter_headers(found.records.read())] == [3, 2]


# The life of a broker.


def test_old_segments_are_deleted_and_a_partition_nobody_uses_is_left_closed(broker):
    config = {"segment.bytes": "1000", "retention.bytes": "2000"}
    make_topic(broker, "t", 2, config)
    for _ in range(20):
        broker.partition("t", 0).append(values(5))
    broker.runner.run(broker.partitions.apply_retention())
    log = broker.partition("t", 0).log
    assert log.log_start > 0
    assert log.size < 4_000
    assert ("t", 1) not in dict(broker.partitions.all())


def test_others_have_their_turn_while_many_segments_are_deleted(broker):
    """Two thousand of them took seconds, and a broker that says nothing for so long is fenced."""
    make_topic(broker, "t", 1, {"segment.bytes": "100", "retention.bytes": "200"})
    for _ in range(50):
        broker.partition("t", 0).append(values(5))
    log, left = broker.partition("t", 0).log, [50]

    async def others(ending):
        while not ending.done():
            left.append(len(log.segment_bases))
            await asyncio.sleep(0)

    async def both():
        retention = asyncio.ensure_future(broker.partitions.apply_retention())
        await asyncio.gather(retention, others(retention))

    broker.runner.run(both())
    assert len(log.segment_bases) < 4
    assert max(before - after for before, after in pairwise(left)) <= 8


def test_a_group_that_was_only_asked_for_is_not_kept(broker):
    heartbeat = {"group_id": "x", "generation_id": 1, "member_id": "m", "group_instance_id": None}
    frame = request(12, 4) + b"\0" + schemas.encode("heartbeat", 4, heartbeat, "request")
    reply = answer(broker, frame)
    assert struct.unpack(">h", reply[13:15]) == (ErrorCode.UNKNOWN_MEMBER_ID,)
    assert not broker.groups._groups


def test_replies_are_counted_and_timed_by_api(broker):
    answer(broker, request(18, 0))
    with pytest.raises(BadMessage):
        answer(broker, request(12, 4, b"\0"))
    meters = broker.dispatch.meters
    mine = Dispatch(broker, APIS)
    broker.runner.run(mine.answer(request(18, 0), "/x"))
    meter = mine.meters["api_versions"]
    assert (meter.requests, meter.received, sum(meter.buckets)) == (1, 12, 1)
    assert meter.sent > 100
    assert meters.keys() == mine.meters.keys()


def test_a_stopping_broker_answers_what_is_due_and_leaves_what_waits(tmp_path):
    async def work():
        said = []
        broker = Broker(
            BrokerConfig(str(tmp_path), listen=Address("127.0.0.1", 0)), trouble=said.append
        )
        address = await broker.open()
        make_topic(broker, "t", 1, {"flush.messages": "1"})
        partition = broker.partition("t", 0)
        released = asyncio.Event()
        flushed = partition.flushed

        async def slowly():
            await released.wait()
            await flushed()

        partition.flushed = slowly
        reader, writer = await asyncio.open_connection(*address)
        writer.write(_framed(_produce(values(1))))
        waiting_reader, waiting_writer = await asyncio.open_connection(*address)
        waiting_writer.write(_framed(_fetch()))
        while partition.log.end_offset == 0 or not partition._watchers:
            await asyncio.sleep(0)
        ending = asyncio.ensure_future(broker.close())
        await asyncio.sleep(0)
        assert not ending.done()
        released.set()
        await ending
        assert len(await reader.read()) > 30
        await waiting_reader.read()  # whatever it is told, it is told that this is the end
        assert said == []

    asyncio.run(work())


def _framed(frame):
    return struct.pack(">i", len(frame)) + frame


def _produce(batch):
    data = {"index": 0, "records": batch}
    fields = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 1000,
        "topic_data": [{"name": "t", "partition_data": [data]}],
    }
    return request(0, 7) + schemas.encode("produce", 7, fields, "request")


def _fetch():
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 1,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    fields = {
        "replica_id": -1,
        "max_wait": 20_000,
        "min_bytes": 1,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": "t", "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return request(1, 11) + schemas.encode("fetch", 11, fields, "request")
