"""What the simulated cluster has found in brokers, each in a few lines."""

from __future__ import annotations

import pytest

from craft2.clock import ManualClock
from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import encode_values
from phase1_file_queue.log_config import LogError
from phase2_groups.error_codes import ErrorCode
from phase3_raft.groups.offsets import OffsetsPartition
from phase3_raft.handlers import fetch, list_offsets
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import PartitionRecord, TopicRecord
from phase3_raft.partition import Partition
from phase3_raft.partitions import Partitions
from phase3_raft.schemas import decode, encode
from phase3_raft.topic_config import TopicConfig

LED = PartitionRecord("t", 0, (1, 2), (1, 2), 1, 1, 0)


def led(record=LED, **config):
    settings = {"segment.index.bytes": "4096"} | {k.replace("_", "."): config[k] for k in config}
    disk = FaultyDisk()
    disk.mkdir("/data")
    clock = ManualClock()
    return Partition("/data/t-0", record, TopicConfig(settings), disk, clock, me=1)


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


def test_a_broker_leads_nothing_before_the_cluster_knows_that_it_has_started():
    image, disk = Image(), FaultyDisk()
    for record in (TopicRecord("t", "0" * 32), LED):
        image.apply(record)
    disk.mkdir("/data")
    partitions = Partitions(
        1,
        "/data",
        lambda: image,
        disk,
        ManualClock(),
        defaults={"segment.index.bytes": "4096"},
        max_lag_ms=500,
        trouble=pytest.fail,
    )
    partitions.may_lead = False
    assert partitions.led("t", 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    partitions.may_lead = True
    assert isinstance(partitions.led("t", 0), Partition)


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
    class Broker:
        def partition(self, topic, number):
            return led(PartitionRecord("t", 0, (1,), (1,), 1, 1, 0))

    one = {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": -1}
    fields = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "t", "partitions": [one]}],
    }
    version = 5 if epoch >= 0 else 1  # which has no place for it
    data = encode("list_offsets", version, fields, "request")
    request = decode("list_offsets", version, data, 0, latest=7)
    [found] = list_offsets.handle(Broker(), request, None)["topics"][0]["partitions"]
    assert found["error_code"] == error
