"""Spark reading a log of five million flights on two cores, once it has started."""

from __future__ import annotations

import time
from pathlib import Path

from craft2.apps.bench.harness import alternate
from craft2.apps.bench.scenarios import Bench, scenario
from craft2.apps.ingestion.flights import batch_of, flights
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog

PROMISED = 800_000  # records a second
RECORDS = 5_000_000
PER_BATCH = 1_000


def fill_with_flights(directory: Path, records: int) -> None:
    """A log of `records` flights, the first 100,000 again and again, with keys and times."""
    events = list(flights(100_000))
    batches = [batch_of(events[at : at + PER_BATCH]) for at in range(0, len(events), PER_BATCH)]
    with PartitionLog(directory, LogConfig(flush_policy="never")) as log:
        for number in range(records // PER_BATCH):
            log.append_as_leader(batches[number % len(batches)], 0)


@scenario(
    "spark", "Spark reads a log of 5 M flights: keys, values, times; beside what was promised"
)
def spark(bench: Bench) -> None:
    """Records a second of a query that looks at every key, value and timestamp.

    Needs 1 GB of disk for a moment; a log of 500,000 with --quick.
    """
    from craft2.apps.spark import LONG_QUERIES, session

    records = RECORDS // 10 if bench.quick else RECORDS
    directory = bench.new_folder("spark") / "flights-0"
    fill_with_flights(directory, records)
    spark = session(**LONG_QUERIES)
    source = spark.read.format("craft2").option("path", str(directory))

    def rate() -> float:
        start = time.perf_counter()
        [found] = (
            source.load()
            .selectExpr(
                "count(*)", "sum(octet_length(key) + octet_length(value))", "max(timestamp)"
            )
            .collect()
        )
        seconds = time.perf_counter() - start
        bench.say(f"{found[0]:,} records, {found[1]:,} bytes in {seconds:.1f} s")
        if found[0] != records:
            raise AssertionError(f"{found[0]} of {records} records")
        return records / seconds

    rate()  # the Java compiler has seen the query
    pairs = alternate(rate, lambda: float(PROMISED), rounds=3)
    ours = f"Spark, {records:,} flights"
    bench.compare("spark", ours, "promised", pairs, unit="records/s", target=1.0)
    spark.stop()
