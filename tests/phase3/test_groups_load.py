"""Until a coordinator that takes over knows what its groups have committed, it says that it does
not know: nobody is told anything of a group before."""

from __future__ import annotations

import asyncio
import struct

from brokers import make_topic

from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import encode_values
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import OffsetToCommit
from phase2_groups.group_state import State
from phase2_groups.offset_records import offset_key, offset_value
from phase3_raft import schemas
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.groups.coordinator import OFFSETS_TOPIC
from phase3_raft.handlers import APIS
from phase3_raft.partition import Partition

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


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
