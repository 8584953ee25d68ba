"""Members of a group on a simulated cluster: they join, are given an assignment, and commit.

They read nothing, so that nothing but the group is at stake. What one of them hands out in a
generation has its name and a number in it; so whoever else is told of that generation can be
compared with it.
"""

from __future__ import annotations

import asyncio
from typing import Any

from craft2.apps.simulate import requests
from craft2.apps.simulate.cluster_clients import GIVEN_UP, TOPIC, Client, World
from craft2.apps.simulate.raft_rules import Broken
from craft2.apps.simulate.requests import Fields
from craft2.sim.machine import Machine
from phase2_groups.error_codes import ErrorCode

GROUP = "members"
SESSION_MS, REBALANCE_MS = 500, 700

_AGAIN = frozenset(  # join again
    {
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


class _Member:
    """One that is in a generation, or in none: -1.

    assignments: what was handed out in each generation, by all that was told to anybody.
    """

    def __init__(
        self, world: World, name: str, machine: Machine, assignments: dict[int, bytes]
    ) -> None:
        self.client = Client(machine, world.chance, group=GROUP, expected=_AGAIN, given_up=GIVEN_UP)
        self.generation = -1
        self._world, self._name, self._assignments = world, name, assignments
        self._id = ""
        self._times = 0  # that it has led

    async def join(self) -> None:
        """Once: it is in a generation afterwards, if all went well."""
        reply = await self._ask(
            "join_group",
            5,
            {
                "group_id": GROUP,
                "session_timeout": SESSION_MS,
                "rebalance_timeout": REBALANCE_MS,
                "member_id": self._id,
                "group_instance_id": None,
                "protocol_type": "consumer",
                "protocols": [{"name": "any", "metadata": b""}],
            },
        )
        if reply is None:
            return
        handed_out = []
        if reply.leader == reply.member_id:
            self._times += 1
            handed_out = [
                {"member_id": one.member_id, "assignment": f"{self._name}:{self._times}".encode()}
                for one in reply.members
            ]
        fields = {**self._who(reply.generation_id), "group_id": GROUP, "assignments": handed_out}
        synced = await self._ask("sync_group", 3, fields)
        if synced is not None:
            self._is_told(reply.generation_id, synced.assignment)

    def _is_told(self, generation: int, assignment: bytes) -> None:
        known = self._assignments.setdefault(generation, assignment)
        if known != assignment:
            what = f"in generation {generation} {self._name} is given {assignment!r}"
            raise Broken("one assignment a generation", f"{what}, and somebody else {known!r}")
        self.generation = generation
        self._world.says(self._name, f"is given {assignment.decode()!r} in {generation}")

    async def be_there(self) -> None:
        """Say so, or commit something."""
        who = {**self._who(self.generation), "group_id": GROUP}
        if self._world.chance.random() < 0.5:
            await self._ask("heartbeat", 3, who)
            return
        one = {
            "partition_index": 0,
            "committed_offset": self.generation,
            "committed_leader_epoch": -1,
            "committed_metadata": self._name,
        }
        topics = [{"name": TOPIC, "partitions": [one]}]
        who["generation_id_or_member_epoch"] = who.pop("generation_id")
        await self._ask("offset_commit", 7, {**who, "topics": topics})

    def _who(self, generation: int) -> Fields:
        return {"member_id": self._id, "group_instance_id": None, "generation_id": generation}

    async def _ask(self, name: str, version: int, fields: Fields) -> Any:
        """The reply without an error; None: there is none, or it has to join again."""
        _, reply = await self.client.ask_coordinator(name, version, fields)
        if reply is None:
            return None
        if name == "join_group" and reply.member_id:
            self._id = reply.member_id
        error = requests.error_in(reply)
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self._id = ""
        if error:
            self.generation = -1
            return None
        return reply


async def take_part(
    world: World, name: str, machine: Machine, assignments: dict[int, bytes]
) -> None:
    """As long as there is something to read; and then until all are of one generation, since one
    may just be joining again."""
    member, chance = _Member(world, name, machine, assignments), world.chance
    await member.client.make_topic()
    while not world.members_agree:
        if member.generation < 0:
            await member.join()
        else:
            await member.be_there()
        world.generations[name] = member.generation
        known = set(world.generations.values())
        if world.timeline.now_ms >= world.read_until_ms and len(known) == 1 and -1 not in known:
            world.members_agree = True
        await asyncio.sleep(chance.random() / 5)
