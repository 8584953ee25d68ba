"""A topic of a broker as the Spark source reads it, without Spark; notebook 30 has one read it."""

from __future__ import annotations

import threading

import pytest

from craft2.apps import spark_network
from craft2.apps.ingestion.kafka_sink import make_topic
from craft2.apps.spark_network import RemoteLog, partitions_of
from craft2.apps.spark_options import Options, SourceError
from craft2.apps.spark_ranges import bounds, open_places, plan, read_range
from craft2.record_batch import encode_values
from phase1_file_queue.log_config import OffsetOutOfRange
from phase3_raft.client.network_transport import NetworkTransport
from phase3_raft.local_broker import LocalBroker


@pytest.fixture(scope="module")
def broker():
    with LocalBroker(options=("--no-auto-create",)) as running:
        make_topic(running.bootstrap_servers, "t", 2)
        with NetworkTransport(running.bootstrap_servers) as transport:
            for number in range(3):
                values = [b"%d" % (10 * number + n) for n in range(10)]
                batch = encode_values(values, timestamps=1_000 * (number + 1))
                transport.produce({("t", 0): batch}, -1, 5_000)
        yield running


def options(broker, **more):
    return Options.of({"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t"} | more)


def test_a_topic_is_read_as_a_folder_of_logs_is(broker):
    wanted = options(broker)
    places = open_places(wanted)
    assert [place.words for place in places] == ["t-0", "t-1"]
    assert [bounds(place) for place in places] == [(0, 30), (0, 0)]
    assert plan(places[0], wanted) == [(0, 30)]
    assert plan(places[1], wanted) == []
    rows = [
        row
        for table in read_range(places[0], 5, 25, ["partition", "offset", "value"])
        for row in table.to_pylist()
    ]
    assert rows == [{"partition": 0, "offset": n, "value": str(n).encode()} for n in range(5, 25)]


def test_a_time_is_looked_up(broker):
    wanted = options(broker, startingTimestamp="1500", endingTimestamp="2500")
    assert plan(open_places(wanted)[0], wanted) == [(10, 20)]


def test_reading_ends_at_the_end_and_in_small_pieces(broker):
    log = RemoteLog(broker.bootstrap_servers, "t", 0)
    assert len(list(log.batches(0, max_bytes=1))) == 3
    assert list(log.batches(30, max_bytes=1)) == []
    with pytest.raises(OffsetOutOfRange):
        list(log.batches(31, max_bytes=1))


def test_an_unknown_topic_is_named(broker):
    with pytest.raises(SourceError, match="nothing cannot be read at"):
        partitions_of(broker.bootstrap_servers, "nothing")


def test_nobody_is_there(monkeypatch):
    monkeypatch.setattr(spark_network, "PATIENCE_S", 0.0)
    with pytest.raises(SourceError, match="NETWORK_EXCEPTION"):
        partitions_of("127.0.0.1:1", "t")


def test_a_reader_waits_for_a_broker_that_comes_back(broker):
    log = RemoteLog(broker.bootstrap_servers, "t", 0)
    assert log.end_offset == 30
    broker.kill()
    back = threading.Thread(target=broker.start)
    back.start()
    assert log.end_offset == 30
    back.join()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kafka.bootstrap.servers": "x:1"}, "no topic"),
        ({"kafka.bootstrap.servers": "x:1", "topic": "t", "path": "/x"}, "both a path and"),
    ],
)
def test_options_that_do_not_fit(given, words):
    with pytest.raises(SourceError, match=words):
        Options.of(given)
