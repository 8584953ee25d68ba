"""The consumer of phase 2: records a second of `poll` and `poll_arrow`.

One consumer reads four partitions that are in the page cache, without a group. Values are of 50 to
150 bytes, so that every record has a size of its own; nobody looks at them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from craft2.apps.bench.scenarios import Bench, scenario
from craft2.record_batch import encode_values
from phase2_groups.consumer import Consumer
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.file_transport import FileTransport, create_topic

TOPIC, PARTITIONS, PER_BATCH = "t", 4, 2_500
SMALLEST, LARGEST = 50, 150  # bytes of a value


def fill(folder: Path, records: int) -> None:
    """A topic with so many records, the same in every partition."""
    create_topic(folder, TOPIC, PARTITIONS)
    chance = random.Random(1)
    with FileTransport(folder) as files:
        for _ in range(records // PARTITIONS // PER_BATCH):
            sizes = (chance.randint(SMALLEST, LARGEST) for _ in range(PER_BATCH))
            batch = encode_values([b"x" * size for size in sizes])
            files.produce({(TOPIC, n): batch for n in range(PARTITIONS)}, acks=1, timeout_ms=0)


def _poll(consumer: Consumer) -> int:
    return len(consumer.poll())


def _poll_arrow(consumer: Consumer) -> int:
    table = consumer.poll_arrow()
    return 0 if table is None else table.num_rows


@scenario("poll", "poll and poll_arrow, values of 50 to 150 bytes: beside what was promised")
def poll(bench: Bench) -> None:
    """A million records (100,000 with --quick), read to their end."""
    records = 100_000 if bench.quick else 1_000_000
    folder = bench.new_folder("poll")
    fill(folder, records)
    config = ConsumerConfig(bootstrap_servers=f"file:{folder}", auto_offset_reset="earliest")

    def rate(take: Callable[[Consumer], int]) -> float:
        with Consumer(config) as consumer:
            consumer.assign((TOPIC, number) for number in range(PARTITIONS))
            start_s, left = bench.clock.monotonic(), records
            while left > 0:
                left -= take(consumer)
            return records / (bench.clock.monotonic() - start_s)

    for name, take, promised in (("poll", _poll, 300_000.0), ("poll_arrow", _poll_arrow, 2e6)):
        found = bench.promise(
            "poll",
            name,
            lambda take=take: rate(take),  # type: ignore[misc]
            promised,
            unit="records/s",
        )
        bench.add_total(
            records,
            records / found.our_rate,
            phase=2,
            backend="files",
            scenario=name,
            size_bytes=(SMALLEST + LARGEST) // 2,
        )
