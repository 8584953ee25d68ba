"""The consumer: at least once, in order, groups apart; and what it says when something is wrong."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from craft2.disk import RealDisk
from craft2.events import Events
from craft2.faulty_disk import Crashed, FaultyDisk, crash_points
from phase1_file_queue.message_file import CorruptMessage
from phase1_file_queue.partitioned_queue import (
    CorruptOffsetFile,
    MissingMessage,
    NotAQueue,
    PartitionedQueue,
    UnknownPartition,
)
from phase1_file_queue.queue_consumer import (
    ConsumerMisused,
    GroupInUse,
    HandlerFailed,
    OffsetOutOfRange,
    QueueConsumer,
)


@pytest.fixture
def queue(tmp_path):
    with PartitionedQueue(tmp_path / "q", fsync=False) as queue:
        for i in range(40):
            queue.produce(f"key-{i % 8}", str(i))
        yield queue


class Handler:
    """Collects messages; `wait_for(n)` returns when n have come. `fail_at`: (partition, offset)."""

    def __init__(self, fail_at=None):
        self.seen = []
        self.fail_at = fail_at
        self._changed = threading.Condition()

    def __call__(self, message):
        if (message.partition, message.offset) == self.fail_at:
            with self._changed:
                self._changed.notify_all()
            raise ValueError("no such carrier")
        with self._changed:
            self.seen.append(message)
            self._changed.notify_all()

    def wait_for(self, condition):
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.seen), timeout=30)


def test_all_messages_in_partition_order_then_resume(queue):
    handler = Handler()
    with QueueConsumer(queue.root, "g") as consumer:
        consumer.start(handler)
        handler.wait_for(lambda seen: len(seen) == 40)
        consumer.stop()
        assert set(consumer.lag().values()) == {0}
    for partition in range(4):
        offsets = [m.offset for m in handler.seen if m.partition == partition]
        assert offsets == list(range(queue.end_offsets()[partition]))
    queue.produce("key-0", "late")
    with QueueConsumer(queue.root, "g", threads=1) as consumer:
        consumer.start(handler)
        handler.wait_for(lambda seen: len(seen) == 41)
    assert handler.seen[-1].value == b"late"


def test_groups_are_independent_and_a_group_has_one_consumer(queue):
    with QueueConsumer(queue.root, "a") as a, QueueConsumer(queue.root, "b") as b:
        assert len(a.poll()) == 40
        a.commit()
        assert sum(a.lag().values()) == 0
        assert sum(b.lag().values()) == 40
        with pytest.raises(GroupInUse, match="group 'a' already has a consumer"):
            QueueConsumer(queue.root, "a")
    QueueConsumer(queue.root, "a").close()


def test_poll_commits_only_when_told(queue):
    with QueueConsumer(queue.root, "g") as consumer:
        first = consumer.poll(7)
        assert len(first) == 7
        assert sum(consumer.lag().values()) == 40
        consumer.commit()
        second = consumer.poll()
        assert not {m[:2] for m in first} & {m[:2] for m in second}
        assert len(second) == 33
    with QueueConsumer(queue.root, "g") as consumer:
        assert len(consumer.poll()) == 33  # the second poll was never committed


def test_a_handler_that_raises_stops_its_partition_only(queue, caplog):
    partition = next(p for p, end in enumerate(queue.end_offsets()) if end > 3)
    handler = Handler(fail_at=(partition, 2))
    others = sum(queue.end_offsets()) - queue.end_offsets()[partition]
    events = Events()
    with QueueConsumer(queue.root, "g", threads=2, events=events) as consumer:
        consumer.start(handler)
        handler.wait_for(lambda seen: len(seen) == others + 2 and partition in consumer.errors)
        consumer.stop()
        told = [(e.kind, e.offset) for e in events.events if e.partition == partition]
        assert told == [("commit", 1), ("commit", 2), ("stop", 2)]
        assert consumer.committed(partition) == 2
        error = consumer.errors[partition]
        assert isinstance(error, HandlerFailed)
        assert isinstance(error.__cause__, ValueError)
        assert f"partition {partition}, offset 2" in str(error)
        assert "no such carrier" in caplog.text
        handler.fail_at = None
        consumer.start(handler)
        handler.wait_for(lambda seen: len(seen) == 40)


WORKER = r"""
import os, sys
from phase1_file_queue.queue_consumer import QueueConsumer
def handle(message):
    os.write(1, f"{message.partition} {message.offset}\n".encode())  # one call: one whole line
consumer = QueueConsumer(sys.argv[1], "g")
consumer.start(handle)
sys.stdin.read()
"""


def test_kill_minus_nine_loses_nothing_and_repeats_what_was_in_hand(queue):
    queue_root = queue.root
    command = [sys.executable, "-c", WORKER, queue_root]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    handled = [tuple(map(int, worker.stdout.readline().split())) for _ in range(10)]
    os.kill(worker.pid, signal.SIGKILL)
    rest, _ = worker.communicate()
    handled += [tuple(map(int, line.split())) for line in rest.splitlines()]
    with QueueConsumer(queue_root, "g") as consumer:
        again = [(m.partition, m.offset) for m in consumer.poll()]
    assert set(handled) | set(again) == {
        (p, n) for p, end in enumerate(queue.end_offsets()) for n in range(end)
    }
    assert len(set(handled) & set(again)) <= 4  # at most the message in each thread's hand


def test_commits_survive_a_crash_at_any_call():
    handled, committed = [], []

    def run(disk):
        handled.clear()
        committed.clear()
        with PartitionedQueue("/q", 1, disk=disk) as queue:
            for i in range(3):
                queue.produce("k", str(i))
        with QueueConsumer("/q", "g", disk=disk) as consumer:
            for _ in range(3):
                handled.extend(m.offset for m in consumer.poll(1))
                consumer.commit()
                committed.append(consumer.committed(0))

    for words, disk in crash_points(run):
        PartitionedQueue("/q", 1, disk=disk).close()
        with QueueConsumer("/q", "g", disk=disk) as consumer:
            assert max(committed, default=0) <= consumer.committed(0) <= len(handled), words


def test_a_message_is_not_seen_before_its_producer_could_have_been_told():
    disk = FaultyDisk()
    with PartitionedQueue("/q", 1, disk=disk) as queue:
        queue.produce("k", "0")
        end = disk.trace.index(next(s for s in reversed(disk.trace) if "offset.txt" in s))
    crashed = FaultyDisk(crash_at=end + 1)  # published and synced, but not announced
    with pytest.raises(Crashed):
        PartitionedQueue("/q", 1, disk=crashed).produce("k", "0")
    assert "/q/partition-0/00000000.msg" in crashed.tree()
    assert crashed.tree()["/q/partition-0/offset.txt"] == b"00000000\n"


def test_misuse_and_damage(queue, tmp_path):
    with pytest.raises(NotAQueue, match=r"no queue\.json"):
        QueueConsumer(tmp_path / "nothing", "g")
    for name in ("", "a/b", ".hidden", "a\0b", "\ud800", 5, None):
        with pytest.raises(ConsumerMisused, match="group is"):
            QueueConsumer(queue.root, name)
    for threads in (0, 1.5, None):
        with pytest.raises(ConsumerMisused, match=f"threads is {threads}"):
            QueueConsumer(queue.root, "g", threads=threads)
    with QueueConsumer(queue.root, "g") as consumer:
        consumer.start(Handler())
        for call in (consumer.poll, lambda: consumer.start(Handler()), lambda: consumer.seek(0, 0)):
            with pytest.raises(ConsumerMisused, match="stop"):
                call()
        consumer.stop()
        before = [consumer.committed(p) for p in range(4)]
        for offset in (99, -1, 0.0, "0", None):
            with pytest.raises(OffsetOutOfRange, match=f"offset {offset!r}"):
                consumer.seek(0, offset)
        for partition in (4, -1, 1.0, "1"):
            with pytest.raises(UnknownPartition, match="does not exist"):
                consumer.seek(partition, 0)
            with pytest.raises(UnknownPartition, match="does not exist"):
                consumer.committed(partition)
        assert [consumer.committed(p) for p in range(4)] == before
    path = tmp_path / "q/consumer_offsets/g/partition-0.offset"
    path.write_text("-1")
    with pytest.raises(CorruptOffsetFile, match=r"partition-0\.offset"):
        QueueConsumer(queue.root, "g")
    path.write_text("99")
    with pytest.raises(OffsetOutOfRange, match="committed offset 99"):
        QueueConsumer(queue.root, "g")
    path.unlink()
    QueueConsumer(queue.root, "g").close()


def test_a_missing_message_stops_its_partition_until_seek(queue, tmp_path):
    partition = next(p for p, end in enumerate(queue.end_offsets()) if end > 1)
    (tmp_path / f"q/partition-{partition}/00000000.msg").unlink()
    handler = Handler()
    with QueueConsumer(queue.root, "g") as consumer:
        consumer.start(handler)
        handler.wait_for(lambda seen: partition in consumer.errors or len(seen) == 40)
        consumer.stop()
        assert isinstance(consumer.errors[partition], MissingMessage)
        consumer.seek(partition, 1)
        assert consumer.errors == {}
        assert (partition, 1) in {(m.partition, m.offset) for m in consumer.poll()}


def test_a_message_that_cannot_be_read_does_not_take_others_with_it(tmp_path):
    with PartitionedQueue(tmp_path / "q", 3) as queue:
        for partition in range(3):
            queue.produce(None, f"good {partition}", partition=partition)
            queue.produce(None, f"second {partition}", partition=partition)
    (tmp_path / "q/partition-1/00000001.msg").write_bytes(b"garbage")
    found, complaints = [], 0
    with QueueConsumer(tmp_path / "q", "g") as consumer:
        for _ in range(5):
            try:
                found += consumer.poll()
            except CorruptMessage:
                complaints += 1
            consumer.commit()
        assert complaints >= 2  # it comes again, but the other partitions go on
        assert consumer.lag() == {0: 0, 1: 1, 2: 0}
        consumer.seek(1, 2)
        assert consumer.poll() == []
    expected = {f"{word} {p}".encode() for word in ("good", "second") for p in range(3)}
    assert len(found) == 5
    assert {m.value for m in found} == expected - {b"second 1"}


def test_an_error_comes_at_the_poll_after_the_messages_before_it(tmp_path):
    with PartitionedQueue(tmp_path / "q", 3) as queue:
        queue.produce(None, "good", partition=0)
        queue.produce(None, "bad", partition=2)
        (tmp_path / "q/partition-2/00000000.msg").write_bytes(b"garbage")
        with QueueConsumer(tmp_path / "q", "g") as consumer:
            assert [m.value for m in consumer.poll()] == [b"good"]
            queue.produce(None, "more", partition=1)  # new messages do not hide the error
            with pytest.raises(CorruptMessage):
                consumer.poll()
            assert [m.value for m in consumer.poll()] == [b"more"]


def test_a_poll_that_is_interrupted_has_returned_nothing(queue):
    class Disk(RealDisk):
        left = 5

        def read(self, path):
            if path.endswith(".msg"):
                self.left -= 1
                if self.left == 0:
                    raise KeyboardInterrupt
            return super().read(path)

    with QueueConsumer(queue.root, "g", disk=Disk()) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.poll()
        consumer.commit()
        assert sum(consumer.lag().values()) == 40
        assert len(consumer.poll()) == 40


def test_sys_exit_in_a_handler_stops_its_partition_with_an_error(queue):
    first = next(p for p, end in enumerate(queue.end_offsets()) if end)
    handled = []

    def handler(message):
        if message.partition == first:
            sys.exit("no")
        handled.append(message)
        if len(handled) == sum(queue.end_offsets()) - queue.end_offsets()[first]:
            consumer.stop()

    with QueueConsumer(queue.root, "g", threads=1) as consumer:
        consumer.start(handler)
        for thread in consumer._threads:
            thread.join(30)
        consumer.stop()
        assert isinstance(consumer.errors[first].__cause__, SystemExit)
        assert consumer.committed(first) == 0
        assert sum(consumer.lag().values()) == queue.end_offsets()[first]


def test_a_commit_into_a_removed_directory_stops_the_partition_with_an_error(queue, tmp_path):
    handler = Handler()
    with QueueConsumer(queue.root, "g", threads=2) as consumer:
        shutil.rmtree(tmp_path / "q/consumer_offsets/g")
        used = {p for p, end in enumerate(queue.end_offsets()) if end}
        consumer.start(handler)
        handler.wait_for(lambda seen: len(seen) == len(used))
        consumer.stop()
        assert set(consumer.errors) == used
        for error in consumer.errors.values():
            assert isinstance(error, NotAQueue)
            assert "'g' is missing, so offset 1 of partition" in str(error)


def test_a_crash_of_the_machine_ends_the_threads():
    disk = FaultyDisk()
    with PartitionedQueue("/q", 1, disk=disk) as queue:
        queue.produce("k", "0")
    consumer = QueueConsumer("/q", "g", disk=disk)
    seen, complaints = [], []
    old, threading.excepthook = threading.excepthook, lambda args: complaints.append(args.exc_type)
    try:
        consumer.start(lambda message: (seen.append(message), disk.die()))
        for thread in consumer._threads:
            thread.join(30)
            assert not thread.is_alive()
    finally:
        threading.excepthook = old
    assert (len(seen), complaints, consumer.errors) == (1, [Crashed], {})


def test_a_handler_may_call_stop_and_its_message_is_committed(queue):
    with QueueConsumer(queue.root, "g", threads=4) as consumer:
        handled = []

        def handler(message):
            handled.append(message)
            consumer.stop()

        consumer.start(handler)
        for thread in consumer._threads:
            thread.join(30)
        consumer.stop()
        assert consumer.errors == {}
        assert 1 <= len(handled) <= 4
        assert sum(consumer.committed(p) for p in range(4)) == len(handled)
        assert consumer.poll()  # the consumer is of use again


def test_a_handler_that_closes_its_consumer_is_told_what_to_do(queue):
    with QueueConsumer(queue.root, "g", threads=1) as consumer:
        handler = Handler()
        consumer.start(lambda message: (handler(message), consumer.close()))
        handler.wait_for(lambda seen: len(seen) >= 1)
        consumer.stop()
        error = consumer.errors[handler.seen[0].partition]
        assert "close() called by a handler" in str(error)


def test_a_refused_consumer_gives_everything_back(queue):
    class Disk(RealDisk):
        def __init__(self):
            self.open_locks = 0

        def lock(self, path):
            lock = super().lock(path)
            close = lock.close
            self.open_locks += 1

            def close_once():
                self.open_locks -= 1
                close()

            lock.close = close_once
            return lock

    disk = Disk()
    with QueueConsumer(queue.root, "g"), pytest.raises(GroupInUse):
        QueueConsumer(queue.root, "g", disk=disk)
    assert disk.open_locks == 0


def test_a_forked_child_keeps_the_group_taken(queue):
    """As the docstring warns: the lock belongs to both processes until both have let go."""
    consumer = QueueConsumer(queue.root, "g")
    context = multiprocessing.get_context("fork")
    release = context.Event()
    child = context.Process(target=release.wait)
    child.start()
    consumer.close()
    with pytest.raises(GroupInUse):
        QueueConsumer(queue.root, "g")
    release.set()
    child.join()
    QueueConsumer(queue.root, "g").close()
