"""What brokers are loaded with: librdkafka as it comes, and a generator that costs next to nothing.

The same client, the same work, one broker at a time. librdkafka needs more of the processor than
the broker does, so with few cores it is what limits the bulk figures. `replay` is what a broker can
do when the client is not in the way: requests that were encoded once, sent again and again.
"""

from __future__ import annotations

import itertools
import os
import random
import socket
import struct
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from craft2.apps.bench.harness import BenchError
from craft2.batch_header import iter_headers
from craft2.record_batch import encode_values
from phase2_groups.error_codes import ErrorCode
from phase3_raft import schemas

PARTITIONS = 4
LIMIT_S = 120.0
_CHUNK = 1_000  # records given to librdkafka at once
_FETCHES = 4  # on their way at once
_KINDS = 64  # different values
_MOST_BYTES_S = 1_000_000_000  # that one connection makes a broker write
_WORDS = (b"GET ", b"/api/v1/", b"status=200 ", b"carrier=UA ", b"latency_ms=")
_NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_QUIET = {"log_level": 0, "error_cb": lambda error: None}


class Work(NamedTuple):
    """Bulk work. spread: one partition after another, record by record. replicas: of each."""

    messages: int
    size_bytes: int = 100
    codec: str = "none"
    partitions: int = PARTITIONS
    acks: str = "1"
    spread: bool = False
    batch_records: int = 10_000
    replicas: int = 1


class Rates(NamedTuple):
    """Messages a second."""

    produced: float
    consumed: float


@contextmanager
def topic(
    bootstrap: str, partitions: int = PARTITIONS, replicas: int = 1, **config: str
) -> Iterator[str]:
    """A new topic, deleted in the end. Raises BenchError."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})
    name = f"bench-{time.time_ns()}"
    try:
        new = NewTopic(name, partitions, replicas, config=config)
        admin.create_topics([new])[name].result(LIMIT_S)
    except KafkaException as error:
        raise BenchError(f"{bootstrap} makes no topic: {error}", "see what it says") from error
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(LIMIT_S)


def values(size_bytes: int) -> list[bytes]:
    """Lines as in a log, of that size: half of each repeats, so that a codec has work to do."""
    chance = random.Random(7)

    def line() -> bytes:
        parts = b""
        while len(parts) < size_bytes:
            parts += chance.choice(_WORDS) + b"%d " % chance.randrange(10**6)
        return parts[:size_bytes]

    return [line() for _ in range(_KINDS)]


def bulk(bootstrap: str, work: Work) -> Rates:
    """Produce it all, then consume it all, each as fast as librdkafka goes. Raises BenchError."""
    _make_room(work.messages * work.size_bytes * work.replicas)
    with topic(bootstrap, work.partitions, work.replicas) as name:
        return Rates(_produce(bootstrap, name, work), _consume(bootstrap, name, work))


def _make_room(size: int) -> None:
    """Have the disk write what former rounds have left it, or the next one would wait for it; and
    so many bytes of free memory at hand.

    A virtual machine's host takes back what is free, and whoever needs it next waits: that would
    always be who comes after a broker that deletes its files late.
    """
    os.sync()
    piece = bytes(1024**2)
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(size // len(piece)):
            file.write(piece)


def _produce(bootstrap: str, name: str, work: Work) -> float:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": work.acks,
            "compression.type": work.codec,
            "linger.ms": 20,
            "batch.num.messages": work.batch_records,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 4_000_000,
            "queue.buffering.max.kbytes": 2_000_000,
            **_QUIET,
        }
    )
    producer.list_topics(name, LIMIT_S)
    chunks = _chunks(work)
    began = time.perf_counter()
    for number in range(work.messages // _CHUNK):
        producer.produce_batch(
            name, chunks[number % len(chunks)], partition=number % work.partitions
        )
        producer.poll(0)
    left = producer.flush(LIMIT_S)
    seconds = time.perf_counter() - began
    if left:
        raise BenchError(f"{left} messages were not acknowledged", "see what the broker says")
    return work.messages / seconds


def _chunks(work: Work) -> list[list[dict[str, Any]]]:
    kinds = itertools.cycle(values(work.size_bytes))
    if not work.spread:
        return [[{"value": next(kinds)} for _ in range(_CHUNK)] for _ in range(4)]
    numbers = itertools.cycle(range(work.partitions))
    count = max(1, work.partitions // _CHUNK)
    return [
        [{"value": next(kinds), "partition": next(numbers)} for _ in range(_CHUNK)]
        for _ in range(count)
    ]


def _consume(bootstrap: str, name: str, work: Work) -> float:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "queued.min.messages": 1_000_000,
            "fetch.message.max.bytes": 4_000_000,
            # It holds 64 MB at most, as it comes, but then pauses for 5 ms and not for a second.
            # With no bound, what is measured is how it finds memory for all that comes in advance:
            # a fifth slower, whoever the broker is, and the slower the faster a broker is.
            "fetch.queue.backoff.ms": 5,
            **_QUIET,
        }
    )
    consumer.assign([TopicPartition(name, number, 0) for number in range(work.partitions)])
    try:
        count, began = 0, time.perf_counter()
        while count < work.messages:
            if time.perf_counter() - began > LIMIT_S:
                raise BenchError(f"{count} of {work.messages} messages came", "see the broker")
            count += sum(1 for one in consumer.consume(20_000, 0.5) if not one.error())
        return count / (time.perf_counter() - began)
    finally:
        consumer.close()


def requests(bootstrap: str, count: int, acks: str = "1", **config: str) -> float:
    """Requests a second, each with one message of 100 bytes, up to 100 on their way."""
    from confluent_kafka import Producer

    with topic(bootstrap, PARTITIONS, 1, **config) as name:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "linger.ms": 0,
                "batch.num.messages": 1,
                "max.in.flight.requests.per.connection": 100,
                **_QUIET,
            }
        )
        producer.list_topics(name, LIMIT_S)
        value = values(100)[0]
        began = time.perf_counter()
        for number in range(count):
            while True:
                try:
                    producer.produce(name, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.01)
            if number % 1_000 == 0:
                producer.poll(0)
        if producer.flush(LIMIT_S):
            raise BenchError("not everything was acknowledged", "see what the broker says")
        return count / (time.perf_counter() - began)


def latencies(
    bootstrap: str, rate: int, seconds: float, acks: str = "1", replicas: int = 1
) -> array[float]:
    """Milliseconds from `produce` to `poll`, of messages sent at a steady rate.

    Each carries the moment at which it was given to the producer, which never waits for the broker:
    so a stall counts for all that were sent in it, and what this process itself is late does not.
    The first tenth is not counted.
    """
    from confluent_kafka import Consumer, Producer, TopicPartition

    total = round(rate * seconds)
    taken: array[float] = array("d")
    with topic(bootstrap, replicas=replicas) as name:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
                **_QUIET,
            }
        )
        consumer.assign([TopicPartition(name, number, 0) for number in range(PARTITIONS)])
        consumer.poll(1.0)  # so that it is connected

        def read() -> None:
            heard = time.perf_counter()
            while len(taken) < total and time.perf_counter() - heard < 10:
                message = consumer.poll(0.05)
                if message is not None and not message.error():
                    heard = time.perf_counter()
                    taken.append(1_000 * (heard - struct.unpack_from(">d", message.value())[0]))

        reader = threading.Thread(target=read)
        reader.start()
        settings = {"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0}
        producer = Producer({**settings, **_QUIET})
        producer.list_topics(name, LIMIT_S)
        began, sent, never = time.perf_counter(), 0, threading.Event()
        while sent < total:
            due = min(total, int((time.perf_counter() - began) * rate) + 1)
            for number in range(sent, due):
                stamp = struct.pack(">d", time.perf_counter())
                producer.produce(name, stamp + bytes(92), partition=number % PARTITIONS)
            sent = due
            producer.poll(0)
            never.wait(0.0005)
        producer.flush(LIMIT_S)
        reader.join()
        consumer.close()
    if len(taken) < total:
        raise BenchError(f"{len(taken)} of {total} messages came", "see what the broker says")
    return taken[total // 10 :]


def replay(bootstrap: str, seconds: float, *, records: int, size_bytes: int = 100) -> float:
    """Messages a second, in requests of one batch with so many records, encoded once.

    A new topic with one partition; up to a megabyte of requests, 100 at most, is on its way.
    """
    with topic(bootstrap, 1) as name, connected(bootstrap) as connection:
        frame = produce_frame(name, records, size_bytes)
        window = max(1, min(100, 1_000_000 // len(frame)))
        size = _answer_size(connection, frame)
        _make_room(round(seconds * _MOST_BYTES_S))
        answered, began = 0, time.perf_counter()
        while time.perf_counter() < began + seconds:
            connection.sendall(frame * window)
            left = size * window
            while left:
                piece = connection.recv(min(left, 1 << 20))
                if not piece:
                    raise BenchError("the broker hung up", "see what it says")
                left -= len(piece)
            answered += window
        return records * answered / (time.perf_counter() - began)


def refetch(bootstrap: str, seconds: float, *, records: int, size_bytes: int = 100) -> float:
    """Messages a second that are fetched, a megabyte at a time, always the same, and thrown away:
    what a consumer would get if it took no time itself."""
    with topic(bootstrap, 1) as name, connected(bootstrap) as connection:
        frame = produce_frame(name, records, size_bytes)
        size = _answer_size(connection, frame)
        connection.sendall(frame * (2_000_000 // len(frame)))
        for _ in range(2_000_000 // len(frame)):
            connection.recv(size, socket.MSG_WAITALL)
        frame = fetch_frame(name, 1_000_000)
        connection.sendall(frame)
        reply = _reply(connection)
        found = schemas.decode("fetch", 11, reply, 4, latest=11, kind="response")
        batches = found.responses[0].partitions[0].records
        there = sum(header.count for _, header in iter_headers(batches))
        answered, began, buffer = 0, time.perf_counter(), bytearray(1 << 20)
        while time.perf_counter() < began + seconds:
            connection.sendall(frame * _FETCHES)
            left = (4 + len(reply)) * _FETCHES
            while left:
                piece = connection.recv_into(buffer, min(left, len(buffer)))
                if not piece:
                    raise BenchError("the broker hung up", "see what it says")
                left -= piece
            answered += _FETCHES
        return there * answered / (time.perf_counter() - began)


def waiting_client(bootstrap: str, name: str, records: int) -> Callable[[], None]:
    """A client that sends a request with so many records to partition 0, and waits, each time."""
    connection, frame = connected(bootstrap), produce_frame(name, records, 100)
    size = _answer_size(connection, frame)

    def send() -> None:
        connection.sendall(frame)
        if len(connection.recv(size, socket.MSG_WAITALL)) < size:
            raise BenchError("the broker hung up", "see what it says")

    return send


def produce_frame(name: str, records: int, size_bytes: int, acks: int = 1) -> bytes:
    """A whole request with one batch for partition 0 of a topic. acks: -1 is all."""
    batch = encode_values(list(itertools.islice(itertools.cycle(values(size_bytes)), records)))
    fields = {
        "transactional_id": None,
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [{"name": name, "partition_data": [{"index": 0, "records": batch}]}],
    }
    body = struct.pack(">hhih", 0, 7, 1, -1) + schemas.encode("produce", 7, fields, "request")
    return struct.pack(">i", len(body)) + body


def fetch_frame(name: str, max_bytes: int) -> bytes:
    """A whole request for what is in partition 0 of a topic from its start on."""
    wanted = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    fields = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": name, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    body = struct.pack(">hhih", 1, 11, 1, -1) + schemas.encode("fetch", 11, fields, "request")
    return struct.pack(">i", len(body)) + body


def connected(bootstrap: str) -> socket.socket:
    """A connection to a broker."""
    host, _, port = bootstrap.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _answer_size(connection: socket.socket, frame: bytes) -> int:
    """Send a request until it succeeds, and say how long the answer is.

    For a moment after a topic was made, Apache Kafka does not know it, or who leads it.
    """
    until = time.perf_counter() + LIMIT_S
    while True:
        connection.sendall(frame)
        body = _reply(connection)
        reply = schemas.decode("produce", 7, body, 4, latest=7, kind="response")
        error = reply.responses[0].partition_responses[0].error_code
        if not error:
            return 4 + len(body)
        if error not in _NOT_YET or time.perf_counter() > until:
            raise BenchError(f"the broker refuses what is replayed, with error {error}", "see it")


def _reply(connection: socket.socket) -> bytes:
    head = connection.recv(4, socket.MSG_WAITALL)
    return connection.recv(int.from_bytes(head), socket.MSG_WAITALL)
