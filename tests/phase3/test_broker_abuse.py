"""Clients that are broken, slow, many or mean lose their connection; nobody else loses a thing."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import socket
import struct
from contextlib import ExitStack, asynccontextmanager, suppress

import psutil
import pytest
from brokers import make_topic

from craft2.clock import ManualClock
from craft2.faulty_disk import FaultyDisk
from craft2.net import Address, parse_address, raise_file_limit
from craft2.record_batch import encode_values
from phase2_groups.error_codes import ErrorCode
from phase3_raft import schemas
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.dispatch import Dispatch
from phase3_raft.handlers import APIS, BETWEEN_BROKERS
from phase3_raft.local_broker import LocalBroker

MB = 1024**2


@pytest.fixture(scope="module")
def broker():
    with LocalBroker() as local:
        yield local


def connect(broker):
    address = parse_address(broker.bootstrap_servers)
    connection = socket.create_connection(address, 20)
    connection.settimeout(20)
    return connection


def framed(key, version, body=b"", client=b"me"):
    frame = struct.pack(">hhih", key, version, 7, len(client)) + client + body
    return struct.pack(">i", len(frame)) + frame


def is_well(broker):
    """Whether another client is served, at once."""
    with connect(broker) as connection:
        connection.sendall(framed(18, 0))
        size, correlation_id = struct.unpack(">ii", connection.recv(8))
        return size > 50 and correlation_id == 7


def memory(broker):
    return psutil.Process(broker.pid).memory_info().rss


def produce(topic, batch, version=7):
    data = {"index": 0, "records": batch}
    fields = {
        "transactional_id": None,
        "acks": 1,
        "timeout": 1000,
        "topic_data": [{"name": topic, "partition_data": [data]}],
    }
    return framed(0, version, schemas.encode("produce", version, fields, "request"))


def fetch(topic, size):
    partition = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": size,
    }
    fields = {
        "replica_id": -1,
        "max_wait": 100,
        "min_bytes": 1,
        "max_bytes": size,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return framed(1, 11, schemas.encode("fetch", 11, fields, "request"))


def ask_for_topic(broker, name):
    topics = {"topics": [{"name": name}], "allow_auto_topic_creation": True}
    with connect(broker) as connection:
        connection.sendall(framed(3, 4, schemas.encode("metadata", 4, topics, "request")))
        connection.recv(1000)


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(struct.pack(">i", -1), id="negative size"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="huge size"),
        pytest.param(struct.pack(">i", 0), id="empty"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="no header"),
        pytest.param(framed(999, 0), id="unknown key"),
        pytest.param(framed(3, 99), id="unknown version"),
        pytest.param(framed(3, 9), id="no body"),
        pytest.param(framed(3, 1, b"\x7f\xff\xff\xff"), id="a list that lies"),
        pytest.param(framed(3, 11, b"\0\xff\xff\xff\xff\x0f"), id="a compact list that lies"),
        pytest.param(framed(11, 5, b"\x7f\xff" * 30), id="strings that lie"),
        pytest.param(
            framed(0, 7, b"\xff\xff\0\1\0\0\0\1\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\x7f\0\0\0"),
            id="records that lie",
        ),
        pytest.param(framed(3, 1, b"\0\0\0\1\0\2\xff\xff"), id="no utf-8"),
        pytest.param(struct.pack(">ihhih", 12, 3, 1, 7, 30000) + b"ab", id="client id that lies"),
        pytest.param(struct.pack(">ihhih", 11, 3, 1, 7, 1) + b"\xff", id="a name of no text"),
    ],
)
def test_what_is_no_request_closes_its_connection_with_a_line(broker, piece):
    lines = broker.errors().count("\n")
    with connect(broker) as connection:
        connection.sendall(piece)
        with suppress(ConnectionResetError):
            assert connection.recv(100) == b""
    said = broker.errors().splitlines()[lines:]
    assert any("closed: " in line and ". Fix: " in line for line in said[-2:]), said
    assert is_well(broker)


def test_random_and_mutated_frames_harm_nobody(broker):
    chance = random.Random(1)
    ask_for_topic(broker, "fuzz")
    good = [produce("fuzz", encode_values([b"x"])), fetch("fuzz", 1000), framed(18, 3, b"\0\1\1\0")]
    for _ in range(300):
        frame = bytearray(chance.choice(good))
        for _ in range(chance.randint(1, 6)):
            frame[chance.randrange(4, len(frame))] = chance.randrange(256)
        with connect(broker) as connection, suppress(OSError):
            connection.settimeout(0.05)
            connection.sendall(frame + chance.randbytes(chance.choice((0, 0, 40))))
            connection.recv(100)
    assert is_well(broker)
    assert "Traceback" not in broker.errors()


def test_half_a_request_takes_no_memory_for_the_other_half(broker):
    before = memory(broker)
    with ExitStack() as stack:
        for _ in range(200):
            connection = stack.enter_context(connect(broker))
            connection.sendall(struct.pack(">i", 90 * MB) + b"x" * 1000)
        assert is_well(broker)
        assert memory(broker) - before < 50 * MB


def test_a_client_that_never_reads_waits_by_itself(broker):
    ask_for_topic(broker, "large")
    with connect(broker) as connection:
        for _ in range(40):
            connection.sendall(produce("large", encode_values([os.urandom(900_000)])))
            connection.recv(1000)
    before = memory(broker)
    with ExitStack() as stack:
        for _ in range(5):
            connection = stack.enter_context(connect(broker))
            connection.sendall(fetch("large", 40 * MB) * 20)
        for _ in range(20):
            assert is_well(broker)
        assert memory(broker) - before < 60 * MB


def test_a_bomb_is_kept_as_it_came(broker):
    ask_for_topic(broker, "bomb")
    before = memory(broker)
    bomb = encode_values([b"\0" * (200 * MB)], codec="gzip")
    assert len(bomb) < MB
    with connect(broker) as connection:
        connection.sendall(produce("bomb", bomb))
        reply = connection.recv(1000)
    assert reply[-22:-20] == b"\0\0"
    assert memory(broker) - before < 50 * MB


def test_a_thousand_connections_come_and_go(broker):
    before = memory(broker)
    for _ in range(2):
        with ExitStack() as stack:
            for _ in range(1_000):
                stack.enter_context(connect(broker))
            assert is_well(broker)
            assert memory(broker) - before < 60 * MB


@pytest.fixture
def many_files():
    """As many open files as this process may have: each connection is one."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield raise_file_limit()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def is_answered(connection):
    try:
        connection.sendall(framed(18, 0))
        return len(connection.recv(1000)) > 50
    except ConnectionError:
        return False


def test_ten_thousand_connections_are_served_and_more_are_hung_up_on(many_files):
    most, above = BrokerConfig("").max_connections, 50
    assert most == 10_000
    if many_files < most + above + 200:
        pytest.skip(f"{many_files} open files are all that a process may have here")
    with LocalBroker() as broker, ExitStack() as stack:
        before = memory(broker)
        connections = [stack.enter_context(connect(broker)) for _ in range(most + above)]
        served = [one for one in connections if is_answered(one)]
        assert len(served) == most
        assert all(map(is_answered, served))
        assert memory(broker) - before < 200 * MB
        said = broker.errors().splitlines()
        assert said[0] == f"{most} connections are all there may be; 1 refused"
        assert all("are all there may be" in line for line in said)
        assert len(said) < above / 2
        for one in served[:100]:
            one.close()
        assert any(is_answered(stack.enter_context(connect(broker))) for _ in range(1_000))
        assert all(map(is_answered, served[100:]))


def test_a_full_disk_is_an_error_and_loses_nothing():
    async def work():
        disk = FaultyDisk()
        said = []
        config = BrokerConfig("/data", listen=Address("127.0.0.1", 0))
        broker = Broker(config, disk=disk, trouble=said.append)
        make_topic(broker, "t", 1)
        dispatch = Dispatch(broker, APIS)

        async def send():
            pieces = await dispatch.answer(produce("t", encode_values([b"x" * 1000]))[4:], "/x")
            reply = schemas.decode("produce", 7, b"".join(pieces), 8, latest=7, kind="response")
            return reply.responses[0].partition_responses[0]

        assert (await send()).error_code == 0
        disk.capacity = sum(map(len, disk.tree().values())) + 500
        assert not said
        assert (await send()).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "t-0: a batch was not written: " in said[0]
        assert "Fix: free some space" in said[0]
        disk.capacity = None
        again = Broker(BrokerConfig("/data"), disk=disk.kill())
        assert again.partition("t", 0).log.end_offset == 1

    asyncio.run(work())


def test_requests_that_come_only_in_part_have_a_limit_together(tmp_path):
    async def work():
        said = []
        config = BrokerConfig(str(tmp_path), listen=Address("127.0.0.1", 0))
        async with Broker(config, trouble=said.append) as broker:
            broker.server._most_held = 1_000
            opened = [await asyncio.open_connection(*broker.address) for _ in range(2)]
            for _, writer in opened:
                writer.write(struct.pack(">i", 800) + bytes(600))
                await asyncio.sleep(0)
            done, _ = await asyncio.wait(
                [asyncio.ensure_future(reader.read(1)) for reader, _ in opened],
                return_when=asyncio.FIRST_COMPLETED,
            )
            assert [one.result() for one in done] == [b""]
            assert "1208 bytes of requests that have only come in part" in said[0]
            assert broker.server._held == 604
            for _, writer in opened:
                writer.close()

    asyncio.run(work())


@asynccontextmanager
async def with_room_for(most_held, tmp_path, said=None):
    """A broker that holds so many bytes of requests, and what opens a connection that has sent a
    part of one: so many bytes."""
    clock, said = ManualClock(), [] if said is None else said
    config = BrokerConfig(str(tmp_path), listen=Address("127.0.0.1", 0))
    async with Broker(config, clock=clock, trouble=said.append) as broker:
        make_topic(broker, "t", 1)
        broker.server._most_held = most_held
        opened = []

        async def until(reached):
            async with asyncio.timeout(20):
                while not reached():
                    await asyncio.sleep(0)

        async def send(data):
            opened.append(await asyncio.open_connection(*broker.address))
            reader, writer = opened[-1]
            before, lines = broker.server._held, len(said)
            writer.write(data)
            await until(lambda: broker.server._held == before + len(data) or len(said) > lines)
            return reader, writer

        yield broker, clock, send
        for _, writer in opened:
            writer.close()


def half(size):
    return struct.pack(">i", 2 * size) + bytes(size - 4)


async def finish(reader, writer, rest):
    """The rest of a request is sent: whether it is answered."""
    writer.write(rest)
    async with asyncio.timeout(20):
        return len(await reader.read(1000)) > 20


async def is_hung_up_on(reader):
    async with asyncio.timeout(20):
        return await reader.read(1) == b""


def test_who_never_finishes_large_requests_keeps_nobody_out(tmp_path):
    async def work():
        said = []
        async with with_room_for(2_700, tmp_path, said) as (broker, clock, send):
            strangers = [await send(half(size)) for size in (880, 900, 890)]
            clock.advance(1)
            for size in (100, 900):  # a modest request, and one as large as theirs
                request = produce("t", encode_values([bytes(size)]))
                client = await send(request[:-10])
                assert await finish(*client, request[-10:])
            assert await is_hung_up_on(strangers[1][0])
            assert await is_hung_up_on(strangers[2][0])
            assert broker.server._held == 880
            assert len(said) == 2
            assert "closed: it holds 900 of 2" in said[0]
            assert "closed: it holds 890 of 2" in said[1]

    asyncio.run(work())


def test_a_large_request_that_comes_in_pieces_is_finished_before_older_ones_that_stand(tmp_path):
    async def work():
        async with with_room_for(2_700, tmp_path) as (broker, clock, send):
            for _ in range(9):  # each of them holds less than it
                await send(half(300))
            clock.advance(10)
            request = produce("t", encode_values([bytes(2_000)]))
            reader, writer = await send(request[:500])
            for start in range(500, 2_000, 500):
                clock.advance(0.1)
                writer.write(request[start : start + 500])
                await asyncio.sleep(0)
            assert await finish(reader, writer, request[2_000:])
            assert broker.server._held % 300 == 0

    asyncio.run(work())


def test_a_modest_request_that_is_slow_is_finished_before_fast_large_ones(tmp_path):
    async def work():
        async with with_room_for(3 * MB, tmp_path) as (_, clock, send):
            request = produce("t", encode_values([bytes(900_000)]))
            client = await send(request[:800_000])
            clock.advance(500)
            strangers = [await send(half(2 * MB)) for _ in range(2)]
            assert await is_hung_up_on(strangers[0][0])
            assert await finish(*client, request[800_000:])

    asyncio.run(work())


def test_a_record_from_the_future_is_refused():
    async def work():
        broker = Broker(BrokerConfig("/data"), disk=FaultyDisk())
        make_topic(broker, "t", 1)
        make_topic(broker, "stamped", 1, {"message.timestamp.type": "LogAppendTime"})
        dispatch = Dispatch(broker, APIS)

        async def error(topic, ahead_ms):
            batch = encode_values([b"x"], timestamps=broker.clock.now_ms() + ahead_ms)
            pieces = await dispatch.answer(produce(topic, batch)[4:], "/x")
            reply = schemas.decode("produce", 7, b"".join(pieces), 8, latest=7, kind="response")
            return reply.responses[0].partition_responses[0].error_code

        hour_ms = 3_600_000
        assert await error("t", hour_ms // 2) == ErrorCode.NONE
        assert await error("t", 2 * hour_ms) == ErrorCode.INVALID_TIMESTAMP
        assert await error("stamped", 2 * hour_ms) == ErrorCode.NONE

    asyncio.run(work())


@pytest.mark.parametrize(
    "batch",
    [
        encode_values([b"x"], timestamps=1, control=True),
        encode_values([b"x"], timestamps=1, producer_id=7, producer_epoch=0, base_sequence=-1),
    ],
    ids=["control", "no sequence"],
)
def test_a_batch_that_only_a_broker_may_write_or_without_a_sequence_is_refused(batch):
    async def work():
        broker = Broker(BrokerConfig("/data"), disk=FaultyDisk())
        make_topic(broker, "t", 1)
        pieces = await Dispatch(broker, APIS).answer(produce("t", batch)[4:], "/x")
        reply = schemas.decode("produce", 7, b"".join(pieces), 8, latest=7, kind="response")
        assert reply.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_RECORD
        assert broker.partition("t", 0).log.end_offset == 0

    asyncio.run(work())


def test_a_topic_that_is_asked_for_twice_is_answered_once():
    async def work():
        broker = Broker(BrokerConfig("/data"), disk=FaultyDisk())
        make_topic(broker, "t", 1)
        topics = [{"name": name} for name in ("t", "u", "t", "u", "t")]
        fields = {"topics": topics, "allow_auto_topic_creation": False}
        body = schemas.encode("metadata", 4, fields, "request")
        pieces = await Dispatch(broker, APIS).answer(framed(3, 4, body)[4:], "/x")
        reply = schemas.decode("metadata", 4, b"".join(pieces), 8, latest=11, kind="response")
        assert [topic.name for topic in reply.topics] == ["t", "u"]

    asyncio.run(work())


CREATE_NOTHING = b"\0\0\0\0" + b"\0\0\x03\xe8" + b"\0"


@pytest.mark.parametrize(
    ("passed_on", "host", "error"),
    [
        pytest.param((19, 4, CREATE_NOTHING), b"/10.0.0.1", ErrorCode.NONE, id="well"),
        pytest.param((19, 99), b"/10.0.0.1", ErrorCode.UNSUPPORTED_VERSION, id="too new"),
        pytest.param((19, 1), b"/10.0.0.1", ErrorCode.UNSUPPORTED_VERSION, id="too old"),
        pytest.param((19, -7), b"/10.0.0.1", ErrorCode.UNSUPPORTED_VERSION, id="negative"),
        pytest.param((19, 4, CREATE_NOTHING), b"\xff\xfe", ErrorCode.INVALID_REQUEST, id="host"),
        pytest.param((19, 4, b"\x7f"), b"/10.0.0.1", ErrorCode.INVALID_REQUEST, id="body"),
        pytest.param((3, 4), b"/10.0.0.1", ErrorCode.INVALID_REQUEST, id="for any broker"),
        pytest.param((58, 0), b"/10.0.0.1", ErrorCode.INVALID_REQUEST, id="in another one"),
    ],
)
def test_what_another_broker_passes_on_is_checked_as_what_a_client_asks(passed_on, host, error):
    async def work():
        broker = Broker(BrokerConfig("/data"), disk=FaultyDisk())
        fields = {
            "request_data": framed(*passed_on)[4:],
            "request_principal": None,
            "client_host_address": host,
        }
        frame = framed(58, 0, b"\0" + schemas.encode("envelope", 0, fields, "request"))[4:]
        pieces = await Dispatch(broker, BETWEEN_BROKERS).answer(frame, "/x")
        data = b"".join(pieces)
        reply = schemas.decode("envelope", 0, data, 9, latest=0, kind="response")
        assert reply.error_code == error
        assert (reply.response_data is None) == bool(error)

    asyncio.run(work())
