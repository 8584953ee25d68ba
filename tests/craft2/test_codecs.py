from __future__ import annotations

from contextlib import suppress

import aiokafka.codec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_strategies import unhurried

from craft2.codecs import CODEC_NAMES, CodecError, compress, decompress

PACKING = CODEC_NAMES[1:]
names = st.sampled_from(CODEC_NAMES)
data = st.binary(max_size=400) | st.builds(bytes.__mul__, st.binary(max_size=9), st.just(5_000))


@unhurried
@given(names, data)
def test_round_trip(name: str, data: bytes) -> None:
    assert decompress(name, compress(name, data)) == data
    assert decompress(name, memoryview(compress(name, data))) == data


@unhurried
@given(st.sampled_from(PACKING), data)
def test_another_implementation_reads_ours_and_we_theirs(name: str, data: bytes) -> None:
    assert getattr(aiokafka.codec, f"{name}_decode")(compress(name, data)) == data
    assert decompress(name, getattr(aiokafka.codec, f"{name}_encode")(data)) == data


def test_snappy_reads_javas_framing_of_several_blocks() -> None:
    data = bytes(range(256)) * 400  # 102,400 bytes: four blocks of at most 32 KiB
    framed = aiokafka.codec.snappy_encode(data)
    assert framed.startswith(b"\x82SNAPPY\x00")
    assert decompress("snappy", framed) == data
    with pytest.raises(CodecError, match="the last xerial block is cut"):
        decompress("snappy", framed[:-1])
    with pytest.raises(CodecError, match="unpacks to more than 102399 bytes"):
        decompress("snappy", framed, limit=len(data) - 1)


def test_lz4_blocks_are_independent_as_the_java_client_demands() -> None:
    frame = compress("lz4", b"flight " * 100_000)
    flags = frame[4]
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert flags >> 6 == 1, "version"
    assert flags & 0b0010_0000, "independent blocks"


@pytest.mark.parametrize("name", PACKING)
@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 5_000_000])
def test_the_limit_is_exact(name: str, size: int) -> None:
    packed = compress(name, bytes(size))
    assert decompress(name, packed, limit=size) == bytes(size)
    if size:
        with pytest.raises(CodecError, match=f"unpacks to more than {size - 1} bytes"):
            decompress(name, packed, limit=size - 1)


@unhurried
@given(st.sampled_from(PACKING), data, st.data())
def test_damage_is_an_error_of_our_own_or_harmless(
    name: str, data: bytes, draw: st.DataObject
) -> None:
    packed = bytearray(compress(name, data))
    for _ in range(draw.draw(st.integers(1, 4))):
        packed[draw.draw(st.integers(0, len(packed) - 1))] = draw.draw(st.integers(0, 255))
    with suppress(CodecError):
        decompress(name, bytes(packed), limit=1 << 20)


@unhurried
@given(st.sampled_from(PACKING), st.binary(max_size=60))
def test_any_bytes_are_an_error_of_our_own_or_data(name: str, data: bytes) -> None:
    with suppress(CodecError):
        decompress(name, data, limit=1 << 20)


def test_levels() -> None:
    for name, level in [("gzip", 1), ("lz4", 9), ("zstd", 19)]:
        assert decompress(name, compress(name, b"abc" * 99, level)) == b"abc" * 99
    for name, level in [("gzip", 10), ("zstd", 23), ("snappy", 1), ("none", 1)]:
        with pytest.raises(CodecError, match=f"codec {name} has no level {level}"):
            compress(name, b"", level)


@pytest.mark.parametrize("name", ["lz5", "", "NONE"])
def test_an_unknown_codec_is_named(name: str) -> None:
    with pytest.raises(CodecError, match=f"codec '{name}' does not exist"):
        compress(name, b"")
    with pytest.raises(CodecError, match="use one of none, gzip, snappy, lz4, zstd"):
        decompress(name, b"")
