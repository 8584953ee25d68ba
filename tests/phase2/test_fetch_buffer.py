"""What a consumer has fetched: damage in one partition harms no other, and everybody has a turn."""

from __future__ import annotations

import pytest

from craft2.record_batch import encode_values
from craft2.records import CorruptBatch
from phase2_groups.fetch_buffer import FetchBuffer

A, B = ("t", 0), ("t", 1)


def batch(first, *values, damaged=False):
    data = bytearray(encode_values([value.encode() for value in values]))
    data[:8] = first.to_bytes(8, "big")
    data[-3] ^= 255 * damaged
    return bytes(data)


def fetched(buffer, **data):
    """Give the buffer what the partitions that want something hold from their positions on."""
    for partition, position in buffer.to_fetch().items():
        held = data["a" if partition == A else "b"]
        buffer.put(partition, position, b"".join(d for at, d in held if at >= position), 10)


def values(found):
    if found and isinstance(found[0][1], int):
        return [record.value for record in found]
    return [value for _, table in found for value in table["value"].to_pylist()]


@pytest.mark.parametrize("how", ["take", "take_arrow"])
@pytest.mark.parametrize("first", [A, B])
def test_records_before_the_damage_and_in_other_partitions_come_first(how, first):
    buffer = FetchBuffer()
    buffer.add([first, B if first is A else A])
    for partition in (A, B):
        buffer.seek(partition, 0)
    a = [(0, batch(0, "a0", "a1")), (2, batch(2, "a2"))]
    b = [(0, batch(0, "b0", damaged=True))]
    got, raised = [], 0
    for _ in range(6):
        fetched(buffer, a=a, b=b)
        try:
            got += values(buffer.take(100) if how == "take" else buffer.take_arrow())
        except CorruptBatch:
            raised += 1
    assert got == [b"a0", b"a1", b"a2"]
    assert raised >= 3
    assert buffer.positions() == {A: 3, B: 0}


def test_what_lies_before_the_damage_in_a_partition_is_returned():
    buffer = FetchBuffer()
    buffer.add([A])
    buffer.seek(A, 0)
    a = [(0, batch(0, "a0", "a1")), (2, batch(2, "a2", damaged=True))]
    fetched(buffer, a=a)
    assert values(buffer.take(100)) == [b"a0", b"a1"]
    fetched(buffer, a=a)
    with pytest.raises(CorruptBatch):
        buffer.take(100)
    assert buffer.position(A) == 2


def test_each_partition_comes_first_in_some_fetch():
    buffer = FetchBuffer()
    buffer.add([A, B])
    for partition in (A, B):
        buffer.seek(partition, 0)
    assert {next(iter(buffer.to_fetch())) for _ in range(4)} == {A, B}
