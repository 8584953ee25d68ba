"""`craft2 inspect`: what is in a queue, a log, a segment or a message file, without changing it.

Everything is read as it lies there: no recovery, no locks, no index is rebuilt. Damage is shown,
with the position of the first wrong byte, and never an error of `inspect` itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from craft2.batch_header import CRC_START, HEADER_SIZE, BatchHeader, read_header, verify
from craft2.disk import RealDisk
from craft2.errors import Craft2Error
from craft2.record_batch import decode
from phase1_file_queue.log_config import CorruptLog
from phase1_file_queue.log_files import Checkpoint
from phase1_file_queue.message_file import CorruptMessage, decode_message
from phase1_file_queue.recovery import Damage, find_valid_batch, scan

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


class CannotInspect(Craft2Error):
    """A path that is none of the things this command knows."""


def inspect(path: Path, console: Console, *, records: bool = False, at: int | None = None) -> bool:
    """Print what `path` is and holds; True if nothing in it is damaged.

    path: a queue's directory, a log's directory, a .log file or a .msg file.
    records: also print each record of a .log file, or each message of a queue.
    at: instead, a hexdump of the batch with this offset (.log file).
    """
    if (path / "queue.json").exists():
        return _queue(path, console, records)
    if path.is_dir() and any(path.glob("*.log")):
        return _log(path, console)
    if path.suffix == ".log" and path.is_file():
        return _hexdump(path, at, console) if at is not None else _segment(path, console, records)
    if path.suffix == ".msg" and path.is_file():
        return _message(path, console)
    raise CannotInspect(
        f"{str(path)!r} is neither a queue, nor a log, nor a .log or .msg file",
        "name the directory that holds queue.json, a partition's directory, or one such file",
    )


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


def _queue(root: Path, console: Console, records: bool) -> bool:
    table = _table("partition", "messages", "next offset", "bytes")
    sound = True
    for number in itertools.count():
        directory = root / f"partition-{number}"
        if not directory.is_dir():
            break
        files = sorted(directory.glob("*.msg"))
        offset = directory / "offset.txt"
        end = offset.read_text().strip().lstrip("0") or "0" if offset.exists() else "missing"
        size = sum(file.stat().st_size for file in files)
        table.add_row(str(number), f"{len(files):,}", end, f"{size:,}")
    console.print(table)
    for group in sorted((root / "consumer_offsets").glob("*")):
        committed = {p.stem.split("-")[1]: p.read_text().strip() for p in group.glob("*.offset")}
        shown = ", ".join(f"{p}: {offset}" for p, offset in sorted(committed.items()))
        console.print(f"group {group.name}: committed {shown or 'nothing yet'}", highlight=False)
    if records:
        for file in sorted(root.glob("partition-*/*.msg")):
            sound &= _message(file, console)
    return sound


def _message(path: Path, console: Console) -> bool:
    try:
        timestamp, key, value = decode_message(path.read_bytes(), str(path))
    except CorruptMessage as error:
        console.print(f"[red]damaged[/red] {error}", highlight=False)
        return False
    where = f"{path.parent.name}/{path.name}"
    console.print(
        f"{where}  {_time(timestamp)}  {_text(key)}  {_text(value)}", markup=False, highlight=False
    )
    return True


def _batches(path: Path, base: int) -> tuple[list[tuple[int, BatchHeader]], Damage | None]:
    file = RealDisk().open(str(path), "read")
    return scan(file, 0, file.size(), base)


def _base(path: Path) -> int:
    return int(path.stem) if path.stem.isdigit() else 0


def _log(directory: Path, console: Console) -> bool:
    table = _table("file", "offsets", "batches", "records", "bytes", "index", "time index", "check")
    sound = True
    for path in sorted(directory.glob("*.log")):
        found, damage = _batches(path, _base(path))
        first, last = (found[0][1].base_offset, found[-1][1].last_offset) if found else (0, -1)
        entries = []
        for suffix, size in ((".index", 8), (".timeindex", 12)):
            index = path.with_suffix(suffix)
            data = index.read_bytes() if index.exists() else b""
            entries.append(sum(any(data[i : i + size]) for i in range(0, len(data), size)))
        sound &= damage is None
        table.add_row(
            path.name,
            f"{first}…{last}" if found else "-",
            f"{len(found):,}",
            f"{sum(h.count for _, h in found):,}",
            f"{path.stat().st_size:,}",
            *map(str, entries),
            "[red]damaged[/red]" if damage else "ok",
        )
    console.print(table)
    try:
        checkpoint = Checkpoint.load(RealDisk(), str(directory))
    except CorruptLog as error:
        console.print(f"[red]damaged[/red] {error}", highlight=False)
        return False
    if checkpoint:
        state = "closed properly" if checkpoint.clean else "open, or not closed properly"
        points = f"log start {checkpoint.log_start}, recovery point {checkpoint.recovery_point}"
        console.print(f"{points}, {state}", highlight=False)
    return sound


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
    if not records:
        console.print(table)
    else:
        with path.open("rb") as file:
            for position, header in found:
                file.seek(position)
                for record in decode(file.read(header.size)):
                    line = f"{record.offset}  {_time(record.timestamp)}  {_text(record.key)}"
                    console.print(f"{line}  {_text(record.value)}", markup=False, highlight=False)
    if damage:
        _say_damage(path, damage, console)
    return damage is None


def _say_damage(path: Path, damage: Damage, console: Console) -> None:
    file = RealDisk().open(str(path), "read")
    follows = find_valid_batch(file, damage.position + 1, file.size(), damage.offset)
    console.print(
        f"[red]damaged[/red] at byte {damage.position}, where offset {damage.offset} should be: "
        f"{damage.reason}",
        highlight=False,
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
