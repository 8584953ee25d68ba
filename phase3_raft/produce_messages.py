"""Produce's request and reply as bytes, by hand: what each record that is sent one by one has to go
through. `schemas` reads and writes the same, but took a fifth of the broker's time for it under
`make bench ARGS=broker-requests`, by its profile; a test holds them equal.

The request, versions 3-8; version 9 has compact lengths and, behind each structure, tagged fields:

    transactional id: nullable string    acks: int16    timeout: int32
    for each topic: its name, then for each partition: its number: int32, records: nullable bytes

Source: kafka.apache.org/protocol#The_Messages_Produce.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeAlias

from phase2_groups.error_codes import ErrorCode
from phase3_raft import codec

_FLEXIBLE = 9
_ANSWER = struct.Struct(">ihqq")  # number, error, base offset, append time
_LOG_START = struct.Struct(">q")
_NO_THROTTLING = bytes(4)


class ProduceRequest(NamedTuple):
    """acks: -1, 0 or 1, unless the client errs. timeout_ms: how long to wait for replicas. topics:
    (name, [(partition, records)])."""

    acks: int
    timeout_ms: int
    topics: list[tuple[str, list[tuple[int, bytes | None]]]]


class Answer(NamedTuple):
    """What became of the records of one partition."""

    partition: int
    error: ErrorCode
    base_offset: int = -1
    append_time: int = -1  # ms; -1: the producer's times hold
    log_start: int = -1
    message: str | None = None


Answers: TypeAlias = list[tuple[str, list[Answer]]]  # by topic, as they were asked


def read_request(version: int, data: bytes, at: int) -> ProduceRequest:
    """The request that is at `at`. Raises BadMessage."""
    flexible = version >= _FLEXIBLE
    if flexible:
        read_text, read_bytes = codec.read_compact_string, codec.read_compact_bytes
    else:
        read_text, read_bytes = codec.read_string, codec.read_bytes
    _, at = read_text(data, at)
    acks, at = codec.read_int16(data, at)
    timeout_ms, at = codec.read_int32(data, at)
    count, at = codec.read_count(data, at, compact=flexible)
    topics = []
    for _ in range(count):
        name, at = read_text(data, at)
        if name is None:
            raise codec.BadMessage(f"a topic without a name, before byte {at}", "give it one")
        many, at = codec.read_count(data, at, compact=flexible)
        partitions = []
        for _ in range(many):
            number, at = codec.read_int32(data, at)
            records, at = read_bytes(data, at)
            partitions.append((number, records))
            if flexible:
                at = codec.skip_tagged_fields(data, at)
        topics.append((name, partitions))
        if flexible:
            at = codec.skip_tagged_fields(data, at)
    if flexible:
        codec.skip_tagged_fields(data, at)
    return ProduceRequest(acks, timeout_ms, topics)


def write_reply(version: int, answers: Answers) -> bytes:
    """The reply, without its head."""
    flexible = version >= _FLEXIBLE
    write_count = codec.write_compact_length if flexible else codec.write_int32
    write_text = codec.write_compact_string if flexible else codec.write_string
    end = b"\0" if flexible else b""  # no tagged fields
    out = bytearray()
    write_count(out, len(answers))
    for topic, partitions in answers:
        write_text(out, topic)
        write_count(out, len(partitions))
        for one in partitions:
            out += _ANSWER.pack(one.partition, one.error, one.base_offset, one.append_time)
            if version >= 5:
                out += _LOG_START.pack(one.log_start)
            if version >= 8:
                write_count(out, 0)  # single records in error
                write_text(out, one.message)
            out += end
        out += end
    out += _NO_THROTTLING + end
    return bytes(out)
