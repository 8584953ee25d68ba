"""Several threads and several processes on one log: shared syncs, shared appends, no half batch."""

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading

import pytest

from craft2.disk import CountingDisk, DiskError, RealDisk
from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import decode, encode_values
from phase1_file_queue.append_checks import check_new
from phase1_file_queue.control_page import ControlPage, Published
from phase1_file_queue.group_commit import GroupCommit
from phase1_file_queue.log_config import (
    BadBatch,
    CorruptLog,
    LogConfig,
    LogError,
    LogFailed,
    LogInUse,
    OffsetOutOfRange,
)
from phase1_file_queue.log_state import LogState
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.segment import Segment

SHARED = LogConfig(access="shared", segment_bytes=2000, index_interval_bytes=200)


def batch(*values):
    return encode_values([v.encode() for v in values], timestamps=7)


def values(log):
    return [record.value.decode() for record in log.records()]


def in_threads(count, work):
    failures = []

    def run(number):
        try:
            work(number)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


class FakeLog:
    """Appends to a list; the test decides when a flush returns, and whether it fails."""

    def __init__(self):
        self.items = []
        self.flushed = []  # how many items each flush covered
        self.begun = threading.Semaphore(0)
        self.may_return = threading.Semaphore(0)
        self.error = None

    def append(self, group):
        self.items += group
        return [ValueError(item) if item == "bad" else item.upper() for item in group]

    def flush(self):
        covered = len(self.items)
        self.begun.release()
        assert self.may_return.acquire(timeout=30)
        if self.error:
            raise self.error
        self.flushed.append(covered)


def test_a_sync_releases_those_appended_before_it_and_one_of_the_rest_leads_the_next():
    log = FakeLog()
    commit = GroupCommit(log.append, log.flush)
    outcomes = {}

    def submit(item):
        try:
            outcomes[item] = commit.submit(item)
        except ValueError as error:
            outcomes[item] = error

    threads = {item: threading.Thread(target=submit, args=(item,)) for item in ["a", "b", "bad"]}
    threads["a"].start()
    assert log.begun.acquire(timeout=30)  # a leads, alone
    threads["b"].start()
    threads["bad"].start()
    while len(commit._waiting) < 2:
        pass
    assert log.items == ["a"]  # the others came too late for that sync
    log.may_return.release()
    threads["a"].join()
    assert outcomes == {"a": "A"}
    assert log.begun.acquire(timeout=30)  # one of the others leads the next
    log.may_return.release()
    threads["b"].join()
    threads["bad"].join()
    assert outcomes["b"] == "B"
    assert isinstance(outcomes["bad"], ValueError)  # and nobody else's error
    assert log.flushed == [1, 3]


def test_a_failed_sync_fails_everybody_who_waited():
    log = FakeLog()
    log.error = DiskError("sync failed", "")
    log.may_return = threading.Semaphore(100)
    commit = GroupCommit(log.append, log.flush)
    failures = in_threads(8, lambda number: commit.submit(str(number)))
    assert failures == [log.error] * 8


def test_ctrl_c_of_one_who_waits_leaves_the_others_a_leader():
    log = FakeLog()
    commit = GroupCommit(log.append, log.flush)
    first = threading.Thread(target=commit.submit, args=("a",))
    first.start()
    assert log.begun.acquire(timeout=30)
    done = []
    rest = [
        threading.Thread(target=lambda item=item: done.append(commit.submit(item))) for item in "bc"
    ]

    def interrupt():
        while len(commit._waiting) < 1:
            pass
        for thread in rest:
            thread.start()
        while len(commit._waiting) < 3:
            pass
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    def handler(number, frame):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGUSR1, handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            commit.submit("main")
    finally:
        signal.signal(signal.SIGUSR1, old)
    log.may_return.release(10)
    for thread in [first, *rest]:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert sorted(done) == ["B", "C"]
    assert "main" not in log.items


def test_one_who_is_interrupted_while_it_wakes_does_not_break_the_chain():
    class Interrupted(GroupCommit):
        def _wake_next(self):
            if threading.current_thread().name == "c" and not interrupted:
                interrupted.append(True)
                raise KeyboardInterrupt
            super()._wake_next()

    def submit(item):
        with contextlib.suppress(KeyboardInterrupt):
            done.append(commit.submit(item))

    interrupted, done, log = [], [], FakeLog()
    commit = Interrupted(log.append, log.flush)
    threads = [
        threading.Thread(target=submit, args=(item,), name=item, daemon=True) for item in "abcde"
    ]
    for number, thread in enumerate(threads):
        thread.start()
        if not number:
            assert log.begun.acquire(timeout=30)
        while len(commit._waiting) < number:
            pass
    log.may_return.release(10)
    for thread in threads:
        thread.join(timeout=30)
        assert not thread.is_alive()
    assert interrupted
    assert sorted(done) == list("ABDE")


def test_threads_share_syncs_and_all_is_durable(tmp_path):
    disk = CountingDisk(RealDisk())
    log = PartitionLog(tmp_path / "t-0", disk=disk)
    assert not in_threads(32, lambda n: [log.append_durably(batch(f"{n} {i}")) for i in range(20)])
    assert log.end_offset == log.flushed == 640
    assert disk.calls["sync"] < 400
    found = values(log)
    for n in range(32):
        assert [v for v in found if v.startswith(f"{n} ")] == [f"{n} {i}" for i in range(20)]


def test_threads_that_wait_for_a_failing_disk_all_hear_of_it():
    disk = FaultyDisk()
    log = PartitionLog("/t-0", disk=disk)
    log.append_durably(batch("first"))
    disk.fail_at = dict.fromkeys(range(disk.steps + 1, disk.steps + 1000), errno.EIO)
    failures = in_threads(8, lambda n: log.append_durably(batch(str(n))))
    assert len(failures) == 8
    assert all(isinstance(f, DiskError | LogFailed) for f in failures)


APPENDER = """
import sys
from craft2.record_batch import decode, encode_values
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog
directory, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = PartitionLog(directory, LogConfig(access="shared", segment_bytes=20000))
print("open", flush=True)
i = 0
while i != count:
    log.append_as_leader(encode_values([f"{name} {i}".encode()] * 3), 0)
    i += 1
log.close()
"""


def appender(directory, name, count):
    command = [sys.executable, "-c", APPENDER, str(directory), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def check_whole(log, names):
    """Each appender's batches are whole, in order, and none is missing before its last."""
    found = values(log)
    for name in names:
        own = [int(v.split()[1]) for v in found if v.split()[0] == name]
        assert own == [i for i in range(len(own) // 3) for _ in range(3)]
    return found


def test_processes_append_to_one_log_without_gap_or_double(tmp_path):
    workers = [appender(tmp_path / "t-0", name, 300) for name in "abc"]
    for worker in workers:
        worker.communicate()
        assert worker.returncode == 0
    with PartitionLog(tmp_path / "t-0") as log:
        assert log.recovery.clean
        assert len(check_whole(log, "abc")) == 3 * 3 * 300


def test_killed_appenders_leave_nothing_half_done_to_the_others(tmp_path):
    with PartitionLog(tmp_path / "t-0", SHARED) as log:
        for number in range(4):
            worker = appender(tmp_path / "t-0", f"k{number}", -1)
            assert worker.stdout.readline() == "open\n"
            before = log.end_offset
            while log.end_offset < before + 60:
                pass
            os.kill(worker.pid, signal.SIGKILL)
            worker.communicate()
            log.append_as_leader(batch(f"own {number}"), 0)
            assert log.end_offset % 3 == (number + 1) % 3
        found = check_whole(log, [f"k{number}" for number in range(4)])
        assert [v for v in found if v.startswith("own")] == [f"own {n}" for n in range(4)]


@pytest.mark.parametrize("step", ["publish", "new_segment"])
def test_a_writer_that_dies_inside_an_append_is_cleaned_up_after(step, monkeypatch):
    class Died(BaseException):
        pass

    disk = FaultyDisk()
    first = PartitionLog("/t-0", SHARED, disk=disk)
    second = PartitionLog("/t-0", SHARED, disk=disk)
    reader = PartitionLog("/t-0", LogConfig(access="read"), disk=disk)
    for i in range(5):
        first.append_as_leader(batch(f"{i}" * 300), 0)
    expected = values(reader)
    original = getattr(LogState, step)

    def die(self, *arguments):
        if step == "new_segment":
            original(self, *arguments)
        raise Died

    def dead(self):
        raise Died

    monkeypatch.setattr(LogState, step, die)
    monkeypatch.setattr(LogState, "restore_end", dead)

    def append_until_it_dies():
        while True:
            first.append_as_leader(batch("never" * 60), 0)

    with pytest.raises(Died):
        append_until_it_dies()
    monkeypatch.undo()
    assert values(reader) == [*expected, *values(reader)[5:]]
    seen = values(reader)
    second.append_as_leader(batch("after"), 0)
    assert values(second) == values(reader) == [*seen, "after"]
    second.close()
    reader.close()
    assert values(PartitionLog("/t-0", SHARED, disk=disk.power_loss(keep=1.0)))[-1] == "after"


def test_shared_logs_roll_retain_and_flush_together(tmp_path):
    config = LogConfig(access="shared", segment_bytes=2000, retention_bytes=5000)
    with PartitionLog(tmp_path / "t-0", config) as a, PartitionLog(tmp_path / "t-0", config) as b:
        for i in range(60):
            (a if i % 3 else b).append_as_leader(batch(f"{i}" * 50), i // 20)
        assert a.segment_bases == b.segment_bases
        assert a.epoch_end_offset(1) == b.epoch_end_offset(1) == (1, 40)
        assert a.flush() == 60
        assert b.flushed == 60
        assert b.apply_retention()
        assert a.log_start == b.log_start > 0
        assert values(a) == values(b)
        with pytest.raises(LogInUse):
            PartitionLog(tmp_path / "t-0")
        with pytest.raises(LogError, match="access='exclusive'"):
            a.truncate_to(50)
    with PartitionLog(tmp_path / "t-0") as log:
        assert log.recovery.clean


class LastBatches:
    """A producer state that knows every batch it was told of, and refuses to hear one twice."""

    def __init__(self):
        self.told = []

    def check(self, header):
        return None

    def update(self, header):
        assert header.base_offset == (self.told[-1] + 1 if self.told else 0)
        self.told += range(header.base_offset, header.next_offset)

    def snapshot(self):
        return b",".join(b"%d" % offset for offset in self.told)

    def restore(self, data):
        self.told = [int(offset) for offset in data.split(b",") if offset]


def test_a_producer_state_hears_what_other_processes_append_before_it_is_asked():
    class Asked(LastBatches):
        def check(self, header):
            asked.append(list(self.told))

    disk, asked = FaultyDisk(), []
    a = PartitionLog("/t-0", SHARED, disk=disk, producer_state=Asked())
    b = PartitionLog("/t-0", SHARED, disk=disk, producer_state=Asked())
    plain = PartitionLog("/t-0", SHARED, disk=disk)
    for number in range(40):  # over several segments
        (a, b, b, plain)[number % 4].append_as_leader(batch(f"{number}" * 200), 0)
    assert asked == [list(range(number)) for number in range(40) if number % 4 != 3]
    b.close()
    plain.close()
    a.close()  # the last one leaves a snapshot, though others appended after it
    state = LastBatches()
    PartitionLog("/t-0", SHARED, disk=disk, producer_state=state)
    assert state.told == list(range(40))


def test_a_producer_state_forgets_what_another_process_died_writing(monkeypatch):
    disk = FaultyDisk()
    state = LastBatches()
    dies = PartitionLog("/t-0", SHARED, disk=disk)
    lives = PartitionLog("/t-0", SHARED, disk=disk, producer_state=state)
    dies.append_as_leader(batch("kept"), 0)

    class Died(BaseException):
        pass

    def die(self):
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(LogState, "publish", die)
        patched.setattr(LogState, "restore_end", die)
        with pytest.raises(Died):
            dies.append_as_leader(batch("never"), 0)
    lives.append_as_leader(batch("after"), 0)
    assert state.told == [0, 1]
    assert values(lives) == ["kept", "after"]


def test_a_producer_state_is_rebuilt_when_the_log_was_cut_meanwhile():
    state = LastBatches()
    log = PartitionLog("/t-0", SHARED, disk=FaultyDisk(), producer_state=state)
    log.append_as_leader(batch("a", "b"), 0)
    state.told = list(range(99))  # what it was told before the cut
    log._state._told = (99, log._state.cuts - 1)
    log.append_as_leader(batch("c"), 0)
    assert state.told == [0, 1, 2]


def test_who_waits_while_the_first_checks_the_log_starts_over_if_it_dies():
    disk = FaultyDisk()
    log = PartitionLog("/t-0", SHARED, disk=disk)
    log.append_as_leader(batch("x"), 0)
    disk = disk.kill()
    first = disk.lock("/t-0/.users")
    assert first.acquire()  # somebody is checking the log
    opened = []

    thread = threading.Thread(target=lambda: opened.append(PartitionLog("/t-0", SHARED, disk=disk)))
    page = disk.open("/t-0/.control", "write").map(4096)
    page.view[257] = 0
    page.close()
    thread.start()
    first.close()  # and dies
    thread.join()
    assert opened[0].recovery.scanned_bytes > 0
    assert values(opened[0]) == ["x"]


def test_an_object_from_before_a_fork_refuses(tmp_path):
    log = PartitionLog(tmp_path / "t-0")
    pid = os.fork()
    if pid == 0:
        try:
            log.append_as_leader(batch("child"), 0)
        except LogFailed as error:
            os._exit(7 if "forked" in str(error) else 1)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    log.close()


def test_a_reader_follows_a_log_that_is_cut_and_grows_past_its_old_end():
    disk = FaultyDisk()
    writer = PartitionLog("/t-0", LogConfig(segment_bytes=400, index_interval_bytes=0), disk=disk)
    for n in range(9):
        writer.append_as_leader(batch(f"old {n}" * 20), 0)
    reader = PartitionLog("/t-0", LogConfig(access="read"), disk=disk)
    pages = reader.batches(0, max_bytes=1)
    first = next(pages)
    assert len(values(reader)) == 9
    writer.truncate_to(2)
    for n in range(2, 20):
        writer.append_as_leader(batch(f"new {n}"), 0)
    assert values(reader) == values(writer)
    assert len(first) + sum(map(len, pages)) == writer.size


def test_a_writer_that_dies_inside_a_cut_beside_a_reader_leaves_the_cut_to_the_next(monkeypatch):
    class Died(BaseException):
        pass

    disk = FaultyDisk()
    config = LogConfig(segment_bytes=300)
    writer = PartitionLog("/t-0", config, disk=disk)
    for n in range(9):
        writer.append_as_leader(batch(f"{n}" * 100), n)
    reader = PartitionLog("/t-0", LogConfig(access="read"), disk=disk)

    def die(self):
        raise Died

    monkeypatch.setattr(LogState, "restore_end", die)
    with pytest.raises(Died):
        writer.truncate_to(2)
    monkeypatch.undo()
    writer._state.release()  # as the kernel does
    again = PartitionLog("/t-0", config, disk=disk)
    assert [v[0] for v in values(again)] == ["0", "1"]
    assert again.epoch_end_offset(9) == (1, 2)
    assert values(reader) == values(again)
    assert again.append_as_leader(batch("next"), 9).first_offset == 2


def test_epochs_are_known_to_whoever_comes_next():
    disk = FaultyDisk()
    writer = PartitionLog("/t-0", disk=disk)
    reader = PartitionLog("/t-0", LogConfig(access="read"), disk=disk)
    writer.append_as_leader(batch("x"), 9)
    assert reader.epoch_end_offset(9) == (9, 1)
    writer._state.release()  # killed; the reader stays
    with pytest.raises(BadBatch, match="older than the log's latest, 9"):
        PartitionLog("/t-0", disk=disk).append_as_leader(batch("y"), 1)


def test_a_page_is_never_taken_for_damaged_while_it_is_written(tmp_path):
    path = str(tmp_path / ".control")
    writer = ControlPage(RealDisk(), path)
    writer.publish(Published(0, 0, 0, 0, -1, 0, -1))
    pid = os.fork()
    if pid == 0:
        page = ControlPage(RealDisk(), path)
        for n in range(20_000):
            page.publish(Published(0, 0, n, n, -1, 0, 0))
        os._exit(0)
    reader = ControlPage(RealDisk(), path)
    seen = 0
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        state = reader.read()
        assert state is not None
        assert state.end_offset == state.position >= seen
        seen = state.end_offset


def test_a_log_in_use_whose_control_page_is_gone_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("phase1_file_queue.log_opening._ATTEMPTS", 3)
    log = PartitionLog(tmp_path / "t-0", SHARED)
    (tmp_path / "t-0/.control").unlink()
    with pytest.raises(CorruptLog, match="control page says that nobody opened it"):
        PartitionLog(tmp_path / "t-0", SHARED)
    log.close()


def test_ctrl_c_inside_an_append_leaves_the_log_as_it_was(monkeypatch):
    log = PartitionLog("/t-0", disk=FaultyDisk())
    log.append_as_leader(batch("zero"), 0)

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(LogState, "publish", interrupted)
    with pytest.raises(KeyboardInterrupt):
        log.append_as_leader(batch("lost"), 0)
    monkeypatch.undo()
    assert log.append_as_leader(batch("one"), 0).first_offset == 1
    assert values(log) == ["zero", "one"]


def test_one_full_disk_in_a_group_fails_those_it_concerns():
    def new(value):
        return check_new(batch(value), 10**6, 0)

    config = LogConfig(segment_bytes=200)
    probe = FaultyDisk()
    PartitionLog("/t-0", config, disk=probe)._append_group([new("a" * 99), new("b" * 99)])
    steps = [n for n, s in enumerate(probe.trace, 1) if s.startswith("write") and ".log " in s]
    disk = FaultyDisk(fail_at={steps[1]: errno.ENOSPC})
    log = PartitionLog("/t-0", config, disk=disk)
    first, second = log._append_group([new("a" * 99), new("b" * 99)])
    assert first == (0, 0, False)
    assert isinstance(second, DiskError)
    assert values(log) == ["a" * 99]
    with pytest.raises(BadBatch, match="leader epoch 2147483648"):
        log.append_durably(batch("x"), 2**31)


def test_a_group_that_begins_a_new_epoch_ends_the_old_one():
    log = PartitionLog("/t-0", disk=FaultyDisk())
    log.append_as_leader(batch("zero"), 3)
    group = [check_new(batch(value), 10**6, epoch) for value, epoch in (("a", 5), ("b", 3))]
    first, second = log._append_group(group)
    assert first == (1, 1, False)
    assert isinstance(second, BadBatch)
    assert "epoch 3 is older" in str(second)
    assert values(log) == ["zero", "a"]


@pytest.mark.parametrize("idle", [True, False], ids=["rolled meanwhile", "never looked"])
def test_a_reader_that_a_new_start_overtakes_skips_nothing(monkeypatch, idle):
    disk, small = FaultyDisk(), LogConfig(segment_bytes=300)
    writer = PartitionLog("/t-0", small, disk=disk)

    def append(count):
        for _ in range(count):
            writer.append_as_leader(encode_values([b"x" * 20] * 10), 0)

    append(1)
    reader = PartitionLog("/t-0", LogConfig(access="read"), disk=disk)
    append(9)
    if not idle:  # it has to open every segment anew
        writer.truncate_to(95)
    read = reader._state.control.read

    def overtaken():
        found = read()
        monkeypatch.undo()
        writer.advance_start(50)  # between its look at the page and its look at the directory
        return found

    monkeypatch.setattr(reader._state.control, "read", overtaken)
    with pytest.raises(OffsetOutOfRange, match="offset 15: the log '/t-0' holds 50 to"):
        reader.read(15, 10**6)
    assert [r.offset for r in reader.records()] == list(range(50, writer.end_offset))


def test_a_search_that_a_cut_overtakes_is_made_again(monkeypatch):
    disk = FaultyDisk()
    writer = PartitionLog("/t-0", disk=disk)
    for n in range(9):
        writer.append_as_leader(batch(f"{n}" * 50), 0)
    reader = PartitionLog("/t-0", LogConfig(access="read"), disk=disk)
    original = Segment.locate

    def cut_first(self, offset):
        monkeypatch.undo()
        writer.truncate_to(4)
        for _ in range(4, 9):
            writer.append_as_leader(batch("new" * 20), 0)
        return original(self, offset)

    assert reader.end_offset == 9
    monkeypatch.setattr(Segment, "locate", cut_first)
    piece = reader.read(8, 10_000)
    assert decode(piece.read())[0].value == b"new" * 20
    assert reader.offset_for_timestamp(7) == (0, 7)


def test_damage_that_a_search_meets_is_a_corrupt_log():
    disk = FaultyDisk()
    log = PartitionLog("/t-0", disk=disk)
    for n in range(9):
        log.append_as_leader(batch(f"{n}"), 0)
    file = disk.open("/t-0/00000000000000000000.log", "write")
    file.write_at(8, b"\0\0\0\0")  # the first batch's length
    reader = PartitionLog("/t-0", LogConfig(access="read"), disk=disk)  # who wrote knows the place
    with pytest.raises(CorruptLog, match="cannot be searched"):
        reader.read(5, 100)


def test_a_reader_that_was_slow_between_the_slots_does_not_go_back(tmp_path, monkeypatch):
    path = str(tmp_path / ".control")
    writer, reader = ControlPage(RealDisk(), path), ControlPage(RealDisk(), path)
    for n in range(1, 3):
        writer.publish(Published(0, 0, n, n, -1, 0, 0))
    assert reader.read().end_offset == 2
    writer.publish(Published(0, 0, 3, 3, -1, 0, 0))
    newest = ControlPage._newest
    answers = [(1, 0, 0, 1, 1, -1, 0, 0, 0)]  # the older slot, the newer one caught half written
    monkeypatch.setattr(
        ControlPage, "_newest", lambda *page: answers.pop() if answers else newest(*page)
    )
    assert reader.read().end_offset == 3
    assert answers == []


def test_nothing_is_appended_to_a_log_whose_folder_is_gone(tmp_path):
    folder = tmp_path / "t-0"
    log = PartitionLog(str(folder), SHARED)
    log.append_as_leader(batch("a"), 0)
    shutil.rmtree(folder)
    with pytest.raises(LogError, match="t-0' was removed while it was open"):
        log.append_as_leader(batch("b"), 0)


def test_two_writers_take_turns_although_the_lock_was_removed_under_them():
    disk = FaultyDisk()
    first, second = (PartitionLog("/t-0", SHARED, disk=disk) for _ in range(2))
    first.append_as_leader(batch("a"), 0)
    disk.unlink("/t-0/.append")
    third = PartitionLog("/t-0", SHARED, disk=disk)
    with third._appending():
        assert not first._state.append_lock.acquire(wait=False)
    second.append_as_leader(batch("b"), 0)
    assert values(third) == ["a", "b"]
