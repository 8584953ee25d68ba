"""Exercise 1.1: a file that appears whole or not at all, and stays."""

from __future__ import annotations

from types import ModuleType

from craft2.course.exercises.exercise import Exercise
from craft2.course.expect import doing, equal, that
from craft2.disk import CountingDisk
from craft2.errors import Craft2Error
from craft2.faulty_disk import FaultyDisk, crash_points

# Two messages, then a third content under the first name, as `offset.txt` is replaced.  Longer
# than a disk sector (512 bytes), so that a write can arrive in part.
HISTORY = (
    ("/q/00000000.msg", b"first " * 200),
    ("/q/00000001.msg", b"second " * 150),
    ("/q/00000000.msg", b"third " * 250),
)
CALL = 'publish(disk, "{}", {} bytes, sync={})'


def check(module: ModuleType) -> str:
    """Publish, crash before every step, look at what is left."""
    _without_faults(module)
    _on_a_full_disk(module)
    points = _with_crashes(module, sync=True) + _with_crashes(module, sync=False)
    return (
        f"after {points} crashes (kill -9 and power cuts, before every step) each file was whole "
        "or absent, and nothing acknowledged was lost"
    )


def _without_faults(module: ModuleType) -> None:
    for sync in (True, False):
        disk = _fresh_disk()
        # What a crash may have left: a longer file under the staging name.
        staged = module.staging_path("/q/a")
        disk.open(staged, "empty").write_at(0, b"left over by a crash")
        counting = CountingDisk(disk)
        for data in (b"short", b""):
            call = CALL.format("/q/a", len(data), sync)
            doing(call)
            module.publish(counting, "/q/a", data, sync=sync)
            tree = disk.tree()
            equal(f"{call}: the content of /q/a", tree.get("/q/a"), data)
            equal(f"{call}: other files it left", sorted(tree.keys() - {"/q/a", staged}), [])
        opened, closed = counting.calls["open"], counting.calls["close"]
        equal(f"{call}: files closed, after opening {opened}", closed, opened)
        if not sync:
            syncs = counting.calls["sync"] + counting.calls["sync_dir"]
            equal(f"{call}: calls of sync and sync_dir", syncs, 0)


def _on_a_full_disk(module: ModuleType) -> None:
    disk = FaultyDisk(capacity=100)
    disk.mkdir("/q")
    call = CALL.format("/q/a", 900, True) + " with room for 100"
    doing(call)
    try:
        module.publish(disk, "/q/a", b"x" * 900, sync=True)
    except Craft2Error:
        got = "the error"
    else:
        got = "no error"
    equal(f"{call} raises the disk's error", got, "the error")
    that(
        f"{call}: the file",
        "/q/a" not in disk.tree(),
        expected="no file",
        got=f"a file of {len(disk.tree().get('/q/a', b''))} bytes",
    )


def _with_crashes(module: ModuleType, *, sync: bool) -> int:
    """Crash before every step of the history; return how many crashes there were."""
    returned: list[int] = []

    def run(disk: FaultyDisk) -> None:
        returned.clear()
        disk.mkdir("/q")
        for number, (path, data) in enumerate(HISTORY):
            doing(CALL.format(path, len(data), sync))
            module.publish(disk, path, data, sync=sync)
            returned.append(number)

    count = 0
    for words, found in crash_points(run, outcomes=8):
        if not sync and not words.startswith("killed"):
            continue  # without sync, only the death of the process counts
        count += 1
        _look(words, found.tree(), len(returned), sync)
    return count


def _look(words: str, tree: dict[str, bytes], returned: int, sync: bool) -> None:
    """Each file may hold its last acknowledged content, or all of the one under way."""
    for path in dict(HISTORY):
        written = [data for p, data in HISTORY[:returned] if p == path]
        under_way = [data for p, data in HISTORY[returned : returned + 1] if p == path]
        allowed = {written[-1] if written else None, *under_way}
        got = tree.get(path)
        what = "the acknowledged content" if written else "no file"
        if under_way:
            what += ", or all of the new content"
        number = min(returned, len(HISTORY) - 1)
        name, data = HISTORY[number]
        that(
            f"{path}, {words}",
            got in allowed,
            expected=what,
            got=_describe(got, allowed),
            difference=f"calls that had returned: {returned}; under way or next: "
            f"{CALL.format(name, len(data), sync)}",
        )


def _describe(got: bytes | None, allowed: set[bytes | None]) -> str:
    if got is None:
        return "no file: what was acknowledged is lost"
    whole = [data for data in allowed if data is not None]
    if not whole or all(len(got) != len(data) for data in whole):
        return f"a file of {len(got)} bytes: a part of the content is visible"
    return f"{len(got)} bytes of which {got.count(0)} are zeros: the content never arrived"


def _fresh_disk() -> FaultyDisk:
    disk = FaultyDisk()
    disk.mkdir("/q")
    return disk


EXERCISE = Exercise(
    id="1.1",
    title="atomic publish",
    file="phase1_file_queue/publish.py",
    hints=(
        "Nobody may see the file half written, so do not write it under its own name. Which of "
        "the disk's calls makes a finished file appear under a name in one step?",
        "Two things must be durable, and they are two different things: the content of the file "
        "(sync) and its name in the directory (sync_dir). The content first: a name that leads "
        "to nothing is what you want to rule out.",
        "In this order: open staging_path(path) with mode 'empty', write_at(0, data), sync() if "
        "asked, close(), rename it to path, and sync_dir(os.path.dirname(path)) if asked.",
    ),
    check=check,
    explanation=(
        "Write elsewhere, sync, rename, sync the directory. Take away any of the four and a crash "
        "shows it: written in place, a reader sees half a message; renamed before the sync, the "
        "name may be on disk before its bytes; without the directory's sync, the message is there "
        "and no name leads to it. The rename replaces the old file in one step, which is why the "
        "same function also serves for offsets that change."
    ),
    wrong={
        "no sync of the file": """
            file = disk.open(staging_path(path), "empty")
            file.write_at(0, data)
            file.close()
            disk.rename(staging_path(path), path)
            if sync:
                disk.sync_dir(os.path.dirname(path))
        """,
        "no sync of the directory": """
            file = disk.open(staging_path(path), "empty")
            file.write_at(0, data)
            if sync:
                file.sync()
            file.close()
            disk.rename(staging_path(path), path)
        """,
        "written in place": """
            file = disk.open(path, "empty")
            file.write_at(0, data)
            if sync:
                file.sync()
            file.close()
            if sync:
                disk.sync_dir(os.path.dirname(path))
        """,
        "renamed before the sync": """
            file = disk.open(staging_path(path), "empty")
            file.write_at(0, data)
            disk.rename(staging_path(path), path)
            if sync:
                file.sync()
                disk.sync_dir(os.path.dirname(path))
            file.close()
        """,
        "directory synced before the rename": """
            file = disk.open(staging_path(path), "empty")
            file.write_at(0, data)
            if sync:
                file.sync()
                disk.sync_dir(os.path.dirname(path))
            file.close()
            disk.rename(staging_path(path), path)
        """,
        "the old file removed first": """
            file = disk.open(staging_path(path), "empty")
            file.write_at(0, data)
            if sync:
                file.sync()
            file.close()
            if disk.exists(path):
                disk.unlink(path)
            disk.rename(staging_path(path), path)
            if sync:
                disk.sync_dir(os.path.dirname(path))
        """,
        "staging file not emptied": """
            file = disk.open(staging_path(path), "create")
            file.write_at(0, data)
            if sync:
                file.sync()
            file.close()
            disk.rename(staging_path(path), path)
            if sync:
                disk.sync_dir(os.path.dirname(path))
        """,
        "never closed": """
            file = disk.open(staging_path(path), "empty")
            file.write_at(0, data)
            if sync:
                file.sync()
            disk.rename(staging_path(path), path)
            if sync:
                disk.sync_dir(os.path.dirname(path))
        """,
        "synced although not asked": """
            file = disk.open(staging_path(path), "empty")
            file.write_at(0, data)
            file.sync()
            file.close()
            disk.rename(staging_path(path), path)
            disk.sync_dir(os.path.dirname(path))
        """,
        "a full disk hidden": """
            try:
                file = disk.open(staging_path(path), "empty")
                file.write_at(0, data)
                if sync:
                    file.sync()
                file.close()
            except Exception:
                pass
            disk.rename(staging_path(path), path)
            if sync:
                disk.sync_dir(os.path.dirname(path))
        """,
        "nothing written": "return None",
    },
)
