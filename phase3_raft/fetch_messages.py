"""Fetch's request and reply as bytes, by hand: what each record goes through on its way to a
follower, and to a consumer. `schemas` reads and writes the same, but took most of the time of a
small fetch (`make bench ARGS=cluster-latency`); a test holds them equal.

The request, versions 4-12; 12 has compact lengths and, behind each structure, tagged fields:

    replica id: int32    max wait: int32    min bytes: int32    max bytes: int32
    isolation level: int8    session id: int32 (7+)    session epoch: int32 (7+)
    for each topic: its name, then for each partition: its number: int32, leader epoch: int32 (9+),
        offset: int64, last fetched epoch: int32 (12+), log start: int64 (5+), max bytes: int32
    for each topic that is forgotten: its name, and numbers: int32 (7+)    rack: string (11+)

Followers speak version 12 alone, and their part is here too.

Source: kafka.apache.org/protocol#The_Messages_Fetch; KIP-74, KIP-227, KIP-595 (diverging epochs).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from craft2.disk import FileSlice
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import TopicPartition
from phase3_raft import codec
from phase3_raft.codec import BadMessage, skip_tagged_fields

_FLEXIBLE = FOLLOWERS_VERSION = 12
_HEAD, _HEAD_WITH_SESSION = codec.numbers("iiiib"), codec.numbers("iiiibii")
_PARTITION = {
    **dict.fromkeys((4,), codec.numbers("iqi")),
    **dict.fromkeys((5, 6, 7, 8), codec.numbers("iqqi")),
    **dict.fromkeys((9, 10, 11), codec.numbers("iiqqi")),
    _FLEXIBLE: codec.numbers("iiqiqi"),
}
NO_SESSION, FIRST_EPOCH, FINAL_EPOCH = 0, 0, -1  # of sessions: see `fetch_sessions`
LARGEST_EPOCH = 2**31 - 1


class FetchPartition(NamedTuple):
    """What is asked of one partition. leader_epoch, last_epoch (of the record before `offset`),
    log_start: -1 if the client does not say."""

    topic: str
    number: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_epoch: int = -1
    log_start: int = -1


class FetchRequest(NamedTuple):
    """replica_id: of the follower that asks; -1: a consumer does."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: list[TopicPartition]


class Found(NamedTuple):
    """What there is for a partition. diverging: an epoch, and where it ends: see `truncation`."""

    error: ErrorCode
    high_watermark: int = -1
    log_start: int = -1
    records: FileSlice | None = None
    diverging: tuple[int, int] | None = None


class Fetched(NamedTuple):
    """What a follower is told of a partition."""

    topic: str
    number: int
    error: int
    high_watermark: int
    log_start: int
    records: bytes
    diverging: tuple[int, int] | None


class FetchReply(NamedTuple):
    """What a follower is told."""

    error: int
    session_id: int
    partitions: list[Fetched]


def next_epoch(epoch: int) -> int:
    """The number of a session's next request: after the largest comes 1, since 0 begins a session.

    >>> next_epoch(FIRST_EPOCH), next_epoch(LARGEST_EPOCH)
    (1, 1)
    """
    return epoch % LARGEST_EPOCH + 1


def read_request(version: int, data: bytes, at: int) -> FetchRequest:
    """The request that is at `at`. Raises BadMessage."""
    session_id, session_epoch = NO_SESSION, FINAL_EPOCH
    if version >= 7:
        head, at = _HEAD_WITH_SESSION(data, at)
        replica, wait_ms, min_bytes, max_bytes, _, session_id, session_epoch = head
    else:
        (replica, wait_ms, min_bytes, max_bytes, _), at = _HEAD(data, at)
    flexible = version >= _FLEXIBLE
    read_text = codec.read_compact_string if flexible else codec.read_string
    read_one = _PARTITION[version]
    partitions, forgotten = [], []
    count, at = codec.read_count(data, at, compact=flexible)
    for _ in range(count):
        name, at = _name(*read_text(data, at))
        many, at = codec.read_count(data, at, compact=flexible)
        for _ in range(many):
            values, at = read_one(data, at)
            leader_epoch = last_epoch = log_start = -1
            if flexible:
                number, leader_epoch, offset, last_epoch, log_start, limit = values
                at = skip_tagged_fields(data, at)
            elif version >= 9:
                number, leader_epoch, offset, log_start, limit = values
            elif version >= 5:
                number, offset, log_start, limit = values
            else:
                number, offset, limit = values
            epochs = leader_epoch, last_epoch
            partitions.append(FetchPartition(name, number, offset, limit, *epochs, log_start))
        if flexible:
            at = skip_tagged_fields(data, at)
    if version >= 7:
        count, at = codec.read_count(data, at, compact=flexible)
        for _ in range(count):
            name, at = _name(*read_text(data, at))
            many, at = codec.read_count(data, at, compact=flexible)
            for _ in range(many):
                number, at = codec.read_int32(data, at)
                forgotten.append((name, number))
            if flexible:
                at = skip_tagged_fields(data, at)
    if version >= 11:
        _, at = _name(*read_text(data, at))
    if flexible:
        skip_tagged_fields(data, at)
    session = session_id, session_epoch
    return FetchRequest(replica, wait_ms, min_bytes, max_bytes, *session, partitions, forgotten)


_ANSWER = struct.Struct(">ihqq")  # number, error, high watermark, last stable offset
_DIVERGING = struct.Struct(">BBBiqB")  # one tagged field, number 0, its size; the epoch, its end
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")


def write_reply(
    version: int,
    error: ErrorCode,
    session_id: int,
    keys: Iterable[TopicPartition],
    found: Sequence[Found],
) -> list[bytes | FileSlice]:
    """The reply, without its head; the records are slices of files that stay where they are."""
    flexible = version >= _FLEXIBLE
    topics: dict[str, list[tuple[int, Found]]] = {}
    for (topic, number), here in zip(keys, found, strict=True):
        topics.setdefault(topic, []).append((number, here))
    pieces: list[bytes | FileSlice] = []
    data = bytearray(4)  # throttle time
    if version >= 7:
        data += struct.pack(">hi", error, session_id)
    write_count = codec.write_compact_length if flexible else codec.write_int32
    write_text = codec.write_compact_string if flexible else codec.write_string
    write_count(data, len(topics))
    for topic, some in topics.items():
        write_text(data, topic)
        write_count(data, len(some))
        for number, here in some:
            watermark = here.high_watermark
            data += _ANSWER.pack(number, here.error, watermark, watermark)
            if version >= 5:
                data += _INT64.pack(here.log_start)
            data += b"\0" if flexible else _INT32.pack(-1)  # no list of aborted transactions
            if version >= 11:
                data += _INT32.pack(-1)  # no other replica is nearer
            size = here.records.size if here.records is not None else 0
            write_count(data, size)
            if here.records is not None and size:
                pieces += [bytes(data), here.records]
                data = bytearray()
            if flexible:
                data += (
                    b"\0"
                    if here.diverging is None
                    else _DIVERGING.pack(1, 0, 13, *here.diverging, 0)
                )
        if flexible:
            data += b"\0"
    if flexible:
        data += b"\0"
    return [*pieces, bytes(data)]


# A follower's part.

_ASK = struct.Struct(">iiiibii")
_ASK_ONE = struct.Struct(">iiqiqiB")
_read_reply_head, _read_answer = codec.numbers("ihi"), codec.numbers("ihqqq")


def write_request(request: FetchRequest) -> bytes:
    """A follower's request, without its head."""
    out = bytearray(
        _ASK.pack(
            request.replica_id,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            0,
            request.session_id,
            request.session_epoch,
        )
    )
    topics: dict[str, list[FetchPartition]] = {}
    for one in request.partitions:
        topics.setdefault(one.topic, []).append(one)
    codec.write_compact_length(out, len(topics))
    for topic, some in topics.items():
        codec.write_compact_string(out, topic)
        codec.write_compact_length(out, len(some))
        for one in some:
            out += _ASK_ONE.pack(
                one.number,
                one.leader_epoch,
                one.offset,
                one.last_epoch,
                one.log_start,
                one.max_bytes,
                0,
            )
        out += b"\0"
    forgotten: dict[str, list[int]] = {}
    for topic, number in request.forgotten:
        forgotten.setdefault(topic, []).append(number)
    codec.write_compact_length(out, len(forgotten))
    for topic, numbers in forgotten.items():
        codec.write_compact_string(out, topic)
        codec.write_compact_length(out, len(numbers))
        out += struct.pack(f">{len(numbers)}i", *numbers) + b"\0"
    out += b"\1\0"  # a rack without a name, and no tagged fields
    return bytes(out)


def read_reply(data: bytes, at: int) -> FetchReply:
    """The reply to a follower that is at `at`. Raises BadMessage."""
    (_, error, session_id), at = _read_reply_head(data, at)
    partitions = []
    count, at = codec.read_count(data, at, compact=True)
    for _ in range(count):
        name, at = _name(*codec.read_compact_string(data, at))
        many, at = codec.read_count(data, at, compact=True)
        for _ in range(many):
            (number, wrong, watermark, _, log_start), at = _read_answer(data, at)
            aborted, at = codec.read_compact_length(data, at)
            if aborted > 0:
                raise BadMessage(f"aborted transactions of {name}-{number}", "")
            _, at = codec.read_int32(data, at)  # which replica is nearer
            records, at = codec.read_compact_bytes(data, at)
            tagged, at = codec.read_tagged_fields(data, at, _TAGGED)
            partitions.append(
                Fetched(
                    name,
                    number,
                    wrong,
                    watermark,
                    log_start,
                    records or b"",
                    tagged.get("diverging"),
                )
            )
        at = skip_tagged_fields(data, at)
    skip_tagged_fields(data, at)
    return FetchReply(error, session_id, partitions)


_TAGGED: dict[int, tuple[str, codec.Read]] = {0: ("diverging", codec.numbers("iq"))}


def _name(name: str | None, at: int) -> tuple[str, int]:
    if name is None:
        raise BadMessage(f"a name that is null, before byte {at}", "give it one")
    return name, at
