"""The producer as an application sees it: futures, blocking, closing, threads, whole tables."""

from __future__ import annotations

import doctest
import os
import shutil
import signal
import sys
import threading
from collections import Counter
from contextlib import closing, contextmanager

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupts import at_each_moment
from memory_transport import Fault, MemoryTransport

from craft2.faulty_disk import FaultyDisk
from craft2.record_batch import encode_values, read_header
from phase1_file_queue.partitioner import murmur2, partition_for
from phase2_groups import bulk_send, producer, producer_config, record_checks
from phase2_groups.accumulator import Batch
from phase2_groups.bulk_send import murmur2_many
from phase2_groups.committed_offsets import CommittedOffsets
from phase2_groups.error_codes import ErrorCode
from phase2_groups.file_transport import FileTransport
from phase2_groups.group_messages import OffsetToCommit
from phase2_groups.producer import Producer
from phase2_groups.producer_config import (
    BadProducerConfig,
    BadRecord,
    BufferFull,
    ProducerClosed,
    ProducerConfig,
    ProducerError,
    ProducerFailed,
    RecordTooLarge,
    Refused,
    UnknownTopic,
)
from phase2_groups.topics import TopicError, create_topic, partition_count
from phase2_groups.transport import ProducerId

SOON = 30  # seconds in which anything that is to happen has happened


@contextmanager
def producing(topics=None, faults=(), **settings):
    """A producer that does not linger, on a transport in memory."""
    transport = MemoryTransport(topics or {"t": 4}, faults)
    settings = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 1} | settings
    with Producer(ProducerConfig(**settings), transport) as made:
        yield made, transport


class Gate:
    """Holds up requests; `reached` says that one is there."""

    def __init__(self, transport):
        self._open = threading.Event()
        self.reached = threading.Semaphore(0)
        transport.at_produce = self

    def __call__(self):
        self.reached.release()
        assert self._open.wait(SOON)

    def open(self):
        self._open.set()


@pytest.mark.parametrize("module", [producer, producer_config, bulk_send, record_checks])
def test_the_examples_in_the_text_are_true(module):
    assert doctest.testmod(module).failed == 0


# Settings.


def test_all_problems_of_a_config_come_at_once_each_with_its_fix():
    with pytest.raises(BadProducerConfig) as refused:
        ProducerConfig(
            acks=2,
            compression_type="zst",
            linger_ms=-1,
            batch_size=True,
            retries=0,
            max_in_flight_requests_per_connection=6,
            enable_idempotence=True,
        )
    lines = str(refused.value).splitlines()
    assert lines[0] == "7 settings cannot be used:"
    for words in (
        "batch_size is True: give a whole number from 0 to 2147483647",
        "linger_ms is -1: give a whole number from 0 to 2147483647",
        "acks is 2: give one of (0, 1, -1, 'all')",
        "compression_type is 'zst': did you mean 'zstd'?",
        'enable_idempotence needs acks="all", and acks is 2: set acks="all", or leave',
        "enable_idempotence needs retries, and retries is 0: leave retries as it is",
        "requests_per_connection of 5 at most, and it is 6: set it to 5, or leave",
    ):
        assert any(words in line for line in lines), words


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"delivery_timeout_ms": 100}, "linger_ms + request_timeout_ms: raise it to 30005"),
        ({"retry_backoff_ms": 2_000}, "retry_backoff_max_ms is 1000, less than retry_backoff_ms"),
        ({"batch_size": 2**21}, "max_request_size is 1048576, less than batch_size"),
        ({"buffer_memory": 100}, "buffer_memory is 100, less than batch_size"),
        ({"client_id": 5}, "client_id is 5: give a text"),
        ({"client_id": "a\udc80"}, "give a text"),
        ({"bootstrap_servers": None}, "bootstrap_servers is None: give a text"),
        ({"partitioner": "murmur2"}, "did you mean 'murmur2_random'?"),
    ],
)
def test_settings_that_do_not_fit_together_are_named(settings, words):
    with pytest.raises(BadProducerConfig, match="1 setting cannot be used") as refused:
        ProducerConfig(**settings)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "settings", [{"acks": 1}, {"retries": 0}, {"max_in_flight_requests_per_connection": 6}]
)
def test_idempotence_is_on_unless_something_is_in_its_way(settings):
    assert ProducerConfig().idempotent
    assert not ProducerConfig(**settings).idempotent
    assert not ProducerConfig(enable_idempotence=False).idempotent


def test_no_time_or_size_is_larger_than_the_field_or_the_wait_it_is_for():
    names = [name for name, value in vars(ProducerConfig()).items() if type(value) is int]
    longest = dict.fromkeys(names, 2**31 - 1) | {"linger_ms": 0, "buffer_memory": 2**63 - 1}
    ProducerConfig(**longest)
    with pytest.raises(BadProducerConfig) as refused:
        ProducerConfig(**dict.fromkeys(names, 2**63))
    lines = str(refused.value).splitlines()
    for name in names:
        most = 2**63 - 1 if name == "buffer_memory" else 2**31 - 1
        [line] = [line for line in lines if line.startswith(f"  {name} is {2**63}: ")]
        assert line.endswith(f" to {most}")
    with pytest.raises(BadProducerConfig, match=r"linger_ms \+ request_timeout_ms: lower them"):
        ProducerConfig(linger_ms=2**31 - 1, delivery_timeout_ms=2**31 - 1)


# One record.


def test_a_future_tells_where_its_record_is():
    with producing() as (made, transport):
        futures = [made.send("t", f"{n}", key="UA", timestamp_ms=n) for n in range(100)]
        partition = partition_for(b"UA", 4)
        for number, future in enumerate(futures):
            assert future.result(SOON) == ("t", partition, number, number)
            assert future.exception() is None
            assert future.done()
        assert [int(record.value) for record in transport.records("t", partition)] == list(
            range(100)
        )


def test_a_record_arrives_as_it_was_sent():
    headers = [("source", b"gate 7"), ("to", "Köln"), ("none", None)]
    with producing({"t": 1}) as (made, transport):
        made.send("t", None, "clé", timestamp_ms=7)
        made.send("t", bytearray(b"bytes"), headers=headers)
        made.send("t", "", b"", partition=0, timestamp_ms=0)
        made.flush()
        first, second, third = transport.records("t", 0)
    assert first == (0, 7, "clé".encode(), None, ())
    assert (second.key, second.value) == (None, b"bytes")
    assert second.headers == (("source", b"gate 7"), ("to", "Köln".encode()), ("none", None))
    assert second.timestamp > 1_600_000_000_000
    assert third == (2, 0, b"", b"", ())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_as_asked(codec):
    with producing({"t": 1}, linger_ms=10_000, compression_type=codec) as (made, transport):
        for _ in range(50):
            made.send("t", b"flight " * 10)
        assert made.flush(SOON) == 0
        [[batch]] = [request.values() for request in transport.requests]
        assert read_header(batch).codec == codec
        assert len(transport.records("t", 0)) == 50


@pytest.mark.parametrize(
    ("arguments", "fields", "words"),
    [
        (("t", 7), {}, "the value is 7, a int"),
        (("t", "\ud800"), {}, "is no text"),
        (("t", b"", 1.5), {}, "the key is 1.5"),
        (("t", b""), {"partition": 4}, "partition 4 does not exist: topic 't' has 4"),
        (("t", b""), {"partition": -1}, "partition -1 does not exist"),
        (("t", b""), {"partition": True}, "partition True does not exist"),
        (("t", b""), {"timestamp_ms": "now"}, "a timestamp is of type str"),
        (("t", b""), {"timestamp_ms": -5}, "a timestamp is -5. Fix: give ms since 1970"),
        (("t", b""), {"headers": [("a",)]}, "give .name, value. pairs"),
        (("t", b""), {"headers": [(b"a", b"")]}, "a header's name is b'a'"),
        (("t", b""), {"headers": [("a\udcff", b"")]}, "a header's name is 'a.udcff'"),
        (([], b""), {}, "topic is \\[\\]"),
        ((5, b""), {}, "topic is 5"),
        ((None, b""), {}, "topic is None"),
        (("t", b""), {"on_delivery": 5}, "on_delivery is 5"),
    ],
)
def test_what_cannot_be_sent_is_refused_before_it_is_queued(arguments, fields, words):
    with producing() as (made, _):
        with pytest.raises(BadRecord, match=words):
            made.send(*arguments, **fields)
        assert made.metrics().buffered_bytes == 0


def test_with_acks_0_nobody_tells_the_offset():
    with producing(acks=0) as (made, _):
        assert made.send("t", b"gone", timestamp_ms=5).result(SOON)[2:] == (-1, 5)


def test_callbacks_come_in_order_and_one_that_fails_harms_nobody(caplog):
    calls = []

    def note(metadata, error):
        calls.append((metadata and metadata.offset, error))
        if len(calls) == 2:
            raise ValueError("no such gate")

    with producing({"t": 1}, [Fault.NONE, Fault.BAD], batch_size=100) as (made, _):
        futures = [made.send("t", b"v" * 50, on_delivery=note) for _ in range(4)]
        made.flush()
        again = []
        futures[0].add_done_callback(again.append)
        assert again == [futures[0]]
    assert [offset for offset, _ in calls] == [0, None, 1, 2]
    assert isinstance(calls[1][1], Refused)
    assert "a delivery callback failed" in caplog.text


def test_who_flushes_in_a_callback_is_told_so_instead_of_waiting_for_ever():
    with producing() as (made, _):
        errors = []

        def flush(metadata, error):
            try:
                made.flush()
            except ProducerError as refused:
                errors.append(refused)

        made.send("t", b"", on_delivery=flush)
    assert "in a callback" in str(errors[0])


def test_who_waits_in_a_callback_for_another_record_is_told_so_instead_of_waiting_for_ever():
    with producing({"t": 2}) as (made, _):
        waits = []

        def wait(metadata, error):
            other = made.send("t", b"", partition=1)
            for ask in (other.result, other.exception):
                try:
                    waits.append(ask())
                except ProducerError as refused:
                    waits.append(refused)

        one = made.send("t", b"", partition=0)
        one.add_done_callback(lambda future: waits.append(future.result()))
        made.send("t", b"", partition=0, on_delivery=wait)
        made.flush(SOON)
    assert waits[0] == one.result()
    assert ["in a callback" in str(refused) for refused in waits[1:]] == [True, True]


def test_the_topic_of_the_groups_cannot_be_written_to(tmp_path):
    """One record that is none of theirs, and no group could read its offsets any more."""
    create_topic(tmp_path, "t", 1)
    with closing(CommittedOffsets(tmp_path)) as offsets:
        offsets.commit("g", [("t", 0, OffsetToCommit(offset=1))])
        config = ProducerConfig(bootstrap_servers=f"file:{tmp_path}")
        with Producer(config) as made, pytest.raises(Refused, match="INVALID_TOPIC"):
            made.send("__consumer_offsets", "garbage", key="k", partition=0).result(SOON)
        assert offsets.of("g") == {("t", 0): OffsetToCommit(offset=1)}


def test_a_callback_that_would_end_the_program_ends_no_thread_and_hides_no_outcome(caplog):
    def leave(metadata, error):
        sys.exit(1)

    def interrupt(metadata, error):
        raise KeyboardInterrupt

    with producing({"t": 3}, linger_ms=10_000) as (made, _):
        made.send("t", b"a", partition=0, on_delivery=leave)
        made.send("t", b"b", partition=1, on_delivery=interrupt)
        other = made.send("t", b"c", partition=2)
        made.flush(1)
        assert other.result(1).partition == 2
        assert made.send("t", b"later").done() is False
        assert made.flush(SOON) == 0
    assert caplog.text.count("a delivery callback failed") == 2


def in_a_forked_child(work):
    """The exit code of a child that does this, and is ended if it waits for ever."""
    child = os.fork()
    if child == 0:
        signal.alarm(SOON // 3)
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("call", ["send", "send_many", "flush", "close", "the future's result"])
def test_in_a_forked_child_the_producer_says_so_instead_of_waiting_for_ever(call):
    with producing({"t": 1}, linger_ms=10_000) as (made, _):
        future = made.send("t", b"of the parent")
        calls = {
            "send": lambda: made.send("t", b""),
            "send_many": lambda: made.send_many("t", [b""]),
            "flush": made.flush,
            "close": made.close,
            "the future's result": future.result,
        }

        def work():
            with pytest.raises(ProducerError, match="make a producer in the child"):
                calls[call]()

        assert in_a_forked_child(work) == 0
        assert made.flush(SOON) == 0
        assert future.result().offset == 0


def test_an_error_that_passes_is_not_seen_by_the_application():
    faults = [Fault.REFUSED, Fault.LOST, Fault.UNHEARD]
    with producing({"t": 1}, faults) as (made, transport):
        assert made.send("t", b"once").result(SOON).offset == 0
        assert [record.value for record in transport.records("t", 0)] == [b"once"]
        counts = made.metrics()
    assert counts[:5] == (1, 1, 0, 3, 1)
    assert counts.average_batch_bytes == counts.bytes_sent > 4
    assert counts.buffered_bytes == 0


def test_a_transport_that_raises_fails_the_batch_and_the_producer_goes_on():
    def broken():
        transport.at_produce = lambda: None
        raise OSError("no such disk")

    with producing() as (made, transport):
        transport.at_produce = broken
        error = made.send("t", b"lost").exception(SOON)
        assert isinstance(error, Refused)
        assert "no such disk" in str(error)
        assert made.send("t", b"kept").exception(SOON) is None


def test_a_batch_that_cannot_be_encoded_fails_alone(monkeypatch):
    def encode(batch, *number):
        if b"bad" in batch.values:
            raise ValueError("no such bytes")
        return encoded(batch, *number)

    encoded = Batch.encode
    monkeypatch.setattr(Batch, "encode", encode)
    with producing({"t": 2}, linger_ms=10_000) as (made, _):
        bad = made.send("t", b"bad", partition=0)
        good = made.send("t", b"good", partition=1)
        made.flush(SOON)
        later = made.send("t", b"later", partition=0)
        made.flush(SOON)
        assert isinstance(bad.exception(SOON), Refused)
        assert "ValueError('no such bytes')" in str(bad.exception(SOON))
        assert [one.exception(SOON) for one in (good, later)] == [None, None]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_if_the_senders_thread_dies_those_who_wait_hear_of_it():
    def die(now_ms):
        raise MemoryError("no more")

    with producing() as (made, _):
        made._core.take = die
        error = made.send("t", b"").exception(SOON)
        assert isinstance(error, ProducerFailed)
        assert "its thread ended with MemoryError('no more')" in str(error)
        with pytest.raises(ProducerFailed):
            made.send("t", b"")


# Topics.


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_who_sends_while_the_senders_thread_dies_is_refused_and_does_not_wait_for_ever():
    def die(now_ms):
        raise MemoryError("no more")

    with producing() as (made, _):
        tell, outcome = made._tell, []

        def just_before_the_others_hear_of_it():
            if made._core.failed is not None and not outcome:
                try:
                    outcome.append(made.send("t", b"too late"))
                except ProducerFailed as error:
                    outcome.append(error)
            tell()

        made._tell = just_before_the_others_hear_of_it
        made.send("t", b"so that the topic is known").result()
        made._core.take = die
        made._wake.set()
        made._sender.join(SOON)
        assert [type(one) for one in outcome] == [ProducerFailed]


def test_an_unknown_topic_is_waited_for_and_a_topic_may_grow():
    with producing(max_block_ms=0) as (made, transport):
        with pytest.raises(UnknownTopic, match="topic 'u' cannot be found"):
            made.send("u", b"")
        transport.add_partition("u")
        assert made.send("u", b"").result(SOON).partition == 0
        transport.add_partition("u")
        assert made.send("u", b"", partition=1).result(SOON).partition == 1


def test_what_an_interrupted_growth_has_left_does_not_become_partitions_unasked(tmp_path):
    create_topic(tmp_path, "t", 4)
    create_topic(tmp_path, "t-6", 1)  # its folder is t-6-0, which is none of t's
    for number in (9, 8, 7, 6):
        create_topic(tmp_path / "other", "t", number + 1)
        (tmp_path / "other" / f"t-{number}").rename(tmp_path / f"t-{number}")
    with pytest.raises(TopicError, match=r"t-8, t-9.*create_topic with 10 finishes it"):
        create_topic(tmp_path, "t", 8)
    assert partition_count(tmp_path, "t") == 4
    create_topic(tmp_path, "t", 10)
    assert partition_count(tmp_path, "t") == 10


def test_a_topic_that_grows_goes_and_comes_again_is_seen_as_it_is(tmp_path):
    transport = FileTransport(tmp_path)

    def count():
        return transport.metadata(["t"])["t"]

    assert count() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(tmp_path, "t", 4)
    assert count() == 4
    create_topic(tmp_path, "t", 6)
    assert count() == 6
    for number in range(6):
        shutil.rmtree(tmp_path / f"t-{number}")
    assert count() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create_topic(tmp_path, "t", 2)
    assert count() == 2
    transport.close()


# Memory.


def test_a_full_buffer_blocks_then_raises_with_the_sizes_and_the_fix():
    settings = {"buffer_memory": 2_000, "batch_size": 500, "max_block_ms": 1}
    with producing({"t": 1}, **settings) as (made, transport):
        gate = Gate(transport)
        sent = []

        def send_on_and_on():
            while True:
                sent.append(made.send("t", b"v" * 100))

        with pytest.raises(BufferFull, match="bytes of buffer_memory=2000 wait") as full:
            send_on_and_on()
        assert "raise buffer_memory" in full.value.fix
        gate.open()
        made.flush()
        assert len(transport.records("t", 0)) == len(sent) > 5
        made.send("t", b"v" * 100).result(SOON)
        with pytest.raises(RecordTooLarge, match="more than buffer_memory=2000"):
            made.send("t", b"v" * 2_000)


def test_who_waits_for_memory_goes_on_when_there_is_some():
    with producing({"t": 1}, buffer_memory=2_000, batch_size=500) as (made, transport):
        gate = Gate(transport)
        threads = [
            threading.Thread(target=lambda: [made.send("t", b"v" * 100) for _ in range(50)])
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        assert gate.reached.acquire(timeout=SOON)
        gate.open()
        for thread in threads:
            thread.join(SOON)
        made.flush()
        assert len(transport.records("t", 0)) == 150


def test_threads_share_a_producer_and_each_finds_its_own_records_in_order():
    faults = [Fault.NONE, Fault.UNHEARD, Fault.REFUSED] * 20
    with producing({"t": 2}, faults, batch_size=300) as (made, transport):

        def work(name):
            for number in range(200):
                made.send("t", f"{name} {number}", key=name)

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
        assert made.flush(SOON) == 0
        for name in "abcd":
            found = transport.records("t", partition_for(name.encode(), 2))
            own = [record.value.decode() for record in found if record.key == name.encode()]
            assert own == [f"{name} {number}" for number in range(200)]


# The end.


def test_a_flush_that_takes_too_long_says_how_many_records_are_left():
    with producing({"t": 1}) as (made, transport):
        gate = Gate(transport)
        future = made.send("t", b"1")
        made.send("t", b"2")
        assert made.flush(0) == 2
        with pytest.raises(TimeoutError, match="still on its way"):
            future.result(0)
        gate.open()
        assert made.flush(SOON) == 0


def test_closing_sends_what_is_there_and_then_takes_nothing_more():
    with producing({"t": 1}, linger_ms=10_000) as (made, _):
        future = made.send("t", b"last")
        made.close()
        assert future.result(0).offset == 0
        with pytest.raises(ProducerClosed):
            made.send("t", b"later")
        with pytest.raises(ProducerClosed):
            made.send_many("t", [b"later"])
        made.close()


def test_what_is_left_when_closing_takes_too_long_fails_and_says_what_became_of_it():
    with producing({"t": 1}) as (made, transport):
        gate = Gate(transport)
        on_its_way = made.send("t", b"1")
        assert gate.reached.acquire(timeout=SOON)
        waiting = made.send("t", b"2")
        made.close(timeout=0)
        assert "may or may not be stored" in str(on_its_way.exception(0))
        assert "it was never sent" in str(waiting.exception(0))
        assert isinstance(waiting.exception(0), ProducerClosed)
        assert made.metrics().buffered_bytes == 0
        gate.open()


def test_closing_ends_the_wait_of_those_who_wait_for_memory():
    with producing({"t": 1}, buffer_memory=200, batch_size=100) as (made, transport):
        gate = Gate(transport)
        made.send("t", b"v" * 100)
        assert gate.reached.acquire(timeout=SOON)
        refused = []

        def blocked():
            try:
                made.send("t", b"v" * 100)
            except ProducerClosed as error:
                refused.append(error)

        thread = threading.Thread(target=blocked)
        thread.start()
        while not made._room._waiters:
            pass
        made.close(timeout=0)
        thread.join(SOON)
        assert len(refused) == 1
        gate.open()


def test_a_fenced_producer_says_so_on_each_later_send():
    with producing({"t": 1}) as (made, transport):
        made.send("t", b"1").result(SOON)
        usurper = encode_values([b"2"], producer_id=1, producer_epoch=1, base_sequence=0)
        transport.partitions["t", 0].append(usurper)
        assert isinstance(made.send("t", b"3").exception(SOON), ProducerFailed)
        for _ in range(2):
            with pytest.raises(ProducerFailed, match="another producer goes on under id 1"):
                made.send("t", b"4")


def test_without_a_producer_id_nothing_is_sent():
    answers = [ProducerId(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), ProducerId(ErrorCode.NONE, 9, 0)]
    with producing({"t": 1}) as (made, transport):
        transport.init_producer_id = lambda: answers.pop(0)
        assert made.send("t", b"").result(SOON).offset == 0
        assert read_header(transport.partitions["t", 0].batches[0]).producer_id == 9
    with producing({"t": 1}) as (made, transport):
        transport.init_producer_id = lambda: ProducerId(ErrorCode.UNKNOWN_SERVER_ERROR)
        assert "it got no producer id" in str(made.send("t", b"").exception(SOON))


def test_a_producer_that_is_made_while_the_disk_is_full_waits_for_room():
    disk = FaultyDisk()
    create_topic("/q", "t", 1, disk=disk)
    disk.capacity = sum(map(len, disk.tree().values()))
    with FileTransport("/q", disk=disk) as files:
        assert files.init_producer_id().error.retriable
        with Producer(ProducerConfig(retry_backoff_ms=1, retry_backoff_max_ms=1), files) as made:
            future = made.send("t", b"x")
            with pytest.raises(TimeoutError):
                future.result(0.1)
            disk.capacity = None
            assert future.result(SOON).offset == 0


# Many records.

bytes_or_none = st.one_of(st.none(), st.binary(max_size=40))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(bytes_or_none, bytes_or_none, st.integers(0, 99)), max_size=40),
    st.sampled_from([None, 2]),
)
def test_many_records_go_where_they_would_go_one_by_one(records, partition):
    values, keys, times = ([row[column] for row in records] for column in range(3))
    with producing({"t": 4}, batch_size=100, max_request_size=200) as (made, transport):
        future = made.send_many("t", values, keys, times, partition=partition)
        result = future.result(SOON)
        found = {number: transport.records("t", number) for number in range(4)}
    assert result.count == len(records) == sum(map(len, found.values()))
    without_key = Counter((value, time) for value, key, time in records if key is None)
    stored = [record for records in found.values() for record in records]
    assert without_key == Counter((r.value, r.timestamp) for r in stored if r.key is None)
    for number in range(4):
        rows = [(record.value, record.key, record.timestamp) for record in found[number]]
        if partition is None:
            rows = [row for row in rows if row[1] is not None]
            due = [row for row in records if row[1] is not None]
            due = [row for row in due if partition_for(row[1], 4) == number]
        else:
            due = records if number == partition else []
        assert rows == [(value, key, time) for value, key, time in due]


def test_many_records_without_keys_are_placed_in_their_order():
    values = [b"%d" % number for number in range(500)]
    with producing({"t": 3}, batch_size=100, max_request_size=1_000) as (made, transport):
        made.send("t", b"before", partition=0)
        result = made.send_many("t", values, timestamps=5).result(SOON)
        found = []
        for placed in result.placed:
            records = transport.records("t", placed.partition)
            found += records[placed.first_offset : placed.first_offset + placed.count]
        assert [record.value for record in found] == values
        assert len({placed.partition for placed in result.placed}) == 3
        assert transport.records("t", 0)[0].value == b"before"


def test_a_table_is_sent_in_portions(monkeypatch):
    monkeypatch.setattr(bulk_send, "_PORTION", 7)
    keys = [f"{number % 3}" for number in range(50)]
    table = pa.table(
        {
            "key": keys,
            "value": pa.array([None, *(f"v{number}" for number in range(1, 50))]),
            "timestamp": pa.array(range(50), pa.timestamp("ms", "UTC")),
        }
    )
    with producing() as (made, transport):
        future = made.send_table("t", table["value"], table["key"], table["timestamp"])
        assert future.result(SOON).count == 50
        assert future.done()
        for key in ("0", "1", "2"):
            found = transport.records("t", partition_for(key.encode(), 4))
            times = [record.timestamp for record in found if record.key == key.encode()]
            assert times == list(range(int(key), 50, 3))
        with pytest.raises(BadRecord, match="a column is"):
            made.send_table("t", pa.array([1.5]))
        for wrong in ([b"a"], 5, iter([b"a"])):
            with pytest.raises(BadRecord, match=r"values is .* give a column of Arrow"):
                made.send_table("t", wrong)
        with pytest.raises(BadRecord, match="keys is 5"):
            made.send_table("t", pa.array([b"a"]), 5)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (([b"a"], [b"k", b"k"]), "2 keys for 1 values"),
        (([b"a", "b"],), "a value is of type str"),
        (([b"a"], None, [1.5]), "a timestamp is of type float"),
        ((b"abc",), "values is b'abc'. Fix: give a list"),
        ((iter([b"a"]),), "values is <list_iterator"),
        ((5,), "values is 5"),
        (([b"a"], iter([b"k"])), "keys is <list_iterator"),
        (([b"a"], None, iter([1])), "timestamps is <list_iterator"),
        (([b"a"], None, [1, 2]), "2 timestamps for 1 values"),
        (([b"a", b"b"], None, [5, 2**62]), "a timestamp is 4611686018427387904. Fix: give ms"),
        (([b"a", b"b"], None, [5, -1]), "a timestamp is -1. Fix: give ms"),
        (([b"a"], None, -1), "a timestamp is -1. Fix: give ms"),
        (([b"a" * 2_000],), "a record needs 2082 bytes, and a batch may have 1000"),
    ],
)
def test_many_records_are_checked_before_the_first_is_queued(columns, words):
    with producing(batch_size=100, max_request_size=1_000) as (made, transport):
        with pytest.raises(BadRecord, match=words):
            made.send_many("t", *columns)
        assert not transport.requests


def test_many_records_of_which_some_fail_say_how_many():
    faults = [Fault.NONE, Fault.BAD]
    settings = {"batch_size": 100, "max_request_size": 500}
    with producing({"t": 1}, faults, **settings) as (made, _):
        future = made.send_many("t", [b"v" * 100] * 10)
        with pytest.raises(Refused) as refused:
            future.result(SOON)
        assert refused.value.__notes__ == ["3 records failed, 7 are acknowledged"]
        with pytest.raises(Refused) as again:
            future.result(SOON)
        assert again.value.__notes__ == ["3 records failed, 7 are acknowledged"]
        assert [placed.first_offset for placed in future.placed] == [0, 3, 6]


def test_many_records_that_find_no_room_say_how_many_did():
    settings = {"batch_size": 100, "max_request_size": 500, "buffer_memory": 1_000}
    with producing({"t": 1}, max_block_ms=1, **settings) as (made, transport):
        gate = Gate(transport)
        future = made.send_many("t", [b"v" * 100] * 10)
        gate.open()
        assert isinstance(future.exception(SOON), BufferFull)
        assert (future.acknowledged, future.failed) == (6, 4)


def test_a_table_that_finds_no_room_stops_there_so_that_no_later_record_overtakes(monkeypatch):
    monkeypatch.setattr(bulk_send, "_PORTION", 5)
    values = [b"%d" % number * 100 for number in range(10)] + [b"small"] * 90
    settings = {"batch_size": 100, "max_request_size": 500, "buffer_memory": 1_000}
    with producing({"t": 1}, max_block_ms=1, **settings) as (made, transport):
        gate = Gate(transport)
        future = made.send_table("t", pa.array(values))
        gate.open()
        assert isinstance(future.exception(SOON), BufferFull)
        stored = [record.value for record in transport.records("t", 0)]
        assert stored == values[: len(stored)]
        assert (future.acknowledged, future.failed) == (len(stored), 100 - len(stored))


@given(st.lists(st.binary(min_size=1, max_size=13), min_size=1))
def test_many_keys_hash_as_one_does(keys):
    for size in set(map(len, keys)):
        same = [key for key in keys if len(key) == size]
        hashes = murmur2_many(b"".join(same), size, len(same)).tolist()
        assert hashes == [murmur2(key) for key in same]


# Ctrl-C.


def in_time(call):
    """What `call` returns, in a thread of its own, so that a test does not hang with it."""
    found = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(SOON)
    assert found, "it hangs"
    return found[0]


@pytest.mark.parametrize("what", ["send", "send with a callback", "result", "flush"])
def test_an_interrupt_at_any_moment_leaves_a_producer_that_goes_on_and_closes(what, monkeypatch):
    monkeypatch.setattr(producer, "_LONGEST_S", 0.01)
    transport = MemoryTransport({"t": 1})
    made = Producer(ProducerConfig(linger_ms=1, batch_size=200), transport)
    made.send("t", b"first", b"first").result(SOON)
    calls = {
        "send": lambda: made.send("t", b"x", b"x"),
        "send with a callback": lambda: made.send("t", b"x", b"x", on_delivery=print),
        "result": lambda: made.send("t", b"x", b"x").result(),
        "flush": made.flush,
    }
    interrupts = 0
    for _ in at_each_moment(calls[what]):
        interrupts += 1
        future = made.send("t", b"%d" % interrupts, b"%d" % interrupts)
        assert in_time(lambda future=future: future.result(SOON)).topic == "t"
    assert interrupts > 10
    assert in_time(lambda: made.close(SOON) or "closed") == "closed"
    stored = transport.records("t", 0)
    assert all(record.key == record.value for record in stored)
    numbered = [int(r.value) for r in stored if r.value.isdigit()]
    assert numbered == list(range(1, interrupts + 1))


@pytest.fixture
def ctrl_c():
    """Python's own handler: a process that a shell starts in the background ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupt_while_another_thread_has_the_lock_is_an_interrupt_and_takes_it_from_nobody():
    with producing() as (made, _):
        made.send("t", b"first").result(SOON)
        main, held, interrupted = threading.current_thread(), threading.Event(), threading.Event()
        after = []

        def hold():
            with made._lock:
                held.set()
                while sys._current_frames()[main.ident].f_code is not Producer.send.__code__:
                    pass
                signal.pthread_kill(main.ident, signal.SIGINT)
                interrupted.wait(SOON)
            after.append("released")

        thread = threading.Thread(target=hold)
        thread.start()
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # it may come in the first line, too
            held.wait(SOON)
            made.send("t", b"second")
        interrupted.set()
        thread.join()
        assert after == ["released"]
        assert made.send("t", b"third").result(SOON).topic == "t"
