"""The columns that Spark asks for, made from those that a log stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from craft2.apps.spark_options import SourceError

if TYPE_CHECKING:
    import pyarrow as pa


def shaped(table: pa.Table, topic: str, partition: int, columns: Sequence[str]) -> pa.Table:
    """The columns asked for, in their order, with the types that Spark expects."""
    import pyarrow as pa

    rows = table.num_rows
    made = []
    for name in columns:
        if name == "topic":
            made.append(pa.repeat(pa.scalar(topic), rows))
        elif name == "partition":
            made.append(pa.repeat(pa.scalar(partition, pa.int32()), rows))
        elif name == "timestamp":
            made.append(_microseconds(table[name], f"{topic}-{partition}"))
        else:
            made.append(table[name])
    return pa.table(dict(zip(columns, made, strict=True)))


def _microseconds(column: pa.ChunkedArray, words: str) -> pa.ChunkedArray:
    """Timestamps as Spark has them; null for -1, Kafka's word for none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    none = pa.scalar(-1, pa.int64())
    ms = column.cast(pa.int64())
    known = pc.if_else(pc.equal(ms, none), pa.scalar(None, pa.int64()), ms)
    try:
        return known.cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        raise SourceError(
            f"a record of {words} has the timestamp {pc.max(pc.abs(known)).as_py()} ms, "
            "which Spark cannot hold",
            "read the other columns: .schema(...) without timestamp",
        ) from None
