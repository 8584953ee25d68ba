"""Crashes of the log: at every call of many histories, and damage that is no crash."""

import errno
import json
import os
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craft2.clock import ManualClock
from craft2.disk import SECTOR, DiskError
from craft2.faulty_disk import FaultyDisk, crash_points
from craft2.record_batch import encode_values, stamp
from phase1_file_queue.log_config import CorruptLog, LogConfig, LogFailed, OffsetOutOfRange
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.producer_state import AppendResult

SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=200, max_index_bytes=96)
NO_FSYNC = replace(SMALL, flush_policy="never")


def batch(first, count, size):
    return encode_values([b"%d:" % (first + n) + b"x" * size for n in range(count)], timestamps=9)


class Counting:
    """A producer state that counts records: enough to see that it keeps in step with the log."""

    def __init__(self):
        self.count = 0

    def check(self, header):
        return None

    def update(self, header):
        self.count += header.count

    def snapshot(self):
        return b"%d" % self.count

    def restore(self, data):
        self.count = int(data or b"0")


# A history is a list of steps: ("append", records, bytes each), ("flush",), ("truncate", back),
# ("start", back), ("reset", ahead), ("reopen",). `Promise` keeps what the log must still have.


class Promise:
    def __init__(self):
        self.clear()

    def clear(self):
        self.start = self.end = self.flushed = 0
        self.removed = False  # an operation that removes records has begun

    def run(self, disk, history, config):
        self.clear()
        log = PartitionLog("/t-0", config, disk=disk, producer_state=Counting())
        for step in history:
            match step:
                case ("append", count, size):
                    log.append_durably(batch(log.end_offset, count, size))
                    self.end = log.end_offset
                    if config.flush_policy == "batch":
                        self.flushed = self.end
                case ("flush",):
                    self.flushed = log.flush()
                case ("truncate", back):
                    target = max(log.log_start, log.end_offset - back)
                    self.flushed = min(self.flushed, target - 5)  # a batch goes as a whole
                    log.truncate_to(target)
                    self.end = log.end_offset
                    self.flushed = log.flush()
                case ("start", back):
                    log.advance_start(max(log.log_start, log.end_offset - back))
                    self.start = log.log_start
                case ("reset", ahead):
                    self.flushed = 0
                    self.start = 0
                    log.reset_to(log.end_offset + ahead)
                    self.start = self.end = self.flushed = log.end_offset
                case ("reopen",):
                    log.close()
                    log = PartitionLog("/t-0", config, disk=disk, producer_state=Counting())
        log.close()
        self.flushed = self.end


def check_history(history, config, outcomes):
    promise = Promise()
    points = 0
    for words, disk in crash_points(
        lambda disk: promise.run(disk, history, config), outcomes=outcomes
    ):
        points += 1
        killed = words.startswith("killed")
        producers = Counting()
        log = PartitionLog("/t-0", config, disk=disk, producer_state=producers)
        assert log.log_start >= promise.start, words
        kept = promise.end if killed and promise.flushed == promise.end else promise.flushed
        assert log.end_offset >= kept, words
        found = list(log.records())
        # A prefix of what was written: offsets without a gap, each record with its own content.
        assert [r.offset for r in found] == list(range(log.log_start, log.end_offset)), words
        assert all(r.value.startswith(b"%d:" % r.offset) for r in found), words
        # The indexes find every record, by offset and by time.
        for record in found[:: max(1, len(found) // 5)]:
            assert next(log.records(record.offset)) == record, words
        # So does a reader in another process, which knows no more than what is in the files.
        with PartitionLog("/t-0", replace(config, access="read"), disk=disk) as reader:
            assert [r.offset for r in reader.records()] == [r.offset for r in found], words
            for record in found[:: max(1, len(found) // 5)]:
                assert next(reader.records(record.offset)) == record, words
        if found:
            assert log.offset_for_timestamp(9) == (log.log_start, 9), words
        # It goes on, and what it adds survives the next crash.
        log.append_as_leader(batch(log.end_offset, 2, 10), 0)
        end = log.flush()
        assert producers.count >= len(found), words
        again = PartitionLog("/t-0", config, disk=disk.power_loss(keep=0.0))
        assert again.end_offset == end, words
        assert sum(1 for _ in again.records()) == end - again.log_start, words
    return points


APPENDS = [("append", n, size) for n, size in [(1, 10), (3, 300), (2, 600), (1, 300), (5, 40)]]
HISTORIES = {
    "appends": APPENDS,
    "reopened": [*APPENDS, ("reopen",), *APPENDS],
    "truncated": [*APPENDS, ("truncate", 6), *APPENDS, ("truncate", 20)],
    "started later": [*APPENDS, ("start", 3), *APPENDS, ("start", 0), ("append", 1, 10)],
    "cut again and again": [("append", 3, 200), ("truncate", 2), ("append", 2, 300)] * 2,
    "truncated at the start": [("append", 9, 90), ("start", 4), ("truncate", 2), *APPENDS],
    "reset within": [*APPENDS, ("start", 4), ("reset", -3), *APPENDS, ("reset", -9), *APPENDS],
    "reset": [*APPENDS, ("reset", 100), *APPENDS, ("reset", 0), *APPENDS],
}


@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("config", [SMALL, NO_FSYNC], ids=["fsync", "never"])
def test_a_crash_at_any_call_keeps_a_prefix_with_all_that_was_promised(name, config):
    assert check_history(HISTORIES[name], config, outcomes=1) > 50


@pytest.mark.prove
@pytest.mark.parametrize("name", HISTORIES)
@pytest.mark.parametrize("config", [SMALL, NO_FSYNC], ids=["fsync", "never"])
def test_so_do_more_outcomes_of_each_crash(name, config):
    assert check_history(HISTORIES[name], config, outcomes=8) > 50


def served(disk):
    """Whether a reader may have had the log open: then it is not recovered, but joined."""
    page = disk.tree().get("/t-0/.control", b"")
    return len(page) > 257 and page[257] == 1


@pytest.mark.parametrize("name", sorted(set(HISTORIES) - {"appends", "reopened", "truncated"}))
def test_a_writer_killed_beside_a_reader_leaves_a_log_that_the_next_one_can_join(name):
    promise = Promise()
    joined = 0
    for words, disk in crash_points(
        lambda disk: promise.run(disk, HISTORIES[name], NO_FSYNC), outcomes=0
    ):
        if not words.startswith("killed") or not served(disk):
            continue
        joined += 1
        reader = disk.lock("/t-0/.users")
        reader.acquire(shared=True)
        log = PartitionLog("/t-0", NO_FSYNC, disk=disk)
        assert max(promise.start, log.log_start) <= log.end_offset, words
        kept = promise.end if promise.flushed == promise.end else promise.flushed
        assert log.end_offset >= kept, words
        for _ in range(6):  # enough to roll into what the dead one may have left behind
            result = log.append_as_leader(batch(log.end_offset, 5, 200), 0)
            assert result.first_offset >= log.log_start, words
        wanted = list(range(log.log_start, log.end_offset))
        found = [(r.offset, r.value.split(b":")[0]) for r in log.records()]
        assert [offset for offset, _ in found] == wanted, words
        assert all(value == b"%d" % offset for offset, value in found), words
        with PartitionLog("/t-0", replace(NO_FSYNC, access="read"), disk=disk) as other:
            assert [r.offset for r in other.records()] == wanted, words
        reader.close()
        log.close()
        again = PartitionLog("/t-0", NO_FSYNC, disk=disk)
        assert [r.offset for r in again.records()] == wanted, words
    assert joined > 20


@pytest.mark.parametrize("indexed", [False, True])
def test_a_segment_rolled_just_before_a_power_cut_is_still_found_by_time(indexed):
    def run(disk):
        written.clear()
        with PartitionLog("/t-0", SMALL, disk=disk) as log:
            for _ in range(2 * indexed):  # the second one gets into the indexes
                log.append_durably(encode_values([b"x" * 250], timestamps=9))
            log.append_durably(encode_values([b"x"], timestamps=20))
            written.append(log.end_offset - 1)
        log = PartitionLog("/t-0", SMALL, disk=disk)
        log.append_durably(encode_values([b"x" * 1400], timestamps=30))

    written = []
    for words, disk in crash_points(run, outcomes=2):
        log = PartitionLog("/t-0", SMALL, disk=disk)
        if written:
            assert log.offset_for_timestamp(15) == (written[0], 20), words


@pytest.mark.parametrize("start", [0, 5, 10, 13, 20, 29])
def test_leader_epochs_are_those_of_readable_records_after_a_crash_too(start):
    disk = FaultyDisk()
    log = PartitionLog("/t-0", LogConfig(), disk=disk)
    for epoch in range(3):
        for _ in range(2):
            log.append_as_leader(batch(log.end_offset, 5, 10), epoch)
    log.flush()
    log.advance_start(start)
    before = [log.epoch_end_offset(epoch) for epoch in range(3)], log._state.epochs.entries
    disk = disk.kill()
    disk.unlink("/t-0/leader-epoch-checkpoint")
    again = PartitionLog("/t-0", LogConfig(), disk=disk)
    assert ([again.epoch_end_offset(n) for n in range(3)], again._state.epochs.entries) == before


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.sampled_from([5, 100, 500, 1200])),
    st.tuples(st.just("flush")),
    st.tuples(st.just("truncate"), st.integers(0, 9)),
    st.tuples(st.just("start"), st.integers(0, 9)),
    st.tuples(st.just("reset"), st.integers(0, 9)),
    st.tuples(st.just("reopen")),
)


@settings(max_examples=4, deadline=None)
@given(st.lists(STEPS, max_size=5), st.sampled_from([SMALL, NO_FSYNC]))
def test_crashes_of_random_histories(history, config):
    assert check_history(history, config, outcomes=2) > 0


@pytest.mark.prove
@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=10), st.sampled_from([SMALL, NO_FSYNC]))
def test_crashes_of_many_random_histories(history, config):
    assert check_history(history, config, outcomes=6) > 0


def written(disk, count=6, *, flush=True, close=False, size=600):
    """A log with one segment of `count` batches of one record."""
    log = PartitionLog("/t-0", LogConfig(), disk=disk)
    for _ in range(count):
        log.append_as_leader(batch(log.end_offset, 1, size), 0)
    if flush:
        log.flush()
    if close:
        log.close()
    return log


LOG = "/t-0/" + "0" * 20 + ".log"


def damage(disk, position, data):
    file = disk.open(LOG, "write")
    file.write_at(position, data)
    file.sync()


def forget_flushed(disk):
    """What an old version of the control page would say."""
    disk.unlink("/t-0/.control")


def position_of(disk, offset):
    return next(
        p
        for p, h in PartitionLog("/t-0", disk=disk)._state.active.headers()
        if h.base_offset == offset
    )


@pytest.mark.parametrize("offset", [0, 2, 5])
def test_a_flipped_bit_in_flushed_records_is_reported_not_cut(offset):
    disk = FaultyDisk()
    log = written(disk)
    position = log._state.active.locate(offset)[0]
    disk = disk.kill()
    before = disk.tree()[LOG]
    damage(disk, position + 100, bytes([before[position + 100] ^ 1]))
    with pytest.raises(CorruptLog, match=rf"damaged at byte {position}, where offset {offset} "):
        PartitionLog("/t-0", disk=disk)
    assert len(disk.tree()[LOG]) == len(before)


def test_a_flushed_record_that_is_missing_is_reported():
    disk = FaultyDisk()
    written(disk)
    disk = disk.kill()
    file = disk.open(LOG, "write")
    file.truncate(file.size() - 1)
    with pytest.raises(CorruptLog, match="records up to offset 5 had been flushed"):
        PartitionLog("/t-0", disk=disk)


@pytest.mark.parametrize("tail", [b"x", b"\0" * 700, os.urandom(300), encode_values([b"a"])[:-1]])
def test_a_torn_tail_is_cut_and_reported(tail):
    disk = FaultyDisk()
    log = written(disk)
    size = log.size
    disk = disk.kill()
    damage(disk, size, tail)
    log = PartitionLog("/t-0", disk=disk)
    assert log.end_offset == 6
    [cut] = log.recovery.cuts
    assert (cut.path, cut.position, cut.size, cut.offset) == (LOG, size, len(tail), 6)
    assert cut.kept_as is None
    assert len(disk.tree()[LOG]) == size


def test_a_flipped_bit_with_valid_records_behind_it_is_reported_even_unflushed():
    disk = FaultyDisk()
    log = written(disk, flush=False)
    position = log._state.active.locate(2)[0]
    disk = disk.kill()
    damage(disk, position + 80, b"!")
    with pytest.raises(CorruptLog, match="a valid batch follows at byte"):
        PartitionLog("/t-0", disk=disk)


def test_a_lost_sector_before_unflushed_records_is_cut_and_kept_aside():
    disk = FaultyDisk()
    log = written(disk, flush=False)
    position = log._state.active.locate(2)[0]
    disk = disk.kill()
    whole = disk.tree()[LOG]
    start = (position // SECTOR + 1) * SECTOR
    damage(disk, start, bytes(SECTOR))
    log = PartitionLog("/t-0", disk=disk)
    assert log.end_offset == 2
    [cut] = log.recovery.cuts
    assert cut.offset == 2
    assert len(disk.tree()[cut.kept_as]) == len(whole) - position
    log.close()
    PartitionLog("/t-0", disk=disk).close()  # the kept file is in nobody's way


def test_a_missing_segment_in_the_middle_is_reported():
    disk = FaultyDisk()
    log = PartitionLog("/t-0", SMALL, disk=disk)
    for _ in range(12):
        log.append_as_leader(batch(log.end_offset, 1, 600), 0)
    log.flush()
    bases = log.segment_bases
    for base in (bases[0], bases[2]):
        copy = disk.kill() if base == bases[0] else FaultyDisk()
        if base != bases[0]:
            log = PartitionLog("/t-0", SMALL, disk=copy)
            for _ in range(12):
                log.append_as_leader(batch(log.end_offset, 1, 600), 0)
            log.flush()
            copy = copy.kill()
        copy.unlink(f"/t-0/{base:020d}.log")
        with pytest.raises(CorruptLog, match=r"first segment is|next segment begins at"):
            PartitionLog("/t-0", SMALL, disk=copy)


def test_damaged_small_files_say_what_they_are():
    for name, words in [
        ("recovery-point", "is not a recovery point"),
        ("leader-epoch-checkpoint", "is not a leader epoch file"),
    ]:
        disk = FaultyDisk()
        written(disk, close=True)
        disk.open(f"/t-0/{name}", "empty").write_at(0, b"{]")
        with pytest.raises(CorruptLog, match=words):
            PartitionLog("/t-0", disk=disk)
        disk.unlink(f"/t-0/{name}")
        if name == "leader-epoch-checkpoint":
            disk.unlink("/t-0/recovery-point")
        log = PartitionLog("/t-0", disk=disk)
        assert log.end_offset == 6
        assert log.epoch_end_offset(0) == (0, 6)


def test_damaged_or_missing_indexes_are_rebuilt_after_a_clean_close(tmp_path):
    def fill(log):
        for _ in range(40):
            log.append_as_leader(batch(log.end_offset, 1, 100), 0)

    config = LogConfig(segment_bytes=3000, index_interval_bytes=200)
    with PartitionLog(tmp_path / "t-0", config) as log:
        fill(log)
        bases = log.segment_bases
    (tmp_path / f"t-0/{bases[0]:020d}.index").unlink()
    (tmp_path / f"t-0/{bases[1]:020d}.timeindex").write_bytes(b"")
    with PartitionLog(tmp_path / "t-0", config) as log:
        assert log.recovery.clean
        assert [next(log.records(n)).offset for n in range(40)] == list(range(40))
        assert log.offset_for_timestamp(9) == (0, 9)


def test_a_failed_sync_stops_the_log_and_loses_nothing_acknowledged():
    steps = FaultyDisk()
    log = PartitionLog("/t-0", disk=steps)
    log.append_durably(batch(0, 1, 10))
    before = len(steps.trace)
    log.append_durably(batch(1, 1, 10))
    step = next(n for n, s in enumerate(steps.trace, 1) if n > before and s.startswith("sync "))
    disk = FaultyDisk(fail_at={step: errno.EIO})
    log = PartitionLog("/t-0", disk=disk)
    log.append_durably(batch(0, 1, 10))
    with pytest.raises(DiskError, match="EIO"):
        log.append_durably(batch(1, 1, 10))
    with pytest.raises(LogFailed, match="stopped after an error"):
        log.append_durably(batch(1, 1, 10))
    assert [r.offset for r in log.records()][:1] == [0]  # reading goes on
    log.close()
    after = PartitionLog("/t-0", disk=disk.power_loss(keep=0.0))
    assert after.end_offset >= 1


def test_only_what_was_written_since_the_recovery_point_is_checked(monkeypatch):
    monkeypatch.setattr("phase1_file_queue.log_state.CHECKPOINT_BYTES", 2000)
    disk = FaultyDisk()
    log = written(disk, 20)
    assert log.size > 10_000
    log.append_as_leader(batch(20, 1, 600), 0)
    log.flush()
    point, _ = disk.tree()["/t-0/recovery-point"].splitlines()
    written_since = log.size - json.loads(point)["position"]
    assert written_since < 2000
    after = PartitionLog("/t-0", disk=disk.power_loss(keep=0.0))
    assert after.recovery.scanned_bytes == written_since
    assert [r.offset for r in after.records()] == list(range(21))


def test_the_interval_policy_syncs_in_the_background():
    disk = FaultyDisk()
    clock = ManualClock()
    log = PartitionLog("/t-0", LogConfig(flush_policy="interval"), disk=disk, clock=clock)
    log.append_durably(batch(0, 1, 10))
    while log.flushed < 1:
        pass  # the flusher's clock never really waits
    log.close()
    assert PartitionLog("/t-0", disk=disk.power_loss(keep=0.0)).end_offset == 1


def test_a_duplicate_is_answered_without_appending():
    class Once(Counting):
        def check(self, header):
            return AppendResult(0, 0, duplicate=True) if self.count else None

    log = PartitionLog("/t-0", disk=FaultyDisk(), producer_state=Once())
    assert log.append_as_leader(batch(0, 1, 10), 0) == (0, 0, False)
    assert log.append_as_leader(batch(0, 1, 10), 0) == (0, 0, True)
    assert log.end_offset == 1


def test_truncating_takes_back_the_promise_before_the_records(monkeypatch):
    monkeypatch.setattr("craft2.faulty_disk._WRITEBACK", 10**9)
    disk = FaultyDisk()
    log = written(disk, 10)
    log._state.control.sync()  # the kernel may write the page at any time: it says 10 are flushed
    log.truncate_to(3)
    log.append_as_leader(batch(3, 1, 10), 0)
    after = PartitionLog("/t-0", disk=disk.power_loss(keep=0.0))
    assert after.end_offset == 3


def test_a_cut_takes_back_a_promise_on_a_page_that_lost_its_end_in_a_crash():
    disk = FaultyDisk()
    log = PartitionLog("/t-0", SMALL, disk=disk)
    log.append_durably(batch(0, 1, 10))
    log.append_durably(batch(1, 1, 10))
    disk = disk.power_loss(keep=1.0)
    page = disk.open("/t-0/.control", "write")
    page.truncate(6 * SECTOR)  # it grew, and less of that has arrived
    page.sync()
    PartitionLog("/t-0", SMALL, disk=disk).truncate_to(1)
    for seed in range(20):
        log = PartitionLog("/t-0", SMALL, disk=disk.power_loss(seed=seed))
        assert log.end_offset == 1


def test_an_index_that_is_ahead_of_its_log_is_not_believed():
    config = LogConfig(index_interval_bytes=0, max_index_bytes=960)
    disk = FaultyDisk()
    PartitionLog("/t-0", config, disk=disk).close()
    log = PartitionLog("/t-0", config, disk=disk)
    for _ in range(5):
        log.append_as_leader(batch(log.end_offset, 1, 100), 0)
    log._state.active.sync_indexes()  # again the kernel's choice
    log = PartitionLog("/t-0", config, disk=disk.power_loss(keep=0.0))
    assert log.end_offset == 0
    log.append_as_leader(batch(0, 3, 5), 0)
    log.append_as_leader(batch(3, 3, 5), 0)
    with PartitionLog("/t-0", LogConfig(access="read"), disk=log._disk) as reader:
        assert next(reader.records(4)).value == b"4:xxxxx"


def test_what_is_left_of_an_old_index_behind_a_hole_is_forgotten():
    config = LogConfig(index_interval_bytes=0, max_index_bytes=960, flush_policy="never")
    disk = FaultyDisk()
    log = PartitionLog("/t-0", config, disk=disk)
    log.append_as_leader(batch(0, 1, 10), 0)
    log.flush()
    for _ in range(90):  # 8 bytes of index each: the first sector holds 64
        log.append_as_leader(batch(log.end_offset, 1, 10), 0)
    index = LOG.replace(".log", ".index")
    found = next(
        lost
        for lost in (disk.power_loss(seed=seed) for seed in range(500))
        if any(lost.tree()[index][512:]) and not any(lost.tree()[index][:512])
    )
    log = PartitionLog("/t-0", config, disk=found)
    while log.end_offset < 80:
        log.append_as_leader(batch(log.end_offset, 2, 10), 0)
    with PartitionLog("/t-0", replace(config, access="read"), disk=found) as reader:
        for offset in range(80):
            assert next(reader.records(offset)).offset == offset


def test_opening_after_a_failed_sync_does_not_believe_the_page_cache():
    probe = FaultyDisk()
    log = PartitionLog("/t-0", disk=probe)
    log.append_durably(batch(0, 1, 10))
    before = probe.steps
    log.append_durably(batch(1, 1, 10))
    step = next(n for n, s in enumerate(probe.trace, 1) if n > before and s == f"sync {LOG}")
    for ends in ("closed", "killed"):
        disk = FaultyDisk(fail_at={step: errno.EIO})
        log = PartitionLog("/t-0", disk=disk)
        log.append_durably(batch(0, 1, 10))
        with pytest.raises(DiskError):
            log.append_durably(batch(1, 1, 10))
        if ends == "closed":
            log.close()
        else:
            disk = disk.kill()
        log = PartitionLog("/t-0", disk=disk)
        last = log.append_durably(batch(log.end_offset, 1, 10)).last_offset
        after = PartitionLog("/t-0", disk=disk.power_loss(keep=0.0))
        assert [r.offset for r in after.records()] == list(range(last + 1)), ends


def test_damage_in_an_old_segment_is_reported_by_reading():
    disk = FaultyDisk()
    log = written(disk, close=True)
    disk.kill()
    for change, at in ((b"\x7f", 8), (b"!", 80), (b"\x00\x00\x00\x00\x00\x00\x00\x01", 0)):
        disk = FaultyDisk()
        log = written(disk)
        position = log._state.active.locate(3)[0]
        log.close()
        damage(disk, position + at, change)
        with pytest.raises(CorruptLog, match=rf"byte ({position}|{position + at})\b"):
            list(PartitionLog("/t-0", disk=disk).records())


def test_a_torn_batch_that_holds_a_batch_is_still_a_torn_tail():
    disk = FaultyDisk()
    written(disk)
    inner = bytes(stamp(encode_values([b"inner"]), 50, 0))
    disk = disk.kill()
    torn = bytes(stamp(encode_values([inner + b"x" * 600]), 6, 0))
    damage(disk, len(disk.tree()[LOG]), torn[:-100])
    assert PartitionLog("/t-0", disk=disk).end_offset == 6


@pytest.mark.parametrize("bad", [-1, 2**63, 5.0, "5", None, True])
def test_offsets_that_are_none_change_nothing(bad):
    disk = FaultyDisk()
    log = written(disk)
    before = disk.tree()
    for change in (log.truncate_to, log.reset_to, log.advance_start, lambda n: log.read(n, 10)):
        with pytest.raises(OffsetOutOfRange, match="give a whole number"):
            change(bad)
    assert disk.tree() == before


def test_records_without_timestamps_never_expire_and_need_no_check_on_opening():
    disk = FaultyDisk()
    config = LogConfig(segment_bytes=2000, retention_ms=1)
    log = PartitionLog("/t-0", config, disk=disk)
    for _ in range(30):
        log.append_as_leader(encode_values([b"x" * 200]), 0)
    assert log.apply_retention(now_ms=10**15) == []
    log.close()
    steps = disk.steps
    log = PartitionLog("/t-0", config, disk=disk)
    assert not [s for s in disk.trace[steps:] if s.startswith("write") and ".timeindex" in s]
    assert log.end_offset == 30


def test_the_epoch_of_a_record_that_was_lost_is_not_kept_for_the_next_one_there():
    """It would be there still if a crash came between the next record and its epoch."""
    disk = FaultyDisk()
    log = PartitionLog("/log", NO_FSYNC, disk=disk)
    log.append_as_leader(batch(0, 1, 9), 1)
    log.flush()
    log.append_as_leader(batch(1, 1, 9), 2)  # its epoch is noted, durably
    found = disk.power_loss(keep=0.0)
    epochs = "/log/leader-epoch-checkpoint"
    assert found.read(epochs) == b"0\n2\n1 0\n2 1\n"
    assert PartitionLog("/log", NO_FSYNC, disk=found).end_offset == 1
    assert found.read(epochs) == b"0\n1\n1 0\n"
