"""The lessons on the wire: every byte of a message has its field, and both ways to send are one."""

from __future__ import annotations

import socket
import threading

import pytest

from craft2.apps.lessons import wire
from craft2.apps.lessons.zero_copy import a_file, measure, send_by_kernel, send_copied
from craft2.hexdump import compare_bytes
from craft2.record_batch import encode_values
from phase3_raft import schemas
from phase3_raft.connection import reply_head

BATCH = encode_values([b"UA 1545"], timestamps=0)
METADATA = {
    "topics": [{"topic_id": None, "name": "flights"}],
    "allow_auto_topic_creation": True,
    "include_topic_authorized_operations": False,
    "include_cluster_authorized_operations": False,
}


@pytest.mark.parametrize(
    "request_bytes",
    [
        wire.metadata_request("flights"),
        wire.produce_request("flights", 3, BATCH),
        wire.fetch_request("flights", 0, 12, wait_ms=5),
        wire.request("heartbeat", 0, {"group_id": "g", "generation_id": 1, "member_id": "m"}),
    ],
)
def test_the_pieces_of_a_request_are_the_request(request_bytes):
    found = wire.request_pieces(request_bytes)
    assert b"".join(piece.raw for piece in found) == request_bytes
    assert [piece.position for piece in found] == [
        sum(len(piece.raw) for piece in found[:n]) for n in range(len(found))
    ]
    assert found[0].value == len(request_bytes) - 4


def test_a_flexible_request_has_tagged_fields_in_its_head_and_body():
    body = schemas.encode("metadata", 9, METADATA, "request")
    plain = wire.request("metadata", 1, METADATA)
    head = plain[4:6] + b"\0\x09" + plain[8:16] + b"\0"
    found = wire.request_pieces((len(head) + len(body)).to_bytes(4, "big") + head + body)
    assert b"".join(piece.raw for piece in found)[4:] == head + body
    assert [piece.name for piece in found].count("tagged fields") == 3


def test_the_pieces_of_a_reply_are_the_reply_and_name_the_wrong_field():
    keys = [{"api_key": 18, "min_version": 0, "max_version": 3}]
    fields = {"error_code": 0, "api_keys": keys, "throttle_time": 0}
    body = schemas.encode("api_versions", 0, fields)
    reply = reply_head(7, len(body), flexible=False)[4:] + body
    found = wire.reply_pieces("api_versions", 0, reply)
    assert b"".join(piece.raw for piece in found) == reply
    wrong = reply[:-1] + b"\xff"
    assert "max version: expected 03, got ff" in compare_bytes(wrong, reply, wire.places(found))


@pytest.mark.parametrize("send", [send_copied, send_by_kernel])
def test_both_ways_send_the_slice_and_nothing_else(tmp_path, send):
    with a_file(tmp_path, 3_000_000) as whole:
        piece = type(whole)(whole.file, 1_000, 2_500_000)
        ours, theirs = socket.socketpair()
        writer = threading.Thread(target=lambda: (send(ours, piece), ours.close()))
        writer.start()
        with theirs, theirs.makefile("rb") as stream:
            assert stream.read() == piece.read()
        writer.join()
        assert min(measure(send, piece, times=1)) > 0
    assert not list(tmp_path.iterdir())
