"""One partition of `__consumer_offsets`: what its records add up to, and the log they come from.

Every commit is a record, and the latest for a key counts (`phase2_groups.offsets_table`). Now and
then the log is *compacted*: what is valid is written once more at its end, and what
is before that is cut off. So a crash in between leaves everything twice, and loses nothing.

Who begins to lead reads the log, and a long one takes time: it is read in pieces, between which the
event loop goes on, and until the last of them nothing is said of any group.

Source: Kafka's `GroupMetadataManager`; the records are those of phase 2 (`offset_records`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence

from craft2.clock import Clock
from craft2.disk import DiskError
from craft2.errors import Craft2Error
from craft2.record_batch import encode_values
from phase1_file_queue.log_config import LogError
from phase2_groups.offset_records import OffsetKey, read_key
from phase2_groups.offsets_table import OffsetsTable
from phase3_raft.partition import Partition

BATCH_BYTES = 500_000  # written at once; less than any sensible max.message.bytes
_OVERHEAD = 40  # bytes of a record beside its key and value, at most
COMPACT_AFTER = 10_000  # records
AT_ONCE = 250  # records are read, some 2 ms; one broker may have to begin with 50 partitions


class OffsetsPartition:
    """See the module.

    table: what the records say. is_loaded: whether it says so yet. compact_after: so many records,
    if they are also four times what is valid.
    """

    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        compact_after: int = COMPACT_AFTER,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        """Reads the log, if it is short; if not, somebody has to `load` it.

        Raises LogError, DiskError, BadOffsetRecord.
        """
        self._partition, self._clock = partition, clock
        self._compact_after, self._batch_bytes = compact_after, batch_bytes
        self._epoch = partition.record.leader_epoch
        self.table = OffsetsTable()
        # What the log says, by key; the table is behind it while a commit waits to be safe.
        self._written: dict[bytes, bytes] = {}
        self._compacts = self.is_loaded = False
        self._failure = ""  # the last one that was told
        if partition.log.end_offset - partition.log.log_start <= AT_ONCE:
            for _ in self._pieces():
                pass

    def _pieces(self) -> Iterator[None]:
        """Read the log, with a stop before each piece."""
        table = OffsetsTable()
        for count, record in enumerate(self._partition.log.records()):
            if count % AT_ONCE == 0:
                yield
            if record.key is not None:
                table.take(record.key, record.value)
        self.table, self._written = table, dict(table.latest)
        self.is_loaded = True

    async def load(self) -> None:
        """Read the log; others have their turn meanwhile. Not to the end, if another broker leads
        by then, or it cannot be read, which is told: it can be tried again."""
        try:
            for _ in self._pieces():
                await asyncio.sleep(0)
                if not self.leads:
                    return
        except Craft2Error as error:
            if self._failure != str(error):
                self._partition.trouble(f"{self._partition.name} cannot be read: {error}")
                self._failure = str(error)

    @property
    def leads(self) -> bool:
        """Whether this broker leads the partition still, without a break."""
        record = self._partition.record
        return self._partition.leads and record.leader_epoch == self._epoch

    def of_topics(self, gone: Callable[[str], bool]) -> dict[bytes, bytes]:
        """What is committed for such topics, or is just being: the records' keys and values."""
        known = {**self.table.latest, **self._written}
        keys = ((key, read_key(key)) for key in known)
        return {
            key: known[key] for key, one in keys if isinstance(one, OffsetKey) and gone(one.topic)
        }

    def unchanged(self, records: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
        """Those that are still the latest of their key, with nothing later on its way."""
        latest, written = self.table.latest, self._written
        return {
            key: value
            for key, value in records.items()
            if latest.get(key, value) == value == written.get(key, value)
        }

    async def append(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        """Write records, wait until they are as safe as the topic's settings say, take them in.

        Raises LogError, DiskError: then nothing is taken in. Where too few are in sync, nothing is
        written either, as Produce does not; nor where another broker leads by now, or has led.
        """
        if not self.leads:
            raise LogError("another broker leads the group's partition", "find the coordinator")
        if not self._partition.has_enough_replicas:
            raise LogError("too few replicas are in sync for a commit", "commit again, later")
        self._write(records)
        await self._made_safe()
        for key, value in records:
            self.table.take(key, value)
        log = self._partition.log
        if log.end_offset - log.log_start > max(self._compact_after, 4 * len(self.table.latest)):
            await self._compact()

    def _write(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        size, some = 0, list[tuple[bytes, bytes | None]]()
        for key, value in records:
            room = len(key) + len(value or b"") + _OVERHEAD
            if some and size + room > self._batch_bytes:
                self._write_batch(some)
                size, some = 0, []
            size += room
            some.append((key, value))
        if some:
            self._write_batch(some)

    def _write_batch(self, records: Sequence[tuple[bytes, bytes | None]]) -> None:
        batch = encode_values(
            [value for _, value in records],
            keys=[key for key, _ in records],
            timestamps=self._clock.now_ms(),
        )
        self._partition.append(batch)
        for key, value in records:
            self._written.pop(key, None)
            if value is not None:
                self._written[key] = value

    async def _made_safe(self) -> None:
        """What was written. Raises LogError, DiskError."""
        if self._partition.must_flush:
            await self._partition.flushed()
        error = await self._partition.replicated(self._partition.log.end_offset, self._epoch)
        if error or not self.leads:
            raise LogError(f"the commit is not on all replicas: {error.name}", "commit again")

    async def _compact(self) -> None:
        """What is cut off is on all replicas again before: the next leader may be any of them.

        It is what the log says by now, also of commits that still wait to be safe. If it fails, the
        log stays longer: that concerns no commit.
        """
        if self._compacts:
            return
        self._compacts = True
        try:
            first = self._partition.log.end_offset
            self._write(list(self._written.items()))
            await self._made_safe()
            self._partition.log.flush()
            self._partition.advance_start(first)
        except (LogError, DiskError) as error:
            if self.leads:
                self._partition.trouble(f"{self._partition.name} was not compacted: {error}")
        finally:
            self._compacts = False
