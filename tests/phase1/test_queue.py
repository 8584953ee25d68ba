"""The message-file queue: order, atomicity, durability, and clear errors."""

import errno
import json
import multiprocessing
import os
import shutil
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craft2.clock import ManualClock
from craft2.disk import DiskError, DiskFull, RealDisk
from craft2.faulty_disk import FaultyDisk, crash_points
from phase1_file_queue.message_file import CorruptMessage, decode_message, encode_message
from phase1_file_queue.partitioned_queue import (
    BadMessage,
    CorruptOffsetFile,
    MissingMessage,
    NotAQueue,
    PartitionedQueue,
    PartitionFull,
    QueueClosed,
    UnknownPartition,
)
from phase1_file_queue.publish import publish


def contents(queue):
    """[partition][offset] -> value, read back through the queue."""
    return [
        [queue.read(p, offset).value for offset in range(end)]
        for p, end in enumerate(queue.end_offsets())
    ]


def test_layout_and_offsets_from_zero(tmp_path):
    with PartitionedQueue(tmp_path / "q") as queue:
        assert queue.produce("UA", "one") == (2, 0)
        assert queue.produce(b"UA", b"two") == (2, 1)
    names = sorted(os.listdir(tmp_path / "q" / "partition-2"))
    assert names == [".lock", "00000000.msg", "00000001.msg", "offset.txt"]
    assert (tmp_path / "q/partition-2/offset.txt").read_text() == "00000002\n"
    assert (tmp_path / "q/partition-2/00000000.msg").read_bytes().endswith(b"\nUA\none\n")


def test_without_a_key_partitions_take_turns(tmp_path):
    with PartitionedQueue(tmp_path / "q", 3) as queue:
        assert [queue.produce(None, "x")[0] for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_key_value_and_time_come_back(tmp_path):
    with PartitionedQueue(tmp_path / "q", 1, clock=ManualClock(77)) as queue:
        queue.produce("é\n", b"\x00\n\xff", timestamp=-5)
        queue.produce(None, "")
        queue.produce("", "")
        got = [queue.read(0, n)[2:] for n in range(3)]
    assert got == [(-5, "é\n".encode(), b"\x00\n\xff"), (77, None, b""), (77, b"", b"")]


@given(st.none() | st.binary(max_size=40), st.binary(max_size=40), st.data())
def test_a_message_file_with_any_change_is_noticed(key, value, data):
    whole = encode_message(key, value, 123)
    assert decode_message(whole, "x") == (123, key, value)
    position = data.draw(st.integers(0, len(whole) - 1))
    flipped = bytearray(whole)
    flipped[position] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (bytes(flipped), whole[:position], whole + b"x"):
        with pytest.raises(CorruptMessage):
            decode_message(damaged, "x")


def produce_many(root, name, count):
    with PartitionedQueue(root, 2, fsync=False) as queue:
        for i in range(count):
            queue.produce(f"{i % 7}", f"{name} {i}")


def test_processes_and_threads_share_a_queue_without_gap_or_double(tmp_path):
    root = str(tmp_path / "q")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=produce_many, args=(root, n, 200)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    with PartitionedQueue(root, 2) as queue:
        found = contents(queue)
    values = [value for partition in found for value in partition]
    assert len(values) == len(set(values)) == 600
    for partition in found:
        for name in range(3):  # each writer's own order is kept within a partition
            own = [int(v.split()[1]) for v in partition if v.startswith(b"%d " % name)]
            assert own == sorted(own)


def test_a_forked_child_takes_its_own_locks(tmp_path):
    queue = PartitionedQueue(tmp_path / "q", 1, fsync=False)
    queue.produce("k", "parent")
    child = multiprocessing.get_context("fork").Process(target=queue.produce, args=("k", "child"))
    child.start()
    child.join()
    assert child.exitcode == 0
    queue.produce("k", "parent again")
    assert contents(queue) == [[b"parent", b"child", b"parent again"]]


HISTORY = [("a", "0"), ("b", "1"), ("a", "2"), (None, "3"), ("b", "4" * 700)]


def check_crash_points(history, sync, outcomes):
    """After every crash: it opens, holds what was acknowledged (sync), goes on without a gap."""
    acknowledged = []

    def run(disk):
        acknowledged.clear()
        with PartitionedQueue("/q", 2, sync, disk=disk) as queue:
            for key, value in history:
                acknowledged.append((*queue.produce(key, value), value.encode()))

    points = 0
    for words, disk in crash_points(run, outcomes=outcomes):
        points += 1
        if not sync and not words.startswith("killed"):
            continue  # promised nothing
        with PartitionedQueue("/q", 2, disk=disk) as queue:
            found = contents(queue)  # raises if a message is missing or torn
            for partition, offset, value in acknowledged:
                assert found[partition][offset] == value, words
            written = [value.encode() for _, value in history]
            extra = sum(map(len, found)) - len(acknowledged)
            assert all(value in written for values in found for value in values), words
            assert 0 <= extra <= 1, words
            partition, offset = queue.produce("a", "after")
            assert offset == len(found[partition]), words
            assert queue.read(partition, offset).value == b"after"
    return points


@pytest.mark.parametrize("sync", [True, False])
def test_a_crash_at_any_call_loses_nothing_acknowledged(sync):
    assert check_crash_points(HISTORY, sync, outcomes=4) > 200


@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.text(max_size=600)), max_size=4))
def test_a_crash_in_any_short_history_loses_nothing_acknowledged(history):
    assert check_crash_points(history, True, outcomes=2) > 0


@pytest.mark.prove
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", None]), st.text(max_size=2000)), max_size=8))
def test_crashes_of_many_histories(history):
    assert check_crash_points(history, True, outcomes=8) > 0


def test_a_crash_while_growing_leaves_the_old_count_or_the_new():
    def run(disk):
        with PartitionedQueue("/q", 1, disk=disk) as queue:
            queue.produce("k", "v")
            queue.add_partitions(3)

    counts = set()
    for _, disk in crash_points(run, outcomes=2):
        if disk.exists("/q/queue.json"):
            counts.add(PartitionedQueue.existing("/q", disk=disk).num_partitions)
    assert counts == {1, 3}


def test_growing_moves_keys(tmp_path):
    with PartitionedQueue(tmp_path / "q", 4, fsync=False) as queue:
        queue.produce("AA", "before")
        queue.add_partitions(8)
        assert queue.num_partitions == 8
        places = {queue.produce(key, "x")[0] for key in map(str, range(100))}
        assert places == set(range(8))
        with pytest.raises(UnknownPartition, match="cannot become 4"):
            queue.add_partitions(4)
    with pytest.raises(NotAQueue, match="8 partitions, not 4"):
        PartitionedQueue(tmp_path / "q", 4)


def test_a_process_that_knows_an_old_count_cannot_shrink_the_queue(tmp_path):
    old = PartitionedQueue(tmp_path / "q", 2)
    with PartitionedQueue.existing(tmp_path / "q") as other:
        other.add_partitions(8)
        other.produce(None, "kept", partition=7)
    with pytest.raises(UnknownPartition, match="has 8 partitions, which cannot become 4"):
        old.add_partitions(4)
    assert old.num_partitions == 8  # now it knows
    assert old.read(7, 0).value == b"kept"
    assert PartitionedQueue.existing(tmp_path / "q").num_partitions == 8
    old.add_partitions(8)
    assert old.num_partitions == 8
    with pytest.raises(NotAQueue, match="total is 'nine'"):
        old.add_partitions("nine")


def test_growing_does_not_disturb_producers_at_work(tmp_path):
    queue = PartitionedQueue(tmp_path / "q", 1, fsync=False)
    stop, counts, failures = threading.Event(), [], []

    def work():
        count = 0
        try:
            while not stop.is_set():
                queue.produce("k", "x", partition=0)
                count += 1
        except Exception as error:
            failures.append(error)
        counts.append(count)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for total in range(2, 12):
        queue.add_partitions(total)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert queue.end_offsets() == [sum(counts)] + [0] * 10


def test_a_full_disk_refuses_and_keeps_what_it_has():
    disk = FaultyDisk(capacity=700)
    queue = PartitionedQueue("/q", 1, disk=disk)

    def fill():
        while True:
            queue.produce("k", "x" * 50)

    with pytest.raises(DiskFull, match="free some space"):
        fill()
    stored = contents(queue)
    assert len(stored[0]) > 2
    assert not [path for path in disk.tree() if path.endswith(".tmp")]
    disk.capacity = None
    assert queue.produce("k", "more") == (0, len(stored[0]))
    assert contents(queue) == [[*stored[0], b"more"]]


def test_a_failed_sync_is_not_an_acknowledgement_and_stops_the_partition():
    steps = FaultyDisk()
    queue = PartitionedQueue("/q", 1, disk=steps)
    queue.produce("k", "zero")
    first = len(steps.trace) + 1
    queue.produce("k", "one")
    step = next(n for n, s in enumerate(steps.trace, 1) if n >= first and s.startswith("sync_dir"))
    disk = FaultyDisk(fail_at={step: errno.EIO})
    queue = PartitionedQueue("/q", 1, disk=disk)
    queue.produce("k", "zero")
    for _ in range(2):
        with pytest.raises(DiskError, match="EIO"):
            queue.produce("k", "one")
    assert contents(queue) == [[b"zero"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("k", {"a": 1}), "value is {'a': 1}, a dict"),
        ((3, "v"), "key is 3, a int"),
        (("k", None), "value is None"),
        (("\ud800", "v"), r"key is '\\ud800', which is no text: surrogates not allowed"),
        (("k", "x" * 101), "101 bytes of key and value|102 bytes"),
    ],
)
def test_bad_messages(tmp_path, arguments, words):
    with PartitionedQueue(tmp_path / "q", max_message_bytes=100) as queue:
        with pytest.raises(BadMessage, match=words):
            queue.produce(*arguments)
        assert queue.end_offsets() == [0, 0, 0, 0]


def test_bad_partitions_timestamps_and_offsets(tmp_path):
    with PartitionedQueue(tmp_path / "q") as queue:
        with pytest.raises(UnknownPartition, match=r"partition 4 does not exist.*0 to 3"):
            queue.produce("k", "v", partition=4)
        with pytest.raises(BadMessage, match=r"timestamp is 1\.5"):
            queue.produce("k", "v", timestamp=1.5)
        for offset in (-1, 0.0, "0"):
            with pytest.raises(MissingMessage, match="start at 0"):
                queue.read(0, offset)
        for number in (-1, 4, 1.0, None):
            with pytest.raises(UnknownPartition, match="does not exist"):
                queue.end_offset(number)
        assert queue.read(0, 0) is None


def test_directories_that_are_not_queues(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotAQueue, match=r"holds 'notes\.txt'"):
        PartitionedQueue(tmp_path)
    with pytest.raises(NotAQueue, match="is a file"):
        PartitionedQueue(tmp_path / "notes.txt")
    with pytest.raises(NotAQueue, match="is a file"):
        PartitionedQueue(tmp_path / "notes.txt/q")
    with pytest.raises(NotAQueue, match=r"no queue\.json"):
        PartitionedQueue.existing(tmp_path / "notes.txt")
    with pytest.raises(NotAQueue, match=r"no queue\.json"):
        PartitionedQueue.existing(tmp_path / "missing")
    with pytest.raises(NotAQueue, match="num_partitions is 0"):
        PartitionedQueue(tmp_path / "q", 0)
    assert sorted(os.listdir(tmp_path)) == ["notes.txt"]
    PartitionedQueue(tmp_path / "q").close()
    (tmp_path / "q/queue.json").write_text(json.dumps({"format": "other"}))
    with pytest.raises(NotAQueue, match="does not describe"):
        PartitionedQueue(tmp_path / "q")


def test_foreign_and_damaged_files_in_a_partition(tmp_path):
    root = tmp_path / "q"
    with PartitionedQueue(root, 1) as queue:
        queue.produce("k", "zero")
        queue.produce("k", "one")
        (root / "partition-0/.DS_Store").write_text("ignored")
        (root / "partition-0/notes.txt").write_text("hello")
        with pytest.raises(NotAQueue, match=r"notes\.txt' is not a message file"):
            PartitionedQueue(root, 1)
        (root / "partition-0/notes.txt").unlink()
        (root / "partition-0/20130101000000.msg").write_text("a mail")  # would be offset 2e13
        with pytest.raises(NotAQueue, match="is not a message file"):
            PartitionedQueue(root, 1)
        (root / "partition-0/20130101000000.msg").unlink()
        (root / "partition-0/00000000.msg").write_bytes(b"garbage")
        with pytest.raises(CorruptMessage, match=r"00000000\.msg' is damaged"):
            queue.read(0, 0)
        (root / "partition-0/00000000.msg").unlink()
        with pytest.raises(MissingMessage, match=r"00000000\.msg' is missing"):
            queue.read(0, 0)
        assert queue.read(0, 1).value == b"one"
        (root / "partition-0/offset.txt").write_text("many")
        with pytest.raises(CorruptOffsetFile, match="holds b'many'"):
            PartitionedQueue(root, 1)
        (root / "partition-0/offset.txt").unlink()
    with PartitionedQueue(root, 1) as queue:
        assert queue.end_offsets() == [2]


def test_no_message_is_ever_overwritten_by_a_stale_offset_file(tmp_path):
    with PartitionedQueue(tmp_path / "q", 1) as queue:
        queue.produce("k", "zero")
        queue.produce("k", "one")
        file = RealDisk().open(str(tmp_path / "q/partition-0/offset.txt"), "write")
        file.write_at(0, b"00000000\n")
        file.close()
        assert queue.produce("k", "two") == (0, 2)
        assert contents(queue) == [[b"zero", b"one", b"two"]]


def test_opening_a_queue_corrects_the_end_for_those_who_have_it_open(tmp_path):
    queue = PartitionedQueue(tmp_path / "q", 1)
    # What a process leaves that was killed between publishing a message and announcing it:
    orphan = encode_message(None, b"orphan", 0)
    publish(RealDisk(), str(tmp_path / "q/partition-0/00000000.msg"), orphan)
    late = PartitionedQueue(tmp_path / "q", 1)
    assert queue.end_offsets() == [1]
    assert queue.produce(None, "acknowledged") == (0, 1)
    assert contents(late) == [[b"orphan", b"acknowledged"]]


def test_opening_a_queue_syncs_the_names_before_it_announces_them():
    disk = FaultyDisk()
    PartitionedQueue("/q", 1, disk=disk).close()
    publish(disk, "/q/partition-0/00000000.msg", encode_message(None, b"orphan", 0), sync=False)
    before = len(disk.trace)
    PartitionedQueue("/q", 1, disk=disk)
    assert [s for s in disk.trace[before:] if "partition-0" in s] == [
        "sync_dir /q/partition-0",
        "write /q/partition-0/offset.txt 0+9",
    ]


def test_a_queue_whose_maker_could_not_sync_it_is_synced_by_whoever_opens_it():
    steps = FaultyDisk()
    PartitionedQueue("/q", 1, disk=steps)
    named = next(n for n, step in enumerate(steps.trace) if step.endswith("to queue.json"))
    failing = steps.trace.index("sync_dir /q", named) + 1
    disk = FaultyDisk(fail_at={failing: errno.EIO})
    with pytest.raises(DiskError, match="EIO"):
        PartitionedQueue("/q", 1, disk=disk)
    PartitionedQueue("/q", 1, disk=disk).produce(None, "acknowledged")
    after = PartitionedQueue.existing("/q", disk=disk.power_loss(keep=0.0))
    assert contents(after) == [[b"acknowledged"]]


def test_a_closed_queue_says_so(tmp_path):
    queue = PartitionedQueue(tmp_path / "q", 1)
    queue.close()
    for call in (
        lambda: queue.produce(None, "x"),
        lambda: queue.read(0, 0),
        lambda: queue.add_partitions(2),
        queue.end_offsets,
    ):
        with pytest.raises(QueueClosed, match="is closed"):
            call()
    queue.close()  # twice is once


def test_a_partition_removed_while_the_queue_is_open(tmp_path):
    with PartitionedQueue(tmp_path / "q", 1) as queue:
        shutil.rmtree(tmp_path / "q/partition-0")
        with pytest.raises(NotAQueue, match=r"partition-0' is missing"):
            queue.produce(None, "x")
    with pytest.raises(NotAQueue, match=r"partition-0' is missing"):
        PartitionedQueue(tmp_path / "q", 1)


def test_a_partition_takes_no_more_messages_than_its_names_can_number(tmp_path):
    with PartitionedQueue(tmp_path / "q", 1) as queue:
        queue.produce(None, "x")
        os.rename(tmp_path / "q/partition-0/00000000.msg", tmp_path / "q/partition-0/99999999.msg")
    with PartitionedQueue(tmp_path / "q", 1) as queue:
        assert queue.read(0, 99_999_999).value == b"x"
        with pytest.raises(PartitionFull, match="100000000 messages"):
            queue.produce(None, "y")


def test_what_a_failed_opening_had_opened_is_closed_again(tmp_path):
    PartitionedQueue(tmp_path / "q", 3).close()
    (tmp_path / "q/partition-2/offset.txt").write_text("many")
    closed = []

    class Disk(RealDisk):
        def lock(self, path):
            lock = super().lock(path)
            close = lock.close
            lock.close = lambda: (closed.append(path), close())
            return lock

    with pytest.raises(CorruptOffsetFile):
        PartitionedQueue(tmp_path / "q", 3, disk=Disk())
    assert sorted(closed) == [str(tmp_path / f"q/partition-{p}/.lock") for p in range(3)]
