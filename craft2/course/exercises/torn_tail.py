"""Exercise 3.3: a torn tail is cut, damage is reported."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import doing, equal, that
from craft2.disk import SECTOR, File
from craft2.faulty_disk import FaultyDisk, crash_points
from craft2.record_batch import encode_values, stamp

PATH = "/flights-0/00000000000000000000.log"
COUNT = 6  # batches of one record, larger than a sector
REPORT = "CorruptLog is raised"


class _Case(NamedTuple):
    words: str
    file: bytes
    flushed: int
    later: bool
    expected: tuple[int, bool] | None  # (the offset to cut at, whether it is kept) or a report


def check(module: ModuleType) -> str:
    """Each kind of damage for itself, then a whole log crashed at every step."""
    cases = 0
    for case in _cases():
        cases += 1
        _judge(module, case)
    return (
        f"{cases} damaged segments, each cut, kept or reported as the rules say; and after "
        f"{_with_crashes(module)} crashes a log opened with everything that had been acknowledged"
    )


def _batches() -> list[bytes]:
    values = [b"flight %d " % number * 80 for number in range(COUNT)]
    return [bytes(stamp(encode_values([value]), n, 0)) for n, value in enumerate(values)]


def _cases() -> Iterator[_Case]:
    batches = _batches()
    whole, size = b"".join(batches), len(batches[0])
    last = COUNT - 1

    def flipped(offset: int, file: bytes = whole) -> bytes:
        at = offset * size + 100
        return file[:at] + bytes([file[at] ^ 1]) + file[at + 1 :]

    def lost(offset: int, file: bytes = whole) -> bytes:
        at = (offset * size // SECTOR + 1) * SECTOR
        return file[:at] + bytes(SECTOR) + file[at + SECTOR :]

    def torn(more: bytes) -> tuple[bytes, int, bool, tuple[int, bool]]:
        return whole + more, COUNT, False, (COUNT, False)

    cut, kept, report = (last, False), (2, True), None
    yield _Case("seven bytes behind the last batch", *torn(b"garbage"))
    yield _Case("zeros behind the last batch", *torn(bytes(700)))
    yield _Case("the last batch ends early, unflushed", whole[:-9], last, False, cut)
    yield _Case("the last batch ends early, flushed", whole[:-9], COUNT, False, report)
    yield _Case("a bit of the last batch flipped, unflushed", flipped(last), last, False, cut)
    yield _Case("a bit of the last batch flipped, flushed", flipped(last), COUNT, False, report)
    yield _Case("a bit of batch 2 flipped, nothing flushed", flipped(2), 0, False, report)
    yield _Case("a lost sector in batch 2, nothing flushed", lost(2), 0, False, kept)
    yield _Case("a lost sector in batch 2, 0 and 1 flushed", lost(2), 2, False, kept)
    yield _Case("a lost sector in batch 2, 0 to 2 flushed", lost(2), 3, False, report)
    both = lost(4, flipped(1))
    yield _Case("a bit of batch 1 flipped, a lost sector in batch 4", both, 0, False, report)
    yield _Case("the last batch ends early, segments follow", whole[:-9], last, True, cut)
    yield _Case("a lost sector in the last batch, segments follow", lost(last), last, True, cut)
    bit = flipped(last)
    yield _Case("a bit of the last batch flipped, segments follow", bit, last, True, report)
    yield _Case("a lost sector in batch 2, segments follow", lost(2), 0, True, kept)
    yield _Case("a bit of batch 2 flipped, segments follow", flipped(2), 0, True, report)


def _judge(module: ModuleType, case: _Case) -> None:
    disk = FaultyDisk()
    disk.mkdir("/flights-0")
    file: File = disk.open(PATH, "create")
    file.write_at(0, case.file)
    _, damage = module.scan(file, 0, len(case.file), 0)
    call = f"judge: {case.words} (flushed={case.flushed}, later={case.later})"
    doing(call)
    found: Any = None
    raised = False
    try:
        found = module.judge(PATH, file, len(case.file), damage, case.flushed, case.later)
    except module.CorruptLog:
        raised = True
    that(
        call,
        raised or isinstance(found, module.Cut),
        expected="a Cut, or CorruptLog raised",
        got=f"{found!r:.60} returned",
    )
    if case.expected is None or raised:
        wanted = REPORT if case.expected is None else f"a cut at offset {case.expected[0]}"
        got = REPORT if raised else f"a cut at offset {damage.offset}"
        that(call, wanted == got, expected=wanted, got=got, difference=_why(case))
    else:
        offset, keep = case.expected
        kept_as = f"{PATH}.{damage.position}.cut" if keep else None
        bytes_cut = len(case.file) - damage.position
        for name, value in (
            ("path", PATH), ("position", damage.position), ("size", bytes_cut),
            ("offset", offset), ("kept_as", kept_as),
        ):  # fmt: skip
            equal(f"{name} of the cut; {call}", getattr(found, name), value)
    equal(f"the file after {call}", file.size(), len(case.file), "judge only looks")


def _why(case: _Case) -> str:
    if case.expected is None:
        return "a cut here would throw away records that were promised, or hide a bad disk"
    return "a crash explains this: a log that does not open after it is of no use"


def _with_crashes(module: ModuleType) -> int:
    """A log of small segments, crashed before every step: it opens, and keeps its promises."""
    logs: Any = importlib.import_module(f"{module.__package__}.partition_log")
    config = logs.LogConfig(segment_bytes=1500, flush_policy="never", max_index_bytes=96)
    promised: list[int] = []

    def run(disk: FaultyDisk) -> None:
        promised[:] = [0]
        log = logs.PartitionLog("/flights-0", config, disk=disk)
        for number in range(4):
            log.append_as_leader(encode_values([b"flight %d " % number * 80]), 0)
            if number == 1:
                promised[:] = [log.flush()]

    count = 0
    for words, disk in crash_points(run, outcomes=2):
        count += 1
        doing(f"opening a log, {words}")
        end = logs.PartitionLog("/flights-0", config, disk=disk).end_offset
        that(
            f"records of the log, {words}",
            end >= promised[0],
            expected=f"{promised[0]} at least",
            got=str(end),
        )
    return count


_FOLLOWS = "what_follows(file, size, damage)"
_NO_EXCUSE = """
    if not lost_sector(file, damage, follows):
        raise corrupt(path, damage, "a valid batch follows")"""
_CUT = "return Cut(path, damage.position, size - damage.position, damage.offset, kept_as)"
_RIGHT = f"""
if damage.offset < flushed:
    raise corrupt(path, damage, "that was flushed")
follows = {_FOLLOWS}
kept_as = None
if follows is not None:{_NO_EXCUSE}
    kept_as = kept_path(path, damage)
elif later and not (damage.short or lost_sector(file, damage, size)):
    raise corrupt(path, damage, "segments follow")
{_CUT}
"""

EXERCISE = Exercise(
    id="3.3",
    title="a torn tail, or damage?",
    file="phase1_file_queue/recovery.py",
    hints=(
        "Go through the rules in their order. The first needs only two numbers: the offset at the "
        "damage and `flushed`. Mind the boundary: `flushed` itself was not promised yet.",
        "Then ask `what_follows`. If something valid follows, the only excuse is a lost sector "
        "between the damage and that position (not anywhere in the file). If nothing follows in "
        "the file, it is a torn tail, unless segments come `later`: then it needs an excuse, a "
        "lost sector or a file that ends too soon.",
        "Three times `raise corrupt(path, damage, why)`: when damage.offset < flushed; when "
        "something follows and not lost_sector(file, damage, follows); when nothing follows, later "
        "is true and neither damage.short nor lost_sector(file, damage, size). In all other cases "
        "return the Cut: its size is size - damage.position, kept_as only if something follows.",
    ),
    check=check,
    explanation=(
        "A crash can leave only certain things behind: bytes that end too soon, and sectors that "
        "never arrived. What looks like that, and was not promised, may be cut. Everything else "
        "happened in another way, and no program can know what else is wrong; so the log says "
        "where, and leaves the decision to a person. Whole batches are never thrown away: they are "
        "kept in a file beside the log."
    ),
    wrong={
        "always cut": edited(_CUT, ("kept_as)", "None)")),
        "never cut": 'raise corrupt(path, damage, "it is not whole")',
        "cut whatever was not flushed": edited(_RIGHT, (_NO_EXCUSE, "")),
        "report whatever has something behind it": edited(
            _RIGHT, ("< flushed", f"< flushed or {_FOLLOWS} is not None or later")
        ),
        "the boundary: flushed itself taken for promised": edited(
            _RIGHT, ("< flushed", "<= flushed")
        ),
        "flushed not looked at": edited(_RIGHT, ("damage.offset < flushed", "False")),
        "a lost sector anywhere is an excuse": edited(
            _RIGHT, ("damage, follows)", "damage, size)")
        ),
        "later segments not looked at": edited(_RIGHT, ("elif later and", "elif False and")),
        "later segments always mean damage": edited(
            _RIGHT, ("damage.offset < flushed", "damage.offset < flushed or later")
        ),
        "only the file's end is an excuse with later segments": edited(
            _RIGHT, ("(damage.short or lost_sector(file, damage, size))", "damage.short")
        ),
        "whole batches thrown away": edited(_RIGHT, ("kept_path(path, damage)", "None")),
        "everything kept": edited(_RIGHT, ("kept_as = None", "kept_as = kept_path(path, damage)")),
        "cuts the file itself": edited(
            _RIGHT, ("return Cut", "file.truncate(damage.position)\nreturn Cut")
        ),
        "the file's size for the size of the cut": edited(
            _RIGHT, ("size - damage.position", "size")
        ),
        "the error not raised": edited(_RIGHT, ("raise corrupt", "return corrupt")),
    },
)
