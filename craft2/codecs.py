"""Compress and decompress what a record batch carries: none, gzip, snappy, lz4, zstd.

The number of a codec is its place in `CODEC_NAMES`: it is what bits 0-2 of a batch's attributes
hold. Three of the four have a dialect of their own in Kafka:

- snappy: the Java client wraps raw snappy blocks in a framing named xerial (after the library it
  uses); librdkafka writes one raw block. All clients read both, so we write the simpler one.
- lz4: the frame format with independent blocks. The Java client refuses linked blocks, which is
  what most lz4 libraries write unless told otherwise.
- lz4 in format 0 carries a wrong header checksum, by an early mistake kept for compatibility. It
  is refused here with an error (nothing has written it since 2016).

Decompression never produces more than `limit` bytes: a few kilobytes can be made to unpack to
gigabytes, and a broker must survive being sent such a batch.

>>> decompress("zstd", compress("zstd", b"flight " * 1000))[:13]
b'flight flight'

Source: kafka.apache.org/documentation/#recordbatch; KIP-57 (lz4); KIP-110 (zstd).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cramjam

from craft2.errors import Craft2Error

CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")
CODEC_IDS = {name: number for number, name in enumerate(CODEC_NAMES)}
DEFAULT_LIMIT = 64 << 20  # bytes

_DEFAULT_LEVELS = {"gzip": 6, "lz4": 1, "zstd": 3}
_LEVELS = {"gzip": (0, 9), "lz4": (1, 12), "zstd": (1, 22)}
# xerial: this mark, then two int32 versions, then blocks of int32 length and raw snappy.
_XERIAL_MARK = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE = 16


class CodecError(Craft2Error):
    """An unknown codec or level, or bytes that do not unpack, or unpack to more than allowed."""


def codec_id(name: str) -> int:
    """The number of codec `name` in a batch's attributes. Raises CodecError if there is none."""
    number = CODEC_IDS.get(name)
    if number is None:
        raise CodecError(f"codec {name!r} does not exist", f"use one of {', '.join(CODEC_NAMES)}")
    return number


def compress(name: str, data: bytes, level: int | None = None) -> bytes:
    """`data` packed with codec `name`, at `level` or the codec's usual one.

    Raises CodecError if there is no such codec or it has no such level.
    """
    codec_id(name)
    if level is not None:
        low, high = _LEVELS.get(name, (1, 0))
        if not low <= level <= high:
            fix = f"use {low} to {high}" if high else "leave the level out"
            raise CodecError(f"codec {name} has no level {level!r}", fix)
    if name == "none":
        return data
    if name == "snappy":
        return bytes(cramjam.snappy.compress_raw(data))
    if level is None:
        level = _DEFAULT_LEVELS[name]
    if name == "lz4":
        frame = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
        frame.compress(data)
        return bytes(frame.finish())
    return bytes(getattr(cramjam, name).compress(data, level))


def decompress(name: str, data: bytes | memoryview, limit: int = DEFAULT_LIMIT) -> bytes:
    """`data` unpacked with codec `name`.

    Raises CodecError if the bytes are damaged, or hold more than `limit` bytes.
    """
    codec_id(name)
    if name == "none":
        return bytes(data)
    try:
        if name == "snappy":
            return _decompress_snappy(data, limit)
        return _decompress_within(getattr(cramjam, name), data, limit)
    except cramjam.DecompressionError as error:
        if "failed to write whole buffer" in str(error):
            raise _too_big(name, limit) from None
        raise CodecError(
            f"{len(data)} bytes do not unpack as {name}: {error}",
            "read them from another replica; the writer or the disk damaged them",
        ) from None


def _decompress_within(codec: Any, data: bytes | memoryview, limit: int) -> bytes:
    """Unpack into a buffer that grows eightfold while it proves too small, up to `limit` bytes."""
    size = max(8 * len(data), 128 << 10)
    while True:
        output = bytearray(min(size, limit))
        try:
            written = codec.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            # The one message all three codecs give when the output, not the input, is at fault.
            if "failed to write whole buffer" not in str(error) or size >= limit:
                raise
            size *= 8
        else:
            with memoryview(output) as view:
                return bytes(view[:written])


def _decompress_snappy(data: bytes | memoryview, limit: int) -> bytes:
    """One raw block, or Java's framing. A block begins with its unpacked size, so we look first."""
    blocks = []
    size = 0
    for block in _snappy_blocks(data):
        size += cramjam.snappy.decompress_raw_len(block)
        if size > limit:
            raise _too_big("snappy", limit)
        blocks.append(bytes(cramjam.snappy.decompress_raw(block)))
    return b"".join(blocks)


def _snappy_blocks(data: bytes | memoryview) -> Iterator[bytes | memoryview]:
    if bytes(data[: len(_XERIAL_MARK)]) != _XERIAL_MARK:
        yield data
        return
    position = _XERIAL_HEADER_SIZE
    while position < len(data):
        start = position + 4
        position = start + int.from_bytes(data[position:start], "big")
        if position > len(data):
            raise cramjam.DecompressionError("the last xerial block is cut")
        yield data[start:position]


def _too_big(name: str, limit: int) -> CodecError:
    return CodecError(
        f"a {name} batch unpacks to more than {limit} bytes",
        "raise the limit if you trust the writer, or have it send smaller batches",
    )
