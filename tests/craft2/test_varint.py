from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import decode_varint, encode_varint

from craft2 import varint

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


@given(int64)
def test_bytes_equal_those_of_another_implementation(number: int) -> None:
    theirs = bytearray()
    encode_varint(number, theirs.append)
    assert varint.encode(number) == bytes(theirs)
    assert varint.SMALL[number] == bytes(theirs)
    assert decode_varint(varint.encode(number)) == (number, len(theirs))


@given(int64, st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_wherever_it_stands(number: int, before: bytes, after: bytes) -> None:
    coded = varint.encode(number)
    data = before + coded + after
    assert varint.decode(data, len(before), 64) == (number, len(before) + len(coded))


@given(int32)
def test_32_bits_take_at_most_5_bytes(number: int) -> None:
    coded = varint.encode(number)
    assert len(coded) <= 5
    assert varint.decode(coded, 0) == (number, len(coded))


@given(int64)
def test_every_cut_is_an_error(number: int) -> None:
    coded = varint.encode(number)
    for size in range(len(coded)):
        with pytest.raises(varint.VarintError):
            varint.decode(coded[:size], 0, 64)


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**62])
def test_more_than_32_bits_are_refused_where_32_are_due(number: int) -> None:
    with pytest.raises(varint.VarintError, match="no 32-bit varint at byte 0"):
        varint.decode(varint.encode(number), 0)


def test_an_endless_varint_is_refused() -> None:
    with pytest.raises(varint.VarintError, match="ff ff"):
        varint.decode(b"\xff" * 20, 0, 64)
    with pytest.raises(varint.VarintError):
        varint.decode(b"\xff" * 9 + b"\x02", 0, 64)  # a 65th bit


def test_the_table_never_grows() -> None:
    size = len(varint.SMALL)
    assert varint.SMALL[10**12] == varint.encode(10**12)
    assert len(varint.SMALL) == size
