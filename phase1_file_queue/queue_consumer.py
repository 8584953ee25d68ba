"""The consumer of a message-file queue: a few threads and one small file per partition.

    root/consumer_offsets/GROUP/partition-0.offset     the next offset GROUP has to handle

A committed offset is the *next one to read*, here and everywhere else in this project. It is
written after the handler has returned, so a consumer that dies in between sees that message again:
at least once. Each partition belongs to one thread, which keeps its order; or all threads work on
every partition (`in_order=False`), and `commit_tracker` says what may be committed. Each group has
its own files, so groups do not notice each other.

>>> import tempfile
>>> from phase1_file_queue.partitioned_queue import PartitionedQueue
>>> root = tempfile.mkdtemp() + "/queue"
>>> with PartitionedQueue(root) as queue:
...     _ = queue.produce("UA", "first")
>>> with QueueConsumer(root, "readers") as consumer:
...     [message.value for message in consumer.poll()], consumer.lag()
...     consumer.commit()
...     consumer.lag()
([b'first'], {0: 0, 1: 0, 2: 1, 3: 0})
{0: 0, 1: 0, 2: 0, 3: 0}
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from types import TracebackType

from craft2.clock import Clock, SystemClock
from craft2.disk import Disk, RealDisk
from craft2.errors import Craft2Error
from craft2.events import Emitter
from phase1_file_queue.commit_tracker import CommitTracker
from phase1_file_queue.message_file import Message
from phase1_file_queue.partitioned_queue import PartitionedQueue
from phase1_file_queue.publish import publish
from phase1_file_queue.queue_files import NotAQueue, check_partition, parse_offset

IDLE_WAIT_S = 0.005
_log = logging.getLogger(__name__)


class GroupInUse(Craft2Error):
    """Another consumer, perhaps in another process, already works for this group."""


class OffsetOutOfRange(Craft2Error):
    """A group's committed offset lies beyond the end of its partition."""


class HandlerFailed(Craft2Error):
    """A handler raised: its partition stands still at that message. `__cause__` is the reason."""


class ConsumerMisused(Craft2Error):
    """The calls came in an order that makes no sense."""


class QueueConsumer:
    """Reads a queue for one group; one consumer per group at a time (groups that share: phase 2).

    root: the queue's directory, which must exist.
    group: any name that can be a file name.
    threads: how many work at once after `start`.
    in_order: partition p belongs to thread p modulo threads, so its messages are handled one after
        the other. If false, every thread takes the next message of any partition: a slow message
        holds up no other, and later ones may be finished before it.
    errors: partition -> why it stopped; empty as long as all is well.
    events: told of each commit and each partition that stops, once `start` is at work.

    The group is taken by a kernel lock that ends with the process. A child forked meanwhile shares
    it: the group is free again when both have ended (a spawned child does not share it).

    Raises GroupInUse if the group has a consumer, OffsetOutOfRange if it is ahead of the queue.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        group: str,
        threads: int = 4,
        *,
        in_order: bool = True,
        disk: Disk | None = None,
        clock: Clock | None = None,
        events: Emitter | None = None,
    ) -> None:
        if not (isinstance(group, str) and group.isprintable()) or (
            not group or group.startswith(".") or os.path.basename(group) != group
        ):
            raise ConsumerMisused(
                f"group is {group!r}", "give a name without '/' that does not begin with a dot"
            )
        if not (isinstance(threads, int) and threads >= 1):
            raise ConsumerMisused(f"threads is {threads!r}", "give 1 or more")
        self.group = group
        self._events = events
        self.errors: dict[int, Exception] = {}
        self._disk = disk or RealDisk()
        self._clock = clock or SystemClock()
        with contextlib.ExitStack() as opened:  # closed again, should anything below fail
            self._queue = PartitionedQueue.existing(root, disk=self._disk, clock=self._clock)
            opened.callback(self._queue.close)
            offsets = os.path.join(self._queue.root, "consumer_offsets")
            self._directory = os.path.join(offsets, group)
            self._disk.mkdir(self._directory)
            self._disk.sync_dir(self._queue.root)
            self._disk.sync_dir(offsets)
            self._lock = self._disk.lock(os.path.join(self._directory, ".lock"))
            opened.callback(self._lock.close)
            if not self._lock.acquire(wait=False):
                raise GroupInUse(
                    f"group {group!r} already has a consumer on {self._queue.root!r}",
                    "stop that one first, or use another group name",
                )
            self._committed = [self._load(p) for p in range(self._queue.num_partitions)]
            opened.pop_all()
        self._position = list(self._committed)  # the next offset to take
        self._trackers = [CommitTracker(offset) for offset in self._committed]
        self._taking = [threading.Lock() for _ in self._committed]  # guards these two
        self._saving = [threading.Lock() for _ in self._committed]  # guards _committed and its file
        self._stop = threading.Event()
        self._in_order = in_order
        self._thread_count = min(threads, self._queue.num_partitions) if in_order else threads
        self._threads: list[threading.Thread] = []
        self._next_poll = 0

    def start(self, handler: Callable[[Message], object]) -> None:
        """Call `handler` with every message on the threads; see `in_order`.

        A message is committed when its handler has returned, and that of every message before it.
        If one raises, the partition stops, with nothing committed from there on; the reason is in
        `errors` and in the log; the others go on.
        """
        if self._threads:
            raise ConsumerMisused("the consumer is already started", "call stop() first")
        self._stop.clear()
        self.errors = {}
        self._position = list(self._committed)
        self._trackers = [CommitTracker(offset) for offset in self._committed]
        self._threads = [
            threading.Thread(
                target=self._run, args=(handler, number), name=f"{self.group}-{number}", daemon=True
            )
            for number in range(self._thread_count)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Finish the messages in hand, commit them, end the threads.

        A handler may call this too: its own message is finished and committed like the others. It
        returns at once then, since a thread cannot wait for its own end.
        """
        self._stop.set()
        if threading.current_thread() in self._threads:
            return
        for thread in self._threads:
            thread.join()
        if self._threads:
            self._position = list(self._committed)  # what was not committed comes again
        self._threads = []

    def poll(self, max_messages: int = 500) -> list[Message]:
        """The next messages of all partitions, without waiting; [] if there are none.

        The other way to consume, for a single thread: handle what it returns, then `commit`.

        Raises MissingMessage, CorruptMessage or DiskError for a message that cannot be read, when
        it has nothing else to return; what came before it is returned first, so that no message is
        passed over. `seek` goes past a message that is lost.
        """
        if self._threads:
            raise ConsumerMisused("poll() while threads are at work", "call stop() first")
        found: list[Message] = []
        position = list(self._position)  # an error must not move it
        count = self._queue.num_partitions
        first = self._next_poll
        self._next_poll = (first + 1) % count  # begin elsewhere each time: no partition starves
        for partition in (*range(first, count), *range(first)):
            try:
                while len(found) < max_messages:
                    message = self._queue.read(partition, position[partition])
                    if message is None:
                        break
                    found.append(message)
                    position[partition] += 1
            except Craft2Error:
                if not found:
                    raise
                self._next_poll = partition  # there the next poll begins, and raises
                break
        self._position = position
        return found

    def commit(self) -> None:
        """Commit everything that `poll` has returned so far."""
        for partition, position in enumerate(self._position):
            if position != self._committed[partition]:
                self._save(partition, position)

    def committed(self, partition: int) -> int:
        """The next offset to handle after a restart."""
        check_partition(partition, self._queue.num_partitions, self._queue.root)
        return self._committed[partition]

    def seek(self, partition: int, offset: int) -> None:
        """Continue at `offset`, which is committed at once; clears the partition's error."""
        if self._threads:
            raise ConsumerMisused("seek() while threads are at work", "call stop() first")
        end = self._queue.end_offset(partition)
        if not (isinstance(offset, int) and 0 <= offset <= end):
            raise OffsetOutOfRange(
                f"offset {offset!r} of partition {partition}, which has 0 to {end}",
                "seek to one of these",
            )
        self.errors.pop(partition, None)
        self._position[partition] = offset
        self._save(partition, offset)

    def lag(self) -> dict[int, int]:
        """partition -> how many messages are there and not yet committed."""
        ends = self._queue.end_offsets()
        return {p: end - self._committed[p] for p, end in enumerate(ends)}

    def close(self) -> None:
        """`stop`, then let another consumer have the group."""
        if threading.current_thread() in self._threads:
            raise ConsumerMisused("close() called by a handler", "call stop() there")
        self.stop()
        self._lock.close()
        self._queue.close()

    def __enter__(self) -> QueueConsumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, handler: Callable[[Message], object], number: int) -> None:
        partitions = range(self._queue.num_partitions)
        mine = partitions[number :: self._thread_count] if self._in_order else partitions
        while not self._stop.is_set():
            busy = False
            for partition in mine:
                if partition not in self.errors and not self._stop.is_set():
                    busy |= self._handle_next(handler, partition)
            if not busy:
                self._clock.wait(self._stop, IDLE_WAIT_S)

    def _handle_next(self, handler: Callable[[Message], object], partition: int) -> bool:
        """Take, handle and finish one message; False if there is none or it failed."""
        offset = self._position[partition]
        try:
            with self._taking[partition]:
                offset = self._position[partition]
                message = self._queue.read(partition, offset)
                if message is None:
                    return False
                self._position[partition] = offset + 1
            try:
                handler(message)
            except (Exception, SystemExit) as error:  # sys.exit would end the thread in silence
                raise HandlerFailed(
                    f"the handler of group {self.group!r} raised {error!r} at partition "
                    f"{partition}, offset {offset}; the partition stands still there",
                    "mend the handler and start again: the message will come again",
                ) from error
            with self._taking[partition]:
                safe = self._trackers[partition].finish(offset)
            with self._saving[partition]:
                if safe > self._committed[partition]:  # else another thread saved a later one
                    self._save(partition, safe)
                    self._tell("commit", partition, safe, "the handlers before it returned")
        except Exception as error:  # whatever it is: a thread must not end in silence
            self.errors.setdefault(partition, error)
            _log.error("%s", error)
            self._tell("stop", partition, offset, str(error))
            return False
        return True

    def _tell(self, kind: str, partition: int, offset: int, because: str) -> None:
        if self._events is not None:
            self._events.emit(
                kind, group=self.group, partition=partition, offset=offset, because=because
            )

    def _path(self, partition: int) -> str:
        return os.path.join(self._directory, f"partition-{partition}.offset")

    def _load(self, partition: int) -> int:
        path = self._path(partition)
        try:
            offset = parse_offset(self._disk.read(path), path)
        except FileNotFoundError:
            return 0
        end = self._queue.end_offset(partition)
        if offset > end:
            raise OffsetOutOfRange(
                f"group {self.group!r} committed offset {offset} of partition {partition}, "
                f"which ends at {end}: the queue was made anew, or its files were removed",
                f"delete {path!r} to begin at 0, or choose another group name",
            )
        return offset

    def _save(self, partition: int, offset: int) -> None:
        try:
            publish(self._disk, self._path(partition), b"%d\n" % offset)
        except (FileNotFoundError, NotADirectoryError):
            raise NotAQueue(
                f"the directory {self._directory!r} of group {self.group!r} is missing, so offset "
                f"{offset} of partition {partition} cannot be committed",
                "restore it, or open the consumer again: the group then starts at 0",
            ) from None
        self._committed[partition] = offset
