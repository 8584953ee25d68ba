"""What each batch of a stream reads, and what rows become: asked of the classes that Spark asks.

Tests with a Spark session are in test_spark_source.py.
"""

from __future__ import annotations

import doctest
import importlib
import shutil
from datetime import UTC, datetime

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from craft2.apps.spark_options import Options, SinkOptions, SourceError
from craft2.apps.spark_ranges import open_places
from craft2.apps.spark_sink import Craft2StreamWriter
from craft2.apps.spark_source import SCHEMA
from craft2.apps.spark_stream import Craft2StreamReader, from_json, share_out
from craft2.record_batch import decode_all, encode_values
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog
from phase2_groups.error_codes import ErrorCode
from phase2_groups.file_transport import FileTransport
from phase2_groups.producer_config import ProducerError
from phase2_groups.topics import create_topic
from phase2_groups.transport import Produced


def append(root, name, count, **fields):
    with PartitionLog(root / name, LogConfig(segment_bytes=300, flush_policy="never")) as log:
        for _ in range(count):
            log.append_as_leader(encode_values([b"x" * 50], **fields), 0)


def reader(root, **options):
    options = {"path": str(root), **options}
    return Craft2StreamReader(Options.of(options, stream=True), ["topic", "partition", "offset"])


def next_batch(stream, start):
    """(where it ends, the offsets it reads), as Spark goes about it."""
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    return end, read(stream, start, end)


def read(stream, start, end):
    found = []
    for task in stream.partitions(start, end):
        for batch in stream.read(task):
            found += [
                f"{row['topic']}-{row['partition']}:{row['offset']}" for row in batch.to_pylist()
            ]
    return found


def names(name, *offsets):
    return [f"{name}:{offset}" for offset in range(*offsets)]


@pytest.mark.parametrize("name", ["spark_options", "spark_ranges", "spark_stream"])
def test_the_examples_in_the_docstrings(name):
    failed, tried = doctest.testmod(importlib.import_module(f"craft2.apps.{name}"))
    assert (failed, tried > 0) == (0, True)


# --- Which offsets.


BACKLOGS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=9)


@given(BACKLOGS, st.integers(1, 10**6))
def test_a_batch_takes_something_of_every_backlog_and_no_more_than_there_is(backlogs, most):
    waiting = {("t", n): (begin, begin + size) for n, (begin, size) in enumerate(backlogs)}
    taken = {p: end - waiting[p][0] for p, end in share_out(waiting, most).items()}
    for (begin, end), took in zip(waiting.values(), taken.values(), strict=True):
        assert (end > begin) <= took <= end - begin
    total = sum(size for _, size in backlogs)
    assert sum(taken.values()) <= most + len(backlogs)
    if total <= most:
        assert sum(taken.values()) == total
    assert sum(share_out(waiting, None).values()) == sum(end for _, end in waiting.values())


STEPS = st.lists(
    st.tuples(st.sampled_from(["t-0", "t-1", "t-2", "u-0"]), st.integers(0, 4)), max_size=6
)


@settings(deadline=None, max_examples=10)
@given(STEPS, st.none() | st.integers(2, 5), st.integers(1, 4))
def test_every_record_is_in_one_batch_whatever_grows_meanwhile(tmp_path_factory, steps, most, cut):
    root = tmp_path_factory.mktemp("growing")
    append(root, "t-0", 3)
    limit = {} if most is None else {"maxOffsetsPerTrigger": str(most)}
    options = {"startingOffsets": "earliest", "maxRecordsPerPartition": str(cut), **limit}
    stream = reader(root, **options)
    at = stream.initialOffset()
    seen, sizes = [], {"t-0": 3}
    for name, count in steps:
        append(root, name, count)
        sizes[name] = sizes.get(name, 0) + count
        at, rows = next_batch(stream, at)
        seen += rows
        stream = reader(root, **options)  # a restart after each batch changes nothing
    while (step := next_batch(stream, at))[0] != at:  # in the end it catches up
        at, rows = step
        seen += rows
    assert sorted(seen) == sorted(name for log, size in sizes.items() for name in names(log, size))


def test_a_new_query_begins_where_the_option_says_and_by_default_at_the_end(tmp_path):
    append(tmp_path, "t-0", 5, timestamps=[7])
    append(tmp_path, "t-0", 5, timestamps=[9])
    append(tmp_path, "t-1", 4, timestamps=[7])
    for options, begins in (
        ({}, {"0": 10, "1": 4}),
        ({"startingOffsets": "earliest"}, {"0": 0, "1": 0}),
        ({"startingOffsets": '{"t": {"0": 3}}'}, {"0": 3, "1": 4}),
        ({"startingOffsets": '{"t": {"0": -2, "1": -1}}'}, {"0": 0, "1": 4}),
        ({"startingTimestamp": "8"}, {"0": 5, "1": 4}),
    ):
        assert reader(tmp_path, **options).initialOffset() == {"t": begins}
    with pytest.raises(SourceError, match="offset 11 of t-0 is past the end"):
        reader(tmp_path, startingOffsets='{"t": {"0": 11}}').initialOffset()
    with pytest.raises(SourceError, match="holds no topic 'v'"):
        reader(tmp_path, topic="v").initialOffset()


@pytest.mark.parametrize("starts", ["earliest", "latest"])
def test_available_now_ends_where_the_partitions_ended_when_it_began(tmp_path, starts):
    append(tmp_path, "t-0", 5)
    stream = reader(tmp_path, startingOffsets=starts, maxOffsetsPerTrigger="2")
    stream.prepareForTriggerAvailableNow()
    append(tmp_path, "t-0", 3)
    append(tmp_path, "t-1", 3)
    at, seen = stream.initialOffset(), []
    for _ in range(4):
        at, rows = next_batch(stream, at)
        seen += rows
    assert at == {"t": {"0": 5}}
    assert seen == (names("t-0", 5) if starts == "earliest" else [])
    assert stream.latestOffset(at, ReadMaxRows(2)) == at, "so Spark knows that it is done"


def test_an_empty_topic_is_read_when_it_fills(tmp_path):
    create_topic(tmp_path, "t", 2)
    stream = reader(tmp_path, topic="t")
    at, rows = next_batch(stream, stream.initialOffset())
    assert (at, rows) == ({"t": {"0": 0, "1": 0}}, [])
    append(tmp_path, "t-1", 2)
    assert next_batch(stream, at) == ({"t": {"0": 0, "1": 2}}, names("t-1", 2))
    assert stream.reportLatestOffset() == {"t": {"0": 0, "1": 2}}


def test_the_systems_own_topics_are_read_only_by_name(tmp_path):
    for name in ("t-0", "u-0", "__consumer_offsets-0"):
        append(tmp_path, name, 1)
    (tmp_path / "__groups" / "billing").mkdir(parents=True)

    def topics(**topic):
        return [p.topic for p in open_places(Options.of({"path": str(tmp_path), **topic}))]

    assert topics() == ["t", "u"]
    assert topics(topic="u") == ["u"]
    assert topics(topic="__consumer_offsets") == ["__consumer_offsets"]
    with pytest.raises(SourceError, match="holds no topic 'flights'"):
        topics(topic="flights")


# --- Data loss.


def retention(root):
    with PartitionLog(root / "t-0") as log:
        log.advance_start(8)


def made_anew(root):
    shutil.rmtree(root / "t-0")
    append(root, "t-0", 3)


def deleted(root):
    shutil.rmtree(root / "t-0")


LOSSES = [
    (retention, "retention deleted offsets 6 to 7 of t-0", ["t-0:8", "t-0:9"]),
    (made_anew, "t-0 was read up to offset 6, and now it ends at 3", []),
    (deleted, "t-0 is no longer in", []),
]


@pytest.mark.parametrize(("loss", "words", "rest"), LOSSES)
@pytest.mark.parametrize("planned", [False, True])
def test_lost_records_stop_the_query_or_are_skipped_with_a_warning(
    tmp_path, caplog, loss, words, rest, planned
):
    """planned: the batch was written to the checkpoint before the records were lost."""
    append(tmp_path, "t-0", 10)
    append(tmp_path, "t-1", 2)
    start, end = {"t": {"0": 6, "1": 0}}, {"t": {"0": 10, "1": 2}}
    loss(tmp_path)

    def attempt(**options):
        stream = reader(tmp_path, **options)
        return (end, read(stream, start, end)) if planned else next_batch(stream, start)

    with pytest.raises(SourceError, match=words) as caught:
        attempt()
    assert "failOnDataLoss=false" in caught.value.fix
    at, rows = attempt(failOnDataLoss="false")
    assert sorted(rows) == sorted([*rest, "t-1:0", "t-1:1"])
    assert words in caplog.text
    append(tmp_path, "t-0", 2)
    stream = reader(tmp_path, failOnDataLoss="false")
    at, rows = next_batch(stream, at)
    if loss is not retention and planned:  # behind what is there: at first it finds the end
        assert rows == []
        append(tmp_path, "t-0", 1)
        at, rows = next_batch(stream, at)
    assert rows, "and it goes on"
    assert from_json(at)["t", 0] == int(rows[-1].partition(":")[2]) + 1


def test_a_planned_batch_whose_end_was_cut_off_is_a_loss(tmp_path, caplog):
    append(tmp_path, "t-0", 10)
    with PartitionLog(tmp_path / "t-0") as log:
        log.truncate_to(8)
    planned = {"t": {"0": 6}}, {"t": {"0": 10}}
    words = "t-0 was read up to offset 10, and now it ends at 8"
    with pytest.raises(SourceError, match=words):
        read(reader(tmp_path), *planned)
    assert read(reader(tmp_path, failOnDataLoss="false"), *planned) == names("t-0", 6, 8)
    assert words in caplog.text


def test_a_new_partition_that_retention_was_at_already_is_a_loss(tmp_path):
    append(tmp_path, "t-0", 10)
    retention(tmp_path)
    with pytest.raises(SourceError, match="retention deleted offsets 0 to 7 of t-0"):
        reader(tmp_path).latestOffset({}, ReadAllAvailable())


# --- Options.


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "spark.readStream has no option 'endingOffsets'"),
        ({"maxOffsetPerTrigger": "9"}, "no option 'maxOffsetPerTrigger'"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger is '0'"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger is 'many'"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss is 'no'"),
        ({"startingOffsets": "3", "startingTimestamp": "3"}, "both starting"),
    ],
)
def test_a_bad_option_of_a_stream_is_named_with_its_value(options, words):
    with pytest.raises(SourceError, match=words) as caught:
        Options.of({"path": "p", **options}, stream=True)
    assert caught.value.fix


def test_an_option_of_streams_is_none_of_batches():
    with pytest.raises(SourceError, match=r"spark\.read has no option 'maxOffsetsPerTrigger'"):
        Options.of({"path": "p", "maxOffsetsPerTrigger": "9"})
    Options.of({"path": "p", "maxOffsetsPerTrigger": "9", "endingOffsets": "9"}, stream=None)


# --- The sink.

TYPES = {"key": "string", "value": "string", "partition": "integer", "timestamp": "timestamp"}
TYPES |= {"topic": "string", "headers": SCHEMA["headers"].dataType}


def write(root, columns, rows, **options):
    """Send the rows, which have these columns, as one task."""
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    writer = Craft2StreamWriter(SinkOptions.of({"path": str(root), **options}), schema)
    writer.write(iter([pa.RecordBatch.from_pylist(rows)]))


def only(*names):
    return {name: TYPES[name] for name in names}


def stored(root, name):
    with PartitionLog(root / name, LogConfig(access="read")) as log:
        return [record for batch in log.batches() for record in decode_all(batch)]


def test_each_column_goes_into_the_record(tmp_path):
    create_topic(tmp_path, "t", 3)
    when = datetime(2013, 1, 1, 10, 15, 0, 123_999, tzinfo=UTC)
    headers = [{"key": "from", "value": b"\xff"}, {"key": "none", "value": None}]
    row = {"value": "a", "key": "k", "partition": 2, "timestamp": when, "topic": "t"}
    nulls = {**dict.fromkeys(row), "topic": "t", "headers": None, "partition": 1}
    write(tmp_path, TYPES, [{**row, "headers": headers}, nulls])
    [record] = stored(tmp_path, "t-2")
    assert record[1:] == (1357035300123, b"k", b"a", (("from", b"\xff"), ("none", None)))
    [empty] = stored(tmp_path, "t-1")
    assert (empty.key, empty.value, empty.headers) == (None, None, ())
    assert empty.timestamp > record.timestamp, "null is now"


def test_columns_sent_in_bulk_keep_their_order_keys_and_times(tmp_path):
    create_topic(tmp_path, "t", 1)
    times = [datetime.fromtimestamp(n, UTC) for n in range(5)]
    rows = [{"value": str(n), "key": "k", "timestamp": when} for n, when in enumerate(times)]
    write(tmp_path, only("value", "key", "timestamp"), rows, topic="t")
    found = [(r.timestamp, r.key, r.value) for r in stored(tmp_path, "t-0")]
    assert found == [(1000 * n, b"k", b"%d" % n) for n in range(5)]
    write(tmp_path, only("value"), [{"value": None}, {"value": "z"}], topic="t")
    assert [(r.key, r.value) for r in stored(tmp_path, "t-0")[5:]] == [(None, None), (None, b"z")]


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"vlaue": "string"}, {"topic": "t"}, "column 'vlaue' of type string cannot be written"),
        ({"value": "integer"}, {"topic": "t"}, "column 'value' of type int"),
        (only("key"), {"topic": "t"}, r"no column value among \['key'\]"),
        (only("value"), {}, "no topic is given"),
        (only("value"), {"topic": "u"}, "topic 'u' does not exist in"),
        (only("value"), {"topics": "t"}, "write has no option 'topics'"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(tmp_path, columns, options, words):
    create_topic(tmp_path, "t", 1)
    with pytest.raises(SourceError, match=words) as caught:
        write(tmp_path, columns, [], **options)
    assert caught.value.fix


@pytest.mark.parametrize("columns", [("value",), ("value", "partition")])
def test_a_batch_that_the_log_refuses_fails_the_task(tmp_path, monkeypatch, columns):
    create_topic(tmp_path, "t", 1)
    refused = Produced(ErrorCode.MESSAGE_TOO_LARGE, message="as the test wants it")
    monkeypatch.setattr(
        FileTransport, "produce", lambda self, batches, *_: dict.fromkeys(batches, refused)
    )
    with pytest.raises(ProducerError, match="as the test wants it"):
        write(tmp_path, only(*columns), [{"value": "a", "partition": 0}], topic="t")


def test_a_record_that_cannot_be_stored_fails_the_task(tmp_path):
    create_topic(tmp_path, "t", 1)
    with pytest.raises(Exception, match="a batch may have 1048576"):
        write(tmp_path, only("value"), [{"value": "x" * 2_000_000}], topic="t")
    with pytest.raises(Exception, match="partition 7 does not exist"):
        write(tmp_path, only("value", "partition"), [{"value": "", "partition": 7}], topic="t")
    with pytest.raises(SourceError, match="null as its topic"):
        write(tmp_path, only("value", "topic"), [{"value": "", "topic": None}])
