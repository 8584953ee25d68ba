"""A lock is on a file; whoever takes it must have the file that the others find."""

from __future__ import annotations

import os

import pytest

from craft2.disk import RealDisk
from craft2.faulty_disk import FaultyDisk


@pytest.fixture(params=["real", "faulty"])
def place(request, tmp_path):
    """A disk, and a folder on it."""
    disk, folder = (RealDisk(), str(tmp_path)) if request.param == "real" else (FaultyDisk(), "/f")
    disk.mkdir(folder)
    return disk, folder


def test_who_takes_a_lock_after_its_file_was_removed_shares_it_with_those_who_open_it_now(place):
    disk, folder = place
    old = disk.lock(folder + "/lock")
    assert old.acquire()
    old.release()
    disk.unlink(folder + "/lock")
    new = disk.lock(folder + "/lock")
    assert new.acquire()
    assert not old.acquire(wait=False)
    new.release()
    assert old.acquire(wait=False)
    assert not new.acquire(wait=False)


def test_a_removed_file_of_a_lock_is_made_again(place):
    disk, folder = place
    lock = disk.lock(folder + "/lock")
    disk.unlink(folder + "/lock")
    assert lock.acquire(wait=False)
    assert not disk.lock(folder + "/lock").acquire(wait=False)


def test_a_lock_that_is_held_changes_its_kind_on_the_file_it_has(place):
    disk, folder = place
    first, second = disk.lock(folder + "/lock"), disk.lock(folder + "/lock")
    assert first.acquire(shared=True)
    assert second.acquire(shared=True)
    disk.unlink(folder + "/lock")
    assert not first.acquire(wait=False)  # the second one still has it too
    assert not disk.exists(folder + "/lock")


def test_a_lock_in_a_folder_that_is_gone_cannot_be_taken(tmp_path):
    folder = str(tmp_path / "f")
    RealDisk().mkdir(folder)
    lock = RealDisk().lock(folder + "/lock")
    RealDisk().unlink(folder + "/lock")
    RealDisk().rmdir(folder)
    with pytest.raises(FileNotFoundError):
        lock.acquire()


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="the system does not tell")
def test_the_system_tells_who_holds_a_lock(tmp_path):
    path = str(tmp_path / "lock")
    first, second = RealDisk().lock(path), RealDisk().lock(path)
    assert second.holder() is None
    assert first.acquire()
    assert second.holder() == os.getpid()
