"""What the Spark source reads: which partitions a path holds, which offsets of them, and how.

Nothing here knows Spark. `open_places` finds the partitions, `plan` fixes the offsets of a batch
job, `read_range` gives them as Arrow batches.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from craft2.apps.spark_columns import shaped
from craft2.apps.spark_options import EARLIEST, LATEST, Offsets, Options, SourceError
from craft2.record_batch import BatchHeader, decode_arrow, read_header
from phase1_file_queue.log_config import LogConfig, OffsetOutOfRange
from phase1_file_queue.log_files import is_log_file
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.partitioned_queue import PartitionedQueue

if TYPE_CHECKING:
    import pyarrow as pa

    from craft2.apps.spark_network import RemoteLog

_GROUP_BYTES = 4 * 1024**2  # of batches that become one Arrow batch
_GROUP_RECORDS = 65_536  # the same; compressed batches are larger than they look
_MOST_RANGES = 1000  # of one partition: a range that is mostly a gap is not cut finer
_QUEUE_ROWS = 2048  # messages that become one Arrow batch
_LOG_NAME = re.compile(r"(.+)-(0|[1-9][0-9]{0,8})")


class Place(NamedTuple):
    """One partition: `path` is the log's directory, or the queue's root; or, if it is remote, the
    bootstrap servers of its cluster."""

    topic: str
    partition: int
    path: str
    is_log: bool
    remote: bool = False

    @property
    def words(self) -> str:
        return f"{self.topic}-{self.partition}"


def open_places(options: Options) -> list[Place]:
    """The partitions that the options name.

    Raises SourceError if there is none, one is unreadable, or an offset is for one not there.
    """
    found = find_places(options)
    if not found:
        kind = "queue and no log" if options.topic is None else f"topic {options.topic!r}"
        raise SourceError(
            f"path {options.path!r} holds no {kind}",
            "name a queue's directory, a log's, or a folder of logs named <topic>-<partition>",
        )
    _check_names(options, found)
    return found


def find_places(options: Options) -> list[Place]:
    """The partitions under the path, of one topic if the options name it; perhaps none."""
    if options.remote:
        from craft2.apps.spark_network import partitions_of

        topic = options.topic or ""
        count = partitions_of(options.path, topic)
        return [Place(topic, number, options.path, True, True) for number in range(count)]
    root = Path(options.path)
    names = _names(root)
    if "queue.json" in names:
        with PartitionedQueue.existing(root) as queue:
            count = queue.num_partitions
        found = [Place(root.name, number, options.path, False) for number in range(count)]
    elif any(map(is_log_file, names)):
        found = [_log_place(root) or Place(root.name, 0, options.path, True)]
    else:
        found = _logs_in(root, names, options.topic)
    return [place for place in found if options.topic in (None, place.topic)]


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError):
        raise SourceError(
            f"path {str(directory)!r} is no directory",
            "name a queue's directory, a log's, or a folder of logs named <topic>-<partition>",
        ) from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise SourceError(
            f"path {str(directory)!r} cannot be listed: {error}",
            "let the user that Spark runs as read it",
        ) from error


def _logs_in(root: Path, names: list[str], topic: str | None) -> list[Place]:
    """The logs in a folder, none left out: a name that is none of a log's is an error.

    Names that begin with __ are the system's own, as with Kafka: read only if `topic` is theirs.
    """
    found = []
    for directory in (root / name for name in names):
        if directory.name.startswith("__") and directory.name.rpartition("-")[0] != topic:
            continue
        if directory.is_symlink() and not directory.exists():
            raise SourceError(
                f"the link {str(directory)!r} leads nowhere: a log may be missing",
                "mount the disk that it leads to, or remove the link",
            )
        within = _names(directory) if directory.is_dir() else []
        if "queue.json" in within:
            raise SourceError(
                f"{str(directory)!r} is a message-file queue in a folder of logs",
                "load it by itself, or move it out of this folder",
            )
        if any(map(is_log_file, within)):
            place = _log_place(directory)
            if place is None:
                raise SourceError(
                    f"the log {str(directory)!r} is not named <topic>-<partition>",
                    "name it so, such as flights-0; or move it out of this folder",
                )
            found.append(place)
    return sorted(found)


def _log_place(directory: Path) -> Place | None:
    name = _LOG_NAME.fullmatch(directory.name)
    return Place(name[1], int(name[2]), str(directory), True) if name else None


def _check_names(options: Options, found: list[Place]) -> None:
    """An offset for a partition that is not there is a mistake, not a wish."""
    known: dict[str, set[str]] = {}
    for place in found:
        known.setdefault(place.topic, set()).add(str(place.partition))
    for name, offsets in (("startingOffsets", options.start), ("endingOffsets", options.end)):
        for topic, by_partition in offsets.items() if isinstance(offsets, Mapping) else ():
            strange = sorted(set(by_partition) - known.get(topic, set()))
            if strange or topic not in known:
                what = f"partition {strange[0]} of {topic!r}" if strange else f"topic {topic!r}"
                raise SourceError(
                    f"option {name} names {what}, which is not in {options.path!r}",
                    f"there are {', '.join(place.words for place in found)}",
                )


def plan(place: Place, options: Options) -> list[tuple[int, int]]:
    """The ranges (start, end) of one partition to read now; [] if there is nothing to read.

    Raises SourceError for a range that is not, or no longer, there.
    """
    with _Reader(place) as reader:
        bounds = reader.bounds()
        start = _resolve("startingOffsets", options.start, EARLIEST, place, bounds)
        stop = _resolve("endingOffsets", options.end, LATEST, place, bounds)
        if start > stop and options.start_ms is None and options.end_ms is None:
            raise SourceError(
                f"option endingOffsets: offset {stop} of {place.words} is before startingOffsets, "
                f"{start}",
                "swap the two, or give one of them alone",
            )
        if options.start_ms is not None:
            start = reader.offset_at(options.start_ms, bounds[1])
        if options.end_ms is not None:
            stop = reader.offset_at(options.end_ms, bounds[1])
    return split(start, stop, options.most)


def stream_start(place: Place, options: Options) -> int:
    """Where a stream begins in this partition. Raises SourceError for an offset not there."""
    with _Reader(place) as reader:
        bounds = reader.bounds()
        if options.start_ms is not None:
            return reader.offset_at(options.start_ms, bounds[1])
        return _resolve("startingOffsets", options.start, LATEST, place, bounds)


def bounds(place: Place) -> tuple[int, int]:
    """(first offset, next offset to be written) of a partition, now."""
    with _Reader(place) as reader:
        return reader.bounds()


def _resolve(
    option: str, offsets: Offsets, default: int, place: Place, bounds: tuple[int, int]
) -> int:
    """The option's offset for this partition; the default for one that it does not name."""
    first, end = bounds
    if not isinstance(offsets, int):
        offsets = offsets.get(place.topic, {}).get(str(place.partition), default)
    offset = {EARLIEST: first, LATEST: end}.get(offsets, offsets)
    if not first <= offset <= end:
        gone = "was deleted by retention" if offset < first else "is past the end"
        raise SourceError(
            f"option {option}: offset {offset} of {place.words} {gone}; it holds {first} to {end}",
            f'give {first} to {end}, or "earliest" or "latest"',
        )
    return offset


def split(start: int, end: int, most: int) -> list[tuple[int, int]]:
    """Cut start..end into as few pieces of at most `most` as possible, of nearly one size.

    There are 1000 at most; longer ones then.

    >>> split(0, 10, 4)
    [(0, 3), (3, 6), (6, 10)]
    """
    if start >= end:
        return []
    pieces = min(-(-(end - start) // most), _MOST_RANGES)
    cuts = [start + (end - start) * number // pieces for number in range(pieces + 1)]
    return list(itertools.pairwise(cuts))


class _Reader:
    """A queue's partition or a log, opened to read."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self.log: PartitionLog | RemoteLog | None = None
        self.queue: PartitionedQueue | None = None
        if place.remote:
            from craft2.apps.spark_network import RemoteLog

            self.log = RemoteLog(place.path, place.topic, place.partition)
        elif place.is_log:
            self.log = PartitionLog(place.path, LogConfig(access="read"))
        else:
            self.queue = PartitionedQueue.existing(place.path)

    def bounds(self) -> tuple[int, int]:
        """(first offset, next offset to be written)."""
        if self.log is not None:
            return self.log.bounds
        assert self.queue is not None
        return 0, self.queue.end_offset(self._place.partition)

    def offset_at(self, timestamp_ms: int, end: int) -> int:
        """The offset of the first record not earlier than that; `end` if there is none."""
        if self.log is not None:
            found = self.log.offset_for_timestamp(timestamp_ms)
            return min(found[0], end) if found else end
        assert self.queue is not None
        for offset in range(end):
            message = self.queue.read(self._place.partition, offset)
            if message is not None and message.timestamp >= timestamp_ms:
                return offset
        return end

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self.log, self.queue):
            if each is not None:
                each.close()


def read_range(
    place: Place, start: int, end: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The records from `start` on, before `end`, as Arrow batches with these columns.

    Raises SourceError if they are not all there any more, CorruptLog, CorruptMessage.
    """
    with _Reader(place) as reader:
        if reader.log is not None:
            tables = _log_tables(reader.log, place, start, end, columns)
        else:
            assert reader.queue is not None
            tables = _queue_tables(reader.queue, place, start, end)
        for table in tables:
            yield from shaped(table, place.topic, place.partition, columns).to_batches()


def _log_tables(
    log: PartitionLog | RemoteLog, place: Place, start: int, end: int, columns: Sequence[str]
) -> Iterator[pa.Table]:
    stored = ("offset", *(c for c in columns if c in ("timestamp", "key", "value", "headers")))
    group: list[bytes] = []
    size = records = 0
    for header, batch in _wanted(log, place, start, end):  # `batches` has checked them
        group.append(batch)
        size, records = size + len(batch), records + header.count
        if size >= _GROUP_BYTES or records >= _GROUP_RECORDS:
            yield _decoded(group, stored, start, end)
            group, size, records = [], 0, 0
    if group:
        yield _decoded(group, stored, start, end)


def _wanted(
    log: PartitionLog | RemoteLog, place: Place, start: int, end: int
) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches with records from `start` on, before `end`. Raises SourceError, CorruptLog."""
    reached, gap = start, False
    batches = log.batches(start, max_bytes=_GROUP_BYTES)
    try:
        for batch in batches:
            header = read_header(batch)
            gap = header.base_offset > reached
            reached = header.next_offset
            if header.base_offset < end:
                yield header, batch
            if reached >= end:
                break
        if gap:  # is it one, or is a first offset damaged? Reading one more batch tells
            next(batches, None)
    except OffsetOutOfRange as error:
        if log.end_offset >= reached:
            raise SourceError(
                f"retention deleted records of {place.words} from offset {reached} on while they "
                f"were read up to {end}",
                "run the query again, and raise retention_ms or retention_bytes of the log",
            ) from error
    if reached < end:  # nothing was left to read: the end is not where it was
        raise SourceError(
            f"{place.words} was cut back to offset {log.end_offset} while it was read up to {end}",
            "run the query again",
        )


def _decoded(group: list[bytes], stored: Sequence[str], start: int, end: int) -> pa.Table:
    table = decode_arrow(b"".join(group), columns=stored, check_crc=False)
    return _within(table, start, end)


def _within(table: pa.Table, start: int, end: int) -> pa.Table:
    """Without the records of its first and last batch that lie outside the range."""
    import pyarrow.compute as pc

    offsets = table["offset"]
    if not len(offsets) or (offsets[0].as_py() >= start and offsets[-1].as_py() < end):
        return table
    return table.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))


def _queue_tables(
    queue: PartitionedQueue, place: Place, start: int, end: int
) -> Iterator[pa.Table]:
    import pyarrow as pa

    from craft2.record_arrow import schema

    for first in range(start, end, _QUEUE_ROWS):
        messages = [
            queue.read(place.partition, offset)
            for offset in range(first, min(first + _QUEUE_ROWS, end))
        ]
        rows: list[dict[str, Any]] = [
            {
                "offset": message.offset,
                "timestamp": message.timestamp,
                "key": message.key,
                "value": message.value,
                "headers": [],
            }
            for message in messages
            if message is not None
        ]
        if len(rows) != len(messages):
            raise SourceError(
                f"{place.words} ended before offset {end} when it was read: it was made anew",
                "load() again",
            )
        yield pa.Table.from_pylist(rows, schema=schema())
