"""Produce's hand-written bytes are those that `schemas` reads and writes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phase2_groups.error_codes import ErrorCode
from phase3_raft import schemas
from phase3_raft.codec import BadMessage
from phase3_raft.produce_messages import Answer, read_request, write_reply

VERSIONS = st.integers(3, 9)
NAMES = st.text("abcé-._", max_size=8)
PARTITION = st.tuples(st.integers(-(2**31), 2**31 - 1), st.none() | st.binary(max_size=300))
TOPICS = st.lists(st.tuples(NAMES, st.lists(PARTITION, max_size=3)), max_size=3)
INT64 = st.integers(-(2**63), 2**63 - 1)
ANSWERS = st.builds(
    Answer,
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from(list(ErrorCode)),
    INT64,
    INT64,
    INT64,
    st.none() | st.text(max_size=10),
)


def written(version, acks, topics, transactional_id=None):
    fields = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 1,
        "topic_data": [
            {"name": n, "partition_data": [{"index": i, "records": r} for i, r in some]}
            for n, some in topics
        ],
    }
    return schemas.encode("produce", version, fields, "request")


@given(VERSIONS, st.integers(-(2**15), 2**15 - 1), TOPICS, st.none() | NAMES)
def test_a_request_is_read_as_the_schema_says(version, acks, topics, transactional_id):
    data = b"head" + written(version, acks, topics, transactional_id)
    assert read_request(version, data, 4) == (acks, 1, topics)


@given(VERSIONS, st.lists(st.tuples(NAMES, st.lists(ANSWERS, max_size=3)), max_size=3))
def test_a_reply_is_written_as_the_schema_says(version, answers):
    fields = {
        "responses": [
            {
                "name": topic,
                "partition_responses": [
                    {
                        "index": one.partition,
                        "error_code": one.error,
                        "base_offset": one.base_offset,
                        "log_append_time": one.append_time,
                        "log_start_offset": one.log_start,
                        "record_errors": (),
                        "error_message": one.message,
                    }
                    for one in some
                ],
            }
            for topic, some in answers
        ],
        "throttle_time": 0,
    }
    assert write_reply(version, answers) == schemas.encode("produce", version, fields)


@given(VERSIONS, TOPICS.filter(bool), st.data())
def test_bytes_that_are_no_request_are_refused_or_read_to_their_end(version, topics, data):
    whole = written(version, 1, topics)
    place = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for some in (bytes(damaged), whole[:cut]):
        with contextlib.suppress(BadMessage):
            read_request(version, some, 0)


@pytest.mark.parametrize("version", [3, 9])
def test_lengths_that_lie_and_missing_names_are_refused(version):
    start = written(version, 1, [])[: -2 if version == 9 else -4]
    lies = (b"\xff\xff\xff\xff\x0f" if version == 9 else b"\x7f\xff\xff\xff") + b"x" * 9
    with pytest.raises(BadMessage, match="values in a list"):
        read_request(version, start + lies, 0)
    nameless = b"\x02\x00" if version == 9 else b"\0\0\0\x01\xff\xff"
    with pytest.raises(BadMessage, match="without a name"):
        read_request(version, start + nameless + bytes(9), 0)
