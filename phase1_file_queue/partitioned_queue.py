"""A message queue made of directories: one file per message.

    root/queue.json                       how many partitions there are
    root/partition-0/00000000.msg         the first message of partition 0 (offsets start at 0)
    root/partition-0/00000001.msg         the second
    root/partition-0/offset.txt           the next offset: what a consumer may read lies below it
    root/consumer_offsets/GROUP/...       see `queue_consumer`

You can watch it work with `ls` and `cat`. It keeps three promises:

- **Order.** Messages with the same key go to the same partition (`partitioner`), and a partition's
  offsets are 0, 1, 2, ... without a gap, whichever process wrote them: a kernel lock per partition
  is held while a message is numbered and published.
- **Whole or not at all.** A message appears under its name complete (`publish`).
- **Acknowledged means kept.** When `produce` returns, the file and its directory entry are synced.
  `offset.txt` moves only after that, so no consumer sees a message that a power cut could take
  back. The file itself is never synced: after a crash it is behind at worst, and opening the queue
  corrects it from the names in the directory.

>>> import tempfile
>>> with PartitionedQueue(tempfile.mkdtemp() + "/queue") as queue:
...     queue.produce("UA", "first"), queue.produce("UA", "second")
((2, 0), (2, 1))
"""

from __future__ import annotations

import itertools
import json
import os
import re
import threading
from types import TracebackType

from craft2.clock import Clock, SystemClock
from craft2.disk import Disk, DiskError, RealDisk
from craft2.errors import Craft2Error
from phase1_file_queue.message_file import Message, decode_message, encode_message
from phase1_file_queue.partitioner import partition_for
from phase1_file_queue.publish import publish, staging_path

MAX_MESSAGE_BYTES = 1_048_576
_MESSAGE_NAME = re.compile(r"(\d{8,18})\.msg")
_PARTITION_NAME = re.compile(r"partition-\d+")
_FORMAT = "craft2 message files, 1"


class NotAQueue(Craft2Error):
    """The directory holds something else, or a queue of another shape."""


class BadMessage(Craft2Error):
    """A key, value or timestamp that cannot be stored."""


class UnknownPartition(Craft2Error):
    """A partition number outside 0 ... num_partitions - 1."""


class CorruptOffsetFile(Craft2Error):
    """An offset file that does not hold a number."""


class MissingMessage(Craft2Error):
    """A message below the end of its partition has no file."""


def parse_offset(data: bytes, path: str) -> int:
    """The number in an offset file; raises CorruptOffsetFile for anything else."""
    text = data.strip()
    if not (text.isdigit() and len(text) <= 18):
        raise CorruptOffsetFile(
            f"offset file {path!r} holds {data[:40]!r} instead of a number",
            "stop the processes that use this queue, delete the file and open the queue again: "
            "a partition's end is found again from its messages, a group starts again at 0",
        )
    return int(text)


class _Partition:
    """One partition's directory, seen from one process."""

    def __init__(self, disk: Disk, directory: str) -> None:
        if not disk.exists(directory):
            raise NotAQueue(
                f"the partition's directory {directory!r} is missing",
                "restore it; an empty one loses the partition's messages",
            )
        self.disk = disk
        self.directory = directory
        self.mutex = threading.Lock()  # between the threads of this process
        self.lock = disk.lock(os.path.join(directory, ".lock"))  # between processes
        self.offset_path = os.path.join(directory, "offset.txt")
        self.failed: DiskError | None = None
        self._recover()
        self._offset_file = disk.open(self.offset_path, "write")

    def _recover(self) -> None:
        """Bring offset.txt up to the names in the directory, which are the truth."""
        self.lock.acquire()
        try:
            offsets = [-1]
            for name in self.disk.listdir(self.directory):
                if name.startswith(".") or name == "offset.txt":
                    continue
                match = _MESSAGE_NAME.fullmatch(name)
                if match is None:
                    raise NotAQueue(
                        f"{os.path.join(self.directory, name)!r} is not a message file",
                        "move it out of the partition's directory; only NNNNNNNN.msg belongs there",
                    )
                offsets.append(int(match[1]))
            end = max(offsets) + 1
            if self.disk.exists(self.offset_path):
                noted = parse_offset(self.disk.read(self.offset_path), self.offset_path)
                if noted >= end:
                    return
            publish(self.disk, self.offset_path, b"%08d\n" % end)
        finally:
            self.lock.release()

    def path(self, offset: int) -> str:
        return os.path.join(self.directory, f"{offset:08d}.msg")

    def end(self) -> int:
        return parse_offset(self._offset_file.read_at(0, 64), self.offset_path)

    def append(self, data: bytes, sync: bool) -> int:
        """Number, publish and announce one message; the two locks are held throughout."""
        with self.mutex:
            if self.failed is not None:
                raise self.failed
            self.lock.acquire()
            try:
                offset = self.end()
                while self.disk.exists(self.path(offset)):
                    offset += 1  # published by a process that died before it moved offset.txt
                self._publish(offset, data, sync)
                self._offset_file.write_at(0, b"%08d\n" % (offset + 1))
                return offset
            finally:
                self.lock.release()

    def _publish(self, offset: int, data: bytes, sync: bool) -> None:
        path = self.path(offset)
        try:
            publish(self.disk, path, data, sync=sync)
        except DiskError as error:
            if self.disk.exists(path):
                # Renamed, then the directory's sync failed: nobody knows what is on disk now.
                self.failed = error
            elif self.disk.exists(staging_path(path)):
                self.disk.unlink(staging_path(path))
            raise

    def close(self) -> None:
        self.lock.close()
        self._offset_file.close()


class PartitionedQueue:
    """Producer's side of the queue; any number of threads and processes may use one directory.

    root: the queue's directory; a missing or empty one becomes a new queue.
    num_partitions: must be what the queue was made with (`add_partitions` changes it).
    fsync: whether `produce` returns only when the message would survive a power cut.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        num_partitions: int = 4,
        fsync: bool = True,
        *,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        disk: Disk | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not (isinstance(num_partitions, int) and num_partitions > 0):
            raise NotAQueue(
                f"num_partitions is {num_partitions!r}", "give a whole number of 1 or more"
            )
        self.root = os.fspath(root)
        self.fsync = fsync
        self.max_message_bytes = max_message_bytes
        self._disk = disk or RealDisk()
        self._clock = clock or SystemClock()
        self._turn = itertools.count()
        found = _open_or_create(self._disk, self.root, num_partitions)
        if found != num_partitions:
            raise NotAQueue(
                f"the queue {self.root!r} has {found} partitions, not {num_partitions}",
                f"open it with num_partitions={found}, or grow it with add_partitions",
            )
        self._open(num_partitions)

    @classmethod
    def existing(
        cls, root: str | os.PathLike[str], *, disk: Disk | None = None, clock: Clock | None = None
    ) -> PartitionedQueue:
        """Open a queue that must be there, with as many partitions as it has."""
        count = _read_metadata(disk or RealDisk(), os.fspath(root))
        if count is None:
            raise NotAQueue(
                f"{os.fspath(root)!r} is not a queue: it has no queue.json",
                "check the path; PartitionedQueue(path) makes a new queue",
            )
        return cls(root, count, disk=disk, clock=clock)

    def _open(self, count: int) -> None:
        self._pid = os.getpid()
        self._partitions = [
            _Partition(self._disk, os.path.join(self.root, f"partition-{number}"))
            for number in range(count)
        ]

    @property
    def num_partitions(self) -> int:
        return len(self._partitions)

    def produce(
        self,
        key: str | bytes | None,
        value: str | bytes,
        *,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> tuple[int, int]:
        """Store one message; returns (partition, offset) when it is safe.

        key: chooses the partition; None takes the partitions in turn.
        timestamp: milliseconds since 1970; now, if not given.
        partition: overrules the key's choice.

        Raises BadMessage, UnknownPartition, or DiskError (then the message is not stored).
        """
        key = _as_bytes(key, "key") if key is not None else None
        value = _as_bytes(value, "value")
        if len(value) + len(key or b"") > self.max_message_bytes:
            raise BadMessage(
                f"the message has {len(value) + len(key or b'')} bytes of key and value, "
                f"and the limit is {self.max_message_bytes}",
                "send it in parts, or open the queue with a larger max_message_bytes",
            )
        if timestamp is None:
            timestamp = self._clock.now_ms()
        elif not (isinstance(timestamp, int) and abs(timestamp) < 2**63):
            raise BadMessage(f"timestamp is {timestamp!r}", "give whole milliseconds since 1970")
        if os.getpid() != self._pid:
            self._open(
                self.num_partitions
            )  # after a fork: a lock must not be shared with the parent
        if partition is None:
            if key is None:
                partition = next(self._turn) % self.num_partitions
            else:
                partition = partition_for(key, self.num_partitions)
        data = encode_message(key, value, timestamp)
        return partition, self._partition(partition).append(data, self.fsync)

    def read(self, partition: int, offset: int) -> Message | None:
        """The message at `offset`, or None if the partition ends before it.

        Raises MissingMessage or CorruptMessage if it should be there and is not, or not whole.
        """
        source = self._partition(partition)
        if offset < 0:
            raise MissingMessage(f"offset {offset} of partition {partition}", "offsets start at 0")
        for _ in range(2):  # again after a miss: offset.txt may be caught between two values
            if offset >= source.end():
                return None
            path = source.path(offset)
            try:
                data = self._disk.read(path)
            except FileNotFoundError:
                continue
            return Message(partition, offset, *decode_message(data, path))
        raise MissingMessage(
            f"message file {path!r} is missing, though the partition goes on to {source.end()}",
            "restore it, or seek the consumer past it; a queue opened with fsync=False can lose "
            "messages when power fails",
        )

    def end_offsets(self) -> list[int]:
        """For each partition the next offset to be written, which is also its message count."""
        return [partition.end() for partition in self._partitions]

    def add_partitions(self, total: int) -> None:
        """Grow the queue to `total` partitions. Old messages stay; keys may move: order breaks.

        Other processes go on with the old count until they open the queue again.
        """
        with _Locked(self._disk, self.root):
            if total < self.num_partitions:
                raise UnknownPartition(
                    f"the queue has {self.num_partitions} partitions, which cannot become {total}",
                    "make a new queue with fewer partitions and produce the messages into it",
                )
            _make_partitions(self._disk, self.root, total)
            for partition in self._partitions:
                partition.close()
            self._open(total)

    def close(self) -> None:
        """Give back the open files. Nothing is lost without it."""
        for partition in self._partitions:
            partition.close()

    def __enter__(self) -> PartitionedQueue:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _partition(self, number: int) -> _Partition:
        if not (isinstance(number, int) and 0 <= number < self.num_partitions):
            raise UnknownPartition(
                f"partition {number!r} does not exist: the queue {self.root!r} has "
                f"{self.num_partitions} (0 to {self.num_partitions - 1})",
                "name one of these, or grow the queue with add_partitions",
            )
        return self._partitions[number]


def _as_bytes(value: object, what: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise BadMessage(
        f"{what} is {value!r}, a {type(value).__name__}",
        "give str or bytes (json.dumps turns a dict into a str)",
    )


class _Locked:
    """Holds the lock on a queue's directory, against two processes that create or grow it."""

    def __init__(self, disk: Disk, root: str) -> None:
        self._lock = disk.lock(os.path.join(root, ".lock"))

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.close()


def _open_or_create(disk: Disk, root: str, num_partitions: int) -> int:
    """The partition count of the queue at `root`, which is made first if nothing is there."""
    try:
        disk.mkdir(root)
        names = disk.listdir(root)
    except (FileExistsError, NotADirectoryError):
        raise NotAQueue(f"{root!r} is a file", "give the path of a directory") from None
    found = _read_metadata(disk, root)
    if found is not None:
        return found
    strange = [n for n in names if not (n.startswith(".") or _PARTITION_NAME.fullmatch(n))]
    if strange:
        raise NotAQueue(
            f"{root!r} is not a queue: it has no queue.json, but it holds {strange[0]!r}",
            "give the path of a queue, or of an empty or missing directory",
        )
    with _Locked(disk, root):
        found = _read_metadata(disk, root)
        if found is None:
            _make_partitions(disk, root, num_partitions)
            disk.sync_dir(os.path.dirname(os.path.abspath(root)))
    return found or num_partitions


def _make_partitions(disk: Disk, root: str, total: int) -> None:
    for number in range(total):
        disk.mkdir(os.path.join(root, f"partition-{number}"))
    disk.sync_dir(root)
    metadata = json.dumps({"format": _FORMAT, "num_partitions": total})
    publish(disk, os.path.join(root, "queue.json"), metadata.encode() + b"\n")


def _read_metadata(disk: Disk, root: str) -> int | None:
    path = os.path.join(root, "queue.json")
    try:
        data = disk.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        metadata = json.loads(data)
        count = metadata["num_partitions"]
        if metadata["format"] == _FORMAT and isinstance(count, int) and count > 0:
            return count
    except (ValueError, KeyError, TypeError):
        pass
    raise NotAQueue(
        f"{path!r} does not describe a queue of message files: {data[:80]!r}",
        f'restore it: {{"format": "{_FORMAT}", "num_partitions": N}}',
    )
