"""Several threads on one partition: what is committed is finished, in whatever order."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craft2.events import Events
from phase1_file_queue.commit_tracker import CommitTracker
from phase1_file_queue.partitioned_queue import PartitionedQueue
from phase1_file_queue.queue_consumer import QueueConsumer


@given(st.integers(0, 50), st.integers(0, 12).flatmap(lambda n: st.permutations(range(n))))
def test_the_safe_offset_is_the_largest_with_everything_before_it_finished(first, order):
    tracker = CommitTracker(first)
    finished = set()
    for offset in order:
        finished.add(first + offset)
        safe = tracker.finish(first + offset)
        assert set(range(first, safe)) <= finished
        assert safe not in finished
        assert tracker.ahead == {done for done in finished if done > safe}
    assert tracker.committed == first + len(order)


@pytest.fixture
def root(tmp_path):
    with PartitionedQueue(tmp_path / "q", 1, fsync=False) as queue:
        for number in range(30):
            queue.produce(None, str(number))
    return tmp_path / "q"


def test_a_slow_message_holds_up_the_commit_and_nothing_else(root):
    others, go = threading.Semaphore(0), threading.Event()
    handled = []

    def handle(message):
        if message.offset == 0:
            assert go.wait(30)
        handled.append(message.offset)
        others.release()

    events = Events()
    with QueueConsumer(root, "g", threads=4, in_order=False, events=events) as consumer:
        consumer.start(handle)
        for _ in range(29):
            assert others.acquire(timeout=30)
        assert sorted(handled) == list(range(1, 30))
        assert consumer.committed(0) == 0
        go.set()
        assert others.acquire(timeout=30)
        consumer.stop()
        assert consumer.committed(0) == 30
    assert sorted(handled) == list(range(30))
    assert [e.offset for e in events.events if e.kind == "commit"][-1] == 30


def test_a_failure_stops_the_partition_and_all_from_there_on_comes_again(root):
    handled, mended = [], threading.Event()
    changed = threading.Condition()

    def handle(message):
        if message.offset == 7 and not mended.is_set():
            raise ValueError("no such gate")
        with changed:
            handled.append(message.offset)
            changed.notify_all()

    with QueueConsumer(root, "g", threads=4, in_order=False) as consumer:
        consumer.start(handle)
        while 0 not in consumer.errors and len(handled) < 29:
            pass
        consumer.stop()
        assert "offset 7" in str(consumer.errors[0])
        assert consumer.committed(0) == 7
        assert [m.offset for m in consumer.poll()] == list(range(7, 30))
        mended.set()
        consumer.start(handle)
        with changed:
            assert changed.wait_for(lambda: set(handled) == set(range(30)), timeout=30)
        consumer.stop()
        assert consumer.committed(0) == 30


def test_positions_that_were_polled_and_not_committed_come_again_after_start(root):
    handled = threading.Semaphore(0)
    with QueueConsumer(root, "g", threads=1) as consumer:
        assert len(consumer.poll(10)) == 10
        consumer.start(lambda message: handled.release())
        for _ in range(30):
            assert handled.acquire(timeout=30)


def test_an_error_that_is_not_the_handlers_stops_the_partition_too(root):
    with QueueConsumer(root, "g", threads=1) as consumer:
        consumer.start(lambda message: consumer._trackers.clear())
        [thread] = consumer._threads
        while thread.is_alive() and not consumer.errors and consumer.committed(0) < 30:
            pass
        assert isinstance(consumer.errors[0], IndexError)
