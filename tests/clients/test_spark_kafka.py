"""Spark's own Kafka source and sink: the Java client's admin, assign, seek, fetch and produce.

Spark's administrator only looks. It is no member of a group, so there is nothing to rebalance: it
assigns partitions itself, and keeps in its checkpoint how far it is. It cannot say when a record
was, that is when it is written.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from craft2.apps.maven import Artifact, MavenError, jars

pytestmark = pytest.mark.prove
_JUDGE = Path(__file__).parent / "spark_judge.py"


@pytest.fixture
def connector():
    """The folder with Spark's Kafka connector and what it needs."""
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")
    artifact = Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", pyspark.__version__)
    try:
        return jars(f"spark-kafka-{pyspark.__version__}", [artifact])
    except MavenError as error:
        pytest.skip(str(error))


def test_spark_reads_writes_and_goes_on(bootstrap, name, connector, tmp_path):
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(name, 2, 1), NewTopic(f"{name}-out", 1, 1)]).values():
        made.result(30)
    arguments = [bootstrap, name, str(connector), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(_JUDGE), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    values = [f"v{n}" for n in range(10)]
    assert found["batch"] == sorted([f"k{n % 3}", f"v{n}", str(n), n % 2] for n in range(10))
    assert found["slice"] == ["v2", "v4", "v5", "v7", "v9"]
    assert found["since"] == 10
    assert found["until"] == 0  # it ends before the first record of that time
    assert found["pattern"] == 10
    assert found["codecs"] == [[None, 900_000, 0]] * 5
    assert found["acks"] == [[None, 1, 0]] * 2
    assert found["null"] == [None, None, 0]
    assert "RecordTooLargeException" in found["too large"]
    assert "UnknownTopicOrPartitionException" in found["unknown"]
    assert found["copied"] == sorted(values)
    assert found["copied on"] == sorted([*values, "late"])
    assert "failOnDataLoss" in found["lost"]
