"""The results store gives back what was appended, and refuses what is not a result."""

import subprocess
import sys
import threading

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craft2.apps.bench.machine import Machine
from craft2.apps.bench.results import Result, Results, ResultsError, schema

MACHINE = Machine(
    cpu="c", cores=2, memory_gb=8.0, kernel="k", python="3.11", filesystem="ext4", fsync_ms=0.3
)


def row(**changes):
    fields = {
        "run": "r",
        "when_ms": 1_700_000_000_000,
        "phase": 1,
        "backend": "log",
        "scenario": "produce",
        "clients": 4,
        "size_bytes": 100,
        "messages": 1000,
        "seconds": 0.5,
        "messages_per_s": 2000.0,
        "mb_per_s": 0.2,
        "machine": MACHINE,
    }
    return Result(**fields | changes)


def test_a_row_comes_back_as_it_was(tmp_path):
    first = row(p50_ms=0.25, max_ms=9.0, success_ratio=0.5, notes="é")
    store = Results(tmp_path / "results")
    assert store.append([first]).suffix == ".parquet"
    assert store.table().to_pylist() == [msgspec.to_builtins(first)]


@settings(max_examples=25, deadline=None)  # a busy disk takes its time
@given(st.lists(st.tuples(st.integers(0, 2**41), st.text(max_size=5)), max_size=12))
def test_the_table_holds_every_append_in_order_of_time(tmp_path_factory, appended):
    store = Results(tmp_path_factory.mktemp("results"))
    for when_ms, run in appended:
        store.append([row(when_ms=when_ms, run=run)])
    table = store.table()
    assert table.schema.equals(schema())
    assert [(r["when_ms"], r["run"]) for r in table.to_pylist()] == sorted(appended)


def test_a_store_that_is_not_there_is_empty(tmp_path):
    store = Results(tmp_path / "never")
    assert store.append([]) is None
    assert store.table().num_rows == 0
    assert not store.path.exists()


def test_a_wrong_type_is_refused_and_nothing_is_written(tmp_path):
    store = Results(tmp_path / "results")
    with pytest.raises(ResultsError, match="clients"):
        store.append([row(), row(clients="four")])
    assert store.files() == []


def test_several_writers_lose_nothing(tmp_path):
    store = Results(tmp_path / "results")
    threads = [threading.Thread(target=store.append, args=([row()],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.table().num_rows == 8


def test_a_write_that_fails_leaves_no_visible_file(tmp_path, monkeypatch):
    def full(table, file):
        file.write(b"PAR1 and then the disk is full")
        raise OSError(28, "No space left on device")

    store = Results(tmp_path)
    monkeypatch.setattr(pq, "write_table", full)
    with pytest.raises(OSError, match="No space"):
        store.append([row()])
    assert store.files() == []
    assert store.table().num_rows == 0


def test_a_foreign_file_is_named(tmp_path):
    store = Results(tmp_path)
    store.append([row()])
    (tmp_path / "bad.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(ResultsError, match=r"bad\.parquet.*cannot be read"):
        store.table()


def test_a_file_of_another_schema_is_named_with_the_difference(tmp_path):
    store = Results(tmp_path)
    table = schema().empty_table().drop_columns(["notes"])
    pq.write_table(table.append_column("extra", pa.array([], pa.string())), tmp_path / "x.parquet")
    with pytest.raises(ResultsError, match=r"x\.parquet.*extra, notes"):
        store.table()


def test_the_store_loads_pyarrow_only_when_used():
    code = "import sys, craft2.apps.bench.results; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
