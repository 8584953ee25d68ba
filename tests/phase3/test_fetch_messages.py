"""Fetch's hand-written bytes are those that `schemas` reads and writes."""

from __future__ import annotations

import contextlib
import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craft2.disk import FileSlice
from phase2_groups.error_codes import ErrorCode
from phase3_raft import fetch_messages, schemas
from phase3_raft.codec import BadMessage
from phase3_raft.fetch_messages import (
    Fetched,
    FetchPartition,
    FetchRequest,
    Found,
    read_reply,
    read_request,
    write_reply,
    write_request,
)

VERSIONS = st.integers(4, 12)
NAMES = st.text("abcé-._", max_size=8)
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.builds(FetchPartition, NAMES, INT32, INT64, INT32, INT32, INT32, INT64)
REQUESTS = st.builds(
    FetchRequest,
    INT32,
    st.integers(0, 2**31 - 1),
    INT32,
    INT32,
    INT32,
    INT32,
    st.lists(PARTITIONS, max_size=4),
    st.lists(st.tuples(NAMES, INT32), max_size=4),
)


class Held:
    """A file in memory, as far as a slice of it needs one."""

    def __init__(self, data):
        self.data = data

    def read_at(self, position, size):
        return self.data[position : position + size]


def slice_of(data):
    return FileSlice(Held(b"before" + data), 6, len(data))


FOUND = st.builds(
    Found,
    st.sampled_from(list(ErrorCode)),
    INT64,
    INT64,
    st.none() | st.binary(max_size=40).map(slice_of),
    st.none() | st.tuples(st.integers(0, 2**31 - 1), INT64),
)
ANSWERS = st.lists(st.tuples(st.tuples(NAMES, INT32), FOUND), max_size=4)


def grouped(keys):
    """By topic, as the protocol has them."""
    topics = {}
    for topic, value in keys:
        topics.setdefault(topic, []).append(value)
    return topics


def as_fields(request):
    asked = grouped((one.topic, one) for one in request.partitions)
    return {
        "replica_id": request.replica_id,
        "max_wait": request.max_wait_ms,
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": 0,
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": one.number,
                        "current_leader_epoch": one.leader_epoch,
                        "fetch_offset": one.offset,
                        "last_fetched_epoch": one.last_epoch,
                        "log_start_offset": one.log_start,
                        "partition_max_bytes": one.max_bytes,
                    }
                    for one in some
                ],
            }
            for topic, some in asked.items()
        ],
        "forgotten_topics_data": [
            {"topic": topic, "partitions": some}
            for topic, some in grouped(request.forgotten).items()
        ],
        "rack_id": "",
    }


def in_order(request):
    """As it comes when partitions of one topic come together."""
    asked = grouped((one.topic, one) for one in request.partitions)
    gone = grouped(request.forgotten)
    return request._replace(
        partitions=[one for some in asked.values() for one in some],
        forgotten=[(topic, number) for topic, some in gone.items() for number in some],
    )


def known_in(version, request):
    """What a version has no room for has its default."""
    gone = {}
    if version < 12:
        gone["last_epoch"] = -1
    if version < 9:
        gone["leader_epoch"] = -1
    if version < 5:
        gone["log_start"] = -1
    partitions = [one._replace(**gone) for one in request.partitions]
    if version < 7:
        request = request._replace(session_id=0, session_epoch=-1, forgotten=[])
    return request._replace(partitions=partitions)


@given(VERSIONS, REQUESTS)
def test_a_request_is_read_as_the_schema_says(version, request):
    data = b"head" + schemas.encode("fetch", version, as_fields(request), "request")
    assert read_request(version, data, 4) == known_in(version, in_order(request))


@given(REQUESTS)
def test_a_follower_writes_what_the_schema_would(request):
    assert write_request(request) == schemas.encode("fetch", 12, as_fields(request), "request")


def joined(pieces):
    return b"".join(one if isinstance(one, bytes) else one.read() for one in pieces)


@given(VERSIONS, st.sampled_from(list(ErrorCode)), INT32, ANSWERS)
def test_a_reply_is_written_as_the_schema_says(version, error, session_id, answers):
    topics = grouped((topic, (number, found)) for (topic, number), found in answers)
    fields = {
        "throttle_time": 0,
        "error_code": error,
        "session_id": session_id,
        "responses": [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition_index": number,
                        "error_code": found.error,
                        "high_watermark": found.high_watermark,
                        "last_stable_offset": found.high_watermark,
                        "log_start_offset": found.log_start,
                        "aborted_transactions": None,
                        "preferred_read_replica": -1,
                        "records": b"" if found.records is None else found.records.read(),
                        **(
                            {}
                            if found.diverging is None
                            else {
                                "diverging_epoch": {
                                    "epoch": found.diverging[0],
                                    "end_offset": found.diverging[1],
                                }
                            }
                        ),
                    }
                    for number, found in some
                ],
            }
            for topic, some in topics.items()
        ],
    }
    keys, found = [key for key, _ in answers], [one for _, one in answers]
    data = joined(write_reply(version, error, session_id, keys, found))
    assert data == schemas.encode("fetch", version, fields)
    if version == 12:
        reply = read_reply(b"head" + data, 4)
        assert (reply.error, reply.session_id) == (error, session_id)
        assert reply.partitions == [
            Fetched(
                topic,
                number,
                one.error,
                one.high_watermark,
                one.log_start,
                b"" if one.records is None else one.records.read(),
                one.diverging,
            )
            for topic, some in topics.items()
            for number, one in some
        ]


@given(VERSIONS, st.binary(max_size=120))
def test_other_bytes_are_refused_or_read(version, data):
    with contextlib.suppress(BadMessage):
        read_request(version, data, 0)
    with contextlib.suppress(BadMessage):
        read_reply(data, 0)


@given(REQUESTS, st.data())
def test_a_request_that_is_cut_is_refused(request, data):
    whole = schemas.encode("fetch", 11, as_fields(request), "request")
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(BadMessage):
        read_request(11, whole[:cut], 0)


def test_the_examples_in_the_text_are_true():
    done = doctest.testmod(fetch_messages)
    assert (done.failed, done.attempted > 0) == (0, True)
