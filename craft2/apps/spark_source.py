"""The queue and the log as a table: the Spark data source `craft2`.

    spark.read.format("craft2").option("path", "queues/flights-0").load()

`path` names a message-file queue, the directory of one log, or a folder of logs named
`<topic>-<partition>`. In its place `kafka.bootstrap.servers` names a cluster, ours or any that
speaks Kafka's protocol, and `topic` what to read of it. The table has a row a record, with the
columns of Spark's own Kafka source (topic, partition, offset, timestamp, key, value) and its
headers. A record without a timestamp has null there. The same as a stream: `spark_stream`; written
to: `spark_sink`.

    option                  meaning; the default
    ----------------------  ------------------------------------------------------------------
    topic                   the one topic to read, if the folder holds several; all of them
    startingOffsets         the first offset to read: "earliest" (the default), "latest", a
                            number for every partition, or, as with Kafka,
                            {"flights": {"0": 23, "1": -2}} with -2 for earliest and -1 for latest
    endingOffsets           the offset to stop before, in the same forms; "latest"
    startingTimestamp       instead: from the first record not earlier than so many ms since 1970
    endingTimestamp         instead: up to, without, the first record not earlier than that
    maxRecordsPerPartition  a longer range is split into several Spark partitions, 1000 at most
                            for one partition of the queue; 500000

**What is read is decided by a DataFrame's first query**: where each partition starts and ends at
that moment. Records that arrive later are not in its results (`load()` again to see them), and if
retention deletes records before they are read, the query fails. A wrong count never comes out.
(Two things are beyond this: a log that is cut back and grows again between the two gives what it
holds when it is read; and with `spark.sql.python.filterPushdown.enabled` every query decides anew.)

**Topics** whose names begin with __ (committed offsets, say) are read only if `topic` names them.

**Files**: beside a living writer, reading changes nothing. A log that nobody has open is opened as
by any reader: if its writer was killed, it is recovered first, which cuts a torn tail (see
`phase1_file_queue/log_opening.py`). So the folder must be writable.

**Columns**: Spark does not tell a Python source which ones a query needs;
`.schema("offset long, value binary")` before `load()` reads only those. **Filters** are applied by
Spark to what was read; to read less, use the options. (A Python source can be told of filters, but
Spark 4.2 then keeps them for later queries of the same DataFrame that have none: a wrong count.)

Source: https://spark.apache.org/docs/latest/api/python/tutorial/sql/python_data_source.html;
the names of the options: https://spark.apache.org/docs/latest/structured-streaming-kafka-integration.html
"""

# mypy: allow-untyped-calls, allow-subclassing-any
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from craft2.apps.spark_options import Options, SinkOptions, SourceError
from craft2.apps.spark_ranges import Place, open_places, plan, read_range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from craft2.apps.spark_sink import Craft2StreamWriter, Craft2Writer
    from craft2.apps.spark_stream import Craft2StreamReader

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("headers", ArrayType(_HEADER)),
    ]
)


def register(session: SparkSession) -> None:
    """Make the format `craft2` known to a session; `craft2.apps.spark.session` has done it."""
    session.dataSource.register(Craft2DataSource)


class Craft2DataSource(DataSource):
    """See the module. Raises SourceError for an option or a column that does not exist."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "craft2"

    def schema(self) -> StructType:
        Options.of(self._given, stream=None)  # so that a mistake shows in load(), if it can
        return SCHEMA

    def reader(self, schema: StructType) -> Craft2Reader:
        return Craft2Reader(Options.of(self._given), _columns(schema))

    def streamReader(self, schema: StructType) -> Craft2StreamReader:  # noqa: N802 (Spark's name)
        from craft2.apps.spark_stream import Craft2StreamReader

        return Craft2StreamReader(Options.of(self._given, stream=True), _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> Craft2Writer:
        from craft2.apps.spark_sink import Craft2Writer

        if overwrite:
            raise SourceError("a log cannot be overwritten", 'say .mode("append")')
        return Craft2Writer(SinkOptions.of(self._given), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Craft2StreamWriter:  # noqa: N802
        from craft2.apps.spark_sink import Craft2StreamWriter

        return Craft2StreamWriter(SinkOptions.of(self._given), schema)


def _columns(schema: StructType) -> list[str]:
    """The names of the columns in `schema`: ours, or some of them in any order."""
    names: list[str] = schema.fieldNames()
    if not names or len(set(names)) < len(names):
        raise SourceError(
            f"the schema asks for the columns {names}", "give at least one, and each only once"
        )
    types = {field.name: field.dataType for field in SCHEMA}
    for field in schema:
        if types.get(field.name) != field.dataType:
            raise SourceError(
                f"there is no column {field.name!r} of type {field.dataType.simpleString()}",
                f"use some of {SCHEMA.simpleString().removeprefix('struct')}",
            )
        if not field.nullable:
            raise SourceError(
                f"column {field.name!r} is declared not null", "leave the `not null` out"
            )
    return names


class Range(InputPartition):
    """The records of one partition from `start` on, before `end`: the work of one task."""

    def __init__(self, place: Place, start: int, end: int) -> None:
        super().__init__((place, start, end))
        self.place, self.start, self.end = place, start, end


class Craft2Reader(DataSourceReader):
    """Plans the ranges (on the driver), and reads one (in a task)."""

    def __init__(self, options: Options, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[Range]:
        return [
            Range(place, start, end)
            for place in open_places(self._options)
            for start, end in plan(place, self._options)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Range):  # where there is no range, Spark asks once all the same
            yield from read_range(partition.place, partition.start, partition.end, self._columns)
