"""A log as a stream: `spark.readStream.format("craft2")`, a micro-batch at a time.

    spark.readStream.format("craft2").option("path", ROOT).option("topic", "flights").load()

A streaming query is a batch job that is run again and again, each time on what has come since. What
it has read is a few numbers, {"flights": {"0": 23, "1": 7}}: the next offset of each partition, as
everywhere. Spark writes them to the checkpoint *before* it runs a batch and notes there when the
batch is done, so a query that is killed in between runs the very same batch again. No consumer
group is needed: Spark is the coordinator, the checkpoint holds the committed offsets.

    option                  meaning; the default. All are as with Kafka's source.
    ----------------------  ------------------------------------------------------------------
    topic                   the one topic to read; all those in the folder
    startingOffsets         where a *new* query begins: "latest" (the default here, not in a batch
                            job), "earliest", a number for every partition, or
                            {"flights": {"0": 23, "1": -2}}; a partition not named begins at its end
    startingTimestamp       instead: at the first record not earlier than so many ms since 1970
    maxOffsetsPerTrigger    no more than so many offsets in a batch; all there are. They are shared
                            out by how much each partition has waiting. (Each has one at least, so
                            there can be one more for each partition.)
    failOnDataLoss          true: stop if records were gone before they were read. false: log a
                            warning, and go on with what there is
    maxRecordsPerPartition  as in a batch job: longer ranges become several tasks; 500000

A partition that is new, or a topic that is (without `topic`), is read from offset 0 on, from the
next trigger. `trigger(availableNow=True)` ends where the partitions ended when it began.

**Data loss** is noticed if retention was faster than the query, if a log is now shorter than what
was read of it (it was cut, or made anew), or if a partition is no longer there. A log that was made
anew and is by now as long as the old one looks the same: a new topic should have a new name, or the
query a new checkpoint. With `failOnDataLoss` false too, records that go while a task is reading
them fail that batch; start the query again, and it goes on behind them.

>>> waiting = {("flights", 0): (0, 900), ("flights", 1): (40, 100), ("flights", 2): (7, 7)}
>>> share_out(waiting, 320)
{('flights', 0): 300, ('flights', 1): 60, ('flights', 2): 7}

Source: Spark's KafkaMicroBatchStream (`rateLimit`, `getOffsetRangesFromResolvedOffsets`);
https://spark.apache.org/docs/latest/structured-streaming-kafka-integration.html
"""

# mypy: allow-untyped-calls, allow-subclassing-any
from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from craft2.apps.spark_options import Options, SourceError
from craft2.apps.spark_ranges import (
    bounds,
    find_places,
    open_places,
    read_range,
    split,
    stream_start,
)
from craft2.apps.spark_source import Range

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)

Offsets: TypeAlias = dict[str, dict[str, int]]  # as in the checkpoint: topic -> partition -> offset
Partition: TypeAlias = tuple[str, int]


class Craft2StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Decides what each batch reads (on the driver, one object for the query's life), and reads.

    `_target`: for availableNow, the bounds of the partitions when the query began; else None.
    `_latest`: where the partitions ended when somebody last looked.
    """

    def __init__(self, options: Options, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._target: dict[Partition, tuple[int, int]] | None = None
        self._latest: Offsets | None = None

    # Which offsets.

    def initialOffset(self) -> Offsets:  # noqa: N802 (Spark's name, as those below)
        """Where a query without a checkpoint begins. Raises SourceError if it cannot."""
        places = open_places(self._options)
        starts = {place[:2]: stream_start(place, self._options) for place in places}
        if self._target is not None:  # what has come since the target was set is beyond it
            ends = {partition: end for partition, (_, end) in self._target.items()}
            starts = {p: min(start, ends[p]) for p, start in starts.items() if p in ends}
        return as_json(starts)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.most_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._bounds()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Where the next batch ends, which begins at `start`. Raises SourceError for data loss."""
        now = self._bounds() if self._target is None else self._target
        self._latest = as_json({partition: end for partition, (_, end) in now.items()})
        for partition in sorted(from_json(start).keys() - now.keys()):
            self._lost(f"{words(partition)} is no longer in {self._options.path!r}")
        waiting = {
            partition: self._what_is_left(partition, begin, now[partition])
            for partition, begin in (dict.fromkeys(now, 0) | from_json(start)).items()
            if partition in now
        }
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return as_json(share_out(waiting, most))

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        return self._latest

    def _bounds(self) -> dict[Partition, tuple[int, int]]:
        return {place[:2]: bounds(place) for place in find_places(self._options)}

    def _what_is_left(
        self, partition: Partition, begin: int, now: tuple[int, int]
    ) -> tuple[int, int]:
        """(offset to go on from, end): usually `begin` and the end that the log has now."""
        first, end = now
        if begin < first:
            self._lost(
                f"retention deleted offsets {begin} to {first - 1} of {words(partition)} before "
                "they were read"
            )
        if begin > end:
            self._lost(
                f"{words(partition)} was read up to offset {begin}, and now it ends at {end}: it "
                "was cut back or made anew"
            )
        return min(max(begin, first), end), end

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise SourceError(
                what,
                "look whether it can be restored; or go on without it: failOnDataLoss=false, or a "
                "new checkpoint",
            )
        _log.warning("%s (failOnDataLoss is false: the query goes on)", what)

    # The records.

    def partitions(self, start: Offsets, end: Offsets) -> list[Range]:
        """The tasks of a batch. It may be one that was planned long ago, before a crash."""
        begins, places = from_json(start), {p[:2]: p for p in find_places(self._options)}
        ranges = []
        for partition, stop in from_json(end).items():
            begin = begins.get(partition, 0)
            if stop <= begin:
                continue
            place = places.get(partition)
            if place is None:
                self._lost(f"{words(partition)} is no longer in {self._options.path!r}")
                continue
            first, last = bounds(place)
            begin, _ = self._what_is_left(partition, begin, (first, last))
            if stop > last:
                self._what_is_left(partition, stop, (first, last))
            pieces = split(begin, min(stop, last), self._options.most)
            ranges += [Range(place, *piece) for piece in pieces]
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Range):
            yield from read_range(partition.place, partition.start, partition.end, self._columns)


def share_out(
    waiting: Mapping[Partition, tuple[int, int]], most: int | None
) -> dict[Partition, int]:
    """Where a batch of at most `most` offsets ends, given (begin, end) of each partition.

    Each partition gets its part of the backlog, rounded down, but 1 if it has any. So all of them
    get on evenly, none has to wait for another, and a batch may have a few offsets more than
    `most` if there are more partitions than that.
    """
    total = sum(end - begin for begin, end in waiting.values())
    if most is None or total <= most:
        return {partition: end for partition, (_, end) in waiting.items()}
    return {
        partition: begin + (max(1, most * (end - begin) // total) if end > begin else 0)
        for partition, (begin, end) in waiting.items()
    }


def as_json(offsets: Mapping[Partition, int]) -> Offsets:
    """The form in the checkpoint, always in one order: Spark compares the text.

    >>> as_json({("u", 10): 1, ("u", 9): 2, ("t", 0): 3})
    {'t': {'0': 3}, 'u': {'9': 2, '10': 1}}
    """
    made: Offsets = {}
    for topic, number in sorted(offsets):
        made.setdefault(topic, {})[str(number)] = offsets[topic, number]
    return made


def from_json(offsets: Offsets) -> dict[Partition, int]:
    """The other way round."""
    return {
        (topic, int(number)): offset
        for topic, numbers in offsets.items()
        for number, offset in numbers.items()
    }


def words(partition: Partition) -> str:
    """Its name: flights-0."""
    return f"{partition[0]}-{partition[1]}"
