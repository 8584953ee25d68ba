"""RaftNode on a real event loop and loopback sockets, three in one process; disks in memory."""

from __future__ import annotations

import asyncio
import errno

import pytest

from craft2.disk import DiskError
from craft2.events import Events, EventsError
from craft2.faulty_disk import FaultyDisk
from craft2.net import Address, NetError, RealNet, free_ports
from craft2.tasks import Tasks
from phase3_raft.raft import driver, links
from phase3_raft.raft.application import (
    MAX_COMMAND_BYTES,
    Busy,
    NodeConfig,
    OutcomeUnknown,
    Stopped,
)
from phase3_raft.raft.driver import RaftNode
from phase3_raft.raft.frames import (
    VERSION,
    FrameReader,
    Hello,
    Reply,
    decode_greeting,
    frame,
    greeting,
)
from phase3_raft.raft.links import MAX_QUEUED, Links
from phase3_raft.raft.list_machine import ListMachine, command
from phase3_raft.raft.messages import (
    MAX_TERM,
    Append,
    Appended,
    Entry,
    InstallSnapshot,
    Members,
    RaftError,
    RequestVote,
    Snapshot,
    TimeoutNow,
    Vote,
    encode_message,
)
from phase3_raft.raft.state import NotLeader, RaftConfig
from phase3_raft.raft.storage import RaftStorage


def on_a_loop(test):
    """The test is a coroutine function."""

    def run():
        asyncio.run(asyncio.wait_for(test(), 20))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


async def until(reached):
    """Wait until `reached()` is true."""
    while not reached():
        await asyncio.sleep(0.002)


class Nodes:
    """A cluster, as a context. Each node has an events collector and a disk of its own."""

    def __init__(self, count=3, founders=None, machine=ListMachine, **config):
        self.ids = range(1, count + 1)
        self.founders = Members(founders or tuple(self.ids))
        self.disks = {i: FaultyDisk() for i in self.ids}
        self.events = {i: Events(f"server-{i}") for i in self.ids}
        self.machine, self.config = machine, config
        self.nodes = {}

    async def __aenter__(self):
        net = RealNet()
        held = [await net.listen(Address("127.0.0.1", 0), print) for _ in self.ids]
        self.addresses = {i: one.address for i, one in zip(self.ids, held, strict=True)}
        for one in held:
            one.close()
        for i in self.ids:
            await self.start(i)
        await self.connected()
        self.nodes[1]._server.election_at_ms = 0  # it stands at once
        self.nodes[1]._wake()
        return self

    async def __aexit__(self, *_):
        for node in self.nodes.values():
            node.stop()
        await asyncio.sleep(0)

    async def start(self, i):
        config = NodeConfig(
            cluster="c",
            server_id=i,
            listen=self.addresses[i],
            peers=self.addresses,
            **self.config,
        )
        storage = RaftStorage(f"/{i}", "c", i, self.founders, disk=self.disks[i])
        self.nodes[i] = RaftNode(
            config, self.machine(), storage, events=self.events[i], chance=lambda: i / 10
        )
        self.nodes[i]._links.storage = storage
        await self.nodes[i].start()

    async def connected(self):
        """Wait until everybody reaches everybody."""
        others = len(self.ids) - 1
        await until(lambda: all(len(n.status().connected) == others for n in self.nodes.values()))

    def leading(self):
        found = [n for n in self.nodes.values() if n.status().role == "leader"]
        return max((n for n in found if not n.stopped.is_set()), key=_term, default=None)

    async def leader(self):
        await until(self.leading)
        return self.leading()

    def followers(self):
        return [node for node in self.nodes.values() if node is not self.leading()]

    async def agree(self):
        """Wait until all that run have applied the same."""
        running = [n for n in self.nodes.values() if not n.stopped.is_set()]
        await until(
            lambda: len({(n.status().applied, n.status().last_index) for n in running}) == 1
        )

    async def propose(self, kind, value):
        return await (await self.leader()).propose(command(kind, value))


def _term(node):
    return node.status().term


# What an application sees.


@on_a_loop
async def test_a_proposal_is_done_when_it_is_applied_and_then_applied_everywhere():
    async with Nodes() as nodes:
        assert [await nodes.propose("append", value) for value in (5, 6, 7)] == [1, 2, 3]
        await nodes.agree()
        assert [node.machine.values for node in nodes.nodes.values()] == [[5, 6, 7]] * 3


@on_a_loop
async def test_what_comes_at_the_same_time_shares_a_message_and_a_sync():
    async with Nodes() as nodes:
        leader = await nodes.leader()
        await leader.propose(command("append", 0))
        disk = nodes.disks[leader.config.server_id]
        before = len(disk.trace)
        results = [leader.propose(command("append", value)) for value in range(500)]
        assert await asyncio.gather(*results) == list(range(2, 502))
        assert sum(step.startswith("sync") for step in disk.trace[before:]) < 10


@on_a_loop
async def test_followers_name_the_leader():
    async with Nodes() as nodes:
        leader = await nodes.leader()
        await nodes.propose("append", 1)
        await nodes.agree()
        for follower in nodes.followers():
            for ask in (follower.propose(command("append", 2)), follower.read()):
                with pytest.raises(NotLeader) as caught:
                    await ask
                assert caught.value.leader == leader.config.server_id


@on_a_loop
async def test_a_read_shows_what_was_answered_before_it():
    async with Nodes() as nodes:
        await nodes.propose("append", 1)
        leader = await nodes.leader()
        await leader.read()
        assert leader.machine.values == [1]


@on_a_loop
async def test_a_leader_without_a_majority_says_that_it_does_not_know():
    async with Nodes() as nodes:
        leader = await nodes.leader()
        await leader.propose(command("append", 1))
        for follower in nodes.followers():
            follower.stop()
        lost, read = leader.propose(command("append", 2)), leader.read()
        with pytest.raises(OutcomeUnknown, match="leads no more"):
            await lost
        with pytest.raises(NotLeader):
            await read
        assert leader.machine.values == [1]


@pytest.mark.parametrize("fate", ["carried out", "replaced", "in a snapshot", "its server stops"])
def test_a_leader_that_did_not_know_learns_from_the_next_one_what_became_of_a_command(fate):
    async def test():
        async with Nodes() as nodes:
            leader = await nodes.leader()
            await leader.propose(command("append", 1))
            for follower in nodes.followers():
                follower.stop()
            lost = leader.propose(command("append", 2))
            with pytest.raises(OutcomeUnknown) as caught:
                await lost
            outcome, log = caught.value.outcome, leader._server.log
            assert not outcome.done()
            before, last = log.term_at(log.last_index - 1), log.last_index
            head = {"sender": 2, "to": leader.config.server_id, "term": 90}
            other = Entry(90, last, command("append", 3))
            if fate == "carried out":
                other = Entry(before, last, command("append", 2))
            if fate == "in a snapshot":
                state = Snapshot(last, 90, Members((1, 2, 3)), leader.machine.snapshot())
                leader._received([InstallSnapshot(**head, snapshot=state)])
            elif fate == "its server stops":
                leader.stop()
            else:
                leader._received(
                    [
                        Append(
                            **head,
                            prev_index=last - 1,
                            prev_term=before,
                            entries=(other,),
                            commit=last,
                        )
                    ]
                )
            known = {"carried out": True, "replaced": False}
            assert await outcome is known.get(fate)

    on_a_loop(test)()


@on_a_loop
async def test_commands_that_are_too_long_are_refused_and_the_longest_is_not():
    async with Nodes() as nodes:
        leader = await nodes.leader()
        with pytest.raises(RaftError, match="a command of 1048577 bytes"):
            leader.propose(b"x" * (MAX_COMMAND_BYTES + 1))
        text = "x" * (MAX_COMMAND_BYTES - 13)
        assert await leader.propose(command("append", text)) == 1
        await nodes.agree()


def test_who_proposes_more_than_there_is_room_for_is_told_and_the_rest_is_done(monkeypatch):
    monkeypatch.setattr(driver, "MAX_WAITING", 3)

    @on_a_loop
    async def test():
        async with Nodes() as nodes:
            leader = await nodes.leader()
            some = [leader.propose(command("append", value)) for value in range(4)]
            with pytest.raises(Busy, match="3 proposals wait"):
                await some.pop()
            assert await asyncio.gather(*some) == [1, 2, 3]
            assert await leader.propose(command("append", 4)) == 4

    test()


def test_a_state_that_fits_into_no_frame_is_told_and_the_log_stays(monkeypatch):
    monkeypatch.setattr(driver, "MAX_SNAPSHOT_BYTES", 4)

    @on_a_loop
    async def test():
        async with Nodes(compact_every=10) as nodes:
            for value in range(25):
                await nodes.propose("append", value)
            leader = nodes.leading()
            told = [e for e in nodes.events[leader.config.server_id].events if "compact" in e.kind]
            assert [event.kind for event in told] == ["not-compacted"]
            assert leader.status().first_index == 1

    test()


@on_a_loop
async def test_leadership_is_handed_over():
    async with Nodes() as nodes:
        await nodes.propose("append", 1)
        heir = nodes.followers()[0]
        nodes.leading().transfer(heir.config.server_id)
        await until(lambda: nodes.leading() is heir)
        assert await heir.propose(command("append", 2)) == 2


@on_a_loop
async def test_a_server_joins_gets_a_snapshot_and_votes_and_another_leaves():
    async with Nodes(4, founders=(1, 2, 3), compact_every=20) as nodes:
        for value in range(60):
            await nodes.propose("append", value)
        leader = await nodes.leader()
        with pytest.raises(RaftError, match="in one step"):
            await leader.change_members(Members((4,)))
        await leader.change_members(Members((1, 2, 3), (4,)))
        joins = nodes.nodes[4]
        await until(lambda: len(joins.machine.values) == 60)
        assert any(event.kind == "snapshot-installed" for event in nodes.events[4].events)
        await leader.change_members(Members((1, 2, 3, 4)))
        stay = tuple(i for i in (1, 2, 3, 4) if i != leader.config.server_id)
        await leader.change_members(Members(stay))
        await until(lambda: nodes.leading() not in (None, leader))
        assert nodes.leading().status().voters == stay
        assert await nodes.propose("append", 60) == 61


class Watched(Links):
    """Links that look, before a promise leaves, whether it is on disk."""

    storage: RaftStorage
    promised = 0

    def send(self, message):
        if isinstance(message, Appended) and message.ok:
            assert self.storage._log.flushed > message.index
        elif isinstance(message, Vote) and message.granted and not message.pre:
            assert self.storage._read_hard_state() == (message.term, message.to)
        else:
            return super().send(message)
        Watched.promised += 1
        return super().send(message)


def test_no_answer_leaves_before_what_it_promises_is_on_disk(monkeypatch):
    monkeypatch.setattr(driver, "Links", Watched)

    @on_a_loop
    async def test():
        async with Nodes() as nodes:
            await asyncio.gather(*[nodes.propose("append", value) for value in range(50)])
            await nodes.agree()
            assert [node.failure for node in nodes.nodes.values()] == [None] * 3
            assert Watched.promised > 5

    test()


@on_a_loop
async def test_a_leader_whose_connections_break_is_replaced_without_waiting_for_a_timeout():
    slow = RaftConfig(election_timeout_ms=(60_000, 90_000), heartbeat_ms=200)
    async with Nodes(raft=slow) as nodes:
        await nodes.propose("append", 1)
        await nodes.agree()
        nodes.leading().stop()
        assert await nodes.propose("append", 2) == 2


# What stops a server.


@on_a_loop
async def test_a_leader_that_contradicts_what_is_committed_stops_a_server_loudly():
    async with Nodes() as nodes:
        await nodes.propose("append", 1)
        await nodes.agree()
        node = nodes.followers()[0]
        number, leader = node.config.server_id, nodes.leading().config.server_id
        new = Append(
            sender=leader, to=number, term=90, prev_index=0, prev_term=0, entries=(ENTRY,), commit=1
        )
        await say(nodes.addresses[number], said_by(leader, to=number), framed(new))
        assert node.stopped.is_set()
        assert "entry 1 is committed" in node.status().stopped
        assert nodes.events[number].events[-1].kind == "stopped"


@on_a_loop
async def test_a_disk_that_fails_stops_its_server_loudly_and_the_others_go_on():
    async with Nodes() as nodes:
        await nodes.propose("append", 1)
        leader = await nodes.leader()
        disk = nodes.disks[leader.config.server_id]
        disk.fail_at = dict.fromkeys(range(disk.steps + 1, disk.steps + 100), errno.EIO)
        with pytest.raises((OutcomeUnknown, Stopped)):
            await leader.propose(command("append", 2))
        assert leader.stopped.is_set()
        assert isinstance(leader.failure, DiskError)
        last = nodes.events[leader.config.server_id].events[-1]
        assert (last.kind, "EIO" in last.because) == ("stopped", True)
        for ask in (leader.propose(command("append", 3)), leader.read()):
            with pytest.raises(Stopped, match="EIO"):
                await ask
        await nodes.propose("append", 4)
        assert nodes.leading().machine.values[-1] == 4


class FullEvents(Events):
    """A collector on a disk that may be full."""

    full = False

    def _keep(self, event):
        if self.full:
            raise EventsError(f"event {event.kind!r} was not written", "free some space")
        super()._keep(event)


@pytest.mark.parametrize("first", ["its disk", "its events"])
def test_a_server_that_cannot_even_say_why_it_stops_stops_all_the_same(first):
    """Else it would lead on, and hold up everybody: it sends heartbeats and writes nothing."""

    async def test():
        async with Nodes() as nodes:
            await nodes.propose("append", 1)
            leader = await nodes.leader()
            leader._events.__class__ = FullEvents
            leader._events.full = True
            disk = nodes.disks[leader.config.server_id]
            if first == "its disk":
                disk.fail_at = dict.fromkeys(range(disk.steps + 1, disk.steps + 100), errno.ENOSPC)
                with pytest.raises((OutcomeUnknown, Stopped)):
                    await leader.propose(command("append", 2))
            else:
                leader._fail(EventsError("event 'connected' was not written", "free some space"))
            assert leader.stopped.is_set()
            assert isinstance(leader.failure, DiskError if first == "its disk" else EventsError)
            await nodes.propose("append", 3)
            assert nodes.leading() is not leader

    on_a_loop(test)()


@on_a_loop
async def test_a_state_machine_that_raises_stops_its_server():
    async with Nodes(1) as nodes:
        with pytest.raises((OutcomeUnknown, Stopped)):
            await (await nodes.leader()).propose(b"no command of this machine")
        last = nodes.events[1].events[-1]
        assert last.kind == "stopped"
        assert "BadCommand: 26 bytes are no command of this machine" in last.because


@on_a_loop
async def test_what_is_no_command_and_who_is_nobody_is_refused_and_changes_nothing():
    async with Nodes() as nodes:
        await nodes.propose("append", 1)
        leader = nodes.leading()
        for wrong in ("text", None, [b"x"], 7):
            with pytest.raises(RaftError, match="a command is bytes"):
                leader.propose(wrong)
        for wrong in ("12", [1, 2], (1, "2"), (1, True), None):
            for name in ("voters", "learners"):
                with pytest.raises(RaftError, match=f"{name}="):
                    await leader.change_members(Members(**{name: wrong}))
        for voters, says in (((), "in one step"), ((1, 2, 3, 3), "nobody twice")):
            with pytest.raises(RaftError, match=says):
                await leader.change_members(Members(voters))
        with pytest.raises(RaftError, match="server 9 cannot take over"):
            leader.transfer(9)
        assert await nodes.propose("append", 2) == 2
        assert leader.status().voters == (1, 2, 3)


@on_a_loop
async def test_a_server_that_starts_again_has_what_it_had():
    async with Nodes(compact_every=10) as nodes:
        for value in range(35):
            await nodes.propose("append", value)
        await nodes.agree()
        for i in nodes.ids:
            nodes.nodes[i].stop()
            nodes.disks[i] = nodes.disks[i].power_loss(keep=0.0)
        for i in nodes.ids:
            await nodes.start(i)
        assert nodes.nodes[1].status().first_index > 10
        assert await nodes.propose("append", 35) == 36
        await nodes.agree()
        assert [len(node.machine.values) for node in nodes.nodes.values()] == [36] * 3


@on_a_loop
async def test_a_port_that_is_taken_is_told():
    async with Nodes(1) as nodes:
        with pytest.raises(NetError, match=f"cannot listen at {nodes.addresses[1]}"):
            await RealNet().listen(nodes.addresses[1], print)


# Strangers.


async def say(address, *pieces):
    """Connect, say this, one piece an answer, and return what is answered until they hang up."""
    reader, writer = await RealNet().connect(address)
    answer, pieces = b"", list(pieces)
    writer.write(pieces.pop(0))
    while data := await reader.read(1_000):
        answer += data
        if pieces:
            writer.write(pieces.pop(0))
    writer.close()
    return [decode_greeting(body, Reply).refused for body in FrameReader(1_000).feed(answer)]


def said_by(sender, to=1, cluster="c"):
    return greeting(Hello(VERSION, cluster, sender, to))


ENTRY = Entry(90, 1, command("append", "evil"))
EVIL = Append(sender=2, to=1, term=90, prev_index=0, prev_term=0, entries=(ENTRY,), commit=1)


def framed(message):
    return frame(encode_message(message))


DAMAGED = bytearray(framed(EVIL))
DAMAGED[-1] ^= 1


@pytest.mark.parametrize(
    ("pieces", "says"),
    [
        ([b"GET / HTTP/1.1\r\n\r\n"], "a frame of"),
        ([said_by(2, cluster="other"), framed(EVIL)], "belongs to cluster 'other'"),
        ([said_by(9), framed(EVIL)], "nobody knows it here"),
        ([said_by(1), framed(EVIL)], "nobody's number but mine"),
        ([said_by(2, to=3), framed(EVIL)], "it looks for server 3"),
        ([framed(EVIL)], "are no Hello"),
        ([said_by(2) + framed(EVIL)], "more than a greeting, before that was answered"),
        ([said_by(3), framed(EVIL)], "from 2 to 1 on the connection from 3"),
        ([said_by(2), bytes(DAMAGED)], "the checksum of a frame"),
        ([said_by(2), b"\xff" * 8], "a frame of 4294967295 bytes"),
        ([said_by(2), frame(b"hello?")], "no message of a Raft server"),
        (
            [said_by(2), framed(Append(sender=2, to=1, term=90, prev_index=5, prev_term=90,
                                       entries=(ENTRY,), commit=1))],
            "cannot follow entry 5",
        ),
    ],
)  # fmt: skip
def test_strangers_are_refused_with_a_reason_and_change_nothing(pieces, says):
    async def test():
        async with Nodes() as nodes:
            await nodes.propose("append", 1)
            await nodes.agree()
            before = nodes.nodes[1].status().term
            answers = await say(nodes.addresses[1], *pieces)
            assert says in answers[-1]
            assert says in nodes.events[1].events[-1].because
            assert nodes.events[1].events[-1].kind == "refused"
            assert nodes.nodes[1].status().term == before
            assert await nodes.propose("append", 2) == 2

    on_a_loop(test)()


@pytest.mark.parametrize(
    "garbage",
    [b"\xff" * 8, frame(b"hello?"), bytes(DAMAGED)],
    ids=["no frame", "no message", "damaged"],
)
def test_a_message_counts_though_garbage_comes_in_one_piece_with_it(garbage):
    async def test():
        async with Nodes() as nodes:
            before = (await nodes.leader()).status().term
            new = Append(sender=2, to=1, term=90, prev_index=0, prev_term=0, entries=(), commit=0)
            assert (await say(nodes.addresses[1], said_by(2), framed(new) + garbage))[-1]
            assert before < 90 <= nodes.nodes[1].status().term

    on_a_loop(test)()


@on_a_loop
async def test_a_follower_that_says_it_has_what_nobody_wrote_is_hung_up_on_and_the_rest_counts():
    async with Nodes() as nodes:
        await nodes.propose("append", 1)
        leader = await nodes.leader()
        number, term = leader.config.server_id, leader.status().term
        other = next(i for i in nodes.ids if i != number)
        head = {"sender": other, "to": number, "term": term}
        wrong = Appended(**head, ok=True, index=10**6)
        answers = await say(nodes.addresses[number], said_by(other, to=number), framed(wrong))
        assert "has entry 1000000, and the last one is " in answers[-1]
        assert "refused" in [event.kind for event in nodes.events[number].events]
        assert await nodes.propose("append", 2) == 2
        assert leader.failure is None
        assert leader.status().committed < 10**6


def test_who_says_nothing_is_hung_up_on(monkeypatch):
    monkeypatch.setattr(links, "HELLO_S", 0.05)

    @on_a_loop
    async def test():
        async with Nodes(1) as nodes:
            assert await say(nodes.addresses[1], b"") == []

    test()


def test_strangers_that_say_nothing_have_so_many_connections_and_are_told_of_once(monkeypatch):
    monkeypatch.setattr(links, "MAX_STRANGERS", 3)

    @on_a_loop
    async def test():
        async with Nodes() as nodes:
            silent = [await RealNet().connect(nodes.addresses[1]) for _ in range(30)]
            events = nodes.events[1].events
            await until(lambda: any(event.kind == "full" for event in events))
            assert nodes.nodes[1]._links._listener.open <= 3 + 2 * 2
            assert await nodes.propose("append", 1) == 1
            assert [event.kind for event in events].count("full") == 1
            for _, writer in silent:
                writer.close()

    test()


@on_a_loop
async def test_a_vote_from_a_later_term_is_no_reason_to_leave_a_leader_that_is_heard():
    async with Nodes() as nodes:
        await nodes.propose("append", 1)
        await nodes.agree()
        follower = nodes.followers()[0].config.server_id
        reader, writer = await RealNet().connect(nodes.addresses[follower])
        other = next(i for i in nodes.ids if i != follower)
        writer.write(said_by(other, to=follower))
        await reader.read(100)
        ask = RequestVote(sender=other, to=follower, term=90, last_index=9**9, last_term=90)
        writer.write(framed(ask))
        await nodes.propose("append", 2)
        assert nodes.leading().status().term < 90
        writer.close()


def forged(to):
    """What would raise everybody's term for ever, if it were believed."""
    head = {"sender": 4, "to": to, "term": MAX_TERM - 1}
    return [
        Vote(**head, granted=False),
        Appended(**head, ok=False, index=0),
        Append(**head, prev_index=0, prev_term=0, entries=(), commit=0),
        InstallSnapshot(**head, snapshot=Snapshot(9, 9, Members((4,)))),
        RequestVote(**head, last_index=9**9, last_term=90, forced=True),
        TimeoutNow(**head),
    ]


@on_a_loop
async def test_who_has_an_address_and_is_no_member_cannot_raise_the_term():
    async with Nodes(4, founders=(1, 2, 3)) as nodes:
        nodes.nodes[4].stop()
        await nodes.propose("append", 1)
        await nodes.agree()
        term = nodes.leading().status().term
        for to in (1, 2, 3):
            reader, writer = await RealNet().connect(nodes.addresses[to])
            writer.write(said_by(4, to=to))
            await reader.read(100)
            writer.write(b"".join(framed(message) for message in forged(to)))
            writer.write(b"that is all")
            assert await reader.read(100)  # all before it was heard
            writer.close()
        assert await nodes.propose("append", 2) == 2
        assert [nodes.nodes[i].status().term for i in (1, 2, 3)] == [term] * 3


# Links alone.


class StuckWriter:
    """Takes nothing after a while."""

    def __init__(self):
        self.written = 0

    def write(self, data):
        self.written += 1

    async def drain(self):
        if self.written > 1:  # the hello goes out
            await asyncio.Event().wait()

    def close(self):
        pass


class WelcomingReader:
    def __init__(self):
        self.answers = [greeting(Reply())]

    async def read(self, n=-1):
        if self.answers:
            return self.answers.pop()
        return await asyncio.Event().wait()


class StuckNet(RealNet):
    """Whoever listens at port 1 says hello and then stands still."""

    async def connect(self, address):
        if address.port == 1:
            return WelcomingReader(), StuckWriter()
        return await super().connect(address)


def test_who_is_called_by_one_that_it_could_not_reach_tries_again_at_once(monkeypatch):
    monkeypatch.setattr(links, "PAUSE_S", (60.0, 60.0))

    @on_a_loop
    async def play():
        tasks, events = Tasks(), Events()
        ports = free_ports(2)
        peers = {n: Address("127.0.0.1", port) for n, port in enumerate(ports, 1)}

        def made(me):
            return Links("c", me, peers, RealNet(), tasks, events, lambda: 0.5, print, print)

        first, second = made(1), made(2)
        await first.open(peers[1])
        await until(lambda: [one for one in events.events if one.kind == "unreachable"])
        await second.open(peers[2])
        await until(lambda: first.connected() == [2] and second.connected() == [1])
        tasks.cancel()

    play()


@on_a_loop
async def test_who_is_called_without_end_pauses_all_the_same():
    peers = {n: Address("127.0.0.1", 1) for n in (1, 2)}
    some = Links("c", 1, peers, RealNet(), Tasks(), Events(), lambda: 0.5, print, print)
    link, loop = some._out[2], asyncio.get_running_loop()
    began = loop.time()
    for _ in range(3):
        link.hurry()
        await link._pause(links.PAUSE_S[1])
    assert loop.time() - began >= 3 * links.CALLED_S * 0.99


@on_a_loop
async def test_who_stands_still_has_a_bounded_queue_and_makes_nobody_else_wait():
    tasks, came = Tasks(), []
    nowhere = Address("127.0.0.1", 0)

    def made(me, peers, net):
        return Links("c", me, peers, net, tasks, Events(), lambda: 0.5, came.extend, print)

    second = made(2, {1: nowhere, 2: nowhere, 3: nowhere}, StuckNet())
    address = await second._net.listen(nowhere, lambda *ends: tasks.spawn(second._serve(*ends)))
    first = made(1, {1: nowhere, 2: address.address, 3: Address("127.0.0.1", 1)}, StuckNet())
    await first.open(nowhere)
    await until(lambda: first.connected() == [2, 3])
    for term in range(MAX_QUEUED + 500):
        first.send(Vote(sender=1, to=3, term=term, granted=True))
        await asyncio.sleep(0)
    first.send(Vote(sender=1, to=2, term=7, granted=True))
    await until(lambda: came)
    assert came == [Vote(sender=1, to=2, term=7, granted=True)]
    assert first.dropped == 499  # one is held by the writer
    tasks.cancel()


@on_a_loop
async def test_a_connection_that_ends_while_nothing_can_be_sent_is_made_anew():
    """They hang up, and what is being written is never taken: nobody waits for that."""

    class Ends(WelcomingReader):
        async def read(self, n=-1):
            if self.answers:
                return self.answers.pop()
            await ends.wait()
            return b""

    class EndingNet(StuckNet):
        async def connect(self, address):
            made.append(address)
            return Ends(), StuckWriter()

    ends, lost, made, tasks = asyncio.Event(), [], [], Tasks()
    nowhere = Address("127.0.0.1", 0)
    peers = {1: nowhere, 2: nowhere}
    some = Links("c", 1, peers, EndingNet(), tasks, Events(), lambda: 0.5, print, lost.append)
    await some.open(nowhere)
    await until(some.connected)
    for term in range(3):
        some.send(Vote(sender=1, to=2, term=term, granted=True))
        await asyncio.sleep(0)
    ends.set()
    await until(lambda: len(made) > 1)
    assert lost[0] == 2
    tasks.cancel()
