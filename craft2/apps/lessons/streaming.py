"""A streaming query over the flights, the batch job that it must equal, and a process to kill it.

    query = start_windows(spark, "queue", "out")     # departures by airline and six hours
    query.processAllAvailable()
    late = batch_windows(spark, "queue").exceptAll(windows(spark, "out"))     # nothing

**When a window comes out.** A stream never knows that it has seen all of a window. The watermark
is a bet: once an event of time t was seen, none from before t - LATE will come. In append mode a
window comes out once, when the watermark has passed its end, and never changes. So the windows of
the last four days are not there yet. The batch job leaves them out, too: it asks for the windows
that end no later than the last event minus LATE: that is the watermark when all has been read.

**Why four days, if the flights come almost in order?** The flights of each partition do, to a day.
But the partitions are read side by side, some a little ahead of the others, and the watermark goes
by the one that is furthest. Eight partitions keyed by airline, January and batches of 2,000: three
days are enough; all flights in order, four partitions and batches of 20,000: four. What is later
is *dropped*, silently but for the metric numRowsDroppedByWatermark. Smaller batches need more: each
partition gets at least one record of a batch, so a small one runs ahead.

Source: https://spark.apache.org/docs/latest/streaming/apis-on-dataframes-and-datasets.html
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from craft2.apps.lessons.processes import Worker
from craft2.clock import SystemClock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WINDOW = "6 hours"
LATE = "4 days"
SPARK_LIMIT_S = 120.0  # another Spark starts in ten seconds, or in a minute on a busy machine
_EVENT = "from_json(cast(value as string), 'carrier string, event_time timestamp') as event"


def start_windows(
    spark: SparkSession,
    queue: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    max_offsets: int = 2_000,
    available_now: bool = False,
) -> StreamingQuery:
    """Count departures by window and carrier, from the topic `flights` in the folder `queue`.

    Goes to Parquet files in `folder/result`, with its checkpoint in `folder/checkpoint`: start it
    again, and it goes on where it was. available_now: end when all that is there now is read.
    """
    source = spark.readStream.format("craft2").option("path", os.fspath(queue))
    source = source.option("topic", "flights").option("startingOffsets", "earliest")
    flights = source.option("maxOffsetsPerTrigger", max_offsets).load()
    events = flights.selectExpr(_EVENT).select("event.*").withWatermark("event_time", LATE)
    sink = by_window(events).writeStream.format("parquet").outputMode("append")
    sink = sink.option("path", os.fspath(Path(folder, "result")))
    sink = sink.option("checkpointLocation", os.fspath(Path(folder, "checkpoint")))
    return (sink.trigger(availableNow=True) if available_now else sink).start()


def batch_windows(spark: SparkSession, queue: str | os.PathLike[str]) -> DataFrame:
    """The same from all flights at once, without the windows that are still open (see above).

    Columns: window_start (timestamp), carrier, departures.
    """
    source = spark.read.format("craft2").option("path", os.fspath(queue)).option("topic", "flights")
    events = source.load().selectExpr(_EVENT).select("event.*")
    watermark = events.selectExpr(f"max(event_time) - interval {LATE} as watermark")
    closed = f"window_start + interval {WINDOW} <= watermark"
    return by_window(events).crossJoin(watermark).where(closed).drop("watermark")


def by_window(events: DataFrame) -> DataFrame:
    """Departures by window and carrier; events: columns event_time, carrier."""
    from pyspark.sql.functions import window

    counted = events.groupBy(window("event_time", WINDOW), "carrier").count()
    return counted.selectExpr("window.start as window_start", "carrier", "count as departures")


def windows(spark: SparkSession, folder: str | os.PathLike[str]) -> DataFrame:
    """What the query has brought out so far, with the columns of `batch_windows`."""
    return spark.read.parquet(os.fspath(Path(folder, "result")))


class WindowsProcess(Worker):
    """The query in a process of its own; it ends when all that is there has been read."""

    def __init__(
        self,
        queue: str | os.PathLike[str],
        folder: str | os.PathLike[str],
        max_offsets: int = 2_000,
        limit_s: float = SPARK_LIMIT_S,
    ) -> None:
        self._commits = Path(folder, "checkpoint", "commits")
        where = os.path.abspath(queue), os.path.abspath(folder)
        super().__init__(run_windows, *where, max_offsets, limit_s=limit_s)

    def batches(self) -> int:
        """How many batches are committed, by this process and those before it."""
        names = os.listdir(self._commits) if self._commits.exists() else []
        return 1 + max((int(name) for name in names if name.isdigit()), default=-1)

    def wait_for(self, count: int) -> None:
        """Return when so many batches are committed; WorkerError if it ends before."""
        clock, never = SystemClock(), threading.Event()
        while self.batches() < count:
            if not self.running:
                raise self._error(f"{count} batches")
            clock.wait(never, 0.01)

    def kill(self) -> list[tuple[int, ...]]:
        """`kill -9` for all of it: this Python process, its Java, and the Python under that."""
        import psutil

        for process in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return super().kill()

    def wait(self) -> None:
        """Return when the query has read all there is; WorkerError if it failed."""
        self.finish()


def run_windows(queue: str, folder: str, max_offsets: int) -> None:
    """What the process does."""
    from craft2.apps.spark import session

    query = start_windows(session("windows"), queue, folder, max_offsets, available_now=True)
    query.awaitTermination()
