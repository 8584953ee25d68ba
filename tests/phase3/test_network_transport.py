"""Our client over the network, when the network or the broker fails it."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from craft2.net import Address
from phase2_groups import connect as phase2
from phase2_groups import consumer_errors, producer_config
from phase2_groups.connect import UnknownAddress, connect
from phase2_groups.consumer import Consumer
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.error_codes import ErrorCode
from phase2_groups.group_messages import Heartbeat
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig
from phase3_raft.client import NetworkTransport, cluster
from phase3_raft.client.cluster import Cluster
from phase3_raft.local_broker import LocalBroker


def test_an_idempotent_producer_stores_once_what_it_sends_while_the_broker_is_killed(tmp_path):
    with LocalBroker(tmp_path) as broker:
        config = ProducerConfig(bootstrap_servers=broker.bootstrap_servers, linger_ms=1)
        with Producer(config) as producer:
            futures = [producer.send("t", str(n), partition=0) for n in range(100)]
            futures[0].result(20)
            killer = threading.Thread(target=broker.kill)
            killer.start()
            futures += [producer.send("t", str(n), partition=0) for n in range(100, 2_000)]
            killer.join()
            broker.start()
            offsets = [future.result(60).offset for future in futures]
        assert offsets == list(range(2_000))
        with NetworkTransport(broker.bootstrap_servers) as transport:
            found = transport.fetch({("t", 0): 0}, max_wait_ms=100)
            assert found["t", 0].high_watermark == 2_000


def test_a_broker_that_is_not_there_is_a_network_error():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with NetworkTransport(f"127.0.0.1:{port}") as transport:
        assert transport.metadata(["t"]) == {"t": ErrorCode.NETWORK_EXCEPTION}
        assert transport.produce({("t", 0): b"x"}, 1, 100)["t", 0].error.retriable
        assert transport.init_producer_id().error.retriable
        heartbeat = Heartbeat(token="1", member_id="m", generation=1)
        reply = transport.ask_group("g", heartbeat, 1_000)
        assert reply is None or reply.error.retriable
        assert transport.committed("g", [("t", 0)])["t", 0].retriable


def test_a_consumer_is_told_that_no_topic_can_have_a_name():
    with LocalBroker() as broker:
        config = ConsumerConfig(bootstrap_servers=broker.bootstrap_servers, group_id="g")
        with Consumer(config) as consumer:
            with pytest.raises(consumer_errors.InvalidTopic, match="'a b' is not the name of a t"):
                consumer.assign([("a b", 0)])
            consumer.subscribe(["a b"])
            for _ in range(2):
                with pytest.raises(consumer_errors.InvalidTopic):
                    consumer.poll(0)


def test_a_broker_that_answers_nothing_is_passed_over(monkeypatch):
    """It was stopped, or is cut off: the system accepts connections for it all the same."""
    monkeypatch.setattr(cluster, "_SILENT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as mute, LocalBroker() as broker:
        where = f"127.0.0.1:{mute.getsockname()[1]},{broker.bootstrap_servers}"
        with Producer(ProducerConfig(bootstrap_servers=where)) as producer:
            assert producer.send("t", b"", partition=0).result(20).offset == 0
        with NetworkTransport(where) as transport:
            assert transport.metadata(["t"]) == {"t": 1}


def nobody():
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_producer_says_that_nobody_answers():
    where = nobody()
    config = ProducerConfig(bootstrap_servers=where, max_block_ms=0)
    said = rf"no broker answers at {where} \(max_block_ms=0\). Fix: give the address"
    with Producer(config) as producer, pytest.raises(producer_config.NobodyAnswers, match=said):
        producer.send("t", b"")


def test_a_consumer_says_that_nobody_answers_unless_somebody_has_before():
    where = nobody()
    config = ConsumerConfig(bootstrap_servers=where, group_id="g", default_api_timeout_ms=1)
    said = rf"no broker answers at {where} \(default_api_timeout_ms=1\). Fix: give the address"
    with Consumer(config) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(consumer_errors.NobodyAnswers, match=said):
            consumer.poll(60_000)
    said = f"no broker answers at {where}. Fix"
    with Consumer(config) as consumer, pytest.raises(consumer_errors.NobodyAnswers, match=said):
        consumer.assign([("t", 0)])
    with LocalBroker() as broker:
        config = ConsumerConfig(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            default_api_timeout_ms=1,
            metadata_max_age_ms=1,
        )
        with Consumer(config) as consumer:
            consumer.subscribe(["t"])
            consumer.poll(0)
            broker.kill()
            for _ in range(3):
                assert consumer.poll(50) == []  # it may come back


def test_a_fetch_that_waits_is_woken():
    with LocalBroker() as broker, NetworkTransport(broker.bootstrap_servers) as transport:
        transport.metadata(["t"])
        transport.metadata(["t"])
        asked = threading.Event()
        answers = []

        def fetch():
            asked.set()
            answers.append(transport.fetch({("t", 0): 0}, max_wait_ms=25_000))

        waiting = threading.Thread(target=fetch)
        waiting.start()
        asked.wait(10)
        while waiting.is_alive():
            transport.wake()
            waiting.join(0.05)
        assert not answers[0]["t", 0].data


def test_who_waits_for_a_connection_that_is_given_up_gets_an_error_of_the_network():
    class Slow:
        async def connect(self, address):
            await asyncio.Event().wait()

    async def work():
        cluster = Cluster(Slow(), [], "me")
        asking = asyncio.ensure_future(cluster.ask(Address("nowhere", 1), "fetch", {}, "fetch"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await cluster.hang_up("fetch")
        with pytest.raises(ConnectionAbortedError, match="nowhere:1 was given up"):
            await asking

    asyncio.run(work())


def test_the_address_of_a_broker_is_understood_once_phase_3_is_there(monkeypatch):
    with LocalBroker() as broker:
        transport = connect(broker.bootstrap_servers)
        assert isinstance(transport, NetworkTransport)
        transport.close()
        monkeypatch.setattr(phase2, "over_network", None)
        with pytest.raises(UnknownAddress, match="import phase3_raft"):
            connect(broker.bootstrap_servers)
