"""Lines of JSON: what is asked is answered, nonsense is refused, and the line stays open."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest

from craft2.events import Events
from craft2.faulty_disk import FaultyDisk
from craft2.net import Address, RealNet
from phase3_raft.raft.application import NodeConfig
from phase3_raft.raft.driver import RaftNode
from phase3_raft.raft.list_machine import ListMachine
from phase3_raft.raft.messages import Members
from phase3_raft.raft.service import MAX_LINE_BYTES, MAX_UNDER_WAY, Service
from phase3_raft.raft.state import RaftConfig
from phase3_raft.raft.storage import RaftStorage

NOWHERE = Address("127.0.0.1", 0)
QUICK = RaftConfig(election_timeout_ms=(2, 3), heartbeat_ms=1)


@contextlib.asynccontextmanager
async def serving(voters=(1,), **options):
    """A server's service, and where it answers."""
    machine = ListMachine()
    storage = RaftStorage("/1", "c", 1, Members(voters), disk=FaultyDisk())
    peers = dict.fromkeys(voters, Address("127.0.0.1", 1))
    config = NodeConfig(cluster="c", server_id=1, listen=NOWHERE, peers=peers, raft=QUICK)
    node = RaftNode(config, machine, storage)
    await node.start()
    service = Service(node, machine, RealNet(), **options)
    address = await service.open(NOWHERE)
    while voters == (1,) and node.status().committed < 1:
        await asyncio.sleep(0.001)
    yield service, address
    service.close()
    node.stop()
    await asyncio.sleep(0)


def conversation(*lines: bytes, voters=(1,)):
    """What a server alone, or one that has no majority, answers to these lines, by their order."""

    async def talk():
        async with serving(voters) as (_, address):
            return await said(address)

    async def said(address):
        reader, writer = await RealNet().connect(address)
        answers = b""
        for line in lines:
            writer.write(line + b"\n")
            before = answers.count(b"\n")
            while answers.count(b"\n") == before and (data := await reader.read(100_000)):
                answers += data
        writer.close()
        return [json.loads(answer) for answer in answers.splitlines()]

    return asyncio.run(asyncio.wait_for(talk(), 20))


def line(op, **fields):
    return json.dumps({"op": op, **fields}).encode()


def test_the_list_grows_the_register_changes_and_both_can_be_read():
    answers = conversation(
        line("append", value=7, id="a"),
        line("append", value="x"),
        line("list"),
        line("read"),
        line("write", value=3),
        line("read", id=9),
    )
    assert [answer.get("result") for answer in answers] == [1, 2, [7, "x"], None, 3, 3]
    assert [answer["id"] for answer in answers] == ["a", None, None, None, None, 9]


def test_a_refusal_has_the_id_of_its_line_if_that_can_be_read_and_names_the_operations():
    answers = conversation(
        line("append", value=[1], id=4),
        line("fly", id="b"),
        b'{"id": 6}',
        b'{"id": [7], "op": "list"}',
        b'{"id": 8',
    )
    assert [answer["id"] for answer in answers] == [4, "b", 6, None, None]
    for answer in answers:
        assert "append, write, list, read, status, members or transfer" in answer["because"]


def test_status_says_who_leads_and_how_far_things_are():
    [answer] = conversation(line("status"))
    status = answer["result"]
    assert (status["role"], status["leader"], status["voters"]) == ("leader", 1, [1])
    assert status["first_index"] <= status["applied"] == status["committed"]


@pytest.mark.parametrize(
    ("nonsense", "says"),
    [
        (b"hello", "is no request"),
        (b"[1]", "is no request"),
        (b"", "is no request"),
        (line("jump"), "the operation 'jump'"),
        (line("append"), "append without a value"),
        (line("append", value=[1]), "is no request"),
        (line("append", valeu=1), "valeu"),
        (line("transfer", to=1), "cannot take over"),
        (line("members", voters=[]), "name at least one voter"),
        (line("append", value="x" * 1_000_000), "a line of more than"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(nonsense, says):
    if len(nonsense) > MAX_LINE_BYTES:  # the only thing that ends a connection
        assert says in conversation(nonsense)[0]["because"]
        return
    refused, after = conversation(nonsense, line("list"))
    assert refused["error"] in ("BadRequest", "RaftError")
    assert says in refused["because"]
    assert after["result"] == []


def on_a_loop(test):
    """The test is a coroutine function."""

    def run():
        asyncio.run(asyncio.wait_for(test(), 20))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("9" * 30, "use text, or a number of 64 bits"),
        (str(2**64), "use text, or a number of 64 bits"),
        (str(-(2**63) - 1), "use text, or a number of 64 bits"),
        ("1.5", "no request"),
        ('"\\ud800"', "no request"),
        ('"\xff"', "no request"),
        ("[" * 9_000, "no request"),
    ],
)
def test_a_value_that_no_command_can_hold_is_refused(value, says):
    [refused] = conversation(b'{"op": "append", "value": %s}' % value.encode("latin-1"))
    assert says in refused["because"]


@on_a_loop
async def test_who_does_not_read_is_not_read_from_either():
    """Else a client that asks and never reads would fill the server's memory with answers."""
    async with serving() as (service, address):
        begun, begin = [], service._begin
        service._begin = lambda request: begun.append(request) or begin(request)
        service._machine.values = ["x" * 60_000]
        reader, writer = await RealNet().connect(address)
        asked = 3_000
        writer.write((line("list") + b"\n") * asked)
        before = -1
        while len(begun) != before:  # until it takes no more
            before = len(begun)
            await asyncio.sleep(0.02)
        assert before < 1_000
        answers = 0
        while answers < asked:
            answers += (await reader.read(10**6)).count(b"\n")
        assert len(begun) == asked
        writer.close()


@on_a_loop
async def test_so_many_requests_of_a_connection_are_under_way_and_no_more():
    async with serving((1, 2, 3)) as (service, address):
        futures = []
        service._node.read = lambda: futures.append(asyncio.Future()) or futures[-1]
        reader, writer = await RealNet().connect(address)
        writer.write((line("list") + b"\n") * (MAX_UNDER_WAY + 50))
        while len(futures) < MAX_UNDER_WAY:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert len(futures) == MAX_UNDER_WAY
        futures[0].set_result(None)
        assert await reader.read(1_000)
        await asyncio.sleep(0.02)
        assert len(futures) == MAX_UNDER_WAY + 1
        writer.close()


@on_a_loop
async def test_one_client_too_many_is_hung_up_on_and_told():
    events = Events("server-1")
    async with serving(max_clients=2, events=events) as (_, address):
        ends = [await RealNet().connect(address) for _ in range(3)]
        assert await ends[2][0].read(1) == b""
        ends[0][1].write(line("list") + b"\n")
        assert await ends[0][0].read(100)
        assert [event.kind for event in events.events] == ["full"]
        for _, writer in ends:
            writer.close()


@on_a_loop
async def test_who_asks_nothing_for_long_is_hung_up_on():
    async with serving(idle_s=0.02) as (_, address):
        reader, writer = await RealNet().connect(address)
        assert await reader.read(1) == b""
        writer.close()


def test_who_does_not_lead_says_so():
    [append, read] = conversation(line("append", value=1), line("list"), voters=(1, 2, 3))
    assert (append["error"], read["error"]) == ("NotLeader", "NotLeader")
