"""A group in files: members that are processes, and processes that die at any call."""

from __future__ import annotations

import itertools
import os

import pytest

from craft2.clock import ManualClock
from craft2.disk import DiskFull
from craft2.events import Events
from craft2.faulty_disk import FaultyDisk, crash_points
from phase2_groups.committed_offsets import CommittedOffsets
from phase2_groups.consumer_errors import GroupBlocked
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_files import GroupFiles, GroupFilesError, group_folder
from phase2_groups.group_messages import (
    Commit,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    OffsetToCommit,
    Sync,
)
from phase2_groups.group_state import GroupLimits, State

COUNT = itertools.count()
LIMITS = GroupLimits(min_session_timeout_ms=1, initial_rebalance_delay_ms=0)


class Member:
    """One process: its own view of the disk, its own lock, its own offsets."""

    def __init__(self, disk, clock, name, events=None):
        self.name, self.clock = name, clock
        self.offsets = CommittedOffsets("/q", disk=disk, clock=clock)
        self.files = GroupFiles(
            "/q", "g", self.offsets, disk=disk, clock=clock, limits=LIMITS, events=events
        )
        self.member_id, self.generation, self.members, self.share = "", -1, (), b""

    def ask(self, kind, timeout_ms=500, **fields):
        self.token = f"{self.name}:{next(COUNT)}"
        return self.files.ask(kind(token=self.token, **fields), timeout_ms)

    def answered_later(self):
        """The reply to a request that had none at first, as `ask` would find it."""
        kept = self.files._load().outbox.get(self.token)
        return kept.reply if kept else None

    def join(self, timeout_ms=500):
        reply = self.ask(
            Join,
            timeout_ms,
            member_id=self.member_id,
            new_member_id=f"{self.name}-{next(COUNT)}",
            client_id=self.name,
            session_timeout_ms=1000,
            rebalance_timeout_ms=2000,
            protocols=(("range", b""),),
            require_known_member_id=False,
        )
        return self.joined(reply)

    def joined(self, reply):
        if reply is not None and not reply.error:
            self.member_id, self.generation = reply.member_id, reply.generation
            self.members = reply.members
        return reply

    def sync(self, timeout_ms=500):
        shares = [(one, one.encode()) for one, *_ in self.members]
        reply = self.ask(
            Sync,
            timeout_ms,
            member_id=self.member_id,
            generation=self.generation,
            assignments=tuple(shares),
        )
        self.share = reply.assignment if reply is not None else b""
        return reply

    def heartbeat(self):
        return self.ask(Heartbeat, member_id=self.member_id, generation=self.generation)

    def commit(self, offset):
        offsets = (("t", 0, OffsetToCommit(offset=offset)),)
        return self.ask(
            Commit, member_id=self.member_id, generation=self.generation, offsets=offsets
        )

    def leave(self):
        return self.ask(Leave, members=(Leaver(member_id=self.member_id),))


def test_a_reply_for_another_process_waits_until_it_looks():
    disk, clock = FaultyDisk(), ManualClock()
    a, b = Member(disk, clock, "a"), Member(disk, clock, "b")
    assert a.join().generation == 1
    assert a.sync().assignment == a.member_id.encode()
    assert b.join(timeout_ms=0) is None  # a has not joined again yet
    assert a.heartbeat().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert a.join().generation == 2
    assert b.joined(b.answered_later()).generation == 2


def test_the_first_line_shows_state_generation_and_what_is_due():
    disk, clock = FaultyDisk(), ManualClock(1000)
    a = Member(disk, clock, "a")
    assert a.files.glance() == (0, State.EMPTY, None)
    a.join()
    assert a.files.glance()[:2] == (1, State.COMPLETING_REBALANCE)
    a.sync()
    assert a.files.glance() == (1, State.STABLE, 2000)
    assert len(disk.tree()["/q/__groups/g/state"].splitlines()[0]) == 63


def test_whoever_looks_evicts_a_silent_member():
    disk, clock = FaultyDisk(), ManualClock()
    events = Events("coordinator", clock)
    a = Member(disk, clock, "a", events)
    onlooker = Member(disk, clock, "b", events)
    a.join()
    a.sync()
    clock.advance(0.9)
    assert onlooker.files.tick_if_due().state is State.STABLE
    clock.advance(0.2)
    assert onlooker.files.tick_if_due().state is State.EMPTY
    gone = [event for event in events.events if event.kind == "member-gone"]
    assert [(e.who, e.because) for e in gone] == [("a", "a sent no heartbeat for 1.0 s")]
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID


def test_after_a_reboot_nobody_is_waited_for_longer_than_its_session():
    disk, clock = FaultyDisk(), ManualClock(1_000_000_000)
    a = Member(disk, clock, "a")
    a.join()
    a.sync()
    clock = ManualClock()  # it counts from the start of the machine
    b = Member(disk, clock, "b")
    assert b.join(timeout_ms=10_000).error is ErrorCode.NONE
    assert 1.0 <= clock.monotonic() < 1.1  # a's session, not its 2 s to join again


def test_a_commit_is_in_the_log_before_it_is_acknowledged():
    disk, clock = FaultyDisk(), ManualClock()
    a = Member(disk, clock, "a")
    a.join()
    a.sync()
    assert a.commit(5).partitions == (("t", 0, ErrorCode.NONE),)
    lost = disk.power_loss(keep=0.0)
    assert CommittedOffsets("/q", disk=lost).of("g")["t", 0].offset == 5


def test_a_full_disk_refuses_a_commit_and_the_group_goes_on():
    disk, clock = FaultyDisk(), ManualClock()
    a = Member(disk, clock, "a")
    a.join()
    a.sync()
    disk.capacity = sum(map(len, disk.tree().values())) + 20
    with pytest.raises(DiskFull):
        a.commit(5)
    disk.capacity = None
    assert a.commit(6).partitions == (("t", 0, ErrorCode.NONE),)


@pytest.mark.parametrize("damage", [b"", b"group 1 00000000 3 Stable 5\n{}", b"\xff" * 200])
def test_a_damaged_state_starts_again_at_the_generation_the_log_remembers(damage):
    disk, clock = FaultyDisk(), ManualClock()
    a = Member(disk, clock, "a")
    a.join()
    a.sync()
    a.join()
    a.sync()
    assert a.generation == 2
    file = disk.open("/q/__groups/g/state", "empty")
    file.write_at(0, damage)
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    a.member_id = ""
    assert a.join().generation == 3


@pytest.mark.parametrize("damage", ["gone", "junk", "too late"])
def test_who_waits_for_a_reply_that_is_lost_gives_up_at_once(damage):
    disk, clock = FaultyDisk(), ManualClock()
    a, b = Member(disk, clock, "a"), Member(disk, clock, "b")
    a.join()
    a.sync()
    state, waited = "/q/__groups/g/state", clock.wait

    def wait(event, timeout_s):  # while b waits for its reply, after a while
        if clock.monotonic() > 0.2:
            clock.wait = waited
            if damage == "gone":
                disk.unlink(state)
            elif damage == "junk":
                disk.open(state, "empty").write_at(0, b"junk")
            else:  # b stands still: the others have thrown away what it did not fetch
                a.leave()
                clock.advance(120)
                a.join(timeout_ms=0)
        return waited(event, timeout_s)

    clock.wait = wait
    assert b.join(timeout_ms=300_000) is None
    assert clock.monotonic() < 125
    b.member_id = ""
    assert b.join(timeout_ms=10_000).error is ErrorCode.NONE


def test_a_folder_of_a_newer_version_is_not_touched():
    disk, clock = FaultyDisk(), ManualClock()
    a = Member(disk, clock, "a")
    a.join()
    file = disk.open("/q/__groups/g/state", "write")
    file.write_at(0, b"group 9")
    before = disk.tree()
    for call in (a.join, a.files.glance, a.files.group):
        with pytest.raises(GroupFilesError, match="written in version 9; this program knows 1"):
            call()
    assert disk.tree() == before


def test_a_name_with_slashes_stays_inside_its_folder():
    disk, clock = FaultyDisk(), ManualClock()
    offsets = CommittedOffsets("/q", disk=disk, clock=clock)
    GroupFiles("/q", "../../etc/x", offsets, disk=disk, clock=clock)
    assert disk.listdir("/q/__groups") == ["..%2F..%2Fetc%2Fx"]


def test_a_group_whose_folder_is_removed_begins_anew():
    disk, clock = FaultyDisk(), ManualClock()
    a = Member(disk, clock, "a")
    a.join()
    a.sync()
    for name in disk.listdir("/q/__groups/g"):
        disk.unlink(f"/q/__groups/g/{name}")
    disk.rmdir("/q/__groups/g")
    assert a.files.tick_if_due() == (0, State.EMPTY, None)
    assert a.heartbeat().error is ErrorCode.UNKNOWN_MEMBER_ID
    a.member_id = ""
    assert a.join().generation == 2
    assert a.sync().assignment == a.member_id.encode()


def test_who_waits_for_a_lock_that_is_not_let_go_of_says_so_and_has_done_nothing():
    disk, clock = FaultyDisk(), ManualClock()
    a, b = Member(disk, clock, "a"), Member(disk, clock, "b")
    a.join()
    a.sync()
    other = disk.lock("/q/__groups/g/lock")
    assert other.acquire()
    with pytest.raises(GroupBlocked, match=r"'/q/__groups/g/lock' of group 'g'.*waited 0\.5 s"):
        a.commit(5)
    assert 0.5 <= clock.monotonic() < 0.6
    with pytest.raises(GroupBlocked, match="kill -CONT"):
        b.join(timeout_ms=300_000)  # its session timeout is 1 s
    assert 1.5 <= clock.monotonic() < 1.6
    assert a.files.tick_if_due().state is State.STABLE  # a's time is up, and nobody can say so
    other.release()
    assert a.files.tick_if_due().state is State.EMPTY
    assert list(a.files.group().members) == []
    assert a.offsets.of("g") == {}


def story(disk, clock, log):
    """Two members, a commit each, one leaves. `log` notes what was promised."""
    log.clear()
    a, b = Member(disk, clock, "a"), Member(disk, clock, "b")
    log["members"] = [a, b]
    a.join()
    a.sync()
    b.join(timeout_ms=0)
    a.join()
    b.joined(b.answered_later())
    for member in (a, b):
        member.sync()
        log.setdefault("shares", {}).setdefault(member.generation, {})[member.name] = member.share
    reply = a.commit(5)
    if reply is not None and not reply.partitions[0][2]:
        log["committed"] = 5
    b.leave()
    a.heartbeat()
    a.join()
    a.sync()
    reply = a.commit(6)
    if reply is not None and not reply.partitions[0][2]:
        log["committed"] = 6


def test_a_process_that_dies_at_any_call_loses_nothing_and_holds_nobody_up():
    log, clock, points = {}, ManualClock(), 0
    for words, disk in crash_points(lambda disk: story(disk, clock, log), outcomes=1):
        points += 1
        generation = max([m.generation for m in log.get("members", [])], default=0)
        c = Member(disk, clock, "c")
        assert c.offsets.of("g").get(("t", 0), OffsetToCommit(offset=0)).offset >= log.get(
            "committed", 0
        ), words
        if words.startswith("killed"):
            assert c.files.group().generation >= generation, words
        # The dead send no heartbeats: c gets the group to itself.
        for _ in range(100):
            reply = c.join(timeout_ms=2000)
            if reply is not None and not reply.error:
                reply = c.sync(timeout_ms=2000)
                if reply is not None and not reply.error and len(c.files.group().members) == 1:
                    break
            clock.advance(0.1)
        assert reply.assignment == c.member_id.encode(), words
        assert c.commit(9).partitions == (("t", 0, ErrorCode.NONE),), words
        for shares in log.get("shares", {}).values():
            given = [share for share in shares.values() if share]
            assert len(set(given)) == len(given), words
    assert points > 100
    assert log["committed"] == 6


@pytest.mark.parametrize("group_id", [".", "..", "...", "a/../..", "ü" * 33])
def test_every_name_has_a_folder_of_its_own_below_the_groups(group_id):
    folder = group_folder("/queue", group_id)
    assert os.path.dirname(os.path.normpath(folder)) == "/queue/__groups"


@pytest.mark.parametrize("group_id", ["", "x" * 201, "ü" * 100])
def test_a_name_that_no_folder_can_have_is_refused(group_id):
    with pytest.raises(GroupFilesError, match="give one of 1 to 200 letters"):
        group_folder("/queue", group_id)
