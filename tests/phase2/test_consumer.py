"""The consumer, over files: positions, commits, rebalances, and what it refuses."""

from __future__ import annotations

import re
import threading

import pyarrow.compute  # noqa: F401  # an import must not be interrupted
import pytest
from interrupts import at_each_moment

from craft2.disk import RealDisk
from craft2.events import Events
from craft2.record_batch import encode_control_key, encode_values
from phase2_groups import connect
from phase2_groups.connect import UnknownAddress
from phase2_groups.consumer import Consumer, RebalanceListener
from phase2_groups.consumer_config import BadConsumerConfig, ConsumerConfig
from phase2_groups.consumer_errors import (
    CommitRefused,
    ConsumerClosed,
    ConsumerError,
    GroupBlocked,
    NoOffset,
    NotAssigned,
    UnknownTopic,
)
from phase2_groups.error_codes import ErrorCode
from phase2_groups.file_transport import FileTransport, create_topic
from phase2_groups.group_files import GroupFilesError
from phase2_groups.group_messages import OffsetToCommit
from phase2_groups.membership import FencedInstance
from phase2_groups.topics import TopicError

T0, T1 = ("t", 0), ("t", 1)


@pytest.fixture
def root(tmp_path):
    create_topic(tmp_path, "t", 2)
    return tmp_path


def put(root, partition, *values, **fields):
    fields = {"timestamps": 1000} | fields
    with FileTransport(root) as files:
        batch = encode_values([v.encode() for v in values], **fields)
        [answer] = files.produce({partition: batch}, acks=1, timeout_ms=1000).values()
        assert answer.error is ErrorCode.NONE
        return answer.offset


def consumer(root, group="g", **settings):
    settings = {
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 2000,
        "heartbeat_interval_ms": 300,
        **settings,
    }
    return Consumer(ConsumerConfig(bootstrap_servers=f"file:{root}", group_id=group, **settings))


def values(records):
    return [record.value.decode() for record in records]


def poll_until(consumers, reached, rounds=600):
    """Poll each in turn, in this thread, until `reached()`; what they returned, a list each."""
    found = [[] for _ in consumers]
    for _ in range(rounds):
        if reached():
            return found
        for number, one in enumerate(consumers):
            found[number] += one.poll(20)
    raise AssertionError(f"after {rounds} polls: {[one.assignment() for one in consumers]}")


# --- positions


def test_assigned_partitions_are_read_from_the_start_or_the_end(root):
    put(root, T0, "a", "b")
    with consumer(root) as c:
        c.assign([T0, T1])
        assert values(c.poll()) == ["a", "b"]
        assert c.position(T0) == 2
        assert c.position(T1) == 0
    with consumer(root, auto_offset_reset="latest") as c:
        c.assign([T0])
        assert c.poll(0) == []
        put(root, T0, "c")
        [record] = c.poll()
        assert (record.offset, record.value, record.timestamp) == (2, b"c", 1000)


def test_without_offset_and_policy_there_is_an_error_that_names_the_partition(root):
    with consumer(root, auto_offset_reset="none") as c:
        c.assign([T0])
        with pytest.raises(NoOffset, match="t-0: group 'g' has no committed offset"):
            c.poll(0)
        c.seek(T0, 0)
        assert c.poll(0) == []
        c.seek(T0, 7)
        with pytest.raises(NoOffset, match="offset 7 is gone: it holds 0 to -1"):
            c.poll(0)


def test_seek_goes_to_an_offset_a_time_or_an_end(root):
    for n in range(5):
        put(root, T0, f"{n}", timestamps=1000 + n)
    with consumer(root) as c:
        c.assign([T0])
        assert values(c.poll()) == ["0", "1", "2", "3", "4"]
        c.seek(T0, 3)
        assert values(c.poll()) == ["3", "4"]
        c.seek_to_timestamp(1002, T0)
        assert values(c.poll()) == ["2", "3", "4"]
        c.seek_to_timestamp(9999)
        assert c.position(T0) == 5
        c.seek_to_beginning()
        assert c.position(T0) == 0
        c.seek_to_end(T0)
        assert c.position(T0) == 5


def test_a_position_inside_a_batch_drops_what_lies_before_it(root):
    put(root, T0, *"abcdef")
    with consumer(root, max_poll_records=2) as c:
        c.assign([T0])
        c.seek(T0, 3)
        assert values(c.poll()) == ["d", "e"]
        assert values(c.poll()) == ["f"]


def test_control_batches_are_passed_over(root):
    put(root, T0, "a")
    with FileTransport(root) as files:
        marker = encode_values([b""], keys=[encode_control_key(1)], timestamps=1, control=True)
        files.produce({T0: marker}, acks=1, timeout_ms=1000)
    with consumer(root) as c:
        c.assign([T0])
        assert values(c.poll()) == ["a"]
        c.poll(0)
        assert c.position(T0) == 2
        put(root, T0, "b")
        assert values(c.poll()) == ["b"]
        c.seek(T0, 0)
        assert c.poll_arrow()["value"].to_pylist() == [b"a", b"b"]
        assert c.position(T0) == 3


def test_paused_partitions_keep_what_they_have_and_return_nothing(root):
    put(root, T0, *"abc")
    put(root, T1, *"xyz")
    with consumer(root, max_poll_records=1) as c:
        c.assign([T0, T1])
        first = values(c.poll())
        c.pause(T0)
        assert c.paused() == {T0}
        rest = values(c.poll(0)) + values(c.poll(0)) + values(c.poll(0)) + values(c.poll(0))
        assert rest == [v for v in "xyz" if v not in first]
        c.resume()
        assert values(c.poll(0)) + values(c.poll(0)) == [v for v in "abc" if v not in first][:2]


def test_partitions_take_turns(root):
    put(root, T0, *(f"a{n}" for n in range(100)))
    put(root, T1, *(f"b{n}" for n in range(100)))
    with consumer(root, max_poll_records=60) as c:
        c.assign([T0, T1])
        seen = [len({v[0] for v in values(c.poll(0))}) for _ in range(3)]
        assert max(seen) == 2, "a full partition does not starve the other"


def test_arrow_gives_the_same_records(root):
    put(root, T0, *"abc", keys=[b"k", None, b"k"])
    put(root, T1, "x")
    with consumer(root) as c:
        c.assign([T0, T1])
        table = c.poll_arrow()
        rows = table.select(["topic", "partition", "offset", "key", "value"]).to_pylist()
        assert [tuple(row.values()) for row in rows] == [
            ("t", 0, 0, b"k", b"a"),
            ("t", 0, 1, None, b"b"),
            ("t", 0, 2, b"k", b"c"),
            ("t", 1, 0, None, b"x"),
        ]
        assert c.poll_arrow(0) is None
        c.seek(T0, 2)
        assert c.poll_arrow()["value"].to_pylist() == [b"c"]


def test_poll_and_poll_arrow_share_a_position(root):
    put(root, T0, *"abcd")
    with consumer(root, max_poll_records=1) as c:
        c.assign([T0])
        assert values(c.poll()) == ["a"]
        assert c.poll_arrow()["value"].to_pylist() == [b"b", b"c", b"d"]
        put(root, T0, "e")
        assert values(c.poll()) == ["e"]


def test_lag_is_what_lies_beyond_the_position(root):
    put(root, T0, *"abcd")
    with consumer(root, max_poll_records=3) as c:
        c.assign([T0, T1])
        c.poll()
        assert c.lag() == {T0: 1, T1: 0}


# --- commits


def test_commits_are_the_next_offset_and_outlive_the_consumer(root):
    put(root, T0, *"abcd")
    with consumer(root, enable_auto_commit=False) as c:
        c.assign([T0, T1])
        c.poll()
        assert c.committed() == {}
        c.commit({T0: 2})
        assert c.committed()[T0].offset == 2
        c.commit({T0: OffsetToCommit(offset=3, metadata="by hand")})
    with consumer(root, enable_auto_commit=False) as c:
        c.assign([T0])
        assert c.committed()[T0].metadata == "by hand"
        assert values(c.poll()) == ["d"]
        c.commit()
        assert c.committed()[T0].offset == 4


def test_what_poll_has_returned_is_committed_automatically_on_close(root):
    put(root, T0, *"abcd")
    with consumer(root, max_poll_records=3) as c:
        c.subscribe(["t"])
        [found] = poll_until([c], lambda: T0 in c.assignment() and c.position(T0) >= 3)
        assert values(found) == ["a", "b", "c"]
    with consumer(root) as c:
        c.assign([T0])
        assert c.committed()[T0].offset == 3


@pytest.mark.parametrize("offset", [-1, 1.5, True, "3"])
def test_an_offset_that_is_none_is_refused(root, offset):
    with consumer(root) as c:
        c.assign([T0])
        with pytest.raises(ConsumerError, match="give"):
            c.commit({T0: offset})
        with pytest.raises(ConsumerError, match="give"):
            c.seek(T0, offset)


# --- groups


class Listener(RebalanceListener):
    def __init__(self):
        self.calls = []

    def on_partitions_revoked(self, partitions):
        self.calls.append(("revoked", *partitions))

    def on_partitions_assigned(self, partitions):
        self.calls.append(("assigned", *partitions))

    def on_partitions_lost(self, partitions):
        self.calls.append(("lost", *partitions))


def test_two_members_share_and_the_one_that_stays_takes_over(root):
    put(root, T0, "a")
    put(root, T1, "x")
    listener = Listener()
    with consumer(root) as a:
        a.subscribe(["t"], listener)
        found = poll_until([a], lambda: len(a.assignment()) == 2)[0]
        b = consumer(root)
        b.subscribe(["t"])
        for some in poll_until([a, b], lambda: b.assignment() and len(a.assignment()) == 1):
            found += some
        found += a.poll(0) + b.poll(0)
        assert a.assignment() | b.assignment() == {T0, T1}
        b.close()
        found += poll_until([a], lambda: len(a.assignment()) == 2)[0]
        put(root, T1, "y")
        put(root, T0, "b")
        found += poll_until([a], lambda: sum(a.lag().values()) == 0)[0]
    assert sorted(set(values(found))) == ["a", "b", "x", "y"]
    kinds = [kind for kind, *_ in listener.calls]
    assert kinds == ["assigned", "revoked", "assigned", "revoked", "assigned", "revoked"]


def test_a_cooperative_member_keeps_reading_what_does_not_move(root):
    settings = {"partition_assignment_strategy": ("cooperative-sticky",)}
    listener = Listener()
    with consumer(root, **settings) as a:
        a.subscribe(["t"], listener)
        poll_until([a], lambda: len(a.assignment()) == 2)
        with consumer(root, **settings) as b:
            b.subscribe(["t"])
            poll_until([a, b], lambda: b.assignment())
        [kept] = a.assignment()
        revoked = [
            p for kind, *partitions in listener.calls for p in partitions if kind == "revoked"
        ]
        assert kept not in revoked
        assert len(revoked) == 1


def test_a_topic_that_grows_is_shared_out_again(root):
    events = Events("test")
    settings = ConsumerConfig(
        bootstrap_servers=f"file:{root}", group_id="g", metadata_max_age_ms=50
    )
    with FileTransport(root, events=events) as files, Consumer(settings, files) as c:
        c.subscribe(["t"])
        poll_until([c], lambda: len(c.assignment()) == 2)
        create_topic(root, "t", 5)
        poll_until([c], lambda: len(c.assignment()) == 5)
    because = [event.because for event in events.events if event.kind == "stable"]
    assert "t grew from 2 to 5 partitions" in because


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda c: c.assign(["t"]), "'t' is no partition"),
        (lambda c: c.assign("t"), "partitions is 't'"),
        (lambda c: c.assign([("t", "0")]), "is no partition"),
        (lambda c: c.pause("t"), "'t' is no partition"),
        (lambda c: c.poll(None), "timeout_ms is None"),
        (lambda c: c.poll(-1), "timeout_ms is -1"),
        (lambda c: c.seek_to_timestamp("x"), "timestamp_ms is 'x'"),
        (lambda c: c.commit({"t": 3}), "'t' is no partition"),
        (lambda c: c.commit([T0]), "offsets is"),
        (lambda c: c.commit({T0: 2**63}), "offset of t-0"),
        (lambda c: c.commit({T0: OffsetToCommit(offset=1, leader_epoch=2**31)}), "leader_epoch"),
        (lambda c: c.commit({T0: OffsetToCommit(offset=1, metadata="x" * 4097)}), "metadata"),
        (lambda c: c.committed([3]), "3 is no partition"),
    ],
)
def test_what_makes_no_sense_is_named_and_nothing_is_committed(root, call, named):
    with consumer(root) as one:
        one.assign([T0])
        with pytest.raises(ConsumerError, match=re.escape(named)):
            call(one)
        assert one.committed([T0]) == {}
        assert one.assignment() == {T0}


def test_a_file_in_place_of_the_groups_folder_is_named(root):
    (root / "__groups").write_text("not a folder")
    with consumer(root) as one:
        one.subscribe(["t"])
        with pytest.raises(GroupFilesError, match="a file is in its way"):
            one.poll(1000)


def test_a_member_that_was_given_up_learns_it_and_its_commit_is_refused(root):
    put(root, T0, *"abc")
    listener = Listener()
    with consumer(root, enable_auto_commit=False, max_poll_interval_ms=400) as slow:
        slow.subscribe(["t"], listener)
        poll_until([slow], lambda: T0 in slow.assignment() and slow.position(T0) == 3)
        with consumer(root) as other:
            other.subscribe(["t"])  # and slow does not poll any more
            [found] = poll_until([other], lambda: len(other.assignment()) == 2)
            found += poll_until([other], lambda: not any(other.lag().values()))[0]
            assert values(found) == ["a", "b", "c"]
            with pytest.raises(CommitRefused, match="has moved on without this member"):
                slow.commit({T0: 3})
            slow.poll(0)
            assert ("lost", T0, T1) in listener.calls


@pytest.mark.parametrize("auto", [False, True])
def test_who_was_given_up_cannot_commit_into_a_group_that_is_empty_by_then(root, auto):
    put(root, T0, *"abc")
    settings = {"max_poll_interval_ms": 400, "max_poll_records": 1, "enable_auto_commit": auto}
    slow = consumer(root, **settings, auto_commit_interval_ms=60_000)
    slow.subscribe(["t"])
    poll_until([slow], lambda: T0 in slow.assignment() and slow.position(T0) == 1)
    with consumer(root, enable_auto_commit=False) as other:
        other.subscribe(["t"])  # and slow does not poll any more
        poll_until([other], lambda: len(other.assignment()) == 2 and not any(other.lag().values()))
        other.commit()
    if not auto:
        with pytest.raises(CommitRefused, match="has moved on without this member"):
            slow.commit()
    slow.close()
    with consumer(root) as reader:
        reader.assign([T0])
        assert reader.committed()[T0].offset == 3


@pytest.mark.parametrize("slow_at", ["assigned", "revoked"])
def test_a_listener_that_takes_too_long_leaves_no_partition_with_two_owners(root, slow_at):
    other = consumer(root)

    class Slow(Listener):
        def stand_still(self, kind, partitions):
            if kind == slow_at and not [call for call in self.calls if call[0] == kind]:
                other.subscribe(["t"])
                poll_until([other], lambda: len(other.assignment()) == 2)
            self.calls.append((kind, *partitions))

        def on_partitions_assigned(self, partitions):
            self.stand_still("assigned", partitions)

        def on_partitions_revoked(self, partitions):
            self.stand_still("revoked", partitions)

    listener = Slow()
    with consumer(root, max_poll_interval_ms=400) as slow, other:
        slow.subscribe(["t"], listener)
        if slow_at == "revoked":
            poll_until([slow], lambda: len(slow.assignment()) == 2)
            other.subscribe(["t"])
        poll_until([slow], lambda: slow_at in [kind for kind, *_ in listener.calls])
        assert slow.assignment() == set()
        poll_until([slow, other], lambda: slow.assignment() and len(other.assignment()) == 1)
        assert slow.assignment() | other.assignment() == {T0, T1}
    lost = [call for call in listener.calls if call[0] == "lost"]
    assert lost == ([("lost", T0, T1)] if slow_at == "assigned" else [])


def test_growth_of_a_topic_that_only_another_member_reads_is_shared_out(root):
    create_topic(root, "u", 1)
    with consumer(root, metadata_max_age_ms=50) as a, consumer(root) as b:
        a.subscribe(["t"])
        poll_until([a], lambda: len(a.assignment()) == 2)
        b.subscribe(["u"])
        poll_until([a, b], lambda: b.assignment())
        create_topic(root, "u", 3)
        poll_until([a, b], lambda: len(b.assignment()) == 3)


@pytest.mark.parametrize("instance", [None, "machine-2"])
def test_close_does_not_wait_for_a_busy_member_that_a_join_waits_for(root, instance):
    with FileTransport(root) as files, consumer(root) as busy:
        busy.subscribe(["t"])
        poll_until([busy], lambda: len(busy.assignment()) == 2)
        joins = Consumer(
            ConsumerConfig(group_id="g", client_id="joins", group_instance_id=instance), files
        )
        joins.subscribe(["t"])
        group = files.group_files("g").group
        poll_until([joins], lambda: len(group().members) == 2)
        closing = threading.Thread(target=joins.close, daemon=True)
        closing.start()
        closing.join(20)  # busy may take five minutes
        assert not closing.is_alive()
        assert len(group().members) == (1 if instance is None else 2)


def test_a_second_consumer_with_the_same_instance_id_fences_the_first(root):
    first = consumer(root, group_instance_id="machine-1")
    first.subscribe(["t"])
    poll_until([first], lambda: first.assignment())
    with consumer(root, group_instance_id="machine-1") as second:
        second.subscribe(["t"])
        with pytest.raises(FencedInstance, match="group_instance_id 'machine-1'"):
            poll_until([first, second], lambda: False)
        poll_until([second], lambda: len(second.assignment()) == 2)
    first.close()


def test_a_listener_that_raises_reaches_the_caller_of_poll(root):
    class Bad(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            raise ValueError("my own")

    with consumer(root) as c:
        c.subscribe(["t"], Bad())
        with pytest.raises(ValueError, match="my own"):
            poll_until([c], lambda: False)


@pytest.mark.parametrize("call", ["poll", "poll_arrow", "close"])
def test_poll_and_close_within_a_listener_are_refused(root, call):
    class Bad(RebalanceListener):
        def on_partitions_assigned(self, partitions):
            getattr(c, call)()

    with consumer(root) as c:
        c.subscribe(["t"], Bad())
        word = call.removesuffix("_arrow")
        with pytest.raises(ConsumerError, match=f"{word} was called while the listener runs"):
            poll_until([c], lambda: False)


def test_an_unknown_topic_is_named_by_every_poll_until_it_exists(root):
    with consumer(root) as c:
        c.subscribe(["t"])
        poll_until([c], lambda: len(c.assignment()) == 2)
        c.subscribe(["nope"])
        for _ in range(3):
            with pytest.raises(UnknownTopic, match="no topic 'nope'"):
                c.poll(0)
        assert c.assignment() == set(), "what is not wanted any more is given up all the same"
        create_topic(root, "nope", 1)
        poll_until([c], lambda: c.assignment() == {("nope", 0)})


# --- iteration and wakeup


def leave_loop_at(c, offset, how):
    """The offsets whose records the loop's body has finished."""
    handled = []
    try:
        for record in c:
            if record.offset == offset:
                if how == "break":
                    break
                raise ValueError("a handler")
            handled.append(record.offset)
    except ValueError:
        pass
    return handled


@pytest.mark.parametrize("how", ["break", "raise"])
def test_a_loop_that_is_left_commits_automatically_what_its_body_has_finished(root, how):
    put(root, T0, *"abcdef")
    with consumer(root, enable_auto_commit=True) as c:
        c.subscribe(["t"])
        assert leave_loop_at(c, 3, how) == [0, 1, 2]
    with consumer(root) as c:
        c.assign([T0])
        assert c.committed()[T0].offset == 3
        assert values(c.poll()) == ["d", "e", "f"]


def test_a_commit_by_hand_in_a_loop_is_for_the_record_in_hand_too_and_not_for_later_ones(root):
    put(root, T0, *"abcdef")
    with consumer(root, enable_auto_commit=False) as c:
        c.assign([T0])
        for record in c:
            if record.offset == 3:
                c.commit()
                break
        assert c.committed()[T0].offset == 4
        assert values(c.poll()) == ["e", "f"]
        c.commit()
        assert c.committed()[T0].offset == 6


def test_an_automatic_commit_does_not_go_back_behind_one_by_hand(root):
    put(root, T0, *"abcdef")
    with consumer(root, enable_auto_commit=True) as c:
        c.subscribe(["t"])
        for record in c:
            if record.offset == 3:
                c.commit()
                break
    with consumer(root) as c:
        c.assign([T0])
        assert c.committed()[T0].offset == 4


def test_a_wakeup_ends_one_poll(root):
    with consumer(root) as c:
        c.assign([T0])
        for poll in (c.poll, c.poll_arrow):
            c.wakeup()
            assert not poll(600_000)
        put(root, T0, "a")
        assert values(c.poll(10_000)) == ["a"]


def test_wakeup_from_another_thread_ends_an_iteration(root):
    put(root, T0, "a")
    with consumer(root) as c:
        c.assign([T0])
        found = []
        for record in c:
            found.append(record)
            threading.Thread(target=c.wakeup).start()
        assert values(found) == ["a"]


# --- what is refused


def test_calls_that_make_no_sense_say_so(root):
    with consumer(root) as c:
        with pytest.raises(UnknownTopic, match=r"no topic 'nope'.*there are t"):
            c.assign([("nope", 0)])
        with pytest.raises(UnknownTopic, match=r"no partition 2.*from 0 to 1"):
            c.assign([("t", 2)])
        c.assign([T0])
        for call in (c.pause, c.resume, c.position, lambda p: c.seek(p, 0)):
            with pytest.raises(NotAssigned, match=r"\('t', 1\) is not assigned.*t-0"):
                call(T1)
        with pytest.raises(NotAssigned):
            c.commit({T1: 0})
        with pytest.raises(ConsumerError, match="subscribe after assign"):
            c.subscribe(["t"])
        with pytest.raises(ConsumerError, match="list of names"):
            c.subscribe("t")
    for call in (c.poll, c.commit, c.assignment, lambda: c.subscribe(["t"]), c.lag):
        if call != c.assignment:
            with pytest.raises(ConsumerClosed, match="closed"):
                call()
    c.close()


@pytest.mark.parametrize("topics", [(t for t in ["t"]), 5, [5], b"t", [None], [], [""], None, {}])
def test_topics_that_are_none_are_refused_at_once(root, topics):
    with (
        consumer(root) as c,
        pytest.raises(ConsumerError, match=r"topics is .*give a list of names"),
    ):
        c.subscribe(topics)


def test_a_note_that_is_no_text_is_refused(root):
    with consumer(root) as c:
        c.assign([T0])
        with pytest.raises(ConsumerError, match=r"metadata of t-0 is .*give text"):
            c.commit({T0: OffsetToCommit(offset=0, metadata="\udc80")})


def test_a_topic_that_is_not_there_is_named_by_the_next_poll(root):
    with consumer(root) as c:
        c.subscribe(["flihgts"])
        with pytest.raises(UnknownTopic, match=r"no topic 'flihgts'.*there are t"):
            c.poll(0)


def test_without_a_group_there_are_no_commits(root):
    with consumer(root, group=None) as c:
        c.assign([T0])
        c.poll(0)
        with pytest.raises(ConsumerError, match="commit without a group_id"):
            c.commit()
        with pytest.raises(ConsumerError, match="subscribe without a group_id"):
            c.subscribe(["t"])


def test_all_problems_of_a_configuration_are_listed_at_once():
    with pytest.raises(BadConsumerConfig) as caught:
        ConsumerConfig(
            group_id="",
            session_timeout_ms=100,
            heartbeat_interval_ms=100,
            max_poll_records=0,
            enable_auto_commit="yes",
            auto_offset_reset="first",
            partition_assignment_strategy=("rnge",),
        )
    said = str(caught.value)
    assert said.startswith("6 settings cannot be used:")
    for words in (
        "heartbeat_interval_ms is 100, not less than session_timeout_ms (100)",
        "max_poll_records is 0: give a whole number from 1 to 2147483647",
        "enable_auto_commit is 'yes': give True or False",
        "auto_offset_reset is 'first': give one of earliest, latest, none",
        "perhaps 'range' was meant",
        "group_id is empty",
    ):
        assert words in said


def test_an_address_that_leads_nowhere_says_what_would(monkeypatch):
    monkeypatch.setattr(connect, "over_network", None)  # phase 3 may have been imported
    with pytest.raises(UnknownAddress, match="import phase3_raft"):
        Consumer(ConsumerConfig(bootstrap_servers="localhost:9092"))
    with pytest.raises(UnknownAddress, match="give host:port, or file:FOLDER"):
        Consumer(ConsumerConfig(bootstrap_servers="localhost"))


@pytest.mark.parametrize("name", ["", "..", "a/b", "ü", "x" * 250])
def test_a_topic_needs_a_name_that_kafka_allows(tmp_path, name):
    with pytest.raises(TopicError, match="is not the name of a topic"):
        create_topic(tmp_path, name, 1)


def test_a_topic_grows_and_never_shrinks(root):
    create_topic(root, "t", 2)
    with pytest.raises(TopicError, match="has 2 partitions and cannot shrink to 1"):
        create_topic(root, "t", 1)
    with pytest.raises(TopicError, match="cannot have 0 partitions"):
        create_topic(root, "u", 0)


@pytest.mark.parametrize("count", [None, "4", 1.5, True])
def test_a_topic_has_a_whole_number_of_partitions(root, count):
    with pytest.raises(TopicError, match=f"cannot have {count!r} partitions"):
        create_topic(root, "u", count)


@pytest.mark.parametrize("name", [None, 1, b"t"])
def test_a_topic_has_a_text_for_a_name(root, name):
    with pytest.raises(TopicError, match=f"{name!r} is not the name of a topic"):
        create_topic(root, name, 1)


def test_a_poll_without_anything_to_read_is_a_mistake(root):
    with consumer(root) as one:
        with pytest.raises(ConsumerError, match="poll before subscribe or assign"):
            one.poll(0)
        with pytest.raises(ConsumerError, match="poll before subscribe or assign"):
            next(iter(one))
        one.assign([T0])
        assert one.poll(0) == []


# --- Ctrl-C


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("how", ["poll", "poll_arrow", "loop"])
def test_an_interrupt_at_any_moment_of_a_poll_skips_no_record(root, how):
    put(root, T0, *"abc")
    put(root, T0, *"def")
    got = []

    def loop():
        for record in c if c.position(T0) < 6 else ():
            got.append([record])
            return

    calls = {
        "poll": lambda: got.append(c.poll(0)),
        "poll_arrow": lambda: got.append(c.poll_arrow(0)),
        "loop": loop,
    }
    with consumer(root, max_poll_records=2) as c:
        c.assign([T0])
        while c.position(T0) < 6:
            for _ in at_each_moment(calls[how]):
                assert c.position(T0) == sum(len(one) for one in got if one is not None)
        if how != "poll_arrow":
            offsets = [record.offset for records in got for record in records]
            assert offsets == [0, 1, 2, 3, 4, 5]
        c.commit()
        assert c.committed()[T0].offset == 6


# --- the group's files


def test_a_consumer_whose_groups_folder_is_removed_joins_anew_and_closes(root):
    one = consumer(root)
    one.subscribe(["t"])
    poll_until([one], lambda: len(one.assignment()) == 2)
    first = one.generation
    (root / "__groups" / "g").rename(root / "gone")  # in one step, unlike rmtree
    poll_until([one], lambda: one.generation > first and len(one.assignment()) == 2)
    (root / "__groups" / "g").rename(root / "gone too")
    one.close()


def test_a_lock_that_is_not_let_go_of_is_an_event_for_poll_and_an_error_for_commit_and_close(root):
    events, put_first = Events("c"), put(root, T0, "a")
    settings = ConsumerConfig(
        bootstrap_servers=f"file:{root}",
        group_id="g",
        auto_offset_reset="earliest",
        session_timeout_ms=400,
        heartbeat_interval_ms=50,
        default_api_timeout_ms=100,
    )
    one = Consumer(settings, events=events)
    one.subscribe(["t"])
    [found] = poll_until([one], lambda: len(one.assignment()) == 2 and one.position(T0) == 1)
    assert (put_first, values(found)) == (0, ["a"])
    lock = RealDisk().lock(str(root / "__groups" / "g" / "lock"))
    assert lock.acquire()
    poll_until([one], lambda: any(event.kind == "blocked" for event in events.events))
    with pytest.raises(GroupBlocked, match="waited"):
        one.commit()
    with pytest.raises(GroupBlocked, match="waited"):
        one.close()
    with pytest.raises(ConsumerClosed):
        one.poll(0)
    lock.close()
