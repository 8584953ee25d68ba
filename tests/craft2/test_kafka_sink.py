"""The Kafka sink against a real librdkafka: a broker that is away, and a queue that is full."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from craft2.apps.ingestion.kafka_sink import KafkaSink
from craft2.apps.ingestion.kafka_source import KafkaSource
from craft2.apps.ingestion.sinks import NoSink, SinkUnavailable
from craft2.apps.ingestion.sources import SourceError, read_to_end
from craft2.clock import ManualClock
from phase3_raft.local_broker import LocalBroker


async def patiently(sink, message):
    """Store it as a client does: what is refused is sent again."""
    for _ in range(20):
        with contextlib.suppress(SinkUnavailable):
            return await sink.store("a", message)
    raise AssertionError("the broker is back, and was not found in 20 tries")


def outcomes(bootstrap, broker, **settings):
    """What three stores come to: with the broker, without it, and with it again."""

    async def three():
        sink = KafkaSink(bootstrap, "t", 2, **settings)
        found = [await sink.store("a", b"one")]
        broker.kill()
        while_away = [asyncio.ensure_future(sink.store("a", b"%d" % n)) for n in range(3)]
        found += await asyncio.gather(*while_away, return_exceptions=True)
        broker.start()
        found.append(await patiently(sink, b"two"))
        await sink.close()
        return found

    return asyncio.run(three())


def test_a_broker_that_is_away_is_told_of_in_bounded_time_and_used_again_when_it_is_back(tmp_path):
    with LocalBroker(tmp_path) as broker:
        first, *away, last = outcomes(broker.bootstrap_servers, broker, delivery_ms=1_500)
    assert (first.offset, last.partition) == (0, first.partition)
    assert [type(one) for one in away] == [SinkUnavailable] * 3
    assert f"the topic 't' at {broker.bootstrap_servers} did not take the message" in str(away[0])
    assert last.offset >= 1


def test_a_full_queue_is_waited_for_and_then_told_of(tmp_path):
    with LocalBroker(tmp_path) as broker:
        settings = {"delivery_ms": 1_500, "queue_messages": 2}
        _, *away, last = outcomes(broker.bootstrap_servers, broker, **settings)
    assert "2 messages wait for it, as many as may" in str(away[2])
    assert last.offset >= 1, "it takes messages again"


def test_a_topic_that_cannot_be_is_named(tmp_path):
    with LocalBroker(tmp_path) as broker:
        with pytest.raises(NoSink, match="the topic 'a topic' cannot be made"):
            KafkaSink(broker.bootstrap_servers, "a topic")
        with pytest.raises(SourceError, match=r"topic 'no\?such'"):
            KafkaSource(broker.bootstrap_servers, "no?such", "g")


def test_a_source_says_in_bounded_time_that_nobody_answers():
    with pytest.raises(SourceError, match=r"no broker answers at 127\.0\.0\.1:1 within 0\.3 s"):
        KafkaSource("127.0.0.1:1", "t", "g", answer_s=0.3)


def test_the_end_waits_for_what_was_taken_in(tmp_path):
    async def stored_at_the_end(bootstrap):
        sink = KafkaSink(bootstrap, "t", 2)
        stores = [asyncio.ensure_future(sink.store("a", b"%d" % n)) for n in range(200)]
        await asyncio.sleep(0)  # all are with librdkafka, none is acknowledged
        await sink.close()
        done, waiting = await asyncio.wait(stores, timeout=5)
        return len(waiting), sorted(one.result().offset for one in done)

    with LocalBroker(tmp_path) as broker:
        found = asyncio.run(stored_at_the_end(broker.bootstrap_servers))
    assert found == (0, list(range(200)))


class Message:
    """As confluent-kafka's: a record, or the news that a partition is at its end."""

    def __init__(self, partition, offset=None):
        self._partition, self._offset = partition, offset

    def error(self):
        return KafkaError(KafkaError._PARTITION_EOF) if self._offset is None else None

    def partition(self):
        return self._partition

    def offset(self):
        return self._offset

    def timestamp(self):
        return (1, 0)

    def key(self):
        return None

    def value(self):
        return b""


def test_a_source_is_at_its_end_when_each_partition_has_said_so_and_nothing_since():
    source = KafkaSource.__new__(KafkaSource)
    source._assigned, source._ended = {0, 1}, set()
    script = [[Message(0, 0), Message(0)], [Message(1)], [Message(0, 1)], [], [Message(0)]]
    source._consumer = SimpleNamespace(consume=lambda count, wait_s: script.pop(0))
    found = []
    while script:
        rows = source.poll(0)
        found.append((len(rows), source.at_end()))
    assert found == [(1, False), (0, True), (1, False), (0, False), (0, True)]


def test_reading_to_the_end_gives_up_when_nothing_comes():
    clock = ManualClock()

    class Stuck:
        closed = False

        def poll(self, wait_ms):
            clock.advance(wait_ms / 1000)
            return []

        def at_end(self):
            return False

        def close(self):
            self.closed = True

    stuck = Stuck()
    with pytest.raises(SourceError, match="nothing was read for 10 s"):
        list(read_to_end(stuck, clock))
    assert stuck.closed
