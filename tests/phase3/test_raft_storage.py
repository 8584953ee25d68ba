"""What a Raft server finds on its disk: after every crash, in a foreign folder, with damage."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil

import msgspec
import pytest
from crc32c import crc32c
from raft_cluster import entries

from craft2.disk import DiskError, UnsyncedDisk
from craft2.faulty_disk import Crashed, FaultyDisk, crash_points
from craft2.record_batch import read_header
from phase1_file_queue.log_config import LogError
from phase1_file_queue.publish import publish
from phase3_raft.raft.messages import (
    MAX_TERM,
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
    storage.write(NOTHING._replace(entries=log.entries, hard_state=HardState(9)), log)
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
    storage.write(NOTHING._replace(entries=log.entries, hard_state=HardState(9)), log)
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
        log.put(4, entries(2, first=5))  # in the middle of a batch
        write(HardState(2, 3), first=5)
        log.append(entries(2, 2, 2, first=6))
        write(first=6)
        log.committed = log.applied = 7
        storage.save_snapshot(log.compact(6, b"state"))
        promised.append((list(log.entries), None, 6))
        log.put(7, entries(3, first=8))  # and of one that the snapshot covers in part
        write(HardState(3, 1), first=8)
        log.install(Snapshot(12, 3, MEMBERS, b"later"))
        write(snapshot=log.snapshot)
        log.append(entries(4, first=13))
        write(HardState(4, None), first=13)

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


def test_what_a_snapshot_contradicts_is_not_found_behind_it_after_a_death_at_any_step():
    def story(disk):
        storage = opened(disk)
        log, _ = storage.load()
        log.append(entries(*[2] * 20))
        storage.write(NOTHING._replace(entries=log.entries, hard_state=HardState(2, 1)), log)
        log.stable, log.committed, log.applied = 20, 4, 4
        log.install(Snapshot(10, 3, MEMBERS, b"state"))  # our entry 10 is of term 2
        storage.write(NOTHING._replace(snapshot=log.snapshot, hard_state=HardState(3, None)), log)

    for crash, disk in crash_points(story, outcomes=2):
        log, _ = opened(disk).load()
        assert log.snapshot.index == 0 or log.entries == [], crash


def two_terms(disk):
    """A server's first two writes."""
    storage = opened(disk)
    log, _ = storage.load()
    log.append(entries(1, 1))
    storage.write(NOTHING._replace(entries=log.entries, hard_state=HardState(1, 1)), log)
    log.stable = 2
    log.append(entries(2, 2, first=3))
    storage.write(NOTHING._replace(entries=log.entries[2:], hard_state=HardState(2, 3)), log)


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "killed"])
@pytest.mark.parametrize("batch", range(4))
def test_a_bit_that_flips_in_the_term_of_a_batch_is_noticed(batch, closed):
    """It is the leader epoch, which no checksum covers: with it a server would vote wrongly."""
    for bit in range(31):
        disk = with_a_flipped_bit(batch, bit, closed)
        if (batch, bit, closed) == (3, 0, False):  # 6 becomes 7, at the end: see the module
            assert opened(disk).load()[0].last_term == 7
            continue
        with pytest.raises((RaftError, LogError), match=r"term|epoch"):
            opened(disk).load()


def with_a_flipped_bit(batch, bit, closed):
    disk = FaultyDisk()
    storage = opened(disk)
    log, _ = storage.load()
    for term in (2, 4, 6, 6):
        new = entries(term, term, first=log.last_index + 1)
        log.append(new)
        storage.write(NOTHING._replace(entries=new, hard_state=HardState(7, 1)), log)
    if closed:
        storage.close()
    disk = disk.kill()
    file = disk.open(f"/server-1/log/{1:020}.log", "write")
    data = file.read_at(0, file.size())
    position = 0
    for _ in range(batch):
        position += read_header(data[position:]).size
    place = position + 15 - bit // 8
    file.write_at(place, bytes([data[place] ^ 1 << bit % 8]))
    return disk


def test_a_tail_of_another_history_is_not_found_behind_a_snapshot_after_a_death_at_any_step():
    """What the next leader sends in one go: entries that cut ours off, and a snapshot of more."""

    def story(disk):
        storage = opened(disk)
        log, _ = storage.load()
        log.append(entries(*[1] * 10))
        storage.write(NOTHING._replace(entries=log.entries, hard_state=HardState(2, 1)), log)
        log.stable, log.committed, log.applied = 10, 2, 2
        log.put(4, entries(2, 2, 2, 2, first=5))
        log.install(Snapshot(6, 2, MEMBERS, b"state"))
        new = log.between(log.stable, log.last_index)
        assert [entry.index for entry in new] == [7, 8]
        storage.write(NOTHING._replace(snapshot=log.snapshot, entries=new), log)

    for crash, disk in crash_points(story, outcomes=2):
        log, _ = opened(disk).load()
        terms = {entry.term for entry in log.entries}
        assert log.snapshot.index == 0 or terms <= {2}, crash


@pytest.mark.parametrize("end", ["killed", "a call fails"])
def test_what_a_server_has_read_no_power_cut_takes_away(end):
    """It was perhaps only in the page cache; but the server will say that it has it, and vote."""
    whole = FaultyDisk()
    two_terms(whole)
    for step in range(1, whole.steps + 1):
        fail = {} if end == "killed" else {step: errno.EIO}
        disk = FaultyDisk(crash_at=step if end == "killed" else None, fail_at=fail)
        with contextlib.suppress(Crashed, DiskError):
            two_terms(disk)
        disk = disk.kill()
        log, hard_state = opened(disk).load()
        later, later_state = opened(disk.power_loss(keep=0.0)).load()
        assert (later.entries, later_state) == (log.entries, hard_state), whole.trace[step - 1]


@pytest.mark.parametrize("failing", ["sync /server-1/.hard_state.tmp", "sync_dir /server-1"])
def test_after_a_write_that_failed_there_is_no_second_try(failing):
    """It might be said to have worked, and nothing be on disk (`craft2.disk`, fact 4)."""
    disk = FaultyDisk()
    storage = opened(disk)
    log, _ = storage.load()
    vote = NOTHING._replace(hard_state=HardState(1, 1))
    storage.write(vote, log)
    steps = disk.trace[-5:]
    disk.fail_at = {disk.steps + 1 + steps.index(failing): errno.EIO}
    with pytest.raises(DiskError, match="EIO"):
        storage.write(vote, log)
    for _ in range(2):
        with pytest.raises(RaftError, match=r"is not written any more, after an error: sync.*EIO"):
            storage.write(vote, log)
    with pytest.raises(RaftError, match="not written any more"):
        storage.save_snapshot(Snapshot(1, 1, MEMBERS))
    storage.close()
    assert opened(disk).load()[1] == HardState(1, 1)


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


def files(disk, name):
    """A file, and the log's, without the room that an open one has at its end."""
    tree = disk.tree().items()
    return {path: data.rstrip(b"\0") for path, data in tree if path.endswith((name, ".log"))}


def published(what):
    body = msgspec.msgpack.encode(what)
    return crc32c(body).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("name", "what", "says"),
    [
        ("hard_state", Snapshot(1, 1, MEMBERS), "length 0 to 2, got 4"),
        ("hard_state", (MAX_TERM, 1), r"`int` <= 2147483646 - at `\$\[0\]`"),
        ("hard_state", (-5, None), r"`int` >= 0 - at `\$\[0\]`"),
        ("hard_state", (3, -1), r"`int` >= 0 - at `\$\[1\]`"),
        ("snapshot", HardState(1, 1), "it is shorter, or longer"),
        ("snapshot", Snapshot(2**62 - 1, 1, MEMBERS), "`int` <= "),
        ("snapshot", Snapshot(1, 9, MEMBERS), "hard_state says term 1, and the snapshot 9"),
        ("snapshot", Snapshot(2, 1, Members((1, 1))), "1 is named twice"),
        ("kept", [], "no entries"),
        ("kept", [Entry(1, 2, b""), Entry(1, 4, b"")], "entry 4 behind 2"),
        ("kept", HardState(1, 1), "Expected"),
    ],
)
def test_a_file_whose_checksum_is_right_and_whose_content_is_not_is_refused_and_nothing_changed(
    name, what, says
):
    disk = FaultyDisk()
    storage = opened(disk)
    log, _ = storage.load()
    log.append(entries(1, 1, 1))
    storage.write(NOTHING._replace(entries=log.entries, hard_state=HardState(1, 1)), log)
    storage.close()
    publish(disk, f"/server-1/{name}", published(what))
    before = files(disk, name)
    with pytest.raises(RaftError, match=says) as refused:
        opened(disk).load()
    assert "/server-1" in str(refused.value)
    assert refused.value.fix
    assert files(disk, name) == before


def test_a_snapshot_of_a_later_term_than_what_is_behind_it_is_refused():
    disk = FaultyDisk()
    storage = opened(disk)
    log, _ = storage.load()
    log.append(entries(1, 1, 1, 1))
    storage.write(NOTHING._replace(entries=log.entries, hard_state=HardState(3, 1)), log)
    log.stable = log.committed = log.applied = 4
    storage.save_snapshot(log.compact(2, b"state"))
    storage.close()
    publish(disk, "/server-1/snapshot", published(Snapshot(2, 3, MEMBERS, b"state")))
    with pytest.raises(RaftError, match="entry 3 is of term 1, behind one of term 3"):
        opened(disk).load()


def test_a_log_that_begins_behind_the_snapshot_has_a_hole():
    disk = FaultyDisk()
    storage = opened(disk)
    log, _ = storage.load()
    log.append(entries(1, 1, 1))
    storage.write(NOTHING._replace(entries=log.entries, hard_state=HardState(9)), log)
    storage._log.advance_start(3)
    with pytest.raises(RaftError, match="the snapshot ends at 0, and the log begins at 3"):
        storage.load()


def test_a_snapshot_may_reach_further_than_what_is_on_disk_and_the_log_go_on_behind_it():
    """Entries and a late snapshot that came one right after the other are written together."""
    disk = FaultyDisk()
    storage = opened(disk)
    log, _ = storage.load()
    log.append(entries(1, 1, 1))
    storage.write(NOTHING._replace(entries=log.entries, hard_state=HardState(9)), log)
    log.stable = 3
    log.append(entries(1, 1, 1, 1, first=4))
    log.install(Snapshot(5, 1, MEMBERS, b"state"))
    new = log.between(log.stable, log.last_index)
    assert [entry.index for entry in new] == [6, 7]
    storage.write(NOTHING._replace(snapshot=log.snapshot, entries=new), log)
    storage.close()
    again, _ = opened(disk).load()
    assert (again.snapshot.index, [entry.index for entry in again.entries]) == (5, [6, 7])


def test_without_syncs_nothing_is_synced_and_all_is_there_for_the_next_process(
    tmp_path, monkeypatch
):
    def never(fd):
        raise AssertionError("a file was synced")

    monkeypatch.setattr("craft2.disk._sync_fd", never)
    monkeypatch.setattr(UnsyncedDisk, "mkdir", lambda disk, path: os.makedirs(path, exist_ok=True))
    storage = RaftStorage(tmp_path / "1", "c", 1, MEMBERS, disk=UnsyncedDisk())
    log, _ = storage.load()
    log.append(entries(1, 1))
    storage.write(NOTHING._replace(entries=log.entries, hard_state=HardState(1, 2)), log)
    storage.close()
    again, hard_state = RaftStorage(tmp_path / "1", "c", 1, disk=UnsyncedDisk()).load()
    assert (len(again.entries), hard_state) == (2, HardState(1, 2))


@pytest.mark.parametrize("name", ["who", "hard_state"])
def test_a_file_that_is_gone_is_not_taken_for_a_new_server(name):
    disk = FaultyDisk()
    storage = opened(disk)
    log, _ = storage.load()
    log.append(entries(1, 2))
    storage.write(NOTHING._replace(entries=log.entries, hard_state=HardState(2, 1)), log)
    storage.close()
    disk.unlink(f"/server-1/{name}")
    with pytest.raises(RaftError, match=name):
        opened(disk).load()


def test_a_log_of_which_not_all_can_be_read_is_refused():
    disk = FaultyDisk()
    storage = opened(disk)
    log, _ = storage.load()
    for first in range(1, 41, 4):
        new = entries(1, 1, 1, 1, first=first)
        log.append(new)
        storage.write(NOTHING._replace(entries=new, hard_state=HardState(1, 1)), log)
        log.stable = log.last_index
    log.committed = log.applied = 16
    storage.save_snapshot(log.compact(16, b"state"))
    storage.close()
    file = disk.open("/server-1/log/00000000000000000001.log", "write")
    file.write_at(8, b"\x7f")  # how long the first batch says that it is
    with pytest.raises((RaftError, LogError)):
        opened(disk).load()


def dead_with_a_snapshot(tmp_path):
    """The folder of a server that had 100 entries on disk, a snapshot of 50, and was killed."""
    storage = RaftStorage(tmp_path / "alive", "c", 1, MEMBERS)
    log, _ = storage.load()
    for first in range(1, 101, 10):
        new = entries(*[1] * 10, first=first)
        log.append(new)
        storage.write(NOTHING._replace(entries=new, hard_state=HardState(1, 1)), log)
        log.stable = log.last_index
    log.committed = log.applied = 100
    storage.save_snapshot(log.compact(50, b"state"))
    shutil.copytree(tmp_path / "alive", tmp_path / "dead")
    storage.close()
    return tmp_path / "dead"


@pytest.mark.parametrize("upto", [0, 30, 50, 70, 100])
def test_a_log_that_was_cut_is_refused_even_below_the_snapshot(tmp_path, upto):
    """Else entries that others were told are on this disk would be gone unnoticed."""
    folder = dead_with_a_snapshot(tmp_path)
    path = folder / "log" / f"{1:020}.log"
    data, at = path.read_bytes(), 0
    while at < len(data) and (header := read_header(data[at:])).base_offset <= upto:
        at += header.size
    os.truncate(path, at)
    if upto == 100:
        assert RaftStorage(folder, "c", 1).load()[0].last_index == 100
    else:
        with pytest.raises(LogError, match="records up to offset 100 had been flushed"):
            RaftStorage(folder, "c", 1).load()


@pytest.mark.parametrize("whole", [True, False], ids=["folder", "its files"])
def test_a_log_that_is_gone_is_not_taken_for_that_of_a_new_server(tmp_path, whole):
    folder = dead_with_a_snapshot(tmp_path)
    shutil.rmtree(folder / "log")
    if not whole:
        (folder / "log").mkdir()
    for _ in range(2):
        storage = RaftStorage(folder, "c", 1)
        with pytest.raises(RaftError, match="has no log, but hard_state, snapshot"):
            storage.load()
        storage.close()
