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
import os
import threading
from types import TracebackType

from craft2.clock import Clock, SystemClock
from craft2.disk import Disk, DiskError, RealDisk
from craft2.errors import Craft2Error
from craft2.process import process_id
from phase1_file_queue.message_file import Message, decode_message, encode_message
from phase1_file_queue.partitioner import partition_for
from phase1_file_queue.publish import publish, staging_path
from phase1_file_queue.queue_files import (
    MAX_MESSAGES,
    OFFSET_FILE,
    CorruptOffsetFile,
    NotAQueue,
    UnknownPartition,
    check_count,
    check_partition,
    locked,
    make_partitions,
    message_offset,
    message_path,
    missing_partition,
    open_or_create,
    parse_offset,
    partition_path,
    require_metadata,
)

__all__ = [
    "BadMessage",
    "CorruptOffsetFile",
    "Message",
    "MissingMessage",
    "NotAQueue",
    "PartitionFull",
    "PartitionedQueue",
    "QueueClosed",
    "UnknownPartition",
]

MAX_MESSAGE_BYTES = 1_048_576


class BadMessage(Craft2Error):
    """A key, value or timestamp that cannot be stored."""


class MissingMessage(Craft2Error):
    """A message below the end of its partition has no file."""


class PartitionFull(Craft2Error):
    """A partition holds as many messages as its file names can number."""


class QueueClosed(Craft2Error):
    """The queue was used after `close`."""


class _Partition:
    """One partition's directory, seen from one process.

    refused: why nothing can be appended here any more, if there is a reason.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        if not disk.exists(directory):
            raise missing_partition(directory)
        self.disk = disk
        self.directory = directory
        self.mutex = threading.Lock()  # between the threads of this process
        self.lock = disk.lock(os.path.join(directory, ".lock"))  # between processes
        self.offset_path = os.path.join(directory, OFFSET_FILE)
        self.refused: Craft2Error | None = None
        try:
            self._recover()
        except BaseException:
            self.lock.close()
            raise

    def _recover(self) -> None:
        """Bring offset.txt up to the names in the directory, which are the truth.

        In place if the file is there: another process that has it open must see the correction.
        """
        self.lock.acquire()
        try:
            found = (message_offset(self.directory, n) for n in self.disk.listdir(self.directory))
            end = 1 + max((offset for offset in found if offset is not None), default=-1)
            if not self.disk.exists(self.offset_path):
                publish(self.disk, self.offset_path, b"%08d\n" % end)
            self._offset_file = self.disk.open(self.offset_path, "write")
            if self.end() < end:
                # The process that died had perhaps not synced the names: first that, then tell.
                self.disk.sync_dir(self.directory)
                self._offset_file.write_at(0, b"%08d\n" % end)
        finally:
            self.lock.release()

    def end(self) -> int:
        return parse_offset(self._offset_file.read_at(0, 64), self.offset_path)

    def append(self, data: bytes, sync: bool) -> int:
        """Number, publish and announce one message; the two locks are held throughout."""
        with self.mutex:
            if self.refused is not None:
                raise self.refused
            try:
                self.lock.acquire()
            except (FileNotFoundError, NotADirectoryError):
                raise missing_partition(self.directory) from None
            try:
                offset = self.end()
                while self.disk.exists(message_path(self.directory, offset)):
                    offset += 1  # published by a process that died before it moved offset.txt
                if offset >= MAX_MESSAGES:
                    raise PartitionFull(
                        f"partition {self.directory!r} has {offset} messages, all it can number",
                        "grow the queue with add_partitions",
                    )
                self._publish(message_path(self.directory, offset), data, sync)
                self._offset_file.write_at(0, b"%08d\n" % (offset + 1))
                return offset
            finally:
                self.lock.release()

    def _publish(self, path: str, data: bytes, sync: bool) -> None:
        try:
            publish(self.disk, path, data, sync=sync)
        except (FileNotFoundError, NotADirectoryError):
            raise missing_partition(self.directory) from None
        except DiskError as error:
            if self.disk.exists(path):
                # Renamed, then the directory's sync failed: nobody knows what is on disk now.
                self.refused = error
            elif self.disk.exists(staging_path(path)):
                self.disk.unlink(staging_path(path))
            raise

    def close(self) -> None:
        with self.mutex:  # the message in hand is finished first
            self.refused = _closed(self.directory)
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
        check_count(num_partitions, "num_partitions")
        self.root = os.fspath(root)
        self.fsync = fsync
        self.max_message_bytes = max_message_bytes
        self._disk = disk or RealDisk()
        self._clock = clock or SystemClock()
        self._turn = itertools.count()
        found = open_or_create(self._disk, self.root, num_partitions)
        if found != num_partitions:
            raise NotAQueue(
                f"the queue {self.root!r} has {found} partitions, not {num_partitions}",
                f"open it with num_partitions={found}, or grow it with add_partitions",
            )
        self._partitions = self._open(range(num_partitions))
        self._pid = process_id()
        self._closed = False

    @classmethod
    def existing(
        cls, root: str | os.PathLike[str], *, disk: Disk | None = None, clock: Clock | None = None
    ) -> PartitionedQueue:
        """Open a queue that must be there, with as many partitions as it has."""
        count = require_metadata(disk or RealDisk(), os.fspath(root))
        return cls(root, count, disk=disk, clock=clock)

    def _open(self, numbers: range) -> list[_Partition]:
        opened: list[_Partition] = []
        try:
            for number in numbers:
                opened.append(_Partition(self._disk, partition_path(self.root, number)))
        except BaseException:
            for partition in opened:
                partition.close()
            raise
        return opened

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

        Raises BadMessage, UnknownPartition, PartitionFull, QueueClosed, NotAQueue if the
        partition's directory is gone, or DiskError. The message is then not stored, with one
        exception: if the last step failed, the sync of the partition's directory, nobody knows
        whether it is, and it may be read later. This queue then refuses the partition; open the
        queue again to see what is there.
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
        if process_id() != self._pid:  # a forked child: a lock must not be shared with the parent
            self._partitions = self._open(range(self.num_partitions))
            self._pid = process_id()
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
        if not (isinstance(offset, int) and offset >= 0):
            raise MissingMessage(
                f"offset {offset!r} of partition {partition}", "offsets start at 0"
            )
        for _ in range(2):  # again after a miss: offset.txt may be caught between two values
            if offset >= source.end():
                return None
            path = message_path(source.directory, offset)
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
        return [self.end_offset(number) for number in range(self.num_partitions)]

    def end_offset(self, partition: int) -> int:
        """The same of one partition; raises UnknownPartition."""
        return self._partition(partition).end()

    def add_partitions(self, total: int) -> None:
        """Grow the queue to `total` partitions. Old messages stay; keys may move: order breaks.

        Other processes go on with the old count until they open the queue again, or call this.

        Raises UnknownPartition if the queue has more than `total`; nothing is ever removed.
        """
        check_count(total, "total")
        if self._closed:
            raise _closed(self.root)
        with locked(self._disk, self.root):
            found = require_metadata(self._disk, self.root)  # another process may have grown it
            if found < total:
                make_partitions(self._disk, self.root, total)
            self._partitions += self._open(range(self.num_partitions, max(found, total)))
        if total < found:
            raise UnknownPartition(
                f"the queue has {found} partitions, which cannot become {total}",
                "make a new queue with fewer partitions and produce the messages into it",
            )

    def close(self) -> None:
        """Give back the open files. Nothing is lost without it."""
        self._closed = True
        if process_id() == self._pid:  # a forked child's are still the parent's
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
        if self._closed:
            raise _closed(self.root)
        check_partition(number, self.num_partitions, self.root)
        return self._partitions[number]


def _closed(path: str) -> QueueClosed:
    return QueueClosed(f"the queue {path!r} is closed", "open it again")


def _as_bytes(value: object, what: str) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise BadMessage(
                f"{what} is {value[:40]!r}, which is no text: {error.reason} at character "
                f"{error.start}",
                "give bytes, or a str without halves of surrogate pairs",
            ) from None
    raise BadMessage(
        f"{what} is {value!r}, a {type(value).__name__}",
        "give str or bytes (json.dumps turns a dict into a str)",
    )
