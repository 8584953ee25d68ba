"""A Spark worker runs the learner's code too."""

from __future__ import annotations

import importlib.util

import pytest
from course_helpers import notebook_of, run_nbval, write_body

IN_A_WORKER = """
from craft2.course import begin
begin("98")
from craft2.apps.spark import session
from phase1_file_queue.partitioner import partition_for
spark = session("poisoned")
"""


@pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None,
    reason="pyspark is not installed: there is no Spark worker to poison",
)
def test_poisoned_edition_runs_in_a_spark_worker(tmp_path):
    job = (
        "def place(_):\n"
        "    import phase1_file_queue.partitioner as p\n"
        "    return p.partition_for(b'UA', 4), p.__file__\n"
        "found = spark.sparkContext.parallelize([1], 1).map(place).collect()\n"
        "spark.stop()\n"
        "assert found[0][0] == 4711, found"
    )
    edition = notebook_of(tmp_path, IN_A_WORKER, job)
    write_body(edition, "0.1", "return 4711")
    run = run_nbval(edition)
    assert run.code == 0, run.output
