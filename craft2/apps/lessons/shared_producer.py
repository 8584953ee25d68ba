"""Four wrappers round a shared librdkafka producer, each with one mistake, and each repaired.

A wrapper is used by many threads at once: `send(number)`, then `close()`. `symptoms` sends numbers
through one and compares with what is in the topic afterwards. The mistakes are those that are made
in every language; the last one needs a language in which memory is lent, so it calls the C library.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Protocol

import confluent_kafka
from confluent_kafka import Producer

from craft2.apps.ingestion.kafka_sink import make_topic
from craft2.apps.ingestion.kafka_source import KafkaSource
from craft2.apps.ingestion.sources import read_to_end
from craft2.apps.lessons.processes import acknowledge
from craft2.checker import DeliveryCount, delivery
from craft2.errors import Craft2Error

FLUSH_S = 10.0
# A busy machine is slow to send: with the usual 5 ms a queue may be empty before it is let go.
_COMMON = {"log_level": 0, "delivery.timeout.ms": 10_000, "linger.ms": 100}


class Wrapper(Protocol):
    """See the module."""

    def send(self, number: int) -> None: ...

    def close(self) -> None: ...


Make = Callable[[str, str], Wrapper]  # (bootstrap servers, topic)


class _Shared:
    """What the wrappers have in common: one producer, and a proper end."""

    queue_messages = 100_000

    def __init__(self, bootstrap: str, topic: str) -> None:
        queue = {"queue.buffering.max.messages": self.queue_messages}
        self.producer = Producer({"bootstrap.servers": bootstrap} | queue | _COMMON)
        self.topic = topic
        self.access_log = os.open(os.devnull, os.O_WRONLY)

    def close(self) -> None:
        self.producer.flush(FLUSH_S)
        os.close(self.access_log)


class A(_Shared):
    def send(self, number: int) -> None:
        self.message = b"metric %d" % number
        os.write(self.access_log, self.message)
        self.producer.produce(self.topic, self.message)


class RepairedA(_Shared):
    def send(self, number: int) -> None:
        message = b"metric %d" % number
        os.write(self.access_log, message)
        self.producer.produce(self.topic, message)


class B(_Shared):
    queue_messages = 500

    def send(self, number: int) -> None:
        try:
            self.producer.produce(self.topic, b"metric %d" % number)
        except BufferError:
            os.write(self.access_log, b"Local: Queue full")


class RepairedB(_Shared):
    queue_messages = 500

    def send(self, number: int) -> None:
        while True:
            try:
                self.producer.produce(self.topic, b"metric %d" % number)
                return
            except BufferError:
                self.producer.poll(0.1)


class C(_Shared):
    def send(self, number: int) -> None:
        self.producer.produce(self.topic, b"metric %d" % number)
        self.producer.poll(0)

    def close(self) -> None:
        del self.producer


class RepairedC(C):
    def close(self) -> None:
        while self.producer.flush(FLUSH_S):
            pass
        del self.producer


class D:
    """C in Python's spelling: `produce` is told that it need not copy the message (flags 0)."""

    flags = 0

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.library = CLibrary(bootstrap, topic)
        self.buffer = ctypes.create_string_buffer(20)

    def send(self, number: int) -> None:
        self.buffer.value = b"metric %06d" % number
        self.library.produce(self.buffer, 13, self.flags)

    def close(self) -> None:
        self.library.close()


class RepairedD(D):
    flags = 2  # RD_KAFKA_MSG_F_COPY


class NoLibrary(Craft2Error):
    """librdkafka is not where confluent-kafka's wheels keep it."""


class CLibrary:
    """The few functions of librdkafka's C interface that produce a message.

    Source: `rdkafka.h`.
    """

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._call = ctypes.CDLL(str(_library()))
        for name in ("conf_new", "new", "topic_new"):  # pointers, which are longer than an int
            getattr(self._call, f"rd_kafka_{name}").restype = ctypes.c_void_p
        error = ctypes.create_string_buffer(200)
        conf = ctypes.c_void_p(self._call.rd_kafka_conf_new())
        settings = {"bootstrap.servers": bootstrap, "linger.ms": "50"}
        for key, value in (settings | _COMMON).items():
            self._call.rd_kafka_conf_set(conf, key.encode(), str(value).encode(), error, 200)
        self._handle = ctypes.c_void_p(self._call.rd_kafka_new(0, conf, error, 200))
        encoded = topic.encode()
        self._topic = ctypes.c_void_p(self._call.rd_kafka_topic_new(self._handle, encoded, None))

    def produce(self, data: ctypes.Array[ctypes.c_char], size: int, flags: int) -> None:
        """Queue the bytes. Without RD_KAFKA_MSG_F_COPY they must not change until delivered."""
        length, none = ctypes.c_size_t(size), ctypes.c_size_t(0)
        partition = ctypes.c_int32(-1)
        self._call.rd_kafka_produce(self._topic, partition, flags, data, length, None, none, None)

    def close(self) -> None:
        """Flush, and free everything."""
        self._call.rd_kafka_flush(self._handle, int(FLUSH_S * 1000))
        self._call.rd_kafka_topic_destroy(self._topic)
        self._call.rd_kafka_destroy(self._handle)


def _library() -> Path:
    package = Path(confluent_kafka.__file__).parent
    for folder in (package.parent / "confluent_kafka.libs", package / ".dylibs"):
        for found in sorted(folder.glob("librdkafka*")):
            return found
    raise NoLibrary(
        f"no librdkafka beside {str(package)!r}", "install confluent-kafka from a wheel: pip does"
    )


class Symptoms(NamedTuple):
    """accepted: sends that returned without an error. found: the numbers in the topic, in order."""

    accepted: int
    found: list[int]
    delivery: DeliveryCount

    def __str__(self) -> str:
        return f"accepted {self.accepted}; in the topic {len(self.found)}: {self.delivery}"


def symptoms(make: Make, bootstrap: str, topic: str, *, count: int, threads: int = 1) -> Symptoms:
    """Send the numbers below `count` through a wrapper, and see what is in the topic.

    threads: how many share the wrapper. They send in bursts, each of them one number at a time.
    """
    make_topic(bootstrap, topic, 1)
    wrapper = make(bootstrap, topic)
    together = threading.Barrier(threads)

    def work(thread: int) -> int:
        accepted = 0
        for burst in range(0, count, threads):
            together.wait()
            if burst + thread < count:
                wrapper.send(burst + thread)
                accepted += 1
        return accepted

    with ThreadPoolExecutor(threads) as pool:
        accepted = sum(pool.map(work, range(threads)))
    wrapper.close()
    found = numbers(in_topic(bootstrap, topic))
    return Symptoms(accepted, found, delivery(range(count), found))


def numbers(values: Sequence[str]) -> list[int]:
    """The numbers in the messages."""
    return [int(value.removeprefix("metric ")) for value in values]


def in_topic(bootstrap: str, topic: str) -> list[str]:
    """The values of all records of a topic."""
    rows = read_to_end(KafkaSource(bootstrap, topic, None))
    return [(row.value or b"").decode() for row in rows]


def answer_early(bootstrap: str, topic: str, count: int) -> None:
    """A worker that acknowledges each message as soon as `produce` has returned; then it waits."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 60_000, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"metric %d" % number)
        acknowledge(number)
    threading.Event().wait()
