"""What a cluster does when things are as they should not be: no loss, no hang, clear words."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest
from brokers import make_topic
from three_brokers import brokers, running, until

from craft2.clock import SystemClock
from craft2.disk import DiskError, RealDisk
from craft2.record_batch import encode_values
from phase2_groups.error_codes import ErrorCode
from phase2_groups.producer_sequences import OutOfOrderSequence
from phase3_raft.broker import Broker, BrokerConfig
from phase3_raft.metadata import quorum
from phase3_raft.raft.state import Role

YEARS_MS = 10 * 365 * 86_400_000


def leads_metadata(broker):
    return broker.metadata.node._server.role is Role.LEADER


def partition(cluster, number, topic="t"):
    return dict(cluster.all[number].partitions.all())[topic, 0]


async def read(cluster, number, topic="t"):
    """What a consumer gets from a broker; or the error."""
    wanted = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 1_000_000,
    }
    fields = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1_000_000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    reply = await cluster.ask(number, "fetch", 11, fields)
    found = reply.responses[0].partitions[0]
    return ErrorCode(found.error_code), found.high_watermark


def test_more_metadata_than_are_committed_at_once_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(quorum, "MAX_COMMAND_BYTES", 2_000)

    @running
    async def test(tmp_path):
        async with brokers(tmp_path) as cluster:
            assert await cluster.make_topic("t", 100) == ErrorCode.POLICY_VIOLATION
            assert await cluster.make_topic("t", 10) == ErrorCode.NONE

    test(tmp_path)


class WrongClock(SystemClock):
    def now_ms(self):
        return super().now_ms() + YEARS_MS


@running
async def test_a_follower_whose_clock_is_years_ahead_keeps_everything(tmp_path):
    async with brokers(tmp_path, clocks={3: WrongClock()}) as cluster:
        keep_ms = SystemClock().now_ms() + YEARS_MS // 2  # records of 1970 are younger, but for 3
        made = await cluster.make_topic("t", segment_bytes="200", retention_ms=str(keep_ms))
        assert made == ErrorCode.NONE
        assert cluster.leader("t") != 3
        for n in range(10):
            assert await cluster.produce("t", str(n)) == ErrorCode.NONE
        for broker in cluster.all.values():
            await broker.partitions.apply_retention()
        assert {n: len(log) for n, log in cluster.logs("t").items()} == {1: 10, 2: 10, 3: 10}
        assert not cluster.said


@running
async def test_more_replicas_than_brokers_are_refused(tmp_path):
    async with brokers(tmp_path) as cluster:
        error = await cluster.make_topic("t", replicas=4)
        assert error == ErrorCode.INVALID_REPLICATION_FACTOR


@running
async def test_without_a_quorum_reads_go_on_writes_time_out_and_all_recovers(tmp_path):
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t", min_insync_replicas="2") == ErrorCode.NONE
        assert await cluster.produce("t", "before") == ErrorCode.NONE
        leader = cluster.leader("t")
        await until(lambda: partition(cluster, leader).high_watermark == 1)
        others = [n for n in cluster.all if n != leader]
        for number in others:  # as a kill does: nobody hands anything over
            broker = cluster.all[number]
            broker.replication = None
            await broker.close()
        assert await read(cluster, leader) == (ErrorCode.NONE, 1)
        error = await cluster.produce("t", "meanwhile", timeout_ms=300)
        assert error in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS)
        topic = {
            "name": "u",
            "num_partitions": 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        fields = {"topics": [topic], "timeout": 300, "validate_only": False}
        await until(lambda: cluster.all[leader].controller_id in (-1, *others))
        reply = await cluster.ask(leader, "create_topics", 4, fields)
        assert reply.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        assert await read(cluster, leader) == (ErrorCode.NONE, 1)
        for number in others:
            await cluster.again(number)
        await until(lambda: len(cluster.all[others[0]].image.live()) == 3)
        while await cluster.produce("t", "after", timeout_ms=1_000) != ErrorCode.NONE:
            await asyncio.sleep(0.05)
        await until(lambda: len({tuple(log) for log in cluster.logs("t").values()}) == 1)
        kept = cluster.logs("t")[leader]
        assert kept[0] == "before"
        assert kept[-1] == "after"


@running
async def test_a_topic_that_is_deleted_while_its_leader_dies_is_gone_and_leaves_no_files(tmp_path):
    async with brokers(tmp_path) as cluster:
        assert await cluster.make_topic("t") == ErrorCode.NONE
        assert await cluster.produce("t", "x") == ErrorCode.NONE
        leader = cluster.leader("t")
        other = leader % 3 + 1
        waiting = asyncio.ensure_future(cluster.produce("t", "y"))
        closing = asyncio.ensure_future(cluster.all[leader].close())
        deleted = ErrorCode.NOT_CONTROLLER
        while deleted not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            fields = {"topic_names": ["t"], "timeout": 1_000, "topics": []}
            reply = await cluster.ask(other, "delete_topics", 4, fields)
            deleted = ErrorCode(reply.responses[0].error_code)
        await closing
        await asyncio.gather(waiting, return_exceptions=True)
        await cluster.again(leader)
        await until(lambda: all("t" not in one.image.topics for one in cluster.all.values()))
        await until(lambda: not any((tmp_path / str(n) / "t-0").exists() for n in cluster.all))
        await until(lambda: all(len(one.image.live()) == 3 for one in cluster.all.values()))
        assert await cluster.make_topic("t") == ErrorCode.NONE
        assert await cluster.produce("t", "new") == ErrorCode.NONE
        await until(lambda: all(log == ["new"] for log in cluster.logs("t").values()))


class FullDisk(RealDisk):
    """full: whether what is written to files whose path has `where` in it fits no more."""

    def __init__(self, where):
        self.where, self.full = where, False

    def open(self, path, mode):
        file = super().open(path, mode)
        if self.where in path:
            write_at = file.write_at

            def write(position, data):
                if self.full:
                    raise DiskError(
                        f"{path!r} cannot be written: {os.strerror(errno.ENOSPC)}", "make room"
                    )
                return write_at(position, data)

            file.write_at = write
        return file


@running
async def test_a_disk_that_fails_under_a_leaders_records_loses_nothing(tmp_path):
    disks = {n: FullDisk("t-0") for n in (1, 2, 3)}
    async with brokers(tmp_path, disks=disks) as cluster:
        assert await cluster.make_topic("t") == ErrorCode.NONE
        assert await cluster.produce("t", "before") == ErrorCode.NONE
        leader = cluster.leader("t")
        disks[leader].full = True
        assert await cluster.produce("t", "refused") == ErrorCode.KAFKA_STORAGE_ERROR
        assert await read(cluster, leader) == (ErrorCode.NONE, 1)
        disks[leader].full = False
        said = ErrorCode.NOT_LEADER_OR_FOLLOWER
        while said is ErrorCode.NOT_LEADER_OR_FOLLOWER:  # while another one takes the lead
            said = await cluster.produce("t", "after")
        assert said == ErrorCode.NONE

        def agree():  # "after" may be there twice: the first time it was taken, and not answered
            logs = list(cluster.logs("t").values())
            return all(log == logs[0] for log in logs) and set(logs[0][1:]) == {"after"}

        await until(agree)
        assert cluster.logs("t")[leader][0] == "before"


@running
async def test_a_followers_disk_that_is_full_leaves_the_isr_and_catches_up(tmp_path):
    disks = {n: FullDisk("t-0") for n in (1, 2, 3)}
    async with brokers(tmp_path, disks=disks, max_lag_ms=300) as cluster:
        assert await cluster.make_topic("t") == ErrorCode.NONE
        leader = cluster.leader("t")
        follower = leader % 3 + 1
        await until(lambda: len(cluster.logs("t")) == 3)  # each has made its own
        disks[follower].full = True
        assert await cluster.produce("t", "x") == ErrorCode.NONE  # once it is out of the ISR
        assert follower not in cluster.all[leader].image.partition("t", 0).isr
        assert any("cannot follow" in words for words in cluster.said)
        disks[follower].full = False
        await until(lambda: follower in cluster.all[leader].image.partition("t", 0).isr)
        assert cluster.logs("t")[follower] == ["x"]


@running
async def test_a_broker_that_cannot_write_its_metadata_says_so_and_others_go_on(tmp_path):
    disks = {n: FullDisk("__raft") for n in (1, 2, 3)}
    async with brokers(tmp_path, disks=disks) as cluster:
        assert await cluster.make_topic("t") == ErrorCode.NONE
        full = next(n for n, one in cluster.all.items() if not leads_metadata(one))
        disks[full].full = True
        broker = cluster.all.pop(full)
        try:
            assert await cluster.make_topic("u", asked=full % 3 + 1, replicas=2) == ErrorCode.NONE
            async with asyncio.timeout(20):
                why = await broker.failed()
        finally:
            await broker.close()
        assert f"broker {full} ends" in why
        assert "make room" in why


@running
async def test_a_broker_one_of_whose_logs_has_stopped_says_so_and_can_be_started_again(tmp_path):
    """A new leader's epoch could not be noted: it followed no more, until somebody looked."""
    disks = {n: FullDisk("leader-epoch-checkpoint") for n in (1, 2, 3)}
    async with brokers(tmp_path, disks=disks) as cluster:
        await cluster.make_topic("t")
        assert await cluster.produce("t", "x") == ErrorCode.NONE
        leader = cluster.leader("t")
        full = leader % 3 + 1
        disks[full].full = True
        await cluster.all.pop(leader).close()
        broker = cluster.all[full]
        await until(lambda: cluster.leader("t") != leader)
        await cluster.produce("t", "y", acks=1)  # whoever leads now, this is of its epoch
        async with asyncio.timeout(20):
            why = await broker.failed()
        await cluster.all.pop(full).close()
        assert f"broker {full} ends" in why
        assert "leader-epoch-checkpoint" in why


def test_what_was_sent_after_a_batch_that_did_not_fit_is_refused_as_that_was(tmp_path):
    """Told that it is out of order, librdkafka begins a new epoch, and may store things twice."""
    disk = FullDisk("t-0")
    broker = Broker(BrokerConfig(str(tmp_path)), disk=disk)
    make_topic(broker, "t", 1)
    partition = broker.partition("t", 0)

    def append(sequence, producer=7):
        fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        return partition.append(encode_values([b"x"], timestamps=1, **fields))[0].first_offset

    assert [append(0), append(0, producer=8)] == [0, 1]
    disk.full = True
    with pytest.raises(DiskError, match="make room"):
        append(1)
    disk.full = False
    with pytest.raises(DiskError, match="the batch before was not written"):
        append(2)
    with pytest.raises(OutOfOrderSequence):
        append(2, producer=8)  # it was refused nothing
    assert [append(1), append(2)] == [2, 3]
    with pytest.raises(OutOfOrderSequence):
        append(4)
    broker.partitions.close()
    broker.metadata.close()
