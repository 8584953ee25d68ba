"""What a Raft server finds on its disk: after every crash, in a foreign folder, with damage."""

from __future__ import annotations

import pytest
from raft_cluster import entries

from craft2.faulty_disk import FaultyDisk, crash_points
from phase3_raft.raft.messages import (
    Entry,
    EntryKind,
    HardState,
    Members,
    RaftError,
    Ready,
    Snapshot,
)
from phase3_raft.raft.storage import RaftStorage

MEMBERS = Members(voters=(1, 2, 3))
NOTHING = Ready([], None, [], None, [], [], [])


def opened(disk, **kwargs):
    return RaftStorage("/server-1", "c", 1, MEMBERS, disk=disk, **kwargs)


def test_a_new_server_begins_with_nothing_but_the_founders():
    storage = opened(FaultyDisk())
    log, hard_state = storage.load()
    assert (log.last_index, log.members, hard_state) == (0, [(0, MEMBERS)], HardState())
    storage.close()


def test_what_was_written_is_found_again():
    disk = FaultyDisk()
    storage = opened(disk)
    log, _ = storage.load()
    members = Members(voters=(1, 2))
    log.append([*entries(1, 1, 3), Entry(3, 4, members.encode(), EntryKind.MEMBERS)])
    storage.write(NOTHING._replace(entries=log.entries, hard_state=HardState(3, 2)), log)
    storage.close()
    again, hard_state = opened(disk).load()
    assert again.entries == log.entries
    assert again.members == [(0, MEMBERS), (4, members)]
    assert hard_state == HardState(3, 2)
    assert again.stable == 4


def test_entries_that_a_leader_contradicts_are_cut_off_even_in_the_middle_of_a_batch():
    disk = FaultyDisk()
    storage = opened(disk)
    log, _ = storage.load()
    log.append(entries(1, 1, 1, 1, 1))
    storage.write(NOTHING._replace(entries=log.entries), log)
    log.stable = 5
    log.put(2, entries(2, 2, first=3))
    storage.write(NOTHING._replace(entries=log.entries[2:]), log)
    storage.close()
    assert [e.term for e in opened(disk).load()[0].entries] == [1, 1, 2, 2]


def test_a_snapshot_takes_the_place_of_what_it_covers():
    disk = FaultyDisk()
    storage = opened(disk)
    log, _ = storage.load()
    log.append(entries(1, 1, 1, 1))
    storage.write(NOTHING._replace(entries=log.entries), log)
    log.stable = log.committed = log.applied = 4
    storage.save_snapshot(log.compact(3, b"state"))
    storage.close()
    again, _ = opened(disk).load()
    assert again.snapshot == Snapshot(3, 1, MEMBERS, b"state")
    assert [e.index for e in again.entries] == [4]


def test_a_death_at_any_step_loses_nothing_that_write_had_returned_for():
    promised, cut = [], []  # what write returned for; from where on the next one contradicts

    def story(disk):
        promised.clear()
        cut[:] = [2**62]
        storage = opened(disk)
        log, _ = storage.load()

        def write(hard_state=None, snapshot=None, first=None):
            new = [] if first is None else log.between(first - 1, log.last_index)
            cut[:] = [2**62 if first is None else first]
            storage.write(
                NOTHING._replace(entries=new, hard_state=hard_state, snapshot=snapshot), log
            )
            log.stable = log.last_index
            promised.append((list(log.entries), hard_state, log.snapshot.index))

        log.append(entries(1, 1, 1))
        write(HardState(1, 1), first=1)
        log.append(entries(1, 1, first=4))
        write(first=4)
        log.put(3, entries(2, 2, first=4))
        write(HardState(2, 3), first=4)
        log.committed = log.applied = 4
        storage.save_snapshot(log.compact(4, b"state"))
        log.append(entries(2, first=6))
        write(first=6)
        log.install(Snapshot(9, 2, MEMBERS, b"later"))
        write(snapshot=log.snapshot)
        log.append(entries(3, first=10))
        write(HardState(3, None), first=10)

    for crash, disk in crash_points(story, outcomes=1):
        log, hard_state = opened(disk).load()
        terms = {entry.index: entry.term for entry in log.entries}
        assert max(terms.values(), default=0) <= hard_state.term, crash
        if not promised:
            continue
        last, _, snapshot = promised[-1]
        states = [state for _, state, _ in promised if state is not None]
        assert hard_state.term >= states[-1].term, crash
        assert log.snapshot.index >= snapshot, crash
        for entry in last:
            held = terms.get(entry.index, entry.term if entry.index <= log.snapshot.index else 0)
            assert held >= entry.term or entry.index >= cut[0], f"{crash}: entry {entry.index}"


@pytest.mark.parametrize(("cluster", "server"), [("other", 1), ("c", 2)])
def test_the_folder_of_another_cluster_or_server_is_refused(cluster, server):
    disk = FaultyDisk()
    opened(disk).close()
    with pytest.raises(RaftError, match="belongs to cluster and server c 1"):
        RaftStorage("/server-1", cluster, server, MEMBERS, disk=disk)


@pytest.mark.parametrize("name", ["hard_state", "snapshot"])
@pytest.mark.parametrize("damage", [b"", b"short", b"\0\0\0\0not what it was"])
def test_a_damaged_file_is_refused_and_left_as_it_is(name, damage):
    disk = FaultyDisk()
    storage = opened(disk)
    file = disk.open(f"/server-1/{name}", "empty")
    file.write_at(0, damage)
    file.close()
    with pytest.raises(RaftError, match=f"{name}' is damaged"):
        storage.load()
    assert disk.read(f"/server-1/{name}") == damage


def test_a_log_that_begins_behind_the_snapshot_has_a_hole():
    disk = FaultyDisk()
    storage = opened(disk)
    log, _ = storage.load()
    log.append(entries(1, 1, 1))
    storage.write(NOTHING._replace(entries=log.entries), log)
    storage._log.advance_start(3)
    with pytest.raises(RaftError, match="the snapshot ends at 0, and the log begins at 3"):
        storage.load()
