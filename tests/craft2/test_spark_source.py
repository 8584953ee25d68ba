"""Spark reads queues and logs: every record once, or an error that says which and why.

All tests that need a running session are here: starting one costs as much as all of them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_results import row

from craft2.apps.bench.results import Results
from craft2.apps.ingestion.flights import in_event_order
from craft2.apps.lessons.groups import fill_topic
from craft2.apps.lessons.streaming import WindowsProcess, batch_windows, start_windows, windows
from craft2.apps.spark import session
from craft2.apps.spark_options import Options, SourceError
from craft2.apps.spark_ranges import Place, open_places, plan, read_range, split
from craft2.checker import delivery
from craft2.clock import ManualClock, SystemClock
from craft2.events import Events, to_spark
from craft2.record_batch import (
    Record,
    encode,
    encode_control_key,
    encode_values,
    iter_headers,
    read_header,
)
from phase1_file_queue.log_config import CorruptLog, LogConfig, NotALog
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.partitioned_queue import PartitionedQueue
from phase2_groups.file_transport import FileTransport
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig
from phase2_groups.topics import create_topic

# --- without Spark: which offsets


@given(st.integers(0, 10**12), st.integers(-5, 10**5), st.integers(1, 10**4))
def test_pieces_cover_a_range_once_in_order_and_none_is_too_long(start, length, most):
    pieces = split(start, start + length, most)
    assert [a for a, _ in pieces] == [start, *(b for _, b in pieces)][: len(pieces)]
    assert sum(b - a for a, b in pieces) == max(length, 0)
    longest = max(most, -(-length // 1000))
    assert all(0 < b - a <= longest for a, b in pieces)
    assert len(pieces) == min(1000, max(0, -(-length // most)))


@pytest.fixture(scope="module")
def log_place(tmp_path_factory):
    """A log with offsets 30 to 99, a batch of 7 each, timestamp 10 x offset."""
    path = tmp_path_factory.mktemp("logs") / "t-3"
    with PartitionLog(path, LogConfig(segment_bytes=2000)) as log:
        for first in range(0, 98, 7):
            stamps = [10 * n for n in range(first, first + 7)]
            log.append_durably(encode_values([b"%d" % n for n in range(7)], timestamps=stamps))
        log.append_durably(encode_values([b"a", b"b"], timestamps=[980, 990]))
        log.advance_start(30)
    return Place("t", 3, str(path), True)


OFFSETS = st.integers(30, 100)


@settings(deadline=None)
@given(start=OFFSETS, end=OFFSETS, most=st.integers(1, 40))
def test_the_ranges_hold_what_the_options_ask_for(log_place, start, end, most):
    given_options = {
        "path": log_place.path,
        "startingOffsets": str(start),
        "endingOffsets": f'{{"t": {{"3": {end}}}}}',
        "MAXRECORDSPERPARTITION": str(most),
    }
    if start > end:
        with pytest.raises(SourceError, match=f"{end} of t-3 is before startingOffsets, {start}"):
            plan(log_place, Options.of(given_options))
        return
    rows = []
    for low, high in plan(log_place, Options.of(given_options)):
        for batch in read_range(log_place, low, high, ["offset"]):
            rows += batch["offset"].to_pylist()
    assert rows == list(range(start, end))


@settings(deadline=None)
@given(start=st.integers(0, 1100), end=st.integers(0, 1100))
def test_so_do_those_of_timestamps(log_place, start, end):
    given_options = {"startingTimestamp": str(start), "endingTimestamp": str(end)}
    ranges = plan(log_place, Options.of({"path": log_place.path, **given_options}))
    wanted = [n for n in range(30, 100) if start <= 10 * n < end]
    assert [n for low, high in ranges for n in range(low, high)] == wanted


# --- bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no path is given"),
        ({"path": "PATH", "startingOffset": "3"}, "no option 'startingOffset'"),
        ({"path": "PATH", "startingOffsets": "soon"}, "startingOffsets is 'soon'"),
        ({"path": "PATH", "startingOffsets": "-3"}, "startingOffsets is '-3'"),
        ({"path": "PATH", "endingOffsets": '{"t": 5}'}, "endingOffsets is"),
        ({"path": "PATH", "endingOffsets": '{"t": {"0": 1.5}}'}, "endingOffsets is"),
        ({"path": "PATH", "endingTimestamp": "yesterday"}, "endingTimestamp is 'yesterday'"),
        ({"path": "PATH", "maxRecordsPerPartition": "0"}, "maxRecordsPerPartition is '0'"),
        ({"path": "PATH", "startingOffsets": "3", "startingTimestamp": "3"}, "both starting"),
        ({"path": "PATH", "endingOffsets": '{"t": {"3": 40, "3": 50}}'}, "endingOffsets is"),
        ({"path": "PATH", "endingOffsets": "[" * 20_000}, "endingOffsets is"),
        ({"path": "PATH", "startingTimestamp": "\u0663"}, "startingTimestamp is"),
        ({"paths": '["PATH", "PATH"]'}, "several paths are given"),
    ],
)
def test_a_bad_option_is_named_with_its_value(log_place, options, words):
    options = {name: value.replace("PATH", log_place.path) for name, value in options.items()}
    with pytest.raises(SourceError, match=words) as caught:
        Options.of(options)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("offsets", "words"),
    [('{"t": {"4": 40}}', "partition 4 of 't'"), ('{"flights": {}}', "topic 'flights'")],
)
def test_an_offset_for_what_is_not_there_is_refused(log_place, offsets, words):
    options = Options.of({"path": log_place.path, "startingOffsets": offsets})
    with pytest.raises(SourceError, match=f"startingOffsets names {words}") as caught:
        open_places(options)
    assert "there are t-3" in caught.value.fix
    assert open_places(Options.of({"path": log_place.path, "owner": "root"})) == [log_place]


def test_no_log_of_a_folder_is_left_out(tmp_path):
    for name in ("t-0", "t-1", "u-v-10"):
        with PartitionLog(tmp_path / name) as log:
            log.append_durably(encode_values([b"x"]))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "t-0.log").touch()  # no name of a log's
    options = Options.of({"path": str(tmp_path)})
    assert [place.words for place in open_places(options)] == ["t-0", "t-1", "u-v-10"]
    (tmp_path / "t-1" / f"{0:020}.log").unlink()
    places = open_places(options)
    assert [place.words for place in places] == ["t-0", "t-1", "u-v-10"]
    for _ in range(2):  # and the first time does not make it whole
        with pytest.raises(CorruptLog, match="no segment, but it held records up to offset 0"):
            plan(places[1], options)
    (tmp_path / "t-9").symlink_to(tmp_path / "not mounted")
    with pytest.raises(SourceError, match="t-9' leads nowhere: a log may be missing"):
        open_places(options)
    (tmp_path / "t-9").unlink()
    with PartitionedQueue(tmp_path / "queue"), pytest.raises(SourceError, match="message-file"):
        open_places(options)
    shutil.rmtree(tmp_path / "queue")
    for name in ("t-01", "copy of t", "t-1234567890"):
        (tmp_path / "t-0").rename(tmp_path / name)
        with pytest.raises(SourceError, match=f"{name}' is not named <topic>-<partition>"):
            open_places(options)
        (tmp_path / name).rename(tmp_path / "t-0")
    with pytest.raises(SourceError, match="is no directory"):
        open_places(Options.of({"path": str(tmp_path / "t-2")}))


def test_reading_makes_no_log(tmp_path):
    (tmp_path / "t-0").mkdir()
    for number in (0, 1):
        with pytest.raises(NotALog, match=f"t-{number}' holds no log"):
            list(read_range(Place("t", number, str(tmp_path / f"t-{number}"), True), 0, 1, []))
    assert [(str(path), path.is_dir()) for path in tmp_path.rglob("*")] == [
        (str(tmp_path / "t-0"), True)
    ]


def test_reading_a_closed_log_leaves_its_files_as_they_were(log_place):
    def files():
        return {path.name: path.read_bytes() for path in Path(log_place.path).iterdir()}

    before = files()
    rows = sum(batch.num_rows for batch in read_range(log_place, 30, 100, ["value"]))
    assert rows == 70
    changed = {name for name, data in files().items() if before.get(name) != data}
    assert changed <= {".control"}


def test_a_flipped_bit_in_a_time_index_changes_no_answer(tmp_path):
    config = LogConfig(segment_bytes=3000, index_interval_bytes=400)
    place = Place("t", 0, str(tmp_path / "t-0"), True)
    with PartitionLog(place.path, config) as log:
        for first in range(0, 96, 8):
            stamps = [1000 + 10 * n for n in range(first, first + 8)]
            log.append_durably(encode_values([b"x" * 40] * 8, timestamps=stamps))
    times = range(1000, 1960, 70)

    def answers():
        with PartitionLog(place.path, LogConfig(access="read")) as log:
            return [log.offset_for_timestamp(time) for time in times]

    wanted = answers()
    assert wanted[:3] == [(0, 1000), (7, 1070), (14, 1140)]
    for path in sorted(tmp_path.rglob("*.timeindex")):
        data = path.read_bytes()
        for bit in range(0, 8 * len(data), 7):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 128 >> bit % 8
            path.write_bytes(damaged)
            assert answers() == wanted, (path.name, bit)
        path.write_bytes(data)


@pytest.mark.parametrize("kind", ["log", "index"])
def test_a_flipped_bit_that_no_checksum_covers_is_noticed(tmp_path, kind):
    """The first offset of a batch (its first 8 bytes), and every bit of an index."""
    place = Place("t", 0, str(tmp_path / "t-0"), True)
    with PartitionLog(place.path, LogConfig(segment_bytes=3000, index_interval_bytes=400)) as log:
        for first in range(0, 96, 8):
            log.append_durably(encode_values([b"%d" % n * 20 for n in range(first, first + 8)]))
    damage = []  # (eight a batch: a flipped bit may lead exactly to where another batch begins)
    for path in sorted(tmp_path.rglob(f"*.{kind}")):
        data = path.read_bytes()
        starts = [at for at, _ in iter_headers(data)] if kind == "log" else range(0, len(data), 8)
        damage += [(path, 8 * start + bit) for start in starts for bit in range(64)]
    assert len(damage) > 300
    noticed = 0
    for path, bit in damage[:: 3 if kind == "index" else 7]:
        data = bytearray(path.read_bytes())
        data[bit // 8] ^= 128 >> bit % 8
        path.write_bytes(data)
        for start, end in ((0, 96), (20, 50), (95, 96)):
            try:
                batches = list(read_range(place, start, end, ["offset", "value"]))
            except CorruptLog:
                noticed += 1
                continue
            rows = [row for batch in batches for row in batch.to_pylist()]
            wanted = [{"offset": n, "value": b"%d" % n * 20} for n in range(start, end)]
            assert rows == wanted, (path.name, bit, start, end)
        try:  # the same in many small reads: each must go on where the one before it ended
            with PartitionLog(place.path, LogConfig(access="read")) as log:
                small = [read_header(batch).base_offset for batch in log.batches(max_bytes=300)]
            assert small == list(range(0, 96, 8)), (path.name, bit)
        except CorruptLog:
            noticed += 1
        data[bit // 8] ^= 128 >> bit % 8
        path.write_bytes(data)
    assert noticed or kind == "index"


def test_a_recovery_point_that_was_edited_is_noticed(log_place, tmp_path):
    shutil.copytree(log_place.path, tmp_path / "t-3")
    point = tmp_path / "t-3" / "recovery-point"
    point.write_bytes(point.read_bytes().replace(b'"log_start": 30', b'"log_start": 50'))
    with pytest.raises(CorruptLog, match="is not a recovery point"):
        plan(log_place._replace(path=str(tmp_path / "t-3")), Options("", most=1000))


def test_offsets_that_are_gone_or_to_come_are_refused(log_place):
    for name, offset, words in (
        ("startingOffsets", 29, "offset 29 of t-3 was deleted by retention; it holds 30 to 100"),
        ("startingOffsets", 101, "offset 101 of t-3 is past the end"),
        ("endingOffsets", 101, "offset 101 of t-3 is past the end"),
    ):
        with pytest.raises(SourceError, match=words):
            plan(log_place, Options.of({"path": log_place.path, name: str(offset)}))


def test_retention_during_a_read_is_an_error_and_not_a_smaller_count(tmp_path):
    with PartitionLog(tmp_path / "t-0", LogConfig(segment_bytes=10_000)) as log:
        for _ in range(100):
            log.append_durably(encode_values([b"x" * 1000]))
        place = Place("t", 0, str(tmp_path / "t-0"), True)
        [(start, end)] = plan(place, Options.of({"path": place.path}))
        log.advance_start(50)
        with pytest.raises(SourceError, match="retention deleted records of t-0 from offset 0"):
            list(read_range(place, start, end, ["value"]))
        log.truncate_to(70)
        with pytest.raises(SourceError, match="was cut back to offset 70"):
            list(read_range(place, 50, end, ["value"]))


def test_timestamps_are_exact_or_refused(tmp_path):
    place = Place("t", 0, str(tmp_path / "t-0"), True)
    stamps = [-1, 0, -62_135_596_800_000, 253_402_300_799_999]
    with PartitionLog(place.path) as log:
        log.append_durably(encode_values([b""] * 4, timestamps=stamps))
        log.append_durably(encode_values([b""], timestamps=[2**62]))
    [batch] = read_range(place, 0, 4, ["timestamp"])
    assert batch["timestamp"].cast("int64").to_pylist() == [None, *(1000 * ms for ms in stamps[1:])]
    with pytest.raises(SourceError, match=f"the timestamp {2**62} ms, which Spark cannot hold"):
        list(read_range(place, 4, 5, ["timestamp"]))
    assert next(read_range(place, 4, 5, ["offset"])).num_rows == 1


# --- with Spark


@pytest.fixture(scope="module")
def spark():
    spark = session("tests")
    yield spark
    spark.stop()


def test_a_session_is_local_quiet_and_the_only_one(spark):
    assert session() is spark
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert conf.get("spark.ui.enabled") == "false"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.range(100).selectExpr("sum(id) AS total").first().total == 4950


def test_results_and_events_reach_spark(spark, tmp_path):
    store = Results(tmp_path)
    store.append([row(clients=n, p99_ms=float(n)) for n in (1, 4)])
    frame = store.spark(spark)
    assert frame.where("machine.cores = 2").count() == 2
    assert [r.p99_ms for r in frame.orderBy("clients").collect()] == [1.0, 4.0]
    # Spark reads the same files by itself.
    assert spark.read.parquet(str(tmp_path)).count() == 2

    events = Events("a", ManualClock())
    events.emit("commit", partition=1, offset=8, data={"n": 1})
    frame = to_spark(events.events, spark)
    assert frame.selectExpr("offset", "get_json_object(data, '$.n') AS n").first() == (8, "1")


def load(spark, path, schema=None, **options):
    reader = spark.read.format("craft2").options(**options)
    return (reader.schema(schema) if schema else reader).load(str(path))


def test_a_folder_of_logs_with_all_that_a_record_can_hold(spark, tmp_path):
    headers = (("from", b"\xff\x00"), ("none", None))
    config = LogConfig(max_message_bytes=30_000_000)
    for number in (0, 1):
        with PartitionLog(tmp_path / f"flights-{number}", config) as log:
            records = [
                Record(0, 1_700_000_000_123, b"\x00\xff", b"\xfe", headers),
                Record(1, -1, None, None),
                Record(2, 5, b"", b""),
            ]
            log.append_durably(encode(records, codec="zstd" if number else "none"))
            control = [Record(0, 7, encode_control_key(1), b"\0\0\0\0\0\0")]
            log.append_durably(encode(control, control=True, transactional=True))
            log.append_durably(encode_values([b"h" * 20_000_000], timestamps=9))
    rows = load(spark, tmp_path).where("offset < 4").orderBy("partition", "offset").collect()
    assert [(r.topic, r.partition, r.offset) for r in rows] == [
        ("flights", number, offset) for number in (0, 1) for offset in (0, 1, 2)
    ]
    for first, none, empty in (rows[:3], rows[3:]):
        assert (bytes(first.key), bytes(first.value)) == (b"\x00\xff", b"\xfe")
        assert first.timestamp.microsecond == 123_000
        assert [(h.key, h.value and bytes(h.value)) for h in first.headers] == list(headers)
        assert (none.key, none.value, none.timestamp, none.headers) == (None, None, None, [])
        assert (bytes(empty.key), bytes(empty.value)) == (b"", b"")
    huge = load(spark, tmp_path).selectExpr("offset", "octet_length(value)").where("offset > 2")
    assert huge.collect() == [(4, 20_000_000)] * 2  # 3 is the control record
    assert load(spark, tmp_path).where("partition = 1 and offset >= 2").count() == 2
    assert load(spark, tmp_path).where("topic = 'other'").count() == 0
    gone = {"startingOffsets": "latest"}
    assert load(spark, tmp_path, **gone).count() == 0


def test_a_message_file_queue(spark, tmp_path):
    with PartitionedQueue(tmp_path / "q", fsync=False) as queue:
        sent = [queue.produce(f"k{n}", f"v{n}", timestamp=1000 + n) for n in range(40)]
    rows = load(spark, tmp_path / "q", maxRecordsPerPartition="7").collect()
    assert {(r.partition, r.offset): bytes(r.value) for r in rows} == {
        place: f"v{n}".encode() for n, place in enumerate(sent)
    }
    late = load(spark, tmp_path / "q", startingTimestamp="1030")
    assert late.where("timestamp >= timestamp_millis(1030)").count() == 10
    assert load(spark, tmp_path / "q", endingTimestamp="1001").count() <= 40


def test_columns_asked_for_are_the_only_ones_and_others_are_refused(spark, log_place):
    frame = load(spark, log_place.path, schema="value binary, offset long")
    assert frame.columns == ["value", "offset"]
    assert frame.selectExpr("min(offset)", "max(offset)", "count(*)").collect() == [(30, 99, 70)]
    with pytest.raises(Exception, match="there is no column 'offset' of type int"):
        load(spark, log_place.path, schema="offset int").count()
    with pytest.raises(Exception, match="column 'offset' is declared not null"):
        load(spark, log_place.path, schema="offset long not null").count()


def test_a_filter_of_one_query_is_not_one_of_the_next(spark, log_place):
    frame = load(spark, log_place.path)
    for _ in range(2):
        assert frame.where("offset < 40").count() == 10
        assert frame.count() == 70


def test_each_piece_is_a_spark_partition(spark, log_place):
    frame = load(spark, log_place.path, maxRecordsPerPartition="20")
    assert frame.rdd.getNumPartitions() == 4
    assert frame.count() == 70


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("nowhere", {}, "is no directory"),
        (".", {}, "holds no queue and no log"),
        ("t-3", {"offset": "3"}, "no option 'offset'"),
        ("t-3", {"startingOffsets": "7"}, "was deleted by retention; it holds 30 to 100"),
        ("t-3", {"startingOffsets": '{"u": {"0": 1}}'}, "names partition 0 of 'u'"),
    ],
)
def test_spark_says_what_is_wrong_and_how_to_mend_it(
    spark, log_place, tmp_path, path, options, words
):
    folder = os.path.dirname(log_place.path) if path == "t-3" else str(tmp_path)
    with pytest.raises(Exception, match=words) as caught:
        load(spark, os.path.join(folder, path), **options).count()
    assert "Fix: " in str(caught.value)


def test_a_log_that_grows_meanwhile_gives_a_prefix(spark, tmp_path):
    stop = threading.Event()
    log = PartitionLog(tmp_path / "t-0", LogConfig(flush_policy="never"))
    log.append_durably(encode_values([b"x"] * 1000))

    def write():  # at a pace: without one the log would outgrow what is read of it, for gigabytes
        while not stop.wait(0.001):
            log.append_durably(encode_values([b"x" * 50] * 10))

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(3):
            before = log.end_offset
            count, last = (
                load(spark, tmp_path / "t-0").selectExpr("count(*)", "max(offset)").first()
            )
            assert before <= count == last + 1 <= log.end_offset
    finally:
        stop.set()
        writer.join()
    frame = load(spark, tmp_path / "t-0")
    count = frame.count()
    log.append_durably(encode_values([b"later"]))
    assert frame.count() == count, "one DataFrame, one range"
    assert load(spark, tmp_path / "t-0").count() == count + 1
    log.close()


WRITE = """
import os, sys
from craft2.record_batch import encode_values
from phase1_file_queue.partition_log import PartitionLog
log = PartitionLog(sys.argv[1])
for _ in range(10):
    log.append_durably(encode_values([b"kept"] * 10))
print("ready", flush=True)
sys.stdin.read()
"""


def files(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_a_torn_tail_is_no_record_and_damage_is_an_error(spark, tmp_path):
    path = tmp_path / "t-0"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdout.readline() == b"ready\n"
    before = files(path)
    assert load(spark, path).count() == 100
    assert files(path) == before, "beside a writer that lives, reading only reads"
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdin.close()
    writer.stdout.close()
    [segment] = path.glob("*.log")
    whole = segment.read_bytes()
    with segment.open("ab") as file:
        file.write(encode_values([b"never acknowledged"] * 50)[:-9])
    assert load(spark, path).count() == 100
    assert segment.read_bytes() == whole, "whoever opens it first cuts the torn tail, and only that"
    with segment.open("r+b") as file:
        file.seek(90)
        file.write(b"\xff")
    with pytest.raises(Exception, match="damage"):
        load(spark, path).count()


# --- Streams. What each batch reads is tested without a session, in test_spark_stream.py.


def send(root, topic, numbers):
    with FileTransport(root) as files, Producer(ProducerConfig(linger_ms=0), files) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % len(list(root.glob("t-*"))))


def copy(spark, root, name, **options):
    """Run a query from topic t to topic `copies` until it has caught up; return its progress."""
    source = spark.readStream.format("craft2").option("startingOffsets", "earliest")
    rows = source.options(topic="t", **options).load(str(root)).select("key", "value")
    sink = rows.writeStream.format("craft2").option("path", str(root)).option("topic", "copies")
    sink = sink.option("checkpointLocation", str(root / name)).queryName(name)
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    return query.recentProgress


def values(spark, root, topic):
    rows = load(spark, root, topic=topic, schema="value binary").collect()
    return [int(row.value) for row in rows]


def test_a_stream_is_read_and_written_and_goes_on_from_its_checkpoint(spark, tmp_path):
    root = tmp_path / "queue"
    create_topic(root, "t", 2)
    create_topic(root, "copies", 3)
    send(root, "t", range(100))
    batches = copy(spark, root, "checkpoint", maxOffsetsPerTrigger="70")
    assert [batch["numInputRows"] for batch in batches] == [70, 30]
    create_topic(root, "t", 3)
    send(root, "t", range(100, 130))
    copy(spark, root, "checkpoint")
    assert sorted(values(spark, root, "copies")) == list(range(130))
    last = (root / "checkpoint" / "offsets" / "2").read_text().splitlines()[-1]
    assert json.loads(last) == {"t": {"0": 60, "1": 60, "2": 10}}

    copy(spark, root, "another")  # two queries on one topic do not know of each other
    assert delivery(range(130), values(spark, root, "copies")) == (0, 0, 130, 0, 0)


def test_the_sink_gives_a_batch_twice_that_was_done_but_not_noted_and_loses_none(spark, tmp_path):
    create_topic(tmp_path, "t", 2)
    create_topic(tmp_path, "copies", 2)
    send(tmp_path, "t", range(100))
    copy(spark, tmp_path, "checkpoint", maxOffsetsPerTrigger="60")
    for note in ("1", ".1.crc"):  # as if it had been killed just before writing it
        (tmp_path / "checkpoint" / "commits" / note).unlink()
    copy(spark, tmp_path, "checkpoint")
    assert delivery(range(100), values(spark, tmp_path, "copies")) == (0, 60, 40, 0, 0)


def test_a_table_is_written_with_its_topics_partitions_and_headers(spark, tmp_path):
    create_topic(tmp_path, "t", 2)
    create_topic(tmp_path, "u", 1)
    table = spark.sql("""
        select string(id) as value, if(id % 2 = 0, 't', 'u') as topic, 0 as partition,
               timestamp_millis(1000 + id) as timestamp,
               array(named_struct('key', 'id', 'value', cast(string(id) as binary))) as headers
        from range(10)""")
    table.write.format("craft2").mode("append").option("path", str(tmp_path)).save()
    for topic, first in (("t", 0), ("u", 1)):
        rows = load(spark, tmp_path, topic=topic).orderBy("offset").collect()
        assert sorted(int(row.value) for row in rows) == list(range(first, 10, 2))
        for one in rows:
            assert (one.partition, one.headers) == (0, [("id", one.value)])
            assert one.timestamp.microsecond == 1000 * int(one.value)
    with pytest.raises(Exception, match=r"cannot be overwritten.*Fix: say .mode"):
        table.write.format("craft2").mode("overwrite").option("path", str(tmp_path)).save()


def test_a_stream_says_what_is_wrong_and_how_to_mend_it(spark, tmp_path):
    create_topic(tmp_path, "t", 1)
    create_topic(tmp_path, "copies", 1)
    send(tmp_path, "t", range(5))
    with pytest.raises(Exception, match="maxOffsetsPerTrigger is '0'"):
        copy(spark, tmp_path, "a", maxOffsetsPerTrigger="0")
    copy(spark, tmp_path, "b")
    shutil.rmtree(tmp_path / "t-0")
    create_topic(tmp_path, "t", 1)
    with pytest.raises(Exception, match="t-0 was read up to offset 5, and now it ends at 0"):
        copy(spark, tmp_path, "b")


def none_was_late(query):
    return not any(
        state["numRowsDroppedByWatermark"]
        for batch in query.recentProgress
        for state in batch["stateOperators"]
    )


def test_a_killed_streaming_query_goes_on_and_equals_the_batch_job(spark, tmp_path):
    queue = tmp_path / "queue"
    fill_topic(queue, "flights", 8, 16_000)
    process = WindowsProcess(queue, tmp_path, max_offsets=8_000, limit_s=300)
    process.wait_for(1)
    process.kill()
    assert process.batches() < 3, "it was not done"
    query = start_windows(spark, queue, tmp_path, max_offsets=8_000, available_now=True)
    query.awaitTermination()
    assert none_was_late(query)
    result = sorted(windows(spark, tmp_path).collect())
    assert result == sorted(batch_windows(spark, queue).collect())
    assert len(result) > 600
    assert sum(row.departures for row in result) > 12_000


@pytest.mark.prove
def test_killed_again_and_again_with_all_flights_it_equals_the_batch_job(spark, tmp_path):
    queue, events = tmp_path / "queue", in_event_order()
    create_topic(queue, "flights", 4)
    with FileTransport(queue) as files, Producer(ProducerConfig(), files) as producer:
        for number in range(4):
            flights = [event.value for event in events[number::4]]
            producer.send_many("flights", flights, partition=number)
    chance, clock, never = random.Random(14), SystemClock(), threading.Event()
    kills = 0
    for _ in range(8):
        process = WindowsProcess(queue, tmp_path, max_offsets=20_000, limit_s=600)
        process.wait_for(process.batches() + chance.choice([0, 1, 2]))
        clock.wait(never, chance.uniform(0, 1.5))
        kills += process.running
        process.kill()
        print(kills, "kills,", process.batches(), "batches")
    WindowsProcess(queue, tmp_path, max_offsets=20_000, limit_s=600).wait()
    assert kills >= 6
    result = sorted(windows(spark, tmp_path).collect())
    assert result == sorted(batch_windows(spark, queue).collect())
    assert sum(row.departures for row in result) > 330_000
