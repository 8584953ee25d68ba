"""What comes over a connection: in any pieces, damaged, too long, from strangers."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from raft_cluster import entries

from phase3_raft.raft.frames import (
    VERSION,
    BadFrame,
    FrameReader,
    Hello,
    Reply,
    Stranger,
    check_hello,
    decode_from,
    decode_greeting,
    frame,
    greeting,
)
from phase3_raft.raft.messages import (
    Append,
    BadMessage,
    Entry,
    EntryKind,
    InstallSnapshot,
    Members,
    RequestVote,
    Snapshot,
    Vote,
    decode_message,
    encode_message,
)

HELLO = Hello(VERSION, "c", 2, 1)
ASK = RequestVote(sender=2, to=1, term=7, last_index=40, last_term=6)


def append(*some, prev=(0, 0), term=3):
    return Append(
        sender=2, to=1, term=term, prev_index=prev[0], prev_term=prev[1], entries=some, commit=0
    )


@given(st.lists(st.binary(max_size=40), max_size=5), st.lists(st.integers(0, 300)))
def test_frames_come_out_as_they_went_in_however_they_are_cut(bodies, cuts):
    whole = b"".join(map(frame, bodies))
    places = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    reader, found = FrameReader(40), []
    for begin, end in pairwise(places):
        found += reader.feed(whole[begin:end])
    assert found == bodies


def test_a_frame_comes_out_with_its_last_byte_and_not_before():
    reader = FrameReader(100)
    whole = frame(b"body")
    for byte in whole[:-1]:
        assert reader.feed(bytes([byte])) == []
    assert reader.feed(whole[-1:] + b"more") == [b"body"]


@given(st.binary(min_size=1, max_size=30), st.data())
def test_a_bit_that_flips_anywhere_is_noticed_or_awaits_more(body, data):
    whole = bytearray(frame(body))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    reader = FrameReader(10_000)
    try:
        bodies = reader.feed(bytes(whole))
    except BadFrame:
        return
    assert bodies == []  # the length has grown


def test_what_is_whole_comes_out_before_the_garbage_behind_it_is_refused():
    reader = FrameReader(100)
    assert reader.feed(frame(b"first") + frame(b"second") + b"\xff" * 8) == [b"first", b"second"]
    with pytest.raises(BadFrame, match="a frame of 4294967295 bytes"):
        reader.feed(b"")


def test_a_frame_that_is_too_long_is_refused_before_it_has_come():
    with pytest.raises(BadFrame, match="a frame of 101 bytes, where 100 are allowed"):
        FrameReader(100).feed(frame(b"x" * 101)[:8])


def test_whoever_speaks_http_is_refused():
    with pytest.raises(BadFrame, match="let only servers of this cluster connect"):
        FrameReader(1024).feed(b"GET / HTTP/1.1\r\n\r\n")


# Greetings.


def test_a_member_of_this_cluster_is_welcome():
    check_hello(HELLO, "c", 1, {1, 2, 3}.__contains__)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"cluster": "other"}, "it belongs to cluster 'other', and this server to 'c'"),
        ({"sender": 9}, "nobody knows it here"),
        ({"sender": 1}, "that is nobody's number but mine"),
        ({"to": 3}, "it looks for server 3, and this is server 1"),
        ({"version": VERSION - 1}, "it speaks version 1, and this server 2"),
    ],
)
def test_strangers_are_refused(change, says):
    hello = msgspec.structs.replace(HELLO, **change)
    with pytest.raises(Stranger, match=says):
        check_hello(hello, "c", 1, {1, 2, 3}.__contains__)


@pytest.mark.parametrize("what", [HELLO, Reply(), Reply("no")])
def test_greetings_are_understood(what):
    [body] = FrameReader(100).feed(greeting(what))
    assert decode_greeting(body, type(what)) == what


@pytest.mark.parametrize("body", [b"", b"\xff", msgspec.msgpack.encode([1, "c"])])
def test_what_is_no_greeting_is_refused(body):
    with pytest.raises(BadMessage, match="are no Hello"):
        decode_greeting(body, Hello)


# Messages.


def test_everybody_speaks_for_himself_and_to_whom_he_is_connected():
    assert decode_from(encode_message(ASK), 2, 1) == ASK
    for sender, to in ((3, 1), (2, 3)):
        with pytest.raises(Stranger, match=f"on the connection from {sender} to {to}"):
            decode_from(encode_message(ASK), sender, to)


@pytest.mark.parametrize(
    "message",
    [
        msgspec.structs.replace(ASK, term=2**31),
        msgspec.structs.replace(ASK, term=2**31 - 1),  # nobody could ever lead again
        msgspec.structs.replace(ASK, term=-1),
        msgspec.structs.replace(ASK, last_index=-1),
        Vote(sender=2, to=1, term=2**40, granted=True),
        append(prev=(-1, 0)),
        append(Entry(2**31, 1, b"")),
        InstallSnapshot(sender=2, to=1, term=3, snapshot=Snapshot(-3, 1)),
    ],
)
def test_terms_and_indexes_that_cannot_be_are_refused(message):
    with pytest.raises(BadMessage, match="no message of a Raft server"):
        decode_from(encode_message(message), 2, 1)


@pytest.mark.parametrize(
    "message",
    [
        append(*entries(1, first=2)),
        append(*entries(1, 1), *entries(1, first=4)),
        append(*entries(2, 1)),
        append(*entries(1), prev=(0, 2)),
        append(*entries(4)),
    ],
    ids=["hole at first", "hole inside", "terms fall", "term before the last", "from the future"],
)
def test_a_log_with_a_hole_is_refused(message):
    with pytest.raises(BadMessage, match="cannot follow entry"):
        decode_from(encode_message(message), 2, 1)


def test_members_that_are_none_are_refused():
    good = Entry(1, 1, Members((1, 2)).encode(), EntryKind.MEMBERS)
    assert decode_from(encode_message(append(good)), 2, 1) == append(good)
    with pytest.raises(BadMessage):
        decode_from(encode_message(append(Entry(1, 1, b"?", EntryKind.MEMBERS))), 2, 1)


@pytest.mark.parametrize(
    "members",
    [
        Members((1, 1)),
        Members((1, 2), (2,)),
        Members((1,), (3, 3)),
        Members((2**64 - 1,)),
        Members((2**31,)),
        Members((-1,)),
    ],
)
def test_members_that_could_not_decide_anything_together_are_refused(members):
    entry = append(Entry(1, 1, members.encode(), EntryKind.MEMBERS))
    snapshot = InstallSnapshot(sender=2, to=1, term=3, snapshot=Snapshot(4, 2, members))
    for message in (entry, snapshot):
        with pytest.raises(BadMessage, match=r"is named twice|Expected `int`"):
            decode_from(encode_message(message), 2, 1)


def test_no_index_is_so_late_that_none_could_follow():
    for last in (2**53 + 1, 2**62 - 1):
        with pytest.raises(BadMessage, match="no message of a Raft server"):
            decode_from(encode_message(msgspec.structs.replace(ASK, last_index=last)), 2, 1)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_message_or_refused(body):
    try:
        message = decode_from(body, 2, 1)
    except BadMessage:
        return
    assert (message.sender, message.to) == (2, 1)


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (
            Append(
                sender=1, to=2, term=3, prev_index=0, prev_term=0, commit=0,
                entries=(Entry(3, 1, b"", 7),),
            ),
            "kind 7",
        ),
        (
            Append(
                sender=1, to=2, term=3, prev_index=0, prev_term=0, commit=0,
                entries=(Entry(3, 1, Members().encode(), EntryKind.MEMBERS),),
            ),
            "there are no voters",
        ),
        (InstallSnapshot(sender=1, to=2, term=3, snapshot=Snapshot(4, 9, Members((1,)))), "term 9"),
        (InstallSnapshot(sender=1, to=2, term=3, snapshot=Snapshot(4, 2)), "voters"),
    ],
)  # fmt: skip
def test_entries_and_snapshots_that_cannot_be_are_refused(message, named):
    with pytest.raises(BadMessage, match=named):
        decode_message(encode_message(message))


@pytest.mark.parametrize(
    "body",
    [b"\x94\x01\xa2\xff\xfe\x02\x01", b"\x95\x01\xa1a\x01\x02" + b"\x91" * 1_000 + b"\xc0"],
    ids=["a name that is no UTF-8", "a thousand lists in each other"],
)
def test_a_greeting_that_cannot_be_read_is_refused_and_no_error_of_the_server(body):
    with pytest.raises(BadMessage):
        decode_greeting(body, Hello)
