"""The service's answers, over sinks that keep, wait, or cannot: all of it in this process."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request
from starlette.testclient import TestClient

from craft2.apps.ingestion.file_sink import FileSink
from craft2.apps.ingestion.log_sink import LogSink
from craft2.apps.ingestion.service import MAX_BODY_BYTES, BodyTooLarge, IngestionService, read_body
from craft2.apps.ingestion.sinks import NoSink, QueueMode, SinkUnavailable, Stored, open_sink
from craft2.clock import ManualClock
from craft2.faulty_disk import FaultyDisk
from phase1_file_queue.partitioned_queue import NotAQueue
from phase2_groups.topics import partition_count


class ListSink:
    """Keeps messages in a list; raises `problem`, if there is one."""

    def __init__(self):
        self.messages, self.problem, self.closed = [], None, False

    async def store(self, key, message):
        if self.problem is not None:
            raise self.problem
        self.messages.append((key, json.loads(message)))
        return Stored(3, len(self.messages) - 1)

    async def close(self):
        self.closed = True


@pytest.fixture
def sink():
    return ListSink()


@pytest.fixture
def clock():
    return ManualClock(start_ms=1_000_000)


@pytest.fixture
def client(sink, clock):
    with TestClient(IngestionService(sink, QueueMode.LOG, clock, rate_limit=10).app) as client:
        yield client
    assert sink.closed


def body(client_id="a", count=1):
    return {"client_id": client_id, "metrics": [{"name": "cpu", "value": 0.5}] * count}


def test_a_batch_is_kept_under_its_client_with_the_time_of_arrival(client, sink):
    reply = client.post("/metrics", json=body())
    assert (reply.status_code, reply.json()) == (200, {"accepted": 1, "partition": 3, "offset": 0})
    stored = {"name": "cpu", "value": 0.5, "time_ms": 1_000_000}
    assert sink.messages == [("a", {"client_id": "a", "metrics": [stored]})]


def test_what_is_no_batch_is_not_kept(client, sink):
    for content, status, words in [
        (b"{", 400, "the body is no JSON"),
        (b'{"client_id": "\xff"}', 400, "the body is no JSON: byte 15, b'\\xff', is no UTF-8"),
        (b'{"client_id": 1e999}', 400, "too large for 64 bits, in '{"),
        (b'{"metrics": [{"name": "cpu", "value": 1}]}', 422, "client_id is missing. Fix: "),
        (b" " * (MAX_BODY_BYTES + 1), 413, f"{MAX_BODY_BYTES} are read. Fix: send fewer"),
        (iter([b" " * MAX_BODY_BYTES, b" "]), 413, "send fewer"),  # chunked: no length is told
    ]:
        reply = client.post("/metrics", content=content)
        assert (reply.status_code, words in reply.json()["error"]) == (status, True), reply.text
    assert sink.messages == []


def test_a_body_without_end_is_not_read_to_its_end():
    chunks = []

    async def receive():
        chunks.append(b" " * 100_000)
        assert len(chunks) <= 10
        return {"type": "http.request", "body": chunks[-1], "more_body": True}

    scope = {"type": "http", "method": "POST", "headers": []}
    with pytest.raises(BodyTooLarge):
        asyncio.run(read_body(Request(scope, receive)))
    assert len(chunks) == MAX_BODY_BYTES // 100_000 + 1


def test_too_many_metrics_have_to_wait_as_long_as_it_says(client, sink, clock):
    assert client.post("/metrics", json=body(count=10)).status_code == 200
    reply = client.post("/metrics", json=body(count=10))
    assert reply.status_code == 429
    assert "client_id 'a' sends more than 10 metrics a second" in reply.json()["error"]
    assert reply.headers["retry-after"] == "1"
    assert client.post("/metrics", json=body("b")).status_code == 200, "another client may"
    clock.advance(1)
    assert client.post("/metrics", json=body(count=10)).status_code == 200
    assert len(sink.messages) == 3


def test_what_cannot_be_stored_is_503_and_health_tells_until_it_can(client, sink):
    assert client.get("/health").json() == {"status": "ok", "mode": "log"}
    sink.problem = SinkUnavailable("the disk is full", "make room")
    reply = client.post("/metrics", json=body())
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert reply.json() == {"error": "the disk is full. Fix: make room"}
    health = client.get("/health")
    assert (health.status_code, health.json()) == (503, reply.json())
    sink.problem = None
    assert client.post("/metrics", json=body()).status_code == 200
    assert client.get("/health").status_code == 200


def test_prometheus_reads_what_was_counted(client, sink):
    client.post("/metrics", json=body(count=4))
    client.post("/metrics", content=b"{")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    }
    assert found["craft2_ingest_requests_total", "200"] == 1
    assert found["craft2_ingest_requests_total", "400"] == 1
    assert found["craft2_ingest_metrics_total",] == 4
    assert found["craft2_ingest_waiting",] == 0
    assert found["craft2_ingest_store_seconds_count",] == 1


# Real queues, on disks that fail.


def serving(sink, mode) -> Iterator[TestClient]:
    return TestClient(IngestionService(sink, mode, ManualClock(), rate_limit=0).app)


def test_a_full_disk_is_503_in_mode_file_and_nothing_acknowledged_is_lost(tmp_path):
    disk = FaultyDisk()
    sink = FileSink(tmp_path / "queue", disk=disk)
    with serving(sink, QueueMode.FILE) as client:
        kept = [client.post("/metrics", json=body()).json()["offset"] for _ in range(3)]
        disk.capacity = sum(map(len, disk.tree().values())) + 50
        reply = client.post("/metrics", json=body(count=3))
        assert (reply.status_code, "full" in reply.json()["error"]) == (503, True), reply.text
        disk.capacity = None
        assert client.post("/metrics", json=body()).json()["offset"] == len(kept)
    survived = FileSink(tmp_path / "queue", disk=disk.power_loss(keep=0.0))._queue
    assert survived.end_offsets() == [4, 0, 0, 0]


def test_a_full_disk_is_503_in_mode_log_and_nothing_acknowledged_is_lost(tmp_path):
    disk = FaultyDisk()
    sink = LogSink(tmp_path / "logs", "metrics", disk=disk, delivery_ms=1_000)
    with serving(sink, QueueMode.LOG) as client:
        kept = [client.post("/metrics", json=body()).json()["offset"] for _ in range(3)]
        disk.capacity = sum(map(len, disk.tree().values())) + 50
        reply = client.post("/metrics", json=body(count=3))
        assert reply.status_code == 503
        assert "the log 'metrics'" in reply.json()["error"]
        disk.capacity = None
        assert client.post("/metrics", json=body()).json()["offset"] >= len(kept)
    after = disk.power_loss(keep=0.0)
    log = LogSink(tmp_path / "logs", "metrics", disk=after)._transport._log(("metrics", 0), "read")
    assert len(list(log.records(0))) >= 4


def test_a_queue_that_falls_behind_says_so_instead_of_growing(tmp_path):
    held = threading.Event()

    class Slow(FaultyDisk):
        def open(self, path, mode):
            if path.endswith(".msg.tmp"):
                held.wait()
            return super().open(path, mode)

    async def flood():
        sink = FileSink(tmp_path / "queue", disk=Slow(), max_waiting=5)
        stores = [asyncio.ensure_future(sink.store("a", b"{}")) for _ in range(7)]
        await asyncio.sleep(0)
        refused = [one.exception() for one in stores if one.done()]
        held.set()
        stored = await asyncio.gather(
            *(one for one in stores if not one.done() or not one.exception())
        )
        await sink.close()
        return refused, stored

    refused, stored = asyncio.run(flood())
    assert [type(one) for one in refused] == [SinkUnavailable] * 2
    assert "5 messages wait for the disk" in str(refused[0])
    assert sorted(one.offset for one in stored) == [0, 1, 2, 3, 4]


# Which queue is where.


def test_a_mode_that_lacks_its_place_says_which_option(tmp_path):
    for mode, words in [("file", "--root"), ("log", "--root"), ("kafka", "--bootstrap")]:
        with pytest.raises(NoSink, match=f"mode {mode} does not know .* give {words}"):
            open_sink(QueueMode(mode))


def test_the_root_of_another_kind_is_refused_and_left_alone(tmp_path):
    async def made(sink):
        await sink.close()

    asyncio.run(made(open_sink(QueueMode.FILE, root=tmp_path / "files")))
    asyncio.run(made(open_sink(QueueMode.LOG, root=tmp_path / "logs")))
    with pytest.raises(NoSink, match=r"holds message files, no logs\. Fix: use --mode file"):
        open_sink(QueueMode.LOG, root=tmp_path / "files")
    with pytest.raises(NoSink, match=r"holds logs, no message files\. Fix: use --mode log"):
        open_sink(QueueMode.FILE, root=tmp_path / "logs")
    assert partition_count(tmp_path / "files", "metrics") == 0
    (tmp_path / "file").write_text("x")
    for mode in (QueueMode.FILE, QueueMode.LOG):
        with pytest.raises((NoSink, NotAQueue), match="is a file"):
            open_sink(mode, root=tmp_path / "file")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("x")
    with pytest.raises(NotAQueue, match=r"it holds 'cat\.jpg'"):
        open_sink(QueueMode.FILE, root=tmp_path / "photos")
