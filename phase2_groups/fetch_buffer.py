"""What a consumer has fetched and not handed out yet, and where it is in each partition.

A *position* is the next offset to hand out. A fetch answers with whole batches, which may begin
before the asked offset; what lies before the position is dropped here. Pure: no threads, no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from craft2.disk import Buffer
from craft2.record_batch import Record, decode, decode_arrow, iter_headers
from craft2.records import Headers
from phase2_groups.group_messages import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class ConsumerRecord(NamedTuple):
    """One record, as `poll` returns it. timestamp: ms since 1970, -1: none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@dataclass
class _Partition:
    """Invariant: every buffered record has an offset of `position` or more once handed out."""

    position: int | None = None  # None: not known yet
    paused: bool = False
    high_watermark: int = -1
    data: Buffer = b""  # fetched, not decoded
    batches: Iterator[list[Record]] | None = None
    records: deque[Record] = field(default_factory=deque)
    after: int = 0  # where the batch ends of which `records` are the rest

    def drop(self) -> None:
        self.data, self.batches = b"", None
        self.records.clear()


class FetchBuffer:
    """See the module. The partitions are those assigned to the consumer."""

    def __init__(self, *, check_crcs: bool = True) -> None:
        self._check_crcs = check_crcs
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._turn: deque[TopicPartition] = deque()  # whose records come next
        self._fetches = 0

    # Which partitions.

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            if partition not in self._partitions:
                self._partitions[partition] = _Partition()
                self._turn.append(partition)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._partitions.pop(partition, None)
        self._turn = deque(partition for partition in self._turn if partition in self._partitions)

    def __contains__(self, partition: object) -> bool:
        return partition in self._partitions

    def partitions(self) -> set[TopicPartition]:
        return set(self._partitions)

    def pause(self, partition: TopicPartition, paused: bool) -> None:
        self._partitions[partition].paused = paused

    def paused(self) -> set[TopicPartition]:
        return {partition for partition, state in self._partitions.items() if state.paused}

    # Where.

    def position(self, partition: TopicPartition) -> int | None:
        return self._partitions[partition].position

    def positions(self) -> dict[TopicPartition, int]:
        """Those that are known."""
        known = ((p, state.position) for p, state in self._partitions.items())
        return {partition: position for partition, position in known if position is not None}

    def seek(self, partition: TopicPartition, offset: int | None) -> None:
        """Go on from `offset`; None: ask again where to begin."""
        state = self._partitions[partition]
        state.drop()
        state.position = offset

    def go_back(self, positions: Mapping[TopicPartition, int]) -> None:
        """Hand out again what was taken since these were the positions."""
        for partition, offset in positions.items():
            if partition in self._partitions:
                self.seek(partition, offset)

    def unknown(self) -> list[TopicPartition]:
        """The partitions without a position."""
        return [p for p, state in self._partitions.items() if state.position is None]

    def high_watermark(self, partition: TopicPartition) -> int:
        return self._partitions[partition].high_watermark

    # What was fetched.

    def to_fetch(self) -> dict[TopicPartition, int]:
        """Partitions to fetch from, and from where: not paused, nothing buffered.

        Each time another one comes first: there may be room for the first one alone.
        """
        order = deque(self._partitions.items())
        order.rotate(-self._fetches)
        self._fetches += 1
        return {
            partition: state.position
            for partition, state in order
            if state.position is not None and not state.paused and not _buffered(state)
        }

    def put(self, partition: TopicPartition, asked: int, data: Buffer, high_watermark: int) -> None:
        """Take what a fetch from offset `asked` returned, unless the position has moved since."""
        state = self._partitions.get(partition)
        if state is None or state.position != asked:
            return
        state.high_watermark = high_watermark
        state.data = data

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Up to `limit` records of partitions that are not paused, each partition in its turn.

        Raises CorruptBatch; but first what lies before the damage, and in other partitions, is
        returned, and the next call raises.
        """
        found: list[ConsumerRecord] = []
        for _ in range(len(self._turn)):
            partition = self._turn[0]
            state = self._partitions[partition]
            if not state.paused:
                try:
                    found += self._take_from(partition, state, limit - len(found))
                except Exception:
                    state.drop()  # it is fetched again
                    if found:
                        break
                    self._turn.rotate(-1)
                    raise
                if len(found) >= limit:
                    break
            self._turn.rotate(-1)
        return found

    def _take_from(
        self, partition: TopicPartition, state: _Partition, limit: int
    ) -> list[ConsumerRecord]:
        assert state.position is not None
        found: list[Record] = []
        while len(found) < limit and _buffered(state):
            if state.batches is None and not state.records:
                state.batches, state.data = self._decode(state, state.data), b""
            if not state.records and state.batches is not None:
                try:
                    batch = next(state.batches, None)
                except Exception:
                    if not found:
                        raise
                    state.drop()
                    break
                if batch is None:
                    state.batches = None
                    continue
                state.records.extend(r for r in batch if r.offset >= state.position)
            some = min(limit - len(found), len(state.records))
            found += [state.records.popleft() for _ in range(some)]
            if state.records:
                state.position = found[-1].offset + 1
            else:  # behind the batch, whose last offsets may be gone (compaction, control batches)
                state.position = max(state.position, state.after)
        return list(map(tuple.__new__, repeat(ConsumerRecord), (partition + r for r in found)))

    def _decode(self, state: _Partition, data: Buffer) -> Iterator[list[Record]]:
        """The records of each whole batch; none for control batches."""
        for start, header in iter_headers(data):
            state.after = header.next_offset
            yield [] if header.is_control else decode(data, start, check_crc=self._check_crcs)

    def take_arrow(self) -> list[tuple[TopicPartition, pa.Table]]:
        """All that is buffered of partitions that are not paused, a table each.

        Raises as `take` does, and as late.
        """
        found: list[tuple[TopicPartition, pa.Table]] = []
        for _ in range(len(self._turn)):
            partition = self._turn[0]
            try:
                table = self._take_table(self._partitions[partition])
            except Exception:
                if found:
                    break
                self._turn.rotate(-1)
                raise
            if table is not None and table.num_rows:
                found.append((partition, table))
            self._turn.rotate(-1)
        return found

    def _take_table(self, state: _Partition) -> pa.Table | None:
        import pyarrow.compute as pc

        if state.paused or state.position is None:
            return None
        data, position = state.data, state.position
        state.drop()  # what `poll` has taken apart, or what is damaged, is fetched again
        ends = [header.next_offset for _, header in iter_headers(data)]
        if not ends:
            return None
        table = decode_arrow(data, check_crc=self._check_crcs)
        state.position = max(position, ends[-1])
        if table.num_rows and table["offset"][0].as_py() < position:
            table = table.filter(pc.greater_equal(table["offset"], position))
        return table


def _buffered(state: _Partition) -> bool:
    return bool(state.data) or state.batches is not None or bool(state.records)


def one_table(tables: list[tuple[TopicPartition, pa.Table]]) -> list[pa.Table]:
    """The tables of several partitions as one, which says whose each row is; none, if none is."""
    import pyarrow as pa

    if not tables:
        return []

    topics = sorted({topic for (topic, _), _ in tables})
    parts = []
    for (topic, number), table in tables:
        rows = table.num_rows
        where = pa.array([topics.index(topic)]).take(pa.nulls(rows, pa.int32()).fill_null(0))
        topic_column = pa.DictionaryArray.from_arrays(where.cast(pa.int32()), topics)
        partition_column = pa.nulls(rows, pa.int32()).fill_null(number)
        columns = [topic_column, partition_column, *table.columns]
        parts.append(pa.table(columns, names=["topic", "partition", *table.column_names]))
    return [pa.concat_tables(parts)]
