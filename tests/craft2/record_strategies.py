"""What the tests of the record batch draw from, and the two implementations they compare with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_records
from hypothesis import settings
from hypothesis import strategies as st

from craft2 import record_batch
from craft2.codecs import CODEC_IDS
from craft2.record_batch import Record

BUILDERS = {
    "aiokafka": aiokafka_records.DefaultRecordBatchBuilder,
    "kafka-python": kafka_records.DefaultRecordBatchBuilder,
}
READERS = {
    "aiokafka": aiokafka_records.DefaultRecordBatch,
    "kafka-python": kafka_records.DefaultRecordBatch,
}
# What each writes where the broker will stamp the leader epoch.
LEADER_EPOCHS = {"aiokafka": -1, "kafka-python": 0}

# The first call imports pyarrow: no deadline for one example.
unhurried = settings(deadline=None)

small_bytes = st.binary(max_size=12) | st.binary(min_size=60, max_size=70) | st.just(b"x" * 8200)
nullable = st.none() | small_bytes
headers = st.lists(st.tuples(st.text(max_size=8), nullable), max_size=3).map(tuple)
no_headers = st.just(())
# Around a plausible now, around zero, and far apart (5-byte deltas).
timestamps = (
    st.integers(1_700_000_000_000, 1_700_000_000_100) | st.integers(0, 100) | st.integers(0, 2**42)
)


@st.composite
def record_lists(draw: st.DrawFn, headers: st.SearchStrategy[Any] = headers) -> list[Record]:
    """1 to 200 records with consecutive offsets from 0; long ones repeat a few distinct rows."""
    row = st.tuples(timestamps, nullable, nullable, headers)
    rows = draw(st.lists(row, min_size=1, max_size=6)) * draw(st.sampled_from([1, 1, 2, 13, 33]))
    return [Record(offset, *cells) for offset, cells in enumerate(rows)]


def build(library: str, records: Sequence[Record], codec: str = "none", **fields: Any) -> bytes:
    """The same batch by another implementation."""
    builder = BUILDERS[library](
        2,
        CODEC_IDS[codec],
        int(fields.get("transactional", False)),
        fields.get("producer_id", -1),
        fields.get("producer_epoch", -1),
        fields.get("base_sequence", -1),
        1 << 30,
    )
    for record in records:
        builder.append(
            record.offset, record.timestamp, record.key, record.value, list(record.headers)
        )
    return bytes(builder.build())


def read(library: str, batch: bytes) -> list[Record]:
    """What another implementation makes of a batch."""
    reader = READERS[library](bytearray(batch))
    assert reader.validate_crc()
    return [
        Record(r.offset, r.timestamp, r.key, r.value, tuple(map(tuple, r.headers))) for r in reader
    ]


@contextmanager
def scanning_from(count: int) -> Iterator[None]:
    """Have `decode` use its scan from so many records on."""
    before = record_batch.SCAN_FROM
    record_batch.SCAN_FROM = count
    try:
        yield
    finally:
        record_batch.SCAN_FROM = before
