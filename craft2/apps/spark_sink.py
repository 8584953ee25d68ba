"""Rows become records: `df.write.format("craft2")`, `df.writeStream.format("craft2")`.

    alerts.writeStream.format("craft2").option("path", ROOT).option("topic", "alerts")
          .option("checkpointLocation", FOLDER).start()
    table.write.format("craft2").mode("append").option("path", ROOT).option("topic", "t").save()

Each task sends its rows with a `Producer` of its own, acks=all, and is done when each record is
acknowledged: when it is on disk.

    column      type                 meaning; if it is not there, or null
    ----------  -------------------  -------------------------------------------------------------
    value       binary or string     needed; null: a tombstone
    key         binary or string     decides the partition; no key
    partition   int                  overrules the key; the key decides
    timestamp   timestamp            when it happened; now
    headers     array of struct      as the source gives them: key string, value binary; none
                <key, value>
    topic       string               where to, if the option `topic` is not given; an error

Options: `path`, a folder of topics, and `topic`, which must exist. Without the columns partition,
headers and topic, rows are sent in bulk, several times as fast.

**At least once, not exactly once**; Kafka's sink is the same. If a task or the whole query dies,
its batch runs again, and what the first try had sent is there twice. Within one try the producer's
sequences see to it that nothing is doubled, but each try is a new producer. What about one producer
id and epoch for (query, partition, batch), so that the log drops what it has already? It works only
if the second try sends the same rows in the same order. Spark promises that for what it reads, and
not behind a shuffle (groupBy, join, repartition), where rows come in the order in which other tasks
are done. There it would be worse than a duplicate: other rows under known numbers would be dropped.
And a log knows the last five batches of a producer; a task may send thousands. So whoever needs
each result once gives it a key of its own (the window's start and the carrier, say) and takes one
record of a key, or says `dropDuplicatesWithinWatermark` when reading.

Source: Spark's KafkaWriteTask and KafkaStreamingWrite;
https://spark.apache.org/docs/latest/structured-streaming-kafka-integration.html
"""

# mypy: allow-untyped-calls, allow-subclassing-any
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from craft2.apps.spark_options import SinkOptions, SourceError
from craft2.clock import SystemClock
from phase2_groups.file_transport import FileTransport
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig
from phase2_groups.topics import partition_count

if TYPE_CHECKING:
    import pyarrow as pa

_TYPES = {
    "value": ("binary", "string"),
    "key": ("binary", "string"),
    "partition": ("int",),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
}
_ROW_BY_ROW = {"partition", "headers", "topic"}  # with one of these columns


class Written(WriterCommitMessage):
    """What a task hands in: nothing more needs to be done with its records."""


class Craft2Sink:
    """What both writers do. Raises SourceError for columns or a topic that cannot be."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        names = schema.fieldNames()
        for field in schema:
            kind = field.dataType.simpleString()
            if kind not in _TYPES.get(field.name, ()):
                raise SourceError(
                    f"column {field.name!r} of type {kind} cannot be written",
                    "select and cast to some of "
                    + ", ".join(f"{name}: {' or '.join(types)}" for name, types in _TYPES.items()),
                )
        if "value" not in names:
            raise SourceError(f"there is no column value among {names}", "select(... as value)")
        if options.topic is None and "topic" not in names:
            raise SourceError(
                "no topic is given", 'add .option("topic", NAME), or a column `topic`'
            )
        if options.topic is not None and not partition_count(options.path, options.topic):
            raise SourceError(
                f"topic {options.topic!r} does not exist in {options.path!r}",
                "correct the path or the topic, or make it: phase2_groups.topics.create_topic",
            )
        self._options = options
        self._row_by_row = not _ROW_BY_ROW.isdisjoint(names)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Send the rows of one task; returns when all are acknowledged, or raises why not."""
        with FileTransport(self._options.path) as files, Producer(ProducerConfig(), files) as into:
            for batch in iterator:
                if self._row_by_row:
                    self._send_rows(into, batch)
                else:
                    self._send_columns(into, batch)
        return Written()

    def _send_columns(self, into: Producer, batch: pa.RecordBatch) -> None:
        assert self._options.topic is not None
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        sent = into.send_table(
            self._options.topic, columns["value"], columns.get("key"), _times(batch)
        )
        sent.result()

    def _send_rows(self, into: Producer, batch: pa.RecordBatch) -> None:
        times = _times(batch)
        stamps = [None] * batch.num_rows if times is None else times.to_pylist()
        sent = []
        for row, timestamp_ms in zip(batch.to_pylist(), stamps, strict=True):
            topic = self._options.topic or row.get("topic")
            if topic is None:
                raise SourceError("a row has null as its topic", 'add .option("topic", NAME)')
            headers = [(header["key"], header["value"]) for header in row.get("headers") or ()]
            sent.append(
                into.send(
                    topic,
                    row["value"],
                    row.get("key"),
                    partition=row.get("partition"),
                    timestamp_ms=timestamp_ms,
                    headers=headers,
                )
            )
        into.flush()
        for future in sent:
            future.result()


def _times(batch: pa.RecordBatch) -> pa.Array | None:
    """The timestamps in ms since 1970, now for null; None if there is no such column."""
    import pyarrow as pa

    if "timestamp" not in batch.schema.names:
        return None
    times = batch.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False)
    return times.cast(pa.int64()).fill_null(SystemClock().now_ms())


class Craft2Writer(Craft2Sink, DataSourceArrowWriter):  # type: ignore[misc]
    """For `df.write`."""


class Craft2StreamWriter(Craft2Sink, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """For `df.writeStream`."""
