"""`craft2 inspect`: what is in a queue, a log, a segment or a message file, without changing it.

Everything is read as it lies there: no recovery, no locks, no index is rebuilt. Damage is shown,
with the position of the first wrong byte, and never an error of `inspect` itself. What was found
goes to the screen as it is: names and contents are never taken for markup.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from craft2.apps.broker_process import PID_FILE, read_pid_file
from craft2.batch_header import CRC_START, HEADER_SIZE, BatchHeader, read_header, verify
from craft2.disk import RealDisk
from craft2.errors import Craft2Error
from craft2.record_batch import decode
from phase1_file_queue.log_config import CorruptLog
from phase1_file_queue.log_files import Checkpoint
from phase1_file_queue.message_file import CorruptMessage, decode_message
from phase1_file_queue.queue_files import (
    OFFSET_FILE,
    CorruptOffsetFile,
    NotAQueue,
    message_offset,
    message_path,
    missing_partition,
    parse_offset,
    require_metadata,
)
from phase1_file_queue.recovery import Damage, find_valid_batch, scan
from phase2_groups.topics import list_topics
from phase3_raft.cluster_folder import LOG_FILE, broker_folders

# The fields of a batch's header: name, first byte, size. The layout itself: craft2.batch_header.
FIELDS = (
    ("base offset", 0, 8),
    ("length", 8, 4),
    ("leader epoch", 12, 4),
    ("magic", 16, 1),
    ("crc", 17, 4),
    ("attributes", 21, 2),
    ("last offset delta", 23, 4),
    ("base timestamp", 27, 8),
    ("max timestamp", 35, 8),
    ("producer id", 43, 8),
    ("producer epoch", 51, 2),
    ("base sequence", 53, 4),
    ("record count", 57, 4),
)


_SEGMENTS = "[0-9]*.log"  # not broker.log, which is text


class CannotInspect(Craft2Error):
    """A path that is none of the things this command knows."""


def inspect(path: Path, console: Console, *, records: bool = False, at: int | None = None) -> bool:
    """Print what `path` is and holds; True if nothing in it is damaged.

    path: a queue's directory, a log's directory, a folder of topics, a .log or a .msg file.
    records: also print each record of a .log file, or each message of a queue.
    at: instead, a hexdump of the batch with this offset (.log file).
    """
    if not path.exists():
        raise CannotInspect(f"nothing is at {str(path)!r}", "correct the path")
    if path.name == LOG_FILE and path.is_file():
        raise CannotInspect(
            f"{str(path)!r} is the text that a broker has said, and no segment",
            "read it as text; a segment's name is 20 digits: TOPIC-0/00000000000000000000.log",
        )
    if at is not None and (path.suffix != ".log" or not path.is_file()):
        raise CannotInspect(f"--at {at}: {str(path)!r} is no segment", "name a .log file")
    if (path / "queue.json").exists():
        return _queue(path, console, records)
    if path.is_dir() and any(path.glob(_SEGMENTS)):
        return _log(path, console)
    if path.suffix == ".log" and path.is_file():
        return _hexdump(path, at, console) if at is not None else _segment(path, console, records)
    if path.suffix == ".msg" and path.is_file():
        return _message(path, console)
    if path.is_dir() and (_broker(path, console) + _topics(path, console)):
        return True
    brokers = [str(path / os.path.basename(one)) for one in broker_folders(str(path)).values()]
    if brokers:
        problem = f"{str(path)!r} is the folder of a cluster"
        raise CannotInspect(problem, f"look into a broker's: {', '.join(brokers)}")
    raise CannotInspect(
        f"{str(path)!r} is neither a queue, nor a log, nor a folder of topics, nor a .log or .msg "
        "file",
        "name the directory that holds queue.json, a log's directory, or one such file",
    )


def _broker(root: Path, console: Console) -> bool:
    """What a broker's folder says of it; False if it is none."""
    if not (root / PID_FILE).exists():
        return False
    runs = read_pid_file(str(root))
    told = f"process {runs[0]} runs, and what is here changes" if runs else "it does not run"
    console.print(f"the folder of a broker: {told}", markup=False, highlight=False)
    return True


def _topics(root: Path, console: Console) -> bool:
    """The topics in a folder, a line each; False if there are none."""
    found = False
    for topic, count in list_topics(root).items():
        if any((root / f"{topic}-0").glob(_SEGMENTS)):
            found = True
            partitions = "1 partition" if count == 1 else f"{count} partitions"
            line = f"topic {_text(os.fsencode(topic), 255)}: {partitions}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    return found


def _text(data: bytes | None, limit: int = 60) -> str:
    if data is None:
        return "null"
    try:
        text = data.decode()
        text = text if text.isprintable() else repr(data)[2:-1]
    except UnicodeDecodeError:
        text = repr(data)[2:-1]
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except (ValueError, OverflowError, OSError):
        return str(ms)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name == "file" else "right", no_wrap=True)
    return table


def _damaged(console: Console, words: object) -> None:
    console.print(Text.assemble(("damaged", "red"), f" {words}"))


def _queue(root: Path, console: Console, records: bool) -> bool:
    """Every message is read and checked, whether it is printed or not.

    What says how far something goes is read before that something, in case somebody is at work.
    """
    table = _table("partition", "messages", "next offset", "bytes")
    problems: list[object] = []
    directories = _partitions(root, problems)
    groups = {
        group.name: _committed(group, len(directories), problems)
        for group in sorted((root / "consumer_offsets").glob("[!.]*"))
    }
    ends = [_partition(directory, table, problems) for directory in directories]
    console.print(table)
    for name, committed in groups.items():
        shown = ", ".join(f"{p}: {offset}" for p, offset in committed.items()) or "nothing yet"
        console.print(f"group {name}: committed {shown}", markup=False, highlight=False)
        problems += [
            f"group {name!r} committed {offset} of partition {p}, which ends at {ends[p]}"
            for p, offset in committed.items()
            if offset > ends[p]
        ]
    for problem in problems:
        _damaged(console, problem)
    if records:
        for file in sorted(file for d in directories for file in d.glob("*.msg")):
            with contextlib.suppress(CorruptMessage):  # told above
                _print_message(file, console)
    return not problems


def _partitions(root: Path, problems: list[object]) -> list[Path]:
    """The directories there should be; those there are, if queue.json does not say how many."""
    try:
        count = require_metadata(RealDisk(), str(root))
    except NotAQueue as error:
        problems.append(error)
        count = len(list(root.glob("partition-*")))
    return [root / f"partition-{number}" for number in range(count)]


def _partition(directory: Path, table: Table, problems: list[object]) -> int:
    """Add a partition's row and its problems; returns its end."""
    number = directory.name.removeprefix("partition-")
    if not directory.is_dir():
        problems.append(missing_partition(str(directory)))
        table.add_row(number, "missing", "-", "-")
        return 0
    end, said = 0, "missing"
    offset_file = directory / OFFSET_FILE
    if offset_file.exists():
        try:
            end = parse_offset(_bytes(offset_file), str(offset_file))
            said = str(end)
        except CorruptOffsetFile as error:
            problems.append(error)
            said = "damaged"
    offsets, size = set(), 0
    for file in sorted(directory.iterdir()):
        try:
            offset = message_offset(str(directory), file.name)
        except NotAQueue as error:
            problems.append(error)
            continue
        if offset is not None:
            offsets.add(offset)
            data = _bytes(file)
            size += len(data)
            try:
                decode_message(data, str(file))
            except CorruptMessage as error:
                problems.append(error)
    end = max(end, max(offsets, default=-1) + 1)
    if len(offsets) < end:
        first = next(n for n in itertools.count() if n not in offsets)
        path = message_path(str(directory), first)
        problems.append(f"{end - len(offsets):,} messages are missing, the first is {path!r}")
    table.add_row(number, f"{len(offsets):,}", said, f"{size:,}")
    return end


def _committed(group: Path, partitions: int, problems: list[object]) -> dict[int, int]:
    """partition -> the offset in its file, where there is such a file and it holds a number."""
    found = {}
    for number in range(partitions):
        path = group / f"partition-{number}.offset"
        if path.exists():
            try:
                found[number] = parse_offset(_bytes(path), str(path))
            except CorruptOffsetFile as error:
                problems.append(error)
    return found


def _bytes(path: Path) -> bytes:
    """A small file's content; what cannot be read (a directory, say) is as good as empty."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _message(path: Path, console: Console) -> bool:
    try:
        _print_message(path, console)
    except CorruptMessage as error:
        _damaged(console, error)
        return False
    return True


def _print_message(path: Path, console: Console) -> None:
    timestamp, key, value = decode_message(_bytes(path), str(path))
    where = f"{path.parent.name}/{path.name}"
    console.print(
        f"{where}  {_time(timestamp)}  {_text(key)}  {_text(value)}", markup=False, highlight=False
    )


def _batches(path: Path, base: int) -> tuple[list[tuple[int, BatchHeader]], Damage | None]:
    file = RealDisk().open(str(path), "read")
    return scan(file, 0, file.size(), base)


def _base(path: Path) -> int:
    return int(path.stem) if re.fullmatch("[0-9]{20}", path.stem) else 0


def _log(directory: Path, console: Console) -> bool:
    table = _table("file", "offsets", "batches", "records", "bytes", "index", "time index", "check")
    problems: list[object] = []
    try:
        checkpoint = Checkpoint.load(RealDisk(), str(directory))
    except CorruptLog as error:
        problems.append(error)
        checkpoint = None
    paths = sorted(directory.glob(_SEGMENTS))
    end: int | None = None  # of the segment before; unknown if that one is damaged
    for path in paths:
        base = _base(path)
        found, damage = _batches(path, base)
        if end is not None and base != end:
            problems.append(f"{path.name} does not follow: the segment before it ends at {end}")
        end = None if damage else found[-1][1].next_offset if found else base
        first, last = (found[0][1].base_offset, found[-1][1].last_offset) if found else (0, -1)
        entries = []
        for suffix, size in ((".index", 8), (".timeindex", 12)):
            data = _bytes(path.with_suffix(suffix))
            entries.append(sum(any(data[i : i + size]) for i in range(0, len(data), size)))
        if damage:
            problems.append(f"{path.name} at byte {damage.position}: {damage.reason}")
        table.add_row(
            Text(path.name),
            f"{first}…{last}" if found else "-",
            f"{len(found):,}",
            f"{sum(h.count for _, h in found):,}",
            f"{path.stat().st_size:,}",
            *map(str, entries),
            "[red]damaged[/red]" if damage else "ok",
        )
    console.print(table)
    if checkpoint:
        state = "closed properly" if checkpoint.clean else "open, or not closed properly"
        points = f"log start {checkpoint.log_start}, recovery point {checkpoint.recovery_point}"
        console.print(f"{points}, {state}", highlight=False)
        if checkpoint.log_start < _base(paths[0]):
            problems.append(f"{paths[0].name} comes first, after the log's start")
        if end is not None and end < checkpoint.recovery_point:
            problems.append(f"the log ends at {end}, before its recovery point")
    for problem in problems:
        _damaged(console, problem)
    return not problems


def _segment(path: Path, console: Console, records: bool) -> bool:
    found, damage = _batches(path, _base(path))
    table = _table(
        "position", "offsets", "records", "bytes", "codec", "max timestamp", "epoch", "producer"
    )
    for position, header in found:
        producer = "-" if header.producer_id < 0 else f"{header.producer_id}:{header.base_sequence}"
        table.add_row(
            f"{position:,}",
            f"{header.base_offset}…{header.last_offset}",
            str(header.count),
            f"{header.size:,}",
            header.codec,
            _time(header.max_timestamp),
            str(header.leader_epoch),
            producer + ("*" if header.is_transactional or header.is_control else ""),
        )
    sound = True
    if not records:
        console.print(table)
    else:
        for position, header in found:
            sound &= _records(path, position, header.size, console)
    if damage:
        _say_damage(path, damage, console)
    return sound and damage is None


def _records(path: Path, position: int, size: int, console: Console) -> bool:
    """Print the records of a batch whose checksum is right: they may be wrong all the same."""
    try:
        batch = decode(RealDisk().open(str(path), "read").read_at(position, size))
    except Craft2Error as error:
        _damaged(console, f"at byte {position}: {error}")
        return False
    for record in batch:
        line = f"{record.offset}  {_time(record.timestamp)}  {_text(record.key)}"
        console.print(f"{line}  {_text(record.value)}", markup=False, highlight=False)
    return True


def _say_damage(path: Path, damage: Damage, console: Console) -> None:
    file = RealDisk().open(str(path), "read")
    follows = find_valid_batch(file, damage.position + 1, file.size(), damage.offset)
    _damaged(
        console,
        f"at byte {damage.position}, where offset {damage.offset} should be: {damage.reason}",
    )
    what = "nothing valid follows: a torn tail" if follows is None else f"valid again at {follows}"
    console.print(f"        {what}; {file.size() - damage.position:,} bytes", highlight=False)


def _hexdump(path: Path, offset: int, console: Console) -> bool:
    found, damage = _batches(path, _base(path))
    for position, header in found:
        if header.base_offset <= offset <= header.last_offset:
            file = RealDisk().open(str(path), "read")
            for line in dump_batch(file.read_at(position, header.size), position):
                console.print(line, markup=False, highlight=False)
            return True
    if damage is None:
        raise CannotInspect(
            f"offset {offset} is not in {str(path)!r}", "run inspect without --at to see what is"
        )
    file = RealDisk().open(str(path), "read")
    for line in dump_batch(file.read_at(damage.position, 4096), damage.position):
        console.print(line, markup=False, highlight=False)
    _say_damage(path, damage, console)
    return False


def dump_batch(data: bytes, position: int = 0) -> Iterator[str]:
    """A batch as lines of text: each header field with its bytes, then the records.

    data: the batch, perhaps damaged. position: where it lies, for the first column.
    """
    for name, start, size in FIELDS:
        field = data[start : start + size]
        value = int.from_bytes(field, "big", signed=name != "crc")
        note = _note(name, value, data)
        yield f"{position + start:08x}  {field.hex(' '):<24} {name:<18} {note}"
    for start in range(HEADER_SIZE, len(data), 16):
        row = data[start : start + 16]
        text = "".join(chr(b) if 32 <= b < 127 else "." for b in row)
        label = "  records" if start == HEADER_SIZE else ""
        yield f"{position + start:08x}  {row.hex(' '):<48} {text:<16}{label}"


def _note(name: str, value: int, data: bytes) -> str:
    if name == "crc":
        try:
            verify(data)
            return f"{value:#010x}, right for bytes {CRC_START} to {len(data) - 1}"
        except Craft2Error as error:
            return f"{value:#010x}  <-- {error.problem}"
    if name == "attributes":
        try:
            header = read_header(data)
        except Craft2Error:
            return f"{value:#06x}"
        marks = [header.codec, header.timestamp_type]
        marks += ["transactional"] * header.is_transactional + ["control"] * header.is_control
        return f"{value:#06x}: {', '.join(marks)}"
    if name.endswith("timestamp"):
        return f"{value} ({_time(value)} UTC)"
    return str(value)
