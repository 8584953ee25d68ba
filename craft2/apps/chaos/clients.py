"""The clients of a run, unmodified librdkafka, and the history that they write.

Senders number their messages and send them with acks=all and idempotence, so a log that keeps its
promises holds each acknowledged one once. Workers are a consumer group. What they ask and are told
becomes `Operation`s, which `craft2.checker` judges.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from craft2.apps.chaos.timeline import Timeline
from craft2.history import UNKNOWN, Kind, Message, Operation

GROUP = "workers"
READER = "reader"
_TICK_S = 0.01
_COMMIT_S = 0.5
# A producer that has several requests on their way and is refused the first is told that the second
# is out of order. librdkafka then gives all that it sends a new epoch, and what it does not know to
# be in the log, of other partitions as well, is in it twice: no broker can tell.
_IN_FLIGHT = 1
_ANSWER_MS = 30_000
_PADDING = "." * 80
_FEW = 2_000  # messages that a sender holds: an outage shall not end in a flood


class Clients:
    """See the module. history: what all of them noted. errors: what they were told, how often."""

    def __init__(self, servers: str, topic: str, partitions: int, timeline: Timeline) -> None:
        self.servers, self.topic, self.partitions = servers, topic, partitions
        self.timeline = timeline
        self.history: list[Operation] = []
        self.errors: Counter[str] = Counter()
        self.failed: list[tuple[float, str]] = []  # sends: when, and why
        self._senders: list[Sender] = []
        self._workers: list[Worker] = []

    def settings(self, name: str) -> dict[str, Any]:
        """What all of them have."""
        return {
            "bootstrap.servers": self.servers,
            "client.id": name,
            "log_level": 0,
            "error_cb": lambda error: self.errors.update([error.name()]),
            "socket.timeout.ms": 3_000,
            "socket.connection.setup.timeout.ms": 3_000,
            "reconnect.backoff.max.ms": 1_000,
        }

    def start(self, senders: int, workers: int, rate: float, chance: random.Random) -> None:
        """rate: messages a second, of all together."""
        for number in range(senders):
            seeded = random.Random(chance.random())
            self._senders.append(Sender(self, f"sender-{number + 1}", rate / senders, seeded))
        self._workers = [Worker(self, f"worker-{number + 1}") for number in range(workers)]
        for one in (*self._workers, *self._senders):
            one.start()

    def stop_sending(self, timeout_s: float) -> int:
        """Wait for the answers; returns how many never came."""
        for one in self._senders:
            one.patience_s = timeout_s
            one.ending.set()
        for one in self._senders:
            one.join()
        return sum(one.left for one in self._senders)

    def ends(self) -> dict[int, int]:
        """The next offset of each partition, as the brokers say. Raises KafkaException."""
        consumer = Consumer(self.settings(READER) | {"group.id": READER})
        try:
            return {
                number: consumer.get_watermark_offsets(
                    TopicPartition(self.topic, number), timeout=30
                )[1]
                for number in range(self.partitions)
            }
        finally:
            consumer.close()

    def drain(self, ends: dict[int, int], timeout_s: float) -> dict[int, int]:
        """Wait until the group has read to the ends; returns what is missing: partition -> from."""
        clock, ending = self.timeline.clock, threading.Event()
        until = clock.monotonic() + timeout_s
        while (missing := self._unread(ends)) and clock.monotonic() < until:
            clock.wait(ending, 0.1)
        for one in self._workers:
            one.ending.set()
        for one in self._workers:
            one.join()
        return missing

    def _unread(self, ends: dict[int, int]) -> dict[int, int]:
        read: Counter[int] = Counter()
        for one in self._workers:
            for number, position in list(one.next.items()):
                read[number] = max(read[number], position)
        return {number: read[number] for number, end in ends.items() if read[number] < end}

    def read_all(self, ends: dict[int, int], timeout_s: float) -> tuple[list[Operation], bool]:
        """Every partition from its start, by somebody who had no part in it; and whether that was
        to the ends."""
        found: list[Operation] = []
        settings = {"group.id": READER, "enable.auto.commit": False}
        consumer = Consumer(self.settings(READER) | settings)
        wanted = {number: end for number, end in ends.items() if end}
        consumer.assign([TopicPartition(self.topic, number, 0) for number in wanted])
        until = self.timeline.now() + timeout_s
        while wanted and self.timeline.now() < until:
            began = self.timeline.now()
            messages = [one for one in consumer.consume(500, 1.0) if one.error() is None]
            if not messages:
                continue
            polled = [_message(one) for one in messages]
            ended = self.timeline.now()
            found.append(Operation(READER, "poll", began, ended, "ok", polled=polled, group=READER))
            for one in polled:
                if one.offset + 1 >= wanted.get(one.partition, one.offset):
                    wanted.pop(one.partition, None)
        consumer.close()
        return found, not wanted


class Sender(threading.Thread):
    """Sends numbered messages, to partitions at random. left: those without any answer."""

    def __init__(self, clients: Clients, name: str, rate: float, chance: random.Random) -> None:
        super().__init__(daemon=True, name=name)
        self.ending = threading.Event()
        self.patience_s = 60.0
        self.left = 0
        self._clients, self._rate, self._chance = clients, rate, chance
        self._number = 0
        self._life = 1
        self._over = ""  # the fatal error of the producer, if it has had one
        self._waiting: dict[str, tuple[str, float, int]] = {}
        self._producer = self._new()

    def _new(self) -> Producer:
        mine = {
            "enable.idempotence": True,
            "linger.ms": 5,
            "queue.buffering.max.messages": _FEW,
            "message.timeout.ms": 300_000,
            "request.timeout.ms": 30_000,
            "socket.timeout.ms": _ANSWER_MS,
            "max.in.flight.requests.per.connection": _IN_FLIGHT,
            "error_cb": self._told,
        }
        return Producer(self._clients.settings(self._client) | mine)

    @property
    def _client(self) -> str:
        """A producer that could not go on is followed by another one, which is another client."""
        return self.name if self._life == 1 else f"{self.name}.{self._life}"

    def run(self) -> None:
        now = self._clients.timeline.now
        due, last = 0.0, now()
        while not self.ending.is_set():
            due, last = due + (now() - last) * self._rate, now()
            while due >= 1 and self._send():
                due -= 1
            due = min(due, self._rate)  # what an outage kept it from sending is not made up for
            self._producer.poll(_TICK_S)
            self._renew()
        until = now() + self.patience_s
        while self._waiting and now() < until:
            self._producer.poll(0.1)
            self._renew()
        self.left = len(self._waiting)
        if self._waiting:
            value, (_, began, partition) = next(iter(self._waiting.items()))
            self._clients.errors[
                f"no answer for {value}, sent at {began:.1f} s to {partition}"
            ] += 1
        for value, (client, began, partition) in self._waiting.items():
            message = Message(self._clients.topic, partition, UNKNOWN, value)
            self._clients.history.append(
                Operation(client, "send", began, None, "info", sent=(message,))
            )
        self._producer.purge()

    def _send(self) -> bool:
        value = f"{self.name}:{self._number}"
        partition = self._chance.randrange(self._clients.partitions)
        self._waiting[value] = self._client, self._clients.timeline.now(), partition
        try:
            self._producer.produce(
                self._clients.topic,
                f"{value} {_PADDING}".encode(),
                partition=partition,
                on_delivery=lambda error, message: self._answered(value, error, message),
            )
        except BufferError:
            del self._waiting[value]
            return False
        except KafkaException as error:  # such as: it has come to a fatal error
            del self._waiting[value]
            self._clients.errors[f"produce: {error.args[0].name()}"] += 1
            return False
        self._number += 1
        return True

    def _answered(self, value: str, error: KafkaError | None, message: Any) -> None:
        ended = self._clients.timeline.now()
        client, began, partition = self._waiting.pop(value)
        # An acknowledgement has no offset if the first answer was lost, and the broker says only
        # that it has the message already.
        offset = UNKNOWN if error or message.offset() is None else message.offset()
        sent = Message(self._clients.topic, partition, offset, value)
        if error is None:
            self._clients.timeline.note_acknowledged(partition, ended)
        else:  # it may be in the log all the same
            self._clients.failed.append((ended, error.name()))
        self._clients.history.append(
            Operation(client, "send", began, ended, "info" if error else "ok", sent=(sent,))
        )

    def _told(self, error: KafkaError) -> None:
        self._clients.errors[error.name()] += 1
        if error.fatal():
            self._over = error.str()

    def _renew(self) -> None:
        """After an error that ends a producer, do what an application does: make a new one."""
        if not self._over:
            return
        self._clients.errors[f"a new producer after: {self._over}"] += 1
        self._producer.purge()
        self._producer.poll(0.1)
        self._life, self._over = self._life + 1, ""
        self._producer = self._new()


class Worker(threading.Thread):
    """A member of the group. next: partition -> the offset after the last one that it had."""

    def __init__(self, clients: Clients, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.ending = threading.Event()
        self.next: dict[int, int] = {}
        self._clients = clients

    def run(self) -> None:
        clients, now = self._clients, self._clients.timeline.now
        mine = {
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 1_000,
        }
        consumer = Consumer(clients.settings(self.name) | mine)
        marked = self._mark
        consumer.subscribe([clients.topic], on_assign=marked, on_revoke=marked, on_lost=marked)
        committed = now()
        while not self.ending.is_set():
            began = now()
            message = consumer.poll(0.1)
            if now() - committed > _COMMIT_S:
                committed = now()
                self._try(lambda: consumer.commit(asynchronous=True))
            if message is None:
                continue
            if message.error() is not None:
                clients.errors[f"poll: {message.error().name()}"] += 1
                continue
            polled = _message(message)
            self._note("poll", began, polled=(polled,))
            self.next[polled.partition] = polled.offset + 1
            clients.timeline.consumed[int(began)] += 1
        self._try(lambda: consumer.commit(asynchronous=False))
        consumer.close()

    def _try(self, commit: Callable[[], object]) -> None:
        try:
            commit()
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                self._clients.errors[f"commit: {error.args[0].name()}"] += 1

    def _mark(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note("rebalance", partitions=[(one.topic, one.partition) for one in partitions])

    def _note(self, kind: Kind, began: float | None = None, **what: Any) -> None:
        now = self._clients.timeline.now()
        began = now if began is None else began
        self._clients.history.append(
            Operation(self.name, kind, began, now, "ok", group=GROUP, **what)
        )


def _message(found: Any) -> Message:
    value = found.value().split(b" ")[0].decode()
    return Message(found.topic(), found.partition(), found.offset(), value)
