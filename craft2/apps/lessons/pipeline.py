"""From producers through a cluster to windows in Parquet files: what notebook 30 runs.

    source = Source("craft2", "localhost:9092", "flights")       # or "kafka": Spark's own
    query = start_windows(spark, source, "out")                  # departures by airline, 6 hours
    batch_windows(spark, source).exceptAll(windows(spark, "out")).count()

When a window comes out, and why a stream and a batch job are compared as they are, is told in
`craft2.apps.lessons.streaming`, which reads folders; this reads clusters.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from craft2.apps.ingestion.flights import flights
from craft2.apps.ingestion.machine_metrics import metrics
from craft2.apps.lessons.ingesting import post
from craft2.apps.lessons.processes import Worker, acknowledge
from craft2.apps.lessons.streaming import (
    LATE,
    SPARK_LIMIT_S,
    WINDOW,
    WindowsProcess,
    by_window,
    windows,
)
from craft2.apps.maven import Artifact, MavenError, jars
from craft2.clock import SystemClock
from craft2.net import Address
from craft2.viz.style import Chart, colour_of, label_line_ends, new_chart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["batch_windows", "start_windows", "windows"]
_TOPIC_OPTION = {"craft2": "topic", "kafka": "subscribe"}
_EVENT = "from_json(cast(value as string), 'carrier string, event_time timestamp') as event"
_AT_ONCE = 500  # flights that wait for their acknowledgement together


class Source(NamedTuple):
    """Where Spark reads: a topic of a cluster, through our source or Spark's own."""

    format: str
    bootstrap: str
    topic: str

    def load(self, reader: Any, **options: str | int) -> DataFrame:
        """reader: `spark.read` or `spark.readStream`. options: more, which both sources know."""
        named = {
            "kafka.bootstrap.servers": self.bootstrap,
            _TOPIC_OPTION[self.format]: self.topic,
            "startingOffsets": "earliest",
        }
        return reader.format(self.format).options(**named, **options).load()  # type: ignore[no-any-return]


def kafka_connector() -> dict[str, Any]:
    """The setting that gives a Spark session its own Kafka source; {} if it cannot be fetched."""
    import pyspark

    artifact = Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", pyspark.__version__)
    try:
        folder = jars(f"spark-kafka-{pyspark.__version__}", [artifact])
    except MavenError:
        return {}
    return {"spark.jars": ",".join(map(str, sorted(folder.glob("*.jar"))))}


# Windows.


def start_windows(
    spark: SparkSession,
    source: Source,
    folder: str | os.PathLike[str],
    *,
    late: str = LATE,
    max_offsets: int = 2_000,
    available_now: bool = False,
) -> StreamingQuery:
    """Count departures by window and carrier, to Parquet files in `folder/result`.

    Start it again with the same folder, and it goes on where it was.
    """
    stream = source.load(spark.readStream, maxOffsetsPerTrigger=max_offsets)
    events = stream.selectExpr(_EVENT).select("event.*").withWatermark("event_time", late)
    sink = by_window(events).writeStream.format("parquet").outputMode("append")
    sink = sink.option("path", os.fspath(Path(folder, "result")))
    sink = sink.option("checkpointLocation", os.fspath(Path(folder, "checkpoint")))
    return (sink.trigger(availableNow=True) if available_now else sink).start()


def batch_windows(spark: SparkSession, source: Source, late: str = LATE) -> DataFrame:
    """The same from all flights at once, without the windows that are still open."""
    events = source.load(spark.read).selectExpr(_EVENT).select("event.*")
    watermark = events.selectExpr(f"max(event_time) - interval {late} as watermark")
    closed = f"window_start + interval {WINDOW} <= watermark"
    return by_window(events).crossJoin(watermark).where(closed).drop("watermark")


def departures(table: DataFrame) -> int:
    """All of them together."""
    return int(table.groupBy().sum("departures").collect()[0][0])


def stop_after(query: StreamingQuery, batches: int) -> None:
    """Stop it when it has done so many, or more."""
    clock, never = SystemClock(), threading.Event()
    while query.isActive and len(query.recentProgress) < batches:
        clock.wait(never, 0.05)
    query.stop()


class PipelineProcess(WindowsProcess):
    """The query in a process of its own, until it is killed."""

    def __init__(
        self, source: Source, folder: str | os.PathLike[str], limit_s: float = SPARK_LIMIT_S
    ) -> None:
        self._commits = Path(folder, "checkpoint", "commits")
        where = os.path.abspath(folder)
        Worker.__init__(self, run_pipeline, *source, where, limit_s=limit_s)


def run_pipeline(format: str, bootstrap: str, topic: str, folder: str) -> None:
    """What the process does."""
    from craft2.apps.spark import session

    spark = session("pipeline", **(kafka_connector() if format == "kafka" else {}))
    start_windows(spark, Source(format, bootstrap, topic), folder).awaitTermination()


# What is sent.


def send_flights(bootstrap: str, topic: str, count: int, per_second: int) -> None:
    """Send flights, acks=all; acknowledge partition and offset. What a `Worker` runs.

    At most 500 are on their way: while one partition has no leader the others do not run ahead, or
    its flights would be too late for their windows.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
    )
    clock, never = SystemClock(), threading.Event()
    began = clock.monotonic()

    def told(error: object, message: Any) -> None:
        if error is None:
            acknowledge(message.partition(), message.offset())

    for number, flight in enumerate(flights(count)):
        if number % _AT_ONCE == 0:
            producer.flush()
        producer.produce(topic, flight.value, flight.key, on_delivery=told)
        producer.poll(0)
        clock.wait(never, began + number / per_second - clock.monotonic())
    producer.flush()


def post_metrics(address: Address, count: int, interval_s: float = 0.1) -> int:
    """Read this machine `count` times, and post each reading; returns how many were taken."""
    taken = 0
    readings = groupby(metrics(interval_s, SystemClock(), count), key=lambda event: event.time_ms)
    for time_ms, events in readings:
        found = [(event.key, msgspec.json.decode(event.value)) for event in events]
        values = [
            {"name": name, "value": read["busy_percent"], "time_ms": time_ms}
            for name, read in found
            if "busy_percent" in read
        ]
        status, _ = post(address, {"client_id": "this machine", "metrics": values})
        taken += status == 200
    return taken


def load_by_second(spark: SparkSession, source: Source) -> DataFrame:
    """What the posted metrics say: columns second (timestamp), name, percent, count."""
    schema = "metrics array<struct<name string, value double, time_ms long>>"
    read = source.load(spark.read).selectExpr(
        f"explode(from_json(cast(value as string), '{schema}').metrics) as metric"
    )
    second = "date_trunc('second', timestamp_millis(metric.time_ms))"
    rows = read.selectExpr(f"{second} as second", "metric.name as name", "metric.value as value")
    grouped = rows.groupBy("second", "name").agg({"value": "avg", "*": "count"})
    named = grouped.selectExpr("second", "name", "`avg(value)` as percent", "`count(1)` as count")
    return named.orderBy("second", "name")


# What is shown.


def departures_chart(rows: Iterable[Mapping[str, Any]], most: int = 4) -> Chart:
    """Departures by day, a line for each of the airlines with the most. rows: of `windows`."""
    by_day: Counter[tuple[str, Any]] = Counter()
    totals: Counter[str] = Counter()
    for row in rows:
        by_day[row["carrier"], row["window_start"].date()] += row["departures"]
        totals[row["carrier"]] += row["departures"]
    chosen = [carrier for carrier, _ in totals.most_common(most)]
    days = sorted({day for _, day in by_day})
    chart, axes = new_chart("Departures by airline and day", "day of January 2013", "departures")
    colours, ends = colour_of(chosen), []
    for carrier in chosen:
        values = [by_day[carrier, day] for day in days]
        axes.plot([day.day for day in days], values, color=colours[carrier], linewidth=2)
        ends.append((carrier, float(days[-1].day), float(values[-1]), colours[carrier]))
    axes.set_ylim(bottom=0)
    axes.set_xticks([day.day for day in days])
    label_line_ends(axes, ends)
    return chart
