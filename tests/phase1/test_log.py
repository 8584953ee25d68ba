"""The partition log: what it holds, through rolls, cuts, retention and reopening."""

import os
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craft2.clock import ManualClock
from craft2.disk import DiskFull
from craft2.events import Events
from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import (
    BatchTooShort,
    CorruptBatch,
    Record,
    decode,
    encode,
    encode_values,
    iter_headers,
    stamp,
)
from phase1_file_queue.log_config import (
    BadBatch,
    BadLogConfig,
    LogConfig,
    LogError,
    LogFailed,
    LogInUse,
    NotALog,
    OffsetOutOfRange,
    RecordTooLarge,
)
from phase1_file_queue.partition_log import PartitionLog

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, max_index_bytes=96)


def batch(*values, timestamps=None):
    return encode_values([v.encode() for v in values], timestamps=timestamps or 1000)


def fill(log, count, epoch=0):
    for i in range(count):
        log.append_as_leader(batch(str(i), timestamps=1000 + i), epoch)


def values(log, offset=None, upto=None):
    return [record.value.decode() for record in log.records(offset, upto)]


@pytest.fixture
def log(tmp_path):
    with PartitionLog(tmp_path / "t-0", SMALL) as log:
        yield log


def test_offsets_epochs_and_bytes(log):
    assert log.append_as_leader(batch("a", "b"), epoch=5) == (0, 1, False)
    assert log.append_as_leader(batch("c") + batch("d", "e"), epoch=5) == (2, 4, False)
    assert [(r.offset, r.value) for r in log.records()] == [
        (n, v.encode()) for n, v in enumerate("abcde")
    ]
    data = log.read(0, 10_000).read()
    assert [h.leader_epoch for _, h in iter_headers(data)] == [5, 5, 5]
    assert (log.log_start, log.end_offset) == (0, 5)


def test_reads_start_at_the_batch_and_keep_to_max_bytes_and_upto(log):
    for text in ("aa", "bb", "cc"):
        log.append_as_leader(batch(text, text), 0)
    size = len(batch("aa", "aa"))
    assert log.read(3, 10_000).size == 2 * size  # from the batch that holds offset 3
    assert log.read(0, 1).size == size  # the first batch comes whole
    assert log.read(0, size + 5).size == size + 5  # the last may be cut
    assert log.read(0, 10_000, upto=4).size == 2 * size
    assert log.read(0, 10_000, upto=3).size == size  # offset 3 is inside a batch: not yet
    assert log.read(4, 10_000, upto=4).size == log.read(6, 10_000).size == 0
    for offset in (7, 100):
        with pytest.raises(OffsetOutOfRange, match="holds 0 to 6"):
            log.read(offset, 100)


def test_segments_roll_by_size_and_age_and_full_index(tmp_path):
    with PartitionLog(tmp_path / "size", SMALL) as log:
        fill(log, 30)
        assert len(log.segment_bases) > 5
        assert all(s.size <= 400 for s in log._state.segments)
        names = sorted(n for n in os.listdir(log.directory) if n.endswith(".log"))
        assert names[0] == "0" * 20 + ".log"
        assert int(names[1][:20]) == log.segment_bases[1]
        assert values(log, 7, 19) == [str(n) for n in range(7, 19)]
    with PartitionLog(tmp_path / "age", LogConfig(segment_ms=10)) as log:
        fill(log, 30)
        assert log.segment_bases == [0, 11, 22]
    config = LogConfig(index_interval_bytes=0, max_index_bytes=48)
    with PartitionLog(tmp_path / "index", config) as log:
        fill(log, 30)
        assert len(log.segment_bases) > 5
        assert values(log) == [str(n) for n in range(30)]


@given(
    st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=4), max_size=30),
    st.integers(0, 60),
)
@settings(max_examples=60, deadline=None)
def test_a_time_is_found_wherever_the_index_has_an_entry(times, target):
    log = PartitionLog("/t-0", SMALL, disk=FaultyDisk())
    flat = []
    for group in times:
        log.append_as_leader(batch(*map(str, group), timestamps=group), 0)
        flat += group
    expected = next(((n, t) for n, t in enumerate(flat) if t >= target), None)
    assert log.offset_for_timestamp(target) == expected
    disk = log._disk
    log.close()
    reopened = PartitionLog("/t-0", SMALL, disk=disk)
    assert reopened.recovery.clean
    assert reopened.offset_for_timestamp(target) == expected


def test_clean_reopen_checks_nothing_and_a_copy_of_everything_is_there(tmp_path):
    with PartitionLog(tmp_path / "t-0", SMALL) as log:
        fill(log, 50, epoch=2)
    with PartitionLog(tmp_path / "t-0", SMALL) as log:
        assert log.recovery.clean
        assert log.recovery.scanned_bytes == 0
        assert values(log) == [str(n) for n in range(50)]
        assert log.flushed == 50
        assert log.epoch_end_offset(9) == (2, 50)
        fill(log, 5, epoch=3)
        assert log.epoch_end_offset(2) == (2, 50)
        assert log.end_offset == 55


def test_followers_keep_offsets_and_epochs(tmp_path, log):
    fill(log, 3, epoch=1)
    fill(log, 3, epoch=4)
    with PartitionLog(tmp_path / "follower", SMALL) as follower:
        follower.append_as_follower(b"".join(log.batches()))
        assert values(follower) == values(log)
        assert follower.epoch_end_offset(1) == (1, 3)
        with pytest.raises(BadBatch, match="has offset 0"):
            follower.append_as_follower(next(log.batches()))
        with pytest.raises(BadBatch, match="leader epoch 3"):
            follower.append_as_follower(stamp(batch("x"), 6, 3))
        with pytest.raises(BadBatch, match="older than the log's latest"):
            follower.append_as_leader(batch("x"), 3)


def test_epoch_end_offsets(log):
    for epoch, count in ((0, 2), (3, 2), (5, 1)):
        fill(log, count, epoch)
    assert log.epoch_end_offset(0) == (0, 2)
    assert log.epoch_end_offset(2) == (0, 2)
    assert log.epoch_end_offset(4) == (3, 4)
    assert log.epoch_end_offset(5) == (5, 5)
    log.truncate_to(3)
    assert log.epoch_end_offset(9) == (3, 3)
    log.advance_start(2)
    assert log.epoch_end_offset(0) == (-1, -1)
    assert log.epoch_end_offset(3) == (3, 3)


def test_truncate_then_go_on(log):
    fill(log, 30)
    log.flush()
    log.truncate_to(11)
    assert log.end_offset == 11
    assert log.flushed == 11
    assert values(log) == [str(n) for n in range(11)]
    fill(log, 10)
    assert values(log, 11) == [str(n) for n in range(10)]
    log.truncate_to(99)  # behind the end: nothing to do
    assert log.end_offset == 21
    log.truncate_to(0)
    assert (log.end_offset, log.segment_bases, values(log)) == (0, [0], [])


def test_a_truncation_inside_a_batch_takes_the_whole_batch(log):
    log.append_as_leader(batch("a", "b"), 0)
    log.append_as_leader(batch("c", "d"), 0)
    log.truncate_to(3)
    assert log.end_offset == 2


def test_reset_forgets_everything(log):
    fill(log, 30, epoch=3)
    for offset in (1000, 1000, 5):
        log.reset_to(offset)
        assert (log.log_start, log.end_offset, values(log)) == (offset, offset, [])
        assert log.epoch_end_offset(9) == (-1, -1)
        assert log.append_as_leader(batch("new"), 3).first_offset == offset


def test_advance_start_deletes_whole_segments_only(log):
    fill(log, 30)
    second = log.segment_bases[1]
    log.advance_start(second - 1)
    assert log.segment_bases[0] == 0
    assert values(log) == [str(n) for n in range(second - 1, 30)]
    log.advance_start(second)
    assert log.segment_bases[0] == second
    with pytest.raises(OffsetOutOfRange, match=f"holds {second} to 30"):
        log.read(second - 1, 100)
    log.advance_start(30)
    assert values(log) == []
    assert len(log.segment_bases) == 1
    with pytest.raises(OffsetOutOfRange):
        log.advance_start(31)


def test_retention_by_bytes_and_age_never_takes_the_active_segment(tmp_path):
    config = LogConfig(segment_bytes=400, retention_bytes=900)
    with PartitionLog(tmp_path / "bytes", config) as log:
        fill(log, 40)
        before = log.segment_bases
        deleted = log.apply_retention()
        assert deleted == before[: len(deleted)]
        assert 900 <= log.size <= 900 + 400
        assert log.log_start == log.segment_bases[0] == before[len(deleted)]
        assert log.apply_retention() == []
    clock = ManualClock(1000 + 500)
    config = LogConfig(segment_bytes=400, retention_ms=480)
    with PartitionLog(tmp_path / "age", config, clock=clock) as log:
        fill(log, 40)
        log.apply_retention()
        assert 0 < log.log_start <= 20  # records of 1020 and later are kept
        log.apply_retention(now_ms=10**9)
        assert len(log.segment_bases) == 1
        assert log.end_offset == 40
        assert len(values(log)) > 0
    with PartitionLog(tmp_path / "age", config, clock=clock) as log:
        assert log.recovery.clean


def test_retention_deletes_so_many_segments_and_none_that_ends_behind_an_offset(tmp_path):
    config = LogConfig(segment_bytes=400, retention_bytes=0)
    with PartitionLog(tmp_path / "bytes", config) as log:
        fill(log, 40)
        bases = log.segment_bases
        assert log.apply_retention(most=1) == bases[:1]
        assert log.apply_retention(before=bases[3] - 1) == bases[1:2]
        assert log.log_start == bases[2]
        assert log.apply_retention(before=bases[3]) == bases[2:3]
        assert log.apply_retention() == bases[3:-1]


def test_an_open_slice_survives_the_deletion_of_its_segment(log):
    fill(log, 30)
    piece = log.read(0, 150)
    log.advance_start(30)
    assert decode(piece.read())[0].value == b"0"


def test_a_log_has_one_exclusive_writer_and_any_number_of_readers(tmp_path, log):
    fill(log, 3)
    with pytest.raises(LogInUse, match="already open for writing"):
        PartitionLog(log.directory)
    with pytest.raises(LogInUse):
        PartitionLog(log.directory, LogConfig(access="shared"))
    with PartitionLog(log.directory, LogConfig(access="read")) as reader:
        assert values(reader) == ["0", "1", "2"]
        fill(log, 30)
        assert len(values(reader)) == 33
        assert reader.segment_bases == log.segment_bases
        log.advance_start(20)
        assert reader.log_start == 20
        log.truncate_to(25)
        assert reader.end_offset == 25
        assert values(reader) == values(log)
        with pytest.raises(LogError, match="opened to read"):
            reader.append_as_leader(batch("x"), 0)
        with pytest.raises(LogError, match="access='read'"):
            reader.truncate_to(0)
    fill(log, 1)
    log.close()
    with PartitionLog(log.directory) as again:
        assert again.recovery.clean


def test_settings_that_make_no_sense():
    for setting, value in [
        ("segment_bytes", 0),
        ("segment_bytes", 2**31),
        ("flush_policy", "sometimes"),
        ("access", "rw"),
        ("retention_ms", -1),
        ("max_index_bytes", 8),
    ]:
        with pytest.raises(BadLogConfig, match=f"{setting} is {value!r}"):
            LogConfig(**{setting: value})


def test_bytes_that_are_no_batch_for_this_log(log):
    good = batch("a")
    for bad, error in [
        (b"", BatchTooShort),
        (good[:-1], BatchTooShort),
        (good + b"x", BatchTooShort),
        (good[:-1] + b"\xff", CorruptBatch),
        (encode([Record(0, 0, None, b"x"), Record(5, 0, None, b"x")]), BadBatch),
    ]:
        with pytest.raises(error):
            log.append_as_leader(bad, 0)
    body = bytes([0, 0]) + (-1).to_bytes(4, "big", signed=True) + (1).to_bytes(4, "big") + b"a"
    old = zlib.crc32(body).to_bytes(4, "big") + body
    old = bytes(8) + len(old).to_bytes(4, "big") + old
    with pytest.raises(BadBatch, match="format 0"):
        log.append_as_leader(old, 0)
    assert log.end_offset == 0


def test_a_batch_over_the_limit(tmp_path):
    with (
        PartitionLog(tmp_path / "t-0", LogConfig(max_message_bytes=100)) as log,
        pytest.raises(RecordTooLarge, match="the limit is 100"),
    ):
        log.append_as_leader(batch("x" * 101), 0)


def test_a_follower_takes_what_was_allowed_when_its_leader_took_it(tmp_path, log):
    log.append_as_leader(batch("x" * 101), 0)
    with PartitionLog(tmp_path / "follower", LogConfig(max_message_bytes=0)) as follower:
        follower.append_as_follower(b"".join(log.batches()))
        assert values(follower) == values(log)


def test_a_full_disk_leaves_the_log_as_it_was():
    for capacity in range(5000, 5900, 23):
        disk = FaultyDisk(capacity=capacity)
        log = PartitionLog("/t-0", SMALL, disk=disk)

        def fill_up(log=log):
            while True:
                log.append_as_leader(batch("x" * 30, timestamps=log.end_offset + 1), 0)

        with pytest.raises(DiskFull, match="free some space"):
            fill_up()
        count = log.end_offset
        assert values(log) == ["x" * 30] * count
        disk.capacity = None
        log.append_as_leader(batch("more"), 0)
        log.flush()
        assert values(log) == ["x" * 30] * count + ["more"]
        after = PartitionLog("/t-0", SMALL, disk=disk.power_loss(keep=0.0))
        assert values(after) == ["x" * 30] * count + ["more"]
        assert after.recovery.cuts == []


def test_directories_that_are_no_log(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "notes.txt").write_text("hello")
    with pytest.raises(NotALog, match=r"notes\.txt"):
        PartitionLog(tmp_path / "a")
    assert os.listdir(tmp_path / "a") == ["notes.txt"]
    with pytest.raises(NotALog, match="is a file"):
        PartitionLog(tmp_path / "a" / "notes.txt")


def test_a_closed_log_says_so(tmp_path):
    log = PartitionLog(tmp_path / "t-0")
    log.close()
    log.close()
    with pytest.raises(LogFailed, match="is closed"):
        log.read(0, 1)
    with pytest.raises(LogFailed, match="is closed"):
        log.append_as_leader(batch("x"), 0)


def test_what_the_log_does_is_told_with_its_reason():
    disk, events = FaultyDisk(), Events(who="test")
    config = LogConfig(segment_bytes=400, retention_bytes=500)
    log = PartitionLog("/flights-7", config, disk=disk, events=events)
    fill(log, 12)
    log.flush()
    fill(log, 1)
    log.apply_retention()
    log.truncate_to(11)
    log.reset_to(50)
    kinds = [event.kind for event in events.events]
    assert set(kinds) == {"roll", "advance-start", "delete-segment", "truncate", "reset"}
    first = events.events[0]
    assert (first.topic, first.partition, first.who) == ("flights", 7, "test")
    assert first.because.endswith("more are over 400")
    log.append_as_leader(batch("x"), 0)
    disk = disk.kill()
    file = disk.open("/flights-7/00000000000000000050.log", "write")
    file.write_at(file.size(), b"torn")
    PartitionLog("/flights-7", config, disk=disk, events=events)
    assert [event.kind for event in events.events[-2:]] == ["cut", "recover"]
    assert events.events[-2].because.startswith("4 bytes at /flights-7/")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="asks /proc what is open")
def test_a_closed_log_has_nothing_open_but_what_is_being_read(tmp_path):
    log = PartitionLog(tmp_path / "t-0")
    log.append_as_leader(batch("first"), 0)
    piece = log.read(0, 1_000)
    log.close()

    def still_open():
        links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        paths = [os.readlink(link) for link in links if os.path.lexists(link)]
        return [os.path.basename(path) for path in paths if path.startswith(str(tmp_path))]

    assert still_open() == ["00000000000000000000.log"]
    assert decode(piece.read())[0].value == b"first"
    del piece
    assert still_open() == []
