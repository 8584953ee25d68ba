"""After a crash: how far is this segment whole, and was the rest torn by the crash or damaged?

A log is only ever written at its end, so a crash leaves whole batches and then, perhaps, a *torn
tail*: bytes that were on their way. Those are cut; nobody was told that they are safe. Damage is
another thing: a disk that lies, a bit that flipped, somebody's editor. Cutting there would throw
away records that were promised, so damage is reported, with file, position and offset, and the log
does not open.

How to tell them apart, at the first byte that does not continue the log:

1. At an offset below `flushed` (all before that offset was synced before the crash): damage.
2. Nothing valid follows it: a torn tail. Cut.
3. Valid batches follow. A crash can do that only in one way: sectors of an earlier unsynced write
   never arrived, and the file system shows zeros in their place, while a later write arrived. If
   there are such zeros, the records behind them were not promised either: they are cut, but kept
   in a file beside the log, and reported. Without such zeros: damage.
4. Nothing valid follows in this file, but segments with batches come after it. Cut only if such
   zeros lie before the file's end, or if it ends in the middle of a batch, since its new size
   never arrived; the caller keeps the later segments as in 3 (`kept_as` speaks of this file).
   Otherwise: damage.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from craft2.disk import SECTOR, File
from craft2.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    BatchTooShort,
    CorruptBatch,
    read_header,
    verify,
)
from phase1_file_queue.log_config import CorruptLog

_WINDOW = 4 * 1024 * 1024
_MAGIC_AT = 16


@dataclass(frozen=True)
class Cut:
    """What recovery removed: `size` bytes from `position` of `path`, and where they are now."""

    path: str
    position: int
    size: int
    offset: int  # the first offset that is not in the log any more
    kept_as: str | None = None  # set when whole batches were among the bytes


@dataclass
class RecoveryReport:
    """What opening the log did. `clean`: it had been closed properly, nothing was read."""

    clean: bool
    scanned_bytes: int = 0
    cuts: list[Cut] = field(default_factory=list)


@dataclass(frozen=True)
class Damage:
    """The first byte of a segment that does not continue the log, and why."""

    position: int
    offset: int  # the offset that should be there
    reason: str
    short: bool = False  # the file ends before the batch does


def scan(
    file: File, position: int, size: int, next_offset: int
) -> tuple[list[tuple[int, BatchHeader]], Damage | None]:
    """Check every byte of a segment's file from `position`, a batch's first byte, to `size`.

    Returns (position, header) of each whole batch up to the first damage, and that damage.
    """
    good: list[tuple[int, BatchHeader]] = []
    while position < size:
        window = file.read_at(position, min(_WINDOW, size - position))
        at = 0
        while at < len(window):
            try:
                header = verify(window, at)
            except BatchTooShort as error:
                if error.needed > size - position - at:
                    return good, Damage(position + at, next_offset, error.problem, short=True)
                if at == 0:  # a batch larger than the window
                    window = file.read_at(position, error.needed)
                    continue
                break
            except CorruptBatch as error:
                return good, Damage(position + at, next_offset, error.problem)
            if header.base_offset < next_offset:
                reason = f"a batch with offset {header.base_offset}, not {next_offset} or more"
                return good, Damage(position + at, next_offset, reason)
            good.append((position + at, header))
            next_offset = header.next_offset
            at += header.size
        position += at
    return good, None


def find_valid_batch(
    file: File, start: int, size: int, next_offset: int, within: int = 2**32
) -> int | None:
    """The position of a whole batch behind `start`, its offset `next_offset` or a little more.

    Looks for the byte 2 in the place of the magic: fast over zeros, bearable over anything else.
    """
    position = start
    while size - position >= HEADER_SIZE:
        window = file.read_at(position, min(_WINDOW, size - position))
        magic = window.find(2, _MAGIC_AT)
        while magic != -1:
            at = magic - _MAGIC_AT
            try:
                header = read_header(window, at)
                plausible = next_offset <= header.base_offset < next_offset + within
                if plausible and header.size <= size - position - at:
                    verify(file.read_at(position + at, header.size))
                    return position + at
            except (BatchTooShort, CorruptBatch):
                pass
            magic = window.find(2, magic + 1)
        if position + len(window) >= size:
            return None
        position += len(window) - HEADER_SIZE
    return None


def lost_sector(file: File, damage: Damage, end: int) -> bool:
    """Whether between the damage and `end` there are the zeros that a lost write leaves.

    That is a sector of zeros, or the rest of the sector in which the damaged batch begins, long
    enough to cover something of the batch that cannot be zero: its offset or its length.
    """
    expected = damage.offset.to_bytes(8, "big") + b"\x00\x00\x00\x01"
    position = damage.position
    while position < end:
        stop = (position // SECTOR + 1) * SECTOR
        found = file.read_at(position, stop - position)
        if not any(found):
            whole = position % SECTOR == 0 and len(found) == SECTOR
            if whole or len(found) >= LOG_OVERHEAD or any(expected[: len(found)]):
                return True
        position = stop
    return False


def what_follows(file: File, size: int, damage: Damage) -> int | None:
    """The position of a valid batch behind the damage, if there is one.

    A batch that was cut short, with a header that fits, may hold another batch in its records (a
    log of logs). That one does not follow it: only a batch with the next offset would.
    """
    if damage.short:
        try:
            torn = read_header(file.read_at(damage.position, HEADER_SIZE))
        except (BatchTooShort, CorruptBatch):
            pass
        else:
            if torn.base_offset == damage.offset:
                return find_valid_batch(file, damage.position + 1, size, torn.next_offset, 1)
    return find_valid_batch(file, damage.position + 1, size, damage.offset)


def kept_path(path: str, damage: Damage) -> str:
    """Where whole batches that are cut off are kept."""
    return f"{path}.{damage.position}.cut"


# EXERCISE 3.3 a torn tail, or damage?
def judge(path: str, file: File, size: int, damage: Damage, flushed: int, later: bool) -> Cut:
    """Decide what the first damage of a segment is: return the cut to make, or raise.

    path, file, size: the segment's file. Look at it only; the cutting is done by who asks.
    damage: where the log stops being whole, at byte `.position`, in place of offset `.offset`.
    flushed: every record before this offset had been synced, and promised.
    later: whether segments with batches come after this one.

    Rules 1 to 4 are at the top of this file. What helps: `what_follows(file, size, damage)`, the
    position of a valid batch behind the damage, or None; `lost_sector(file, damage, end)`, whether
    the zeros of a lost write lie between the damage and `end`; and `damage.short`.

    Returns `Cut(path, position, bytes, offset, kept_as)` for everything from the damage on;
    `kept_as` is `kept_path(path, damage)` if a valid batch is among it, else None. Where nothing
    may be cut: `raise corrupt(path, damage, "why")`.
    """
    # BEGIN SOLUTION
    if damage.offset < flushed:
        raise corrupt(path, damage, f"records up to offset {flushed - 1} had been flushed")
    follows = what_follows(file, size, damage)
    kept_as = None
    if follows is not None:
        if not lost_sector(file, damage, follows):
            raise corrupt(path, damage, f"a valid batch follows at byte {follows}")
        kept_as = kept_path(path, damage)
    elif later and not (damage.short or lost_sector(file, damage, size)):
        raise corrupt(path, damage, "valid segments follow")
    return Cut(path, damage.position, size - damage.position, damage.offset, kept_as)
    # END SOLUTION


def corrupt(path: str, damage: Damage, why: str) -> CorruptLog:
    """The CorruptLog for damage that must not be cut."""
    return CorruptLog(
        f"segment {path!r} is damaged at byte {damage.position}, where offset {damage.offset} "
        f"should be: {damage.reason}; this is no torn tail, since {why}",
        "restore the file from a copy or a replica; to give up everything from that offset on, "
        f"cut the file there (truncate -s {damage.position}), remove later segments, and remove "
        "the files recovery-point and .control beside it",
    )
