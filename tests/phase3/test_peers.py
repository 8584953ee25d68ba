"""Connections between brokers: nobody is waited for without end, and none is left open."""

from __future__ import annotations

import asyncio
import random

import pytest

from craft2.net import Address
from craft2.sim.loop import SimLoop
from craft2.sim.net import Wires
from craft2.sim.timeline import Timeline
from phase3_raft.peers import ANSWER_S, CALL_S, PASSED_ON_S, Peers

THERE = Address("b", 9092)
QUESTION = "allocate_producer_ids", 0, {"broker_id": 1, "broker_epoch": -1}


class Silent:
    """Two machines in virtual time: `a` asks, `b` accepts connections and says nothing."""

    def __init__(self):
        self.timeline = Timeline()
        self.wires = wires = Wires(self.timeline, random.Random(1))
        self.a, b = SimLoop(self.timeline, "a"), SimLoop(self.timeline, "b")
        self.ended = []  # of each connection: whether `a` has hung up
        self.peers = Peers(wires.machine(self.a), "a", lambda broker: THERE)
        net = wires.machine(b)

        async def hear(reader, number):
            while await reader.read(100):
                pass
            self.ended[number] = True

        def accepted(reader, writer):
            self.ended.append(False)
            b.create_task(hear(reader, len(self.ended) - 1))

        b.create_task(net.listen(THERE, accepted))
        self.timeline.run(10)

    def run(self, work, seconds):
        task = self.a.create_task(work)
        self.timeline.run(self.timeline.now_ms + int(seconds * 1_000))
        return task

    def ask(self):
        return self.peers.ask(2, *QUESTION, "lane")


@pytest.mark.parametrize(("how", "limit_s"), [("ask", ANSWER_S), ("pass on", PASSED_ON_S)])
def test_a_broker_that_never_answers_is_hung_up_on_and_asked_anew_on_another_connection(
    how, limit_s
):
    world = Silent()

    def question():
        return world.ask() if how == "ask" else world.peers.pass_on(2, b"", "")

    task = world.run(question(), limit_s - 0.5)
    assert not task.done()
    world.timeline.run(world.timeline.now_ms + 600)
    assert isinstance(task.exception(), TimeoutError)
    assert world.ended == [True]
    world.run(question(), 0.1)
    assert world.ended == [True, False]


async def hang_up(peers):
    peers.close()


def test_two_questions_at_once_leave_one_connection():
    world = Silent()

    async def both():
        await asyncio.gather(world.ask(), world.ask(), return_exceptions=True)

    world.run(both(), 1)
    assert sorted(world.ended) == [False, True]
    world.run(hang_up(world.peers), 1)
    assert world.ended == [True, True]


def test_the_first_that_is_asked_may_be_silent_too():
    world = Silent()
    task = world.run(world.peers.ask_first([THERE, THERE], *QUESTION), 2 * ANSWER_S + 1)
    assert isinstance(task.exception(), TimeoutError)
    assert world.ended == [True, True]


def test_whether_somebody_is_there_is_known_soon_or_not_at_all():
    """A controller that waited for a machine that is off would fence nobody meanwhile."""
    world = Silent()
    assert world.run(world.peers.accepts(THERE), 0.1).result()
    assert not world.run(world.peers.accepts(Address("b", 1)), 0.1).result()
    world.wires.cut(["a"], ["b"])
    assert world.run(world.peers.accepts(THERE), CALL_S + 0.1).result()
