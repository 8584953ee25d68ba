"""Somebody who makes topics, has them grow, sets them, and deletes them, two in a request.

Many of the requests are given up while they are under way, and asked again, or asked twice at once,
until a broker says what has become of each of the two topics. What was given up may be done later
all the same: a topic that was deleted meanwhile would be there again, as another one. So a topic is
deleted only if nothing that makes it can be under way.
"""

from __future__ import annotations

import asyncio
import re
from itertools import chain
from typing import Any

from craft2.apps.simulate import requests
from craft2.apps.simulate.cluster_clients import Client, World
from craft2.apps.simulate.raft_rules import Broken
from craft2.apps.simulate.requests import Fields
from craft2.sim.machine import Machine
from phase2_groups.error_codes import ErrorCode
from phase3_raft.metadata.image import Image

NAMED = re.compile(r"\bx\d+")  # what its topics are called
PARTITIONS = 2  # of a topic that has grown; before, it has one
SETTING, VALUE = "retention.ms", "3600000"
_GIVEN_UP, _TWICE = 0.3, 0.5  # of the requests
_AGAIN = frozenset({ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.REQUEST_TIMED_OUT})


class Topics:
    """What was told of the topics that come and go.

    there: those that were made, and are not deleted; grown and set: those of them that were. gone:
    those that were deleted.
    """

    def __init__(self) -> None:
        self.there: set[str] = set()
        self.grown: set[str] = set()
        self.set: set[str] = set()
        self.gone: set[str] = set()

    def compare(self, who: str, image: Image) -> None:
        """With what a broker knows when all is over. Raises Broken."""
        for name in sorted(self.there | self.gone):
            topic, what = image.topics.get(name), ""
            if topic is None:
                what = "does not know it" if name in self.there else ""
            elif name in self.gone:
                what = "knows it still"
            elif name in self.grown and len(topic.partitions) != PARTITIONS:
                what = f"knows {len(topic.partitions)} of its {PARTITIONS} partitions"
            elif name in self.set and topic.config.get(SETTING) != VALUE:
                what = f"has the settings {topic.config} for it"
            if what:
                raise Broken("topics are as was told", f"{name}: {who} {what}")


class _Admin:
    def __init__(self, world: World, name: str, machine: Machine) -> None:
        self._clients = [Client(machine, world.chance, given_up=_GIVEN_UP) for _ in range(2)]
        self._world, self._name = world, name

    async def ask(
        self, name: str, version: int, fields: Fields, topics: set[str], done: ErrorCode
    ) -> bool:
        """Until every topic is answered for; returns whether every request was.

        done: what a topic's error is if a request has done it that was given up.
        """
        waiting, answered = set(topics), True
        while waiting:
            some = self._clients if self._world.chance.random() < _TWICE else self._clients[:1]
            asked = [client.ask_anybody(name, version, fields) for client in some]
            replies = await asyncio.gather(*asked)
            answered &= None not in replies
            for topic, error in chain.from_iterable(map(_errors, filter(None, replies))):
                answered &= error != ErrorCode.REQUEST_TIMED_OUT
                if error in (ErrorCode.NONE, done):
                    waiting.discard(topic)
                    self._world.says(self._name, f"is told {error.name} to {name}, {topic}")
                elif error not in _AGAIN and not error.retriable and topic in waiting:
                    what = f"{self._name}: {name} of {topic} is answered with {error.name}"
                    raise Broken("no error", what)
            await asyncio.sleep(0.02)
        return answered


def _errors(reply: Any) -> list[tuple[str, ErrorCode]]:
    parts = (getattr(reply, part, None) for part in ("topics", "results", "responses"))
    return [
        (getattr(one, "name", None) or one.resource_name, ErrorCode(one.error_code))
        for one in next(part for part in parts if part is not None)
    ]


async def administer(world: World, name: str, machine: Machine, topics: Topics) -> None:
    """Two topics after the other."""
    admin, chance, number = _Admin(world, name, machine), world.chance, 0
    while world.timeline.now_ms < world.send_until_ms:
        pair = {f"x{number}", f"x{number + 1}"}
        number += 2
        names = sorted(pair)
        fields = requests.create_topics(names, 1, chance.choice((2, 3)))
        exists = ErrorCode.TOPIC_ALREADY_EXISTS
        answered = await admin.ask("create_topics", 4, fields, pair, exists)
        topics.there |= pair
        await asyncio.sleep(chance.random() / 5)
        if chance.random() < 0.5:
            fields = requests.create_partitions(names, PARTITIONS)
            has_them = ErrorCode.INVALID_PARTITIONS
            await admin.ask("create_partitions", 1, fields, pair, has_them)
            topics.grown |= pair
        if chance.random() < 0.5:
            fields = requests.set_topics(names, SETTING, VALUE)
            await admin.ask("incremental_alter_configs", 1, fields, pair, ErrorCode.NONE)
            topics.set |= pair
        await asyncio.sleep(chance.random() / 5)
        if answered and chance.random() < 0.8:
            doomed = pair if chance.random() < 0.5 else {names[0]}
            topics.there -= doomed
            fields = requests.delete_topics(sorted(doomed))
            is_gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await admin.ask("delete_topics", 4, fields, doomed, is_gone)
            topics.gone |= doomed
        await asyncio.sleep(chance.random() * 2)
