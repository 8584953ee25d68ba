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
_ONE_TOPIC = struct.Struct(">BhiB")  # transactional id, acks, timeout, how many topics
_ANSWER = struct.Struct(">ihqqq")  # number, error, base offset, append time, log start
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
    alone = _read_one(data, at) if flexible else None
    if alone is not None:
        return alone
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


def _read_one(data: bytes, at: int) -> ProduceRequest | None:
    """The request, if it is of version 9, for one partition and without tagged fields, as nearly
    all are; None: it is another, or a wrong one."""
    try:
        no_id, acks, timeout_ms, topics = _ONE_TOPIC.unpack_from(data, at)
        at += _ONE_TOPIC.size
        end = at + data[at]  # lengths are one too large
        if no_id or topics != 2 or data[at] > 0x7F or data[end] != 2:
            return None
        name = data[at + 1 : end].decode()
        number = int.from_bytes(data[end + 1 : end + 5], signed=True)
        size, start = codec.read_varint(data, end + 5)
    except (struct.error, IndexError, UnicodeDecodeError, codec.BadMessage):
        return None
    stop = start + size - 1
    if size == 0 or data[stop:] != b"\0\0\0":
        return None
    return ProduceRequest(acks, timeout_ms, [(name, [(number, data[start:stop])])])


def write_reply(version: int, answers: Answers) -> bytes:
    """The reply, without its head."""
    flexible = version >= _FLEXIBLE
    write_count = codec.write_compact_length if flexible else codec.write_int32
    write_text = codec.write_compact_string if flexible else codec.write_string
    end = b"\0" if flexible else b""  # no tagged fields
    fine = b"\1\0" if flexible else b"\0\0\0\0\xff\xff"  # no record is in error, no message
    size = _ANSWER.size if version >= 5 else _ANSWER.size - 8  # without where the log starts
    out = bytearray()
    write_count(out, len(answers))
    for topic, partitions in answers:
        write_text(out, topic)
        write_count(out, len(partitions))
        for one in partitions:
            number, error, base_offset, append_time, log_start, message = one
            out += _ANSWER.pack(number, error, base_offset, append_time, log_start)[:size]
            if version >= 8 and message is None:
                out += fine
            elif version >= 8:
                write_count(out, 0)
                write_text(out, message)
            out += end
        out += end
    out += _NO_THROTTLING + end
    return bytes(out)
