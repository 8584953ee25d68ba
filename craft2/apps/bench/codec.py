"""Record batches: our codec beside aiokafka's (compiled) and kafka-python's (pure Python).

Each call encodes or decodes one batch of 1,000 records with values of 100 bytes; those "with keys"
have keys of 9 bytes and a timestamp each. Every pair is checked to do the same work first.
Run it alone with `python -m craft2.apps.bench.codec`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from craft2.apps.bench.harness import Operation, alternate, calls_per_second
from craft2.record_batch import Record, decode, decode_arrow, encode_values

COUNT = 1_000
VALUES = [f"{number:05}".encode() * 20 for number in range(COUNT)]
KEYS = [f"key-{number * 37 % 500:05}".encode() for number in range(COUNT)]
TIMESTAMPS = [1_700_000_000_000 + 3 * number for number in range(COUNT)]
ONE_TIMESTAMP = TIMESTAMPS[0]
COLUMNS = ("offset", "timestamp", "key", "value")


def aiokafka_plain() -> bytes:
    """Values alone, one timestamp for all."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    append = builder.append
    for offset, value in enumerate(VALUES):
        append(offset, ONE_TIMESTAMP, None, value, [])
    return bytes(builder.build())


def aiokafka_keyed() -> bytes:
    """Values with keys and timestamps."""
    from aiokafka.record.default_records import DefaultRecordBatchBuilder

    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    append = builder.append
    for offset, (timestamp, key, value) in enumerate(zip(TIMESTAMPS, KEYS, VALUES, strict=True)):
        append(offset, timestamp, key, value, [])
    return bytes(builder.build())


def kafka_python_objects(batch: bytes) -> list[object]:
    """One object per record, by kafka-python."""
    from kafka.record.default_records import DefaultRecordBatch

    reader = DefaultRecordBatch(batch)
    reader.validate_crc()
    return list(reader)


def aiokafka_table(batch: bytes) -> object:
    """The Arrow table of `decode_arrow`, from the records aiokafka decodes."""
    import pyarrow as pa
    from aiokafka.record.default_records import DefaultRecordBatch

    reader = DefaultRecordBatch(bytearray(batch))
    reader.validate_crc()
    offsets, timestamps, keys, values = zip(
        *((r.offset, r.timestamp, r.key, r.value) for r in reader), strict=True
    )
    types = (pa.int64(), pa.timestamp("ms", "UTC"), pa.binary(), pa.binary())
    cells = (offsets, timestamps, keys, values)
    return pa.table([pa.array(*pair) for pair in zip(cells, types, strict=True)], names=COLUMNS)


def pairs() -> Sequence[tuple[str, Operation, Operation, float]]:
    """(name, ours, peer, least ratio of our rate to the peer's) of each comparison."""
    plain = partial(encode_values, VALUES, timestamps=ONE_TIMESTAMP)
    keyed = partial(encode_values, VALUES, keys=KEYS, timestamps=TIMESTAMPS)
    batch = keyed()
    table = partial(decode_arrow, batch, columns=COLUMNS)
    assert plain() == aiokafka_plain()
    assert batch == aiokafka_keyed()
    rows = [Record(*row) for row in zip(range(COUNT), TIMESTAMPS, KEYS, VALUES, strict=True)]
    assert decode(batch) == rows
    assert len(kafka_python_objects(batch)) == COUNT
    assert table() == aiokafka_table(batch)
    return [
        ("encode, plain values / aiokafka", plain, aiokafka_plain, 1.0),
        ("encode, keys and timestamps / aiokafka", keyed, aiokafka_keyed, 0.7),
        (
            "decode to objects / kafka-python",
            partial(decode, batch),
            partial(kafka_python_objects, batch),
            3.0,
        ),
        ("decode to Arrow / aiokafka + Arrow", table, partial(aiokafka_table, batch), 0.5),
    ]


def main() -> None:
    """Measure the pairs in turn and print rates in messages a second, ratio and target."""
    print(f"{'':40}{'ours msg/s':>12}{'peer msg/s':>12}{'ratio':>8}{'target':>8}")
    for name, ours, peer, target in pairs():
        rate = partial(calls_per_second, seconds=0.25)
        measured = alternate(partial(rate, ours), partial(rate, peer), rounds=9)
        middle = len(measured.ours) // 2
        ours_rate = sorted(measured.ours)[middle] * COUNT
        peer_rate = sorted(measured.peer)[middle] * COUNT
        print(f"{name:40}{ours_rate:12,.0f}{peer_rate:12,.0f}{measured.ratio:8.2f}{target:8.2f}")


if __name__ == "__main__":
    main()
