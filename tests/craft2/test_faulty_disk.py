"""The faulty disk must fail the way real disks do, or the proofs built on it prove nothing."""

import errno
import threading

import pytest

from craft2.clock import ManualClock
from craft2.disk import SECTOR, DiskError, DiskFull
from craft2.faulty_disk import Crashed, FaultyDisk, crash_points


def create(disk, path, data, *, sync=False, sync_name=False):
    file = disk.open(path, "create")
    file.write_at(0, data)
    if sync:
        file.sync()
    if sync_name:
        disk.sync_dir("/")
    return file


def test_an_unsynced_name_or_content_may_vanish_and_a_synced_one_does_not():
    disk = FaultyDisk()
    create(disk, "/both", b"x", sync=True, sync_name=True)
    create(disk, "/content-only", b"x", sync=True)
    lost = disk.power_loss(keep=0.0)
    assert lost.tree() == {"/both": b"x"}


def test_a_name_without_synced_content_leaves_an_empty_file_or_zeros():
    seen = set()
    for seed in range(200):
        disk = FaultyDisk()
        create(disk, "/a", b"x" * 10, sync_name=True)
        seen.add(disk.power_loss(seed=seed).tree()["/a"])
    assert seen == {b"", bytes(10), b"x" * 10}


def test_a_write_tears_at_sector_borders_and_nowhere_else():
    data = bytes([1]) * SECTOR + bytes([2]) * SECTOR + bytes([3]) * 10
    seen = set()
    for seed in range(500):
        disk = FaultyDisk()
        file = create(disk, "/a", b"", sync=True, sync_name=True)
        file.write_at(0, data)
        found = disk.power_loss(seed=seed).tree()["/a"]
        if found:
            seen.add((found[:SECTOR], found[SECTOR : 2 * SECTOR], found[2 * SECTOR :]))
    assert {len(set(part)) for parts in seen for part in parts} == {1}
    assert len(seen) == 8  # each of three sectors: there, or zeros


def test_renames_are_atomic_and_durable_after_sync_dir_only():
    outcomes = set()
    for seed in range(100):
        disk = FaultyDisk()
        create(disk, "/old", b"old", sync=True, sync_name=True)
        create(disk, "/new", b"new", sync=True, sync_name=True)
        disk.rename("/new", "/old")
        outcomes.add(tuple(sorted(disk.power_loss(seed=seed).tree().items())))
    assert outcomes == {(("/new", b"new"), ("/old", b"old")), (("/old", b"new"),)}


def test_kill_keeps_the_page_cache_and_frees_the_locks():
    disk = FaultyDisk()
    create(disk, "/a", b"x")
    assert disk.lock("/lock").acquire()
    after = disk.kill()
    assert after.tree()["/a"] == b"x"
    assert after.lock("/lock").acquire(wait=False)
    with pytest.raises(Crashed):
        disk.read("/a")


def test_mapped_memory_is_in_the_page_cache_and_durable_after_flush():
    disk = FaultyDisk()
    file = create(disk, "/m", b"", sync_name=True)
    mapped = file.map(1024)
    mapped.view[0:3] = b"abc"
    mapped.flush()
    mapped.view[600:603] = b"def"
    assert file.read_at(600, 3) == b"def"
    after = disk.power_loss(keep=0.0).tree()["/m"]
    assert (after[:3], after[600:603]) == (b"abc", bytes(3))


def test_a_full_disk_takes_what_fits():
    disk = FaultyDisk(capacity=10)
    with pytest.raises(DiskFull, match="ENOSPC"):
        create(disk, "/a", b"x" * 11)
    assert disk.tree() == {"/a": b"x" * 10}


def test_a_failed_sync_cannot_be_made_good_by_another():
    disk = FaultyDisk(fail_at={4: errno.EIO})
    file = create(disk, "/a", b"x", sync_name=True)  # steps 1, 2, 3
    with pytest.raises(DiskError, match="EIO"):
        file.sync()
    file.sync()  # reports success, as Linux does
    assert disk.power_loss(keep=0.0).tree()["/a"] == b""


def test_a_slow_disk_takes_its_time_on_the_clock():
    clock = ManualClock()
    disk = FaultyDisk(delay_s=0.01, clock=clock)
    create(disk, "/a", b"x", sync=True, sync_name=True)
    assert clock.now_ms() == 20


def test_locks_exclude_share_and_wake():
    disk = FaultyDisk()
    first, second, third = (disk.lock("/l") for _ in range(3))
    assert first.acquire(shared=True)
    assert second.acquire(shared=True)
    assert not third.acquire(wait=False)
    waiter = threading.Thread(target=third.acquire)
    waiter.start()
    first.release()
    second.release()
    waiter.join(timeout=10)
    assert not waiter.is_alive()


def test_crash_points_visits_every_step_and_then_ends():
    def run(disk):
        create(disk, "/a", b"x", sync=True, sync_name=True)

    names = [words for words, _ in crash_points(run, outcomes=1)]
    assert len(names) == 4 * 3
    assert names[0] == "killed before step 1, after the start"
    assert names[-1].startswith("power lost before step 4, after sync /a")
