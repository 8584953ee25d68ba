"""What the simulated cluster has found in brokers, each in a few lines."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from craft2.batch_header import stamp
from craft2.clock import ManualClock
from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import encode_values
from craft2.tasks import Tasks
from phase1_file_queue.log_config import LogError
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import Commit, Join, OffsetToCommit, Sync
from phase2_groups.group_state import GroupLimits
from phase2_groups.offset_records import offset_key, offset_value
from phase2_groups.offsets_table import OffsetsTable
from phase3_raft import partition_files
from phase3_raft.fetch_messages import Fetched
from phase3_raft.groups.coordinator import Coordinator
from phase3_raft.groups.offsets import OffsetsPartition
from phase3_raft.handlers import fetch, list_offsets
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.quorum import _Machine
from phase3_raft.metadata.records import (
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_many,
)
from phase3_raft.partition import NotLeader, Partition
from phase3_raft.partitions import Partitions
from phase3_raft.replication.fetcher import Fetcher
from phase3_raft.replication.throttle import Throttle
from phase3_raft.schemas import decode, encode
from phase3_raft.topic_config import TopicConfig

LED = PartitionRecord("t", 0, (1, 2), (1, 2), 1, 1, 0)


def led(record=LED, **config):
    settings = {"segment.index.bytes": "4096"} | {k.replace("_", "."): config[k] for k in config}
    disk = FaultyDisk()
    disk.mkdir("/data")
    clock = ManualClock()
    return Partition("/data/t-0", record, TopicConfig(settings), disk, clock, me=1)


def partitions_of(image, disk):
    """Those of broker 1."""
    return Partitions(
        1,
        "/data",
        lambda: image,
        disk,
        ManualClock(),
        defaults={"segment.index.bytes": "4096"},
        max_lag_ms=500,
        trouble=pytest.fail,
    )


def asked(partition, *, offset, last_epoch):
    wanted = fetch.Wanted("t", 0, partition, offset, 1_000, 1, follower=2, last_epoch=last_epoch)
    return fetch.read(wanted, 1_000)


def test_a_follower_with_a_longer_log_is_told_where_to_cut_it():
    """And not that it is out of range: it would begin anew, and is perhaps in the ISR."""
    partition = led()
    partition.append(encode_values([b"a", b"b"], timestamps=1))
    found = asked(partition, offset=5, last_epoch=1)
    assert (found.error, found.diverging) == (ErrorCode.NONE, (1, 2))
    assert asked(partition, offset=5, last_epoch=-1).error == ErrorCode.OFFSET_OUT_OF_RANGE
    partition.log.advance_start(1)
    assert asked(partition, offset=0, last_epoch=1).error == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_never_ends_before_where_its_leader_begins():
    """Its leader has deleted all, and knows of no epoch: nothing is in common, and yet the follower
    is in the ISR, and may be the next to lead."""
    follower = led(replace(LED, leader=2))
    follower.append_as_follower(bytes(stamp(encode_values([b"a", b"b"], timestamps=1), 0, 1)))
    told = Fetched("t", 0, 0, 2, 2, b"", (-1, 2))
    fetcher = Fetcher(1, 2, None, print, Throttle(), lambda: None)
    asyncio.run(fetcher._take(("t", 0), follower, told))
    assert follower.log.bounds == (2, 2)


def test_who_leads_again_with_a_shorter_log_tells_of_all_that_is_new():
    """An unclean election had put another one before it, and its log was cut."""
    partition = led(replace(LED, isr=(1,)))
    for _ in range(9):
        partition.append(encode_values([b"a"], timestamps=1))
    partition.become(replace(LED, leader=2, leader_epoch=2, isr=(2,)))
    partition.truncate_to(3)
    partition.become(replace(LED, leader_epoch=3, isr=(1, 2)))
    told = []
    partition.watch(lambda: told.append(partition.high_watermark))

    async def send():
        partition.append(encode_values([b"b"], timestamps=1))
        waiting = asyncio.ensure_future(partition.replicated(4, 3))
        await asyncio.sleep(0)
        partition.fetched(2, 4)
        await asyncio.sleep(0)
        assert waiting.done()
        return waiting.result()

    assert asyncio.run(send()) == ErrorCode.NONE
    assert told[-1] == 4


def test_a_broker_leads_nothing_before_the_cluster_knows_that_it_has_started():
    image, disk = Image(), FaultyDisk()
    for record in (TopicRecord("t", "0" * 32), LED):
        image.apply(record)
    disk.mkdir("/data")
    partitions = partitions_of(image, disk)
    partitions.may_lead = False
    assert partitions.led("t", 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    former = partitions.replica(replace(LED, isr=(1,)))  # as an old snapshot has it
    former.log.append_as_leader(encode_values([b"a"], timestamps=1), 1)
    partitions.changed([replace(LED, isr=(1,))])
    assert former.high_watermark == 0, "broker 2 may be in sync by now"
    partitions.let_lead()
    found = partitions.led("t", 0)
    assert found is former
    assert found.high_watermark == 0
    found.fetched(2, 1)
    assert found.high_watermark == 1


def test_a_commit_is_not_written_where_it_could_not_be_acknowledged():
    partition = led(min_insync_replicas="3")
    offsets = OffsetsPartition(partition, ManualClock())
    with pytest.raises(LogError, match="too few replicas"):
        offsets.append([(b"key", b"value")]).send(None)  # it need not wait for that
    assert partition.log.end_offset == 0


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-1, 0), (1, 0), (0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_who_means_another_leader_is_not_told_of_an_end(epoch, error):
    version = 5 if epoch >= 0 else 1  # which has no place for it
    found = listed(led(PartitionRecord("t", 0, (1,), (1,), 1, 1, 0)), -1, epoch, version)
    assert found["error_code"] == error


def listed(partition, timestamp, epoch=-1, version=7):
    """What ListOffsets finds there."""

    class Broker:
        def partition(self, topic, number):
            return partition

    one = {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": timestamp}
    fields = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "t", "partitions": [one]}],
    }
    data = encode("list_offsets", version, fields, "request")
    request = decode("list_offsets", version, data, 0, latest=7)
    [found] = list_offsets.handle(Broker(), request, None)["topics"][0]["partitions"]
    return found


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(-1, 1), (-2, 0), (-3, -1), (1_000, 0), (2_000, -1), (3_000, -1)]
)
def test_a_record_that_is_not_replicated_is_not_found_by_its_time(timestamp, offset):
    partition = led()
    partition.append(encode_values([b"a"], timestamps=1_000))
    partition.fetched(2, 1)
    partition.append(encode_values([b"b"], timestamps=2_000))
    assert partition.high_watermark == 1
    found = listed(partition, timestamp)
    assert (found["error_code"], found["offset"]) == (0, offset)


ELSEWHERE = PartitionRecord("t", 0, (1, 2), (1, 2), 2, 2, 1)  # broker 2 leads now
BACK = PartitionRecord("t", 0, (1, 2), (1, 2), 1, 3, 2)


def test_who_leads_no_more_appends_nothing_in_the_new_leaders_epoch():
    """One epoch had two batches at one offset, and a follower could never find out."""
    partition = led()
    partition.append(encode_values([b"a"], timestamps=1))
    partition.become(ELSEWHERE)
    with pytest.raises(NotLeader, match="led by broker 2 in epoch 2"):
        partition.append(encode_values([b"b"], timestamps=1))
    assert partition.log.end_offset == 1


def test_a_commit_is_not_written_by_a_coordinator_of_the_past():
    partition = led()
    offsets = OffsetsPartition(partition, ManualClock())
    partition.become(ELSEWHERE)
    partition.become(BACK)
    with pytest.raises(LogError, match="another broker leads"):
        asyncio.run(offsets.append([(b"k", b"v")]))
    assert partition.log.end_offset == 0


def commit(partition, offset, metadata=""):
    value = OffsetToCommit(offset=offset, metadata=metadata)
    return offset_key("g", "t", partition), offset_value(value, 1)


def test_a_compacted_log_loses_no_commit_whoever_leads_next():
    """It cut off what its followers had not yet had again, and commits on their way, too."""

    async def turns():
        for _ in range(5):
            await asyncio.sleep(0)

    async def play():
        partition = led()
        offsets = OffsetsPartition(partition, ManualClock(), compact_after=4)
        for n in range(5):
            last = asyncio.ensure_future(offsets.append([commit(0, n)]))
            await turns()
            if n < 4:
                partition.fetched(2, n + 1)
        on_its_way = asyncio.ensure_future(offsets.append([commit(0, 5), commit(1, 7)]))
        await turns()
        partition.fetched(2, 5)
        await turns()
        assert (partition.log.log_start, partition.log.end_offset) == (0, 9)
        partition.fetched(2, 8)
        await turns()
        assert partition.log.log_start == 0, "broker 2 has the half of it"
        partition.fetched(2, 9)
        await asyncio.gather(last, on_its_way)
        assert partition.log.log_start == 7
        found = OffsetsPartition(partition, ManualClock()).table.offsets["g"]
        assert {key[1]: one.offset for key, one in found.items()} == {0: 5, 1: 7}

    asyncio.run(play())


def test_a_log_of_large_commits_is_compacted_in_batches_that_it_may_have():
    partition = led(replace(LED, isr=(1,), replicas=(1,)))
    offsets = OffsetsPartition(partition, ManualClock(), compact_after=1)
    many = [commit(number, 1, "x" * 4_000) for number in range(600)]
    for _ in range(5):
        asyncio.run(offsets.append(many))
    assert partition.log.log_start == 3_000
    read = OffsetsPartition(partition, ManualClock())
    asyncio.run(read.load())
    assert len(read.table.latest) == 600


def test_what_was_deleted_is_gone_also_for_who_learns_it_from_a_snapshot():
    """Its leader had cut the log of decisions: the removal itself is not in it any more."""
    image, disk = Image(), FaultyDisk()
    disk.mkdir("/data")
    partitions = partitions_of(image, disk)
    machine = _Machine(image, partitions.changed)
    settings = ConfigRecord("topic", "set", "retention.ms", "5")
    topics = [TopicRecord(name, f"{n:032x}") for n, name in enumerate(("t", "gone", "set"))]
    placed = [replace(LED, topic=name) for name in ("t", "gone", "set")]
    machine.apply(encode_many([*topics, *placed, settings]))
    old, gone, kept = (partitions.replica(one) for one in placed)
    old.append(encode_values([b"old"], timestamps=1))

    elsewhere = Image()
    for record in image.records():
        elsewhere.apply(record)
    for record in (
        RemoveTopicRecord("t"),
        RemoveTopicRecord("gone"),
        TopicRecord("t", "f" * 32),
        LED,
        ConfigRecord("topic", "set", "retention.ms", None),
    ):
        elsewhere.apply(record)
    machine.restore(_Machine(elsewhere, lambda records: None).snapshot())

    assert (old.deleted, gone.deleted, kept.deleted) == (True, True, False)
    assert kept.config["retention.ms"] == TopicConfig({})["retention.ms"]
    assert partitions.led("gone", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    new = partitions.replica(image.partition("t", 0))
    assert new is not old
    assert new.log.end_offset == 0
    partitions.tidy_all()
    assert sorted(disk.listdir("/data")) == ["set-0", "t-0"]

    again = Image()  # the same for who was down meanwhile
    disk.mkdir("/data/gone-0")
    partition_files.claim(disk, "/data/gone-0", f"{1:032x}")
    later = partitions_of(again, disk)
    _Machine(again, later.changed).restore(_Machine(elsewhere, lambda records: None).snapshot())
    later.tidy_all()
    assert sorted(disk.listdir("/data")) == ["set-0", "t-0"]


def test_a_group_that_is_deleted_while_its_first_commit_is_on_its_way_answers_it():
    async def play():
        safe = asyncio.Event()

        class Offsets:
            table, is_loaded = OffsetsTable(), True

            async def append(self, records):
                await safe.wait()

        async def there():
            return ErrorCode.NONE

        tasks = Tasks(lambda error: None)
        groups = Coordinator(
            lambda: 1, lambda _: Offsets(), there, GroupLimits(), ManualClock(), tasks
        )
        offsets = (("t", 0, OffsetToCommit(offset=1)),)
        asked = Commit(token="1", member_id="", generation=-1, offsets=offsets)
        waits = asyncio.ensure_future(groups.ask("g", asked))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await groups.delete("g") == ErrorCode.GROUP_ID_NOT_FOUND
        safe.set()
        assert (await asyncio.wait_for(waits, 5)).error == ErrorCode.NONE

    asyncio.run(play())


def test_a_group_that_went_elsewhere_does_nothing_more_here():
    """What it was storing fails, its timer rings: neither may come to anything."""

    async def play():
        written = []

        class Offsets:
            table, is_loaded = OffsetsTable(), True

            async def append(self, records):
                written.append(records)
                await asyncio.sleep(0)
                raise LogError("too few replicas", "again")

        async def there():
            return ErrorCode.NONE

        tasks = Tasks(lambda error: None)
        limits = GroupLimits(initial_rebalance_delay_ms=0)
        groups = Coordinator(lambda: 1, lambda _: Offsets(), there, limits, ManualClock(), tasks)
        join = Join(
            token="1",
            member_id="",
            new_member_id="m",
            protocols=(("range", b""),),
            require_known_member_id=False,
        )
        joined = await groups.ask("g", join)
        sync = Sync(token="2", member_id="m", generation=joined.generation, assignments=())
        asked = asyncio.ensure_future(groups.ask("g", sync))
        while not written:
            await asyncio.sleep(0)
        group = groups._groups["g"]
        groups.resign(0)
        assert (await asked).error == ErrorCode.NOT_COORDINATOR
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(written) == 1
        assert group.timer.cancelled()

    asyncio.run(play())


def test_what_was_appended_in_an_earlier_epoch_is_not_acknowledged_in_a_later_one():
    """A sync takes a moment; the broker may be deposed in it, be cut off, and lead again."""
    partition = led()
    partition.append(encode_values([b"a"], timestamps=1))
    partition.become(ELSEWHERE)
    gone = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert asyncio.run(partition.replicated(1, epoch=1)) is gone
    partition.become(BACK)
    partition.fetched(2, 1)
    assert asyncio.run(partition.replicated(1, epoch=1)) is gone
    assert asyncio.run(partition.replicated(1, epoch=3)) is ErrorCode.NONE


def test_a_length_that_was_damaged_is_an_error_and_a_line():
    """Served as it is, a client would wait for the rest of the batch for ever."""
    partition, said = led(), []
    partition.trouble = said.append
    partition.append(encode_values([b"a"], timestamps=1))
    partition.append(encode_values([b"b"], timestamps=1))
    active = partition.log._state.active
    active.file.write_at(8, (2**31 - 1).to_bytes(4))
    active._recent.clear()
    found = asked(partition, offset=0, last_epoch=-1)
    assert found.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert "t-0 cannot be read at offset 0: the batch at byte 0 of " in said[0]
