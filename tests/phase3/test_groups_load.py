"""A coordinator that takes over reads what its groups have committed: in pieces, while others go
on, and until it has read all of it nobody is told anything of a group."""

from __future__ import annotations

import asyncio
import struct
from itertools import pairwise

import pytest
from brokers import delete_topic, make_topic
from msgspec.structs import replace

from craft2.clock import ManualClock
from craft2.disk import DiskError
from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import encode_values
from craft2.tasks import Tasks
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import Commit, Heartbeat, Leave, OffsetToCommit, Sync
from phase2_groups.group_state import GroupLimits, State
from phase2_groups.offset_records import offset_key, offset_value
from phase2_groups.offsets_table import OffsetsTable
from phase3_raft import schemas
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.groups import coordinator, offsets
from phase3_raft.groups.coordinator import OFFSETS_TOPIC, Coordinator, partition_of
from phase3_raft.groups.offsets import OffsetsPartition
from phase3_raft.handlers import APIS
from phase3_raft.metadata.records import PartitionRecord
from phase3_raft.partition import Partition
from phase3_raft.topic_config import TopicConfig

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
LONG = 300  # records


@pytest.fixture
def in_pieces(monkeypatch):
    """Of one record each."""
    monkeypatch.setattr(offsets, "AT_ONCE", 1)


async def ask(broker, name, version, **fields):
    """A request as a client sends it, and the reply as it reads it."""
    api = next(api for api in APIS if api.name == name)
    flexible = schemas.is_flexible(name, version)
    head = struct.pack(">hhih", api.key, version, 7, -1) + b"\0" * flexible
    body = schemas.encode(name, version, fields, "request")
    [*pieces] = await broker.dispatch.answer(head + body, "/127.0.0.1")
    reply = b"".join(pieces)
    return schemas.decode(name, version, reply, 8 + flexible, latest=version, kind="response")


async def what_is_said(broker, group="g"):
    """The error codes with which everything that can be asked of a group is answered."""
    topic = {"name": "t", "partitions": [{"partition_index": 0}]}
    names = [{"name": "t", "partition_indexes": [0]}]
    described = await ask(
        broker, "describe_groups", 4, include_authorized_operations=False, groups=[group]
    )
    listed = await ask(broker, "list_groups", 4, states_filter=())
    deleted = await ask(broker, "delete_groups", 2, groups_names=[group])
    old = await ask(broker, "offset_fetch", 5, group_id=group, topics=names)
    new = await ask(
        broker, "offset_fetch", 8, groups=[{"group_id": group, "topics": names}], require_stable=0
    )
    forgotten = await ask(broker, "offset_delete", 0, group_id=group, topics=[topic])
    return {
        "DescribeGroups": described.groups[0].error_code,
        "ListGroups": listed.error_code,
        "DeleteGroups": deleted.results[0].error_code,
        "OffsetFetch": old.error_code,
        "OffsetFetch of many": new.groups[0].error_code,
        "OffsetDelete": forgotten.error_code,
    }


def commit(group, offset=5, topic="t", number=0):
    return offset_key(group, topic, number), offset_value(OffsetToCommit(offset=offset), 1)


def write(log, records):
    """Each in a batch of its own, as commits are."""
    for key, value in records:
        log.append(encode_values([value], keys=[key], timestamps=1))


def new_broker(partitions=1, said=None, disk=None):
    broker = Broker(
        BrokerConfig("/data", offsets_partitions=partitions),
        disk=disk or FaultyDisk(),
        trouble=(said if said is not None else []).append,
    )
    for topic, count in (("t", 1), ("u", 1), (OFFSETS_TOPIC, partitions)):
        make_topic(broker, topic, count)
    return broker


def long_ago(broker, group="g", number=0):
    """Many commits of this group, which a coordinator has to read that begins now."""
    log = broker.partition(OFFSETS_TOPIC, number)
    write(log, [commit(group, offset) for offset in range(LONG)])
    write(log, [commit(group, 9, "u"), commit(group, 9, "gone")])


async def until(reached):
    async with asyncio.timeout(20):
        while not reached():
            await asyncio.sleep(0)


def test_who_cannot_know_yet_says_so_whatever_is_asked(monkeypatch):
    async def play():
        broker = new_broker()
        write(broker.partition(OFFSETS_TOPIC, 0), [commit("g")])
        with monkeypatch.context() as behind:
            behind.setattr(Partition, "is_current", False)
            said = await what_is_said(broker)
            assert said == dict.fromkeys(said, LOADING)
            [group] = (
                await ask(
                    broker, "describe_groups", 4, include_authorized_operations=False, groups=["g"]
                )
            ).groups
            assert (group.group_id, group.group_state, group.members) == ("g", "", ())
        [group] = (
            await ask(
                broker, "describe_groups", 4, include_authorized_operations=False, groups=["g"]
            )
        ).groups
        assert (group.error_code, group.group_state) == (0, State.EMPTY.value)
        [group] = (await ask(broker, "list_groups", 4, states_filter=())).groups
        assert group.group_id == "g"
        [group] = (
            await ask(
                broker, "describe_groups", 4, include_authorized_operations=False, groups=["h"]
            )
        ).groups
        assert (group.error_code, group.group_state) == (0, State.DEAD.value)

    asyncio.run(play())


@pytest.mark.usefixtures("in_pieces")
def test_a_long_log_is_read_to_its_end_before_anything_is_said_of_a_group():
    async def play():
        broker = new_broker()
        long_ago(broker)
        for _ in range(3):
            said = await what_is_said(broker)
            assert said == dict.fromkeys(said, LOADING)
            assert not broker._offsets[0].table.latest
        await until(lambda: broker._offsets[0].is_loaded)
        committed = await broker.groups.committed("g")
        assert committed["t", 0].offset == LONG - 1
        described = await ask(
            broker, "describe_groups", 4, include_authorized_operations=False, groups=["g"]
        )
        assert described.groups[0].group_state == State.EMPTY.value
        assert set((await what_is_said(broker)).values()) == {0, ErrorCode.GROUP_ID_NOT_FOUND}

    asyncio.run(play())


def test_others_have_their_turn_while_many_logs_are_read(monkeypatch):
    """A controller that reads for seconds is deposed."""
    partitions, turns, taken = 5, [], []
    take = OffsetsTable.take

    def counted(self, key, value):
        taken.extend([key] if value is not None else [])  # or it is being forgotten
        take(self, key, value)

    async def others():
        while True:
            turns.append(len(taken))
            await asyncio.sleep(0)

    async def play():
        broker = new_broker(partitions)
        names = {partition_of(f"g{n}", partitions): f"g{n}" for n in range(100)}
        for number, name in names.items():
            long_ago(broker, name, number)
        monkeypatch.setattr(OffsetsTable, "take", counted)
        begun = asyncio.ensure_future(others())
        listed = await ask(broker, "list_groups", 4, states_filter=())
        assert (listed.error_code, listed.groups) == (LOADING, ())
        await until(lambda: all(broker._offsets[number].is_loaded for number in names))
        begun.cancel()
        assert len(taken) == partitions * (LONG + 2)
        at_once = [after - before for before, after in pairwise(turns)]
        assert max(at_once) <= offsets.AT_ONCE
        listed = await ask(broker, "list_groups", 4, states_filter=())
        assert listed.error_code == 0
        assert [one.group_id for one in listed.groups] == sorted(names.values())

    asyncio.run(play())


@pytest.mark.usefixtures("in_pieces")
def test_commits_for_a_topic_that_goes_while_they_are_read_go_too():
    """Or one of that name that is made anew would be read from there."""

    async def play():
        broker = new_broker()
        long_ago(broker)
        assert await broker.groups.committed("g") == LOADING
        delete_topic(broker, "t")
        make_topic(broker, "t", 1)
        assert not broker._offsets[0].is_loaded
        await until(lambda: broker._offsets[0].is_loaded)
        await until(lambda: len(broker._offsets[0].table.latest) == 1)
        assert list(await broker.groups.committed("g")) == [("u", 0)]

    asyncio.run(play())


class Taken:
    """A coordinator of one partition, which broker 1 may lead, or broker 2."""

    def __init__(self):
        disk = FaultyDisk()
        disk.mkdir("/data")
        self.clock, self.tasks, self.told = ManualClock(), Tasks(pytest.fail), []
        self.record = PartitionRecord(OFFSETS_TOPIC, 0, (1,), (1,), 1, 1, 0)
        self.partition = Partition(
            "/data/offsets-0", self.record, TopicConfig({}), disk, self.clock, me=1
        )
        self.partition.trouble = self.told.append
        self.found = None
        self.groups = Coordinator(
            lambda: 1, self.offsets_of, self.there, GroupLimits(), self.clock, self.tasks
        )

    async def there(self):
        return ErrorCode.NONE

    def offsets_of(self, number):
        if not self.partition.leads:
            return ErrorCode.NOT_COORDINATOR
        if self.found is None:
            self.found = OffsetsPartition(self.partition, self.clock)
            self.groups.begin(self.found, ["t"])
        return self.found

    def becomes(self, leader):
        epoch = self.record.leader_epoch + 1
        self.record = replace(self.record, leader=leader, leader_epoch=epoch)
        self.partition.become(self.record)
        if self.found is not None and not self.found.leads:
            self.found = None
            self.groups.resign(0)


@pytest.mark.parametrize(
    ("request_of_member", "error"),
    [
        (Heartbeat(token="1", member_id="m", generation=1), ErrorCode.NONE),
        (
            Sync(token="1", member_id="m", generation=1, assignments=()),
            ErrorCode.REBALANCE_IN_PROGRESS,
        ),
        (Leave(token="1", members=()), LOADING),
        (Commit(token="1", member_id="m", generation=1, offsets=()), LOADING),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.usefixtures("in_pieces")
def test_members_are_told_what_they_can_go_on_with(request_of_member, error):
    """As by Kafka: Java's consumer ends when its SyncGroup is told that the coordinator loads."""

    async def play():
        taken = Taken()
        write(taken.partition, [commit("g", offset) for offset in range(LONG)])
        assert (await taken.groups.ask("g", request_of_member)).error == error

    asyncio.run(play())


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize("kept", [LONG, LONG // 2], ids=["all is kept", "half was cut"])
def test_what_was_read_before_another_broker_led_counts_no_more(kept):
    async def play():
        taken = Taken()
        write(taken.partition, [commit("g", offset) for offset in range(LONG)])
        assert await taken.groups.committed("g") == LOADING
        first = taken.found
        for _ in range(5):
            await asyncio.sleep(0)
        taken.becomes(2)
        assert await taken.groups.committed("g") == ErrorCode.NOT_COORDINATOR
        assert taken.groups.describe("g") == ErrorCode.NOT_COORDINATOR
        taken.partition.truncate_to(kept)
        taken.becomes(1)
        assert await taken.groups.committed("g") == LOADING
        assert taken.found is not first
        await until(lambda: taken.found.is_loaded)
        assert not first.is_loaded
        assert (await taken.groups.committed("g"))["t", 0].offset == kept - 1
        await until(lambda: not taken.tasks)

    asyncio.run(play())


@pytest.mark.usefixtures("in_pieces")
def test_what_cannot_be_read_is_told_once_and_read_later(monkeypatch):
    monkeypatch.setattr(coordinator, "_AGAIN_S", 0)

    async def play():
        taken = Taken()
        write(taken.partition, [commit("g", offset) for offset in range(LONG)])
        log, read, failed = taken.partition.log, taken.partition.log.records, []

        def broken():
            yield from list(read())[:7]
            failed.append(1)
            raise DiskError("cannot read", "mend the disk")

        log.records = broken
        assert await taken.groups.committed("g") == LOADING
        await until(lambda: len(failed) > 2)
        assert await taken.groups.committed("g") == LOADING
        assert [line.partition(". Fix")[0] for line in taken.told] == [
            f"{OFFSETS_TOPIC}-0 cannot be read: cannot read"
        ]
        log.records = read
        await until(lambda: taken.found.is_loaded)
        assert (await taken.groups.committed("g"))["t", 0].offset == LONG - 1

    asyncio.run(play())
