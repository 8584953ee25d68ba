"""Was the debt paid? What the service acknowledged, compared with what is in its queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from craft2.apps.ingestion.metric_batch import MetricBatch
from craft2.apps.ingestion.sinks import QueueMode
from craft2.apps.ingestion.sources import FileSource, LogSource, Row, Source, read_to_end

GROUP = "audit"  # nothing is ever committed for it
Batch = tuple[str, int]  # a client of `load`, and the number of its request


class Audit(NamedTuple):
    """lost: acknowledged and not there. twice: there more than once. unasked: there, and nobody was
    told so: a request that was stored, and whose answer got lost."""

    acknowledged: int
    stored: int
    lost: int
    twice: int
    unasked: int


def audit(acknowledged: Iterable[Batch], stored: Counter[Batch]) -> Audit:
    """Compare the two; pure.

    >>> audit([("a", 0), ("a", 1)], Counter({("a", 0): 2, ("b", 0): 1}))
    Audit(acknowledged=2, stored=3, lost=1, twice=1, unasked=1)
    """
    owed = set(acknowledged)
    return Audit(
        acknowledged=len(owed),
        stored=stored.total(),
        lost=len(owed - stored.keys()),
        twice=sum(count > 1 for count in stored.values()),
        unasked=len(stored.keys() - owed),
    )


def stored_batches(source: Source) -> Counter[Batch]:
    """How often each batch of `load` is in the queue; reads it to its end, and closes it."""
    return Counter(map(_batch, read_to_end(source)))


def _batch(row: Row) -> Batch:
    batch = msgspec.json.decode(row.value or b"", type=MetricBatch)
    return batch.client_id, int(batch.metrics[0].value)


def open_source(
    mode: QueueMode,
    *,
    root: Path | None = None,
    bootstrap: str | None = None,
    topic: str = "metrics",
) -> Source:
    """The queue of a service, to read from its start."""
    if mode is QueueMode.KAFKA:
        from craft2.apps.ingestion.kafka_source import KafkaSource

        assert bootstrap is not None
        return KafkaSource(bootstrap, topic, None)
    assert root is not None
    if mode is QueueMode.FILE:
        return FileSource(root, GROUP)
    return LogSource(root, topic, GROUP)
