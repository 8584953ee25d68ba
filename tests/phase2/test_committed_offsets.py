"""Committed offsets in a log: Kafka's bytes, several processes, compaction, crashes."""

from __future__ import annotations

import shutil

import pytest
from msgspec.structs import replace

from craft2.clock import ManualClock
from craft2.faulty_disk import FaultyDisk, crash_points
from craft2.record_batch import decode_all
from phase1_file_queue.log_config import LogConfig, LogError
from phase1_file_queue.partition_log import PartitionLog
from phase2_groups.committed_offsets import CommittedOffsets
from phase2_groups.group_messages import OffsetToCommit
from phase2_groups.group_state import Group, GroupMember, State
from phase2_groups.offset_records import (
    BadOffsetRecord,
    GroupKey,
    OffsetKey,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_generation,
    read_group,
    read_key,
    read_offset,
)


def at(offset, metadata=""):
    return OffsetToCommit(offset=offset, metadata=metadata)


def test_the_bytes_are_those_of_kafka():
    assert offset_key("g", "t", 2).hex(" ") == "00 01 00 01 67 00 01 74 00 00 00 02"
    value = offset_value(OffsetToCommit(offset=5, leader_epoch=3, metadata="m"), 1000)
    assert value.hex(" ") == (
        "00 03 00 00 00 00 00 00 00 05 00 00 00 03 00 01 6d 00 00 00 00 00 00 03 e8"
    )
    member = GroupMember(
        member_id="m-1",
        client_id="c",
        client_host="h",
        session_timeout_ms=6000,
        rebalance_timeout_ms=300,
        protocols=(("range", b"\x01"),),
        assignment=b"\x02\x03",
    )
    group = Group(
        group_id="g",
        generation=7,
        protocol_type="consumer",
        protocol="range",
        leader="m-1",
        members={"m-1": member},
    )
    assert group_key("g").hex(" ") == "00 02 00 01 67"
    assert group_value(group, 1).hex() == (
        "0003"
        "0008636f6e73756d6572"  # consumer
        "00000007"
        "000572616e6765"  # range
        "00036d2d31"  # m-1
        "0000000000000001"
        "00000001"
        "00036d2d31ffff"  # m-1, no instance id
        "000163" "000168" "0000012c" "00001770"
        "0000000101" "000000020203"
    )  # fmt: skip
    assert read_generation(group_value(group, 1)) == 7
    found = read_group("g", group_value(group, 1), now_ms=50)
    assert (found.state, found.generation, found.leader) == (State.STABLE, 7, "m-1")
    assert (found.protocol_type, found.protocol) == ("consumer", "range")
    assert found.members == {"m-1": replace(member, synced=True, deadline_ms=6050)}
    empty = Group(group_id="g", generation=8, protocol_type="consumer")
    assert read_group("g", group_value(empty, 1), now_ms=50) == empty


def test_what_was_written_is_read():
    assert read_key(offset_key("grüße", "t", 9)) == OffsetKey("grüße", "t", 9)
    assert read_key(group_key("g")) == GroupKey("g")
    commit = OffsetToCommit(offset=2**40, leader_epoch=4, metadata="by hand")
    assert read_offset(offset_value(commit, 5)) == commit


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x09\0\x01g", b"\0\x01\0\x05g", b"\xff\xff"])
def test_what_is_no_key_says_so(data):
    with pytest.raises(BadOffsetRecord):
        read_key(data)


def test_the_latest_commit_counts_for_each_group_and_partition():
    disk = FaultyDisk()
    offsets = CommittedOffsets("/q", disk=disk, clock=ManualClock(5))
    offsets.commit("a", [("t", 0, at(3)), ("t", 1, at(4))])
    offsets.commit("a", [("t", 0, at(8, "note"))])
    offsets.commit("b", [("t", 0, at(1))])
    assert offsets.of("a") == {("t", 0): at(8, "note"), ("t", 1): at(4)}
    assert offsets.of("b") == {("t", 0): at(1)}
    assert offsets.of("nobody") == {}
    assert offsets.groups() == ["a", "b"]
    offsets.commit("a", [])
    offsets.close()
    again = CommittedOffsets("/q", disk=disk)
    assert again.of("a") == {("t", 0): at(8, "note"), ("t", 1): at(4)}


def test_processes_see_each_others_commits_also_across_a_compaction():
    disk = FaultyDisk()
    one = CommittedOffsets("/q", disk=disk, compact_after=20)
    other = CommittedOffsets("/q", disk=disk, compact_after=20)
    for n in range(200):
        (one, other)[n % 2].commit("g", [("t", n % 3, at(n))])
        assert (one, other)[(n + 1) % 2].of("g")["t", n % 3] == at(n)
    one.save_group(Group(group_id="g", generation=4))
    assert other.generation("g") == 4
    kept = PartitionLog("/q/__consumer_offsets-0", LogConfig(access="read"), disk=disk)
    assert kept.end_offset - kept.log_start <= 30, "it was compacted"
    assert kept.log_start > 100
    third = CommittedOffsets("/q", disk=disk)
    assert third.of("g") == {("t", 0): at(198), ("t", 1): at(199), ("t", 2): at(197)}
    assert third.generation("g") == 4


@pytest.mark.parametrize("compact_after", [4, 10_000])
def test_a_crash_at_any_call_loses_no_acknowledged_commit(compact_after):
    promised = {}

    def run(disk):
        promised.clear()
        offsets = CommittedOffsets("/q", disk=disk, compact_after=compact_after)
        for n in range(5):
            offsets.commit("g", [("t", n % 2, at(n))])
            promised["t", n % 2] = n
        offsets.close()

    points = 0
    for words, disk in crash_points(run, outcomes=1):
        points += 1
        found = CommittedOffsets("/q", disk=disk, compact_after=compact_after)
        kept = found.of("g")
        for partition, offset in promised.items():
            assert kept[partition].offset >= offset, words
        found.commit("g", [("t", 0, at(99))])
        assert CommittedOffsets("/q", disk=disk.power_loss(keep=0.0)).of("g")["t", 0] == at(99)
    assert points > 40


def test_another_program_reads_it_as_records():
    disk = FaultyDisk()
    offsets = CommittedOffsets("/q", disk=disk, clock=ManualClock(7))
    offsets.commit("g", [("t", 0, at(3))])
    log = PartitionLog("/q/__consumer_offsets-0", LogConfig(access="read"), disk=disk)
    [record] = decode_all(log.read(0, 1000).read())
    assert (read_key(record.key), record.timestamp) == (OffsetKey("g", "t", 0), 7)


def test_a_commit_says_that_the_folder_of_the_offsets_is_gone(tmp_path):
    offsets = CommittedOffsets(tmp_path)
    shutil.rmtree(tmp_path / "__consumer_offsets-0")
    with pytest.raises(LogError, match="the folder of __consumer_offsets below"):
        offsets.commit("g", [("t", 0, OffsetToCommit(offset=1))])
