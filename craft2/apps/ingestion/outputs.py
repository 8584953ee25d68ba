"""Where a consumer writes what it reads: JSON lines, or Parquet for Spark.

`write` returns when the rows are on disk; only then may they be committed. A consumer that dies in
between writes them again when it comes back: at least once. Partition and offset are in every row,
so a reader can drop what is there twice.
"""

from __future__ import annotations

import base64
import os
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from craft2.apps.ingestion.sources import WAIT_MS, Row, Source
from craft2.disk import RealDisk
from craft2.errors import Craft2Error
from phase1_file_queue.publish import publish

_to_json = msgspec.json.Encoder().encode


class OutputError(Craft2Error):
    """A place that cannot be written to."""


class Output(Protocol):
    """See the module."""

    def write(self, rows: Sequence[Row]) -> None:
        """Add the rows, and return when they would survive a power cut."""

    def close(self) -> None:
        """Nothing is lost without it."""


class JsonLines:
    """A line a message: `{"partition":0,"offset":7,"time_ms":…,"key":"web-7","value":{…}}`.

    The value is JSON where the message is, else text, else `{"base64": …}`.
    """

    def __init__(self, file: BinaryIO, *, sync: bool) -> None:
        self._file, self._sync = file, sync

    @classmethod
    def to(cls, path: Path | None) -> JsonLines:
        """Append to a file; to standard output, if None.

        A last line without its end was being written when somebody died: it is cut off, and its
        message comes again.
        """
        if path is None:
            return cls(sys.stdout.buffer, sync=False)
        file = path.open("a+b")
        whole = _whole_lines(file)
        file.truncate(whole)
        return cls(file, sync=True)

    def write(self, rows: Sequence[Row]) -> None:
        self._file.write(b"".join(map(_line, rows)))
        self._file.flush()
        if self._sync:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        if self._sync:
            self._file.close()


def _whole_lines(file: BinaryIO) -> int:
    """How many bytes of a file its whole lines have; looked for from the end."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65_536)
        file.seek(start)
        at = file.read(end - start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def _line(row: Row) -> bytes:
    line = row._asdict() | {"key": _readable(row.key, raw=False), "value": _readable(row.value)}
    return _to_json(line) + b"\n"


def _readable(data: bytes | None, *, raw: bool = True) -> Any:
    """Bytes as what JSON can hold. raw: JSON stays as it is, if it is on one line."""
    if data is None:
        return None
    try:
        if raw and b"\n" not in data:
            msgspec.json.decode(data)
            return msgspec.Raw(data)
    except (ValueError, RecursionError):
        pass
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


class ParquetFolder:
    """A Parquet file for each write, in a folder that Spark reads as one table.

    Columns: partition, offset, time_ms, key and value (both bytes). A file appears whole or not at
    all. Its name begins with its first partition and offset, so `ls` shows what is in there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._disk = folder, RealDisk()
        if folder.exists() and not folder.is_dir():
            raise OutputError(f"{str(folder)!r} is a file", "give a folder for Parquet files")
        self._disk.mkdir(os.fspath(folder))

    def write(self, rows: Sequence[Row]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = (pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary())
        schema = pa.schema(list(zip(Row._fields, types, strict=True)))
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist([row._asdict() for row in rows], schema), sink)
        name = f"{rows[0].partition:05d}-{rows[0].offset:020d}-{uuid.uuid4().hex[:8]}.parquet"
        publish(self._disk, str(self._folder / name), sink.getvalue().to_pybytes())

    def close(self) -> None:
        pass


def open_output(path: Path | None) -> Output:
    """Standard output for None, Parquet for a folder or a name that ends so, else JSON lines."""
    if path is not None and (path.suffix == ".parquet" or path.is_dir()):
        return ParquetFolder(path)
    return JsonLines.to(path)


def copy(source: Source, output: Output, *, until_end: bool, ending: Callable[[], bool]) -> int:
    """Write what the source gives, commit it, and go on; returns how many messages it were."""
    copied = 0
    while not ending():
        rows = source.poll(WAIT_MS)  # so often it looks whether it is to end
        if rows:
            output.write(rows)
            source.commit()
            copied += len(rows)
        elif until_end and source.at_end():
            break
    return copied
