"""The results store: every benchmark appends rows of one schema, and every chart reads them.

    store = Results("results")
    store.append([row, ...])           # one Parquet file more
    store.table()                      # all rows, oldest first, as an Arrow table
    store.spark(session)               # the same as a Spark DataFrame

A store is a folder of Parquet files, one an append.  A file is written under a hidden name and
renamed, so a reader (Spark too, which skips hidden files) sees a file whole or not at all, and
several runs may append at once.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from craft2.apps.bench.machine import Machine
from craft2.errors import Craft2Error

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


class ResultsError(Craft2Error):
    """A row that does not fit the schema, or a store that cannot be read."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement.  Rates count what succeeded; latencies are those of successful calls.

    A percentile is None where single calls were not timed.
    """

    run: str  # the same for all rows of one `craft2 bench`
    when_ms: int  # when it ended, milliseconds since 1970
    phase: int  # 1, 2, 3; 0 for the machine itself
    backend: str  # what was measured: "file queue", "log", "bare calls"
    scenario: str  # what it did: "produce", "encode plain"
    clients: int
    size_bytes: int  # of one message's value
    acks: str = ""  # when a send counts as done: "written", "durable", "all"
    fsync_policy: str = ""  # "never", "every message", "every batch", "every 10 ms"
    messages: int
    seconds: float
    messages_per_s: float
    mb_per_s: float  # 10^6 bytes of values
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    p999_ms: float | None = None
    max_ms: float | None = None
    success_ratio: float = 1.0  # successful calls among all calls
    notes: str = ""  # the errors seen, or what else a reader must know
    machine: Machine


def schema() -> pa.Schema:
    """The schema of every file of the store."""
    import pyarrow as pa

    def fields(struct: Any) -> list[pa.Field]:
        return [
            pa.field(
                field.name,
                {
                    str: pa.string(),
                    int: pa.int64(),
                    float: pa.float64(),
                    float | None: pa.float64(),
                }.get(field.type)
                or pa.struct(fields(field.type)),
                nullable=field.type == float | None,
            )
            for field in msgspec.structs.fields(struct)
        ]

    return pa.schema(fields(Result))


class Results:
    """The store in the folder `path`, which the first append creates."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def append(self, rows: Sequence[Result]) -> Path | None:
        """Add `rows` as one file and return its path; nothing is written for no rows.

        Raises `ResultsError` when a field of a row has the wrong type.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not rows:
            return None
        try:
            plain = [msgspec.to_builtins(row) for row in rows]
            msgspec.convert(plain, list[Result])
        except msgspec.ValidationError as error:
            raise ResultsError(
                f"a result does not fit the schema of {str(self.path)!r}: {error}",
                fix="give every field the type that class Result states",
            ) from error
        table = pa.Table.from_pylist(plain, schema=schema())
        self.path.mkdir(parents=True, exist_ok=True)
        name = f"{rows[0].when_ms:013d}-{uuid.uuid4().hex[:8]}"
        hidden, final = self.path / f".{name}.tmp", self.path / f"{name}.parquet"
        with hidden.open("xb") as file:
            pq.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(hidden, final)
        return final

    def files(self) -> list[Path]:
        """The files of the store, oldest first; none when nothing was appended yet."""
        return sorted(p for p in self.path.glob("*.parquet") if not p.name.startswith("."))

    def table(self) -> pa.Table:
        """All rows, in order of `when_ms` then `run`, as an Arrow table; empty for a new store.

        Raises `ResultsError` naming the first file that is not Parquet or has another schema.
        """
        table, problems = self.readable()
        if problems:
            raise problems[0]
        return table

    def readable(self) -> tuple[pa.Table, list[ResultsError]]:
        """The rows of the files that can be read, as `table` has them, and why others cannot be."""
        import pyarrow as pa

        tables, problems = [schema().empty_table()], []
        for file in self.files():
            try:
                tables.append(self._read(file))
            except ResultsError as error:
                problems.append(error)
        order = [("when_ms", "ascending"), ("run", "ascending")]
        return pa.concat_tables(tables).sort_by(order), problems

    def spark(self, session: SparkSession) -> DataFrame:
        """All rows as a Spark DataFrame.  Raises as `table` does."""
        return session.createDataFrame(self.table())

    def _read(self, file: Path) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(file, partitioning=None)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ResultsError(
                f"results file {str(file)!r} cannot be read: {error}",
                fix="move it out of the folder; the other files are not affected",
            ) from error
        if not table.schema.equals(schema()):
            ours, theirs = set(schema()), set(table.schema)
            differs = sorted({field.name for field in ours ^ theirs}) or ["their order"]
            raise ResultsError(
                f"results file {str(file)!r} has another schema: see {', '.join(differs)}",
                fix="move it out of the folder: it was written by another version",
            )
        return table
