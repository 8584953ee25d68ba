"""What happens while a leader dies: producers that go on, and somebody who watches who leads.

    sender = Sender(cluster.bootstrap_servers, acks="all")     # librdkafka, in a thread
    sender.wait_for(1_000)                                     # acknowledged
    cluster.kill(1)
    sender.stop()
    print(sender.outcome())                                    # reads the topic, and compares

Values are numbers from 0 on, so what is missing, and what is there twice, can be counted.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from craft2.apps.cluster_admin import ClusterStatus, read_status
from craft2.apps.ingestion.kafka_source import KafkaSource
from craft2.apps.ingestion.sources import read_to_end
from craft2.clock import Clock, SystemClock
from craft2.errors import Craft2Error
from craft2.viz import rates_with_gaps
from craft2.viz.lanes import Lanes, Mark, Span
from craft2.viz.style import Chart

LIMIT_S = 40.0  # a cell that waits for something ends before its own limit
_TICK_S, _WATCH_S, _MADE_S = 0.005, 0.05, 10.0
_SETTINGS: dict[str, Any] = {
    "linger.ms": 5,
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 50,
    "delivery.timeout.ms": 30_000,
}


Line = tuple[list[float], list[float]]  # seconds, values


class NothingComesError(Craft2Error):
    """What was waited for has not come within LIMIT_S."""


@dataclass(frozen=True)
class Outcome:
    """lost: acknowledged and not in the topic. twice: how many are there more than once."""

    sent: int
    acknowledged: int
    failed: int
    lost: int
    twice: int


def _make_topic(bootstrap: str, topic: str) -> None:
    """Who is compared with others must have the same leader. Raises KafkaException."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    known = admin.list_topics(timeout=_MADE_S)
    if topic not in known.topics:
        new = NewTopic(topic, 1, replica_assignment=[sorted(known.brokers)])
        admin.create_topics([new], request_timeout=_MADE_S)[topic].result()


class Sender:
    """Numbers to a topic, at a steady rate, in a thread of its own, through librdkafka.

    answers: (number, second of its acknowledgement), in seconds of the clock, as `began_s`.
    settings: more of librdkafka's. topic: "acks-" and the acks, if None; made with one partition,
    which the first broker leads, if there is none.
    """

    def __init__(
        self,
        bootstrap: str,
        acks: str,
        *,
        topic: str | None = None,
        per_second: int = 1_000,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        self.acks, self.topic = acks, topic or f"acks-{acks}"
        self.sent = self.failed = 0
        self.answers: list[tuple[int, float]] = []
        self._bootstrap, self._per_second = bootstrap, per_second
        self._clock = clock or SystemClock()
        self._ending = threading.Event()
        _make_topic(bootstrap, self.topic)
        own = {"bootstrap.servers": bootstrap, "acks": acks, "enable.idempotence": acks == "all"}
        self._producer = Producer(own | _SETTINGS | settings)
        self.began_s = self._clock.monotonic()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self._thread.start()

    @property
    def clock_s(self) -> float:
        """What the clock says."""
        return self._clock.monotonic()

    def wait_for(self, count: int) -> None:
        """Until so many more are acknowledged. Raises NothingComesError."""
        wanted = len(self.answers) + count
        _wait(lambda: len(self.answers) >= wanted, f"{count} answers for {self.topic}", self._clock)

    def stop(self) -> None:
        """No more; what was sent is answered or has failed when this returns."""
        self._ending.set()
        self._thread.join()
        self._producer.flush(LIMIT_S)

    def outcome(self) -> Outcome:
        """Read the topic to its end, and compare."""
        rows = read_to_end(KafkaSource(self._bootstrap, self.topic, None))
        found = Counter(int(row.value or b"-1") for row in rows)
        lost = sum(number not in found for number, _ in self.answers)
        twice = sum(count > 1 for count in found.values())
        return Outcome(self.sent, len(self.answers), self.failed, lost, twice)

    def longest_gap_s(self, until_s: float = 0.0) -> tuple[float, float]:
        """When the longest time without an answer began, and how long it was, in seconds. Of those
        that lasted until `until_s` at least, by `clock_s`: what came before is another story."""
        seconds = sorted(second for _, second in self.answers)
        gaps = [(b - a, a) for a, b in pairwise(seconds) if b >= until_s]
        length, start = max(gaps, default=(0.0, 0.0))
        return start, length

    def _send(self) -> None:
        while not self._ending.is_set():
            due = int((self.clock_s - self.began_s) * self._per_second)
            while self.sent < due and len(self._producer) < 50_000:
                told = partial(self._answered, self.sent)
                self._producer.produce(self.topic, b"%d" % self.sent, on_delivery=told)
                self.sent += 1
            self._producer.poll(0)
            self._clock.wait(self._ending, _TICK_S)

    def _answered(self, number: int, error: object, message: object) -> None:
        if error is None:
            self.answers.append((number, self.clock_s))
        else:
            self.failed += 1


def rates(senders: Sequence[Sender], step_s: float = 0.1) -> dict[str, Line]:
    """Acknowledged messages a second, by acks, in steps of `step_s`, since the first one began."""
    found: dict[str, Line] = {}
    zero = min(one.began_s for one in senders)
    for one in senders:
        counts = Counter(int((second - zero) / step_s) for _, second in one.answers)
        steps = range(max(counts, default=0))  # the last one is not whole
        values = [counts[step] / step_s for step in steps]
        found[f"acks={one.acks}"] = [step * step_s for step in steps], values
    return found


def throughput(senders: Sequence[Sender], title: str, at_s: float, words: str) -> Chart:
    """A plot a sender, with its longest gap that ends after `at_s`: there, by `Sender.clock_s`,
    something was done."""
    zero = min(one.began_s for one in senders)
    gaps = {}
    for one in senders:
        start, length = one.longest_gap_s(at_s)
        gaps[f"acks={one.acks}"] = start - zero, length
    every = [f"acks={acks}" for acks in ("0", "1", "all")]
    return rates_with_gaps(rates(senders), title, gaps, [(at_s - zero, words)], every)


def outcomes(senders: Sequence[Sender]) -> dict[str, Outcome]:
    """Print what became of everything that was sent, a line each; returns it, by acks."""
    found = {one.acks: one.outcome() for one in senders}
    print(f"{'acks':>4}{'sent':>9}{'acknowledged':>14}{'lost':>7}{'twice':>7}{'longest gap':>14}")
    for one in senders:
        got = found[one.acks]
        counts = f"{got.sent:>9,}{got.acknowledged:>14,}{got.lost:>7,}{got.twice:>7,}"
        print(f"{one.acks:>4}{counts}{one.longest_gap_s()[1]:>12.2f} s")
    return found


class Watch:
    """Asks a cluster again and again who leads what, and who is in sync, in a thread of its own."""

    def __init__(self, bootstrap: str, clock: Clock | None = None) -> None:
        self._bootstrap, self._clock = bootstrap, clock or SystemClock()
        self._began_s = self._clock.monotonic()
        self.seen: list[tuple[float, ClusterStatus]] = []
        self.marks: list[Mark] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()
        self.wait_until(lambda now: bool(now.partitions), "a topic")

    @property
    def now_s(self) -> float:
        """Seconds since it began."""
        return self._clock.monotonic() - self._began_s

    @property
    def now(self) -> ClusterStatus:
        """What was heard last."""
        return self.seen[-1][1]

    def mark(self, words: str) -> None:
        """Something is done to the cluster: the picture says so."""
        self.marks.append(Mark(self.now_s, "", words, fault=True))

    def wait_until(self, holds: Callable[[ClusterStatus], bool], words: str) -> None:
        """Until the cluster says so. Raises NothingComesError."""
        _wait(lambda: bool(self.seen) and holds(self.now), words, self._clock)

    def stop(self) -> None:
        """No more."""
        self._ending.set()
        self._thread.join()

    def others_led_s(self, topic: str, leader: int) -> float:
        """How many seconds after the last mark somebody else than `leader` led partition 0 of this
        topic. Raises NothingComesError."""
        marked_s = self.marks[-1].second

        def led() -> list[float]:
            later = [(second, now) for second, now in self.seen if second >= marked_s]
            return [s - marked_s for s, now in later if leader_of(now, topic) not in (leader, -1)]

        _wait(lambda: bool(led()), f"another leader of {topic}", self._clock)
        return led()[0]

    def lanes(self, *topics: str) -> Lanes:
        """A lane a partition of these topics, coloured by who leads it."""
        lanes: dict[str, list[Span]] = {}
        ends = [*(second for second, _ in self.seen[1:]), self.now_s]
        for (second, status), end in zip(self.seen, ends, strict=True):
            for one in status.partitions:
                if one.topic in topics:
                    owner = f"broker {one.leader}" if one.leader >= 0 else "nobody"
                    spans = lanes.setdefault(f"{one.topic}-{one.partition}", [])
                    if spans and spans[-1].owner == owner:
                        spans[-1] = spans[-1]._replace(end_s=end)
                    else:
                        spans.append(Span(second, end, owner))
        brokers = sorted({f"broker {b.id}" for _, status in self.seen for b in status.brokers})
        end_s = self.seen[-1][0]
        return Lanes(lanes, self.marks, end_s, grey={"nobody"}, order=tuple(brokers))

    def _ask(self) -> None:
        while not self._ending.is_set():
            with suppress(OSError, Craft2Error):  # nobody answers at the moment
                status = read_status(self._bootstrap)
                self.seen.append((self.now_s, status))
            self._clock.wait(self._ending, _WATCH_S)


def print_status(status: ClusterStatus, *topics: str) -> None:
    """Who leads these topics' partitions, and who is in sync, a line each."""
    for one in status.partitions:
        if one.topic in topics:
            isr = " ".join(map(str, sorted(one.isr)))
            leads = f"broker {one.leader} leads" if one.leader >= 0 else "nobody leads"
            print(f"{one.topic}-{one.partition}: {leads}, in sync: {isr}")


def leader_of(status: ClusterStatus, topic: str, partition: int = 0) -> int:
    """Who leads it; -1: nobody, or there is no such partition."""
    found = [one for one in status.partitions if (one.topic, one.partition) == (topic, partition)]
    return found[0].leader if found else -1


def all_in_sync(status: ClusterStatus, topic: str) -> bool:
    """Whether each replica of each of its partitions is."""
    found = [one for one in status.partitions if one.topic == topic]
    return bool(found) and all(sorted(one.isr) == sorted(one.replicas) for one in found)


def _wait(holds: Callable[[], bool], words: str, clock: Clock) -> None:
    until, never = clock.monotonic() + LIMIT_S, threading.Event()
    while not holds():
        if clock.monotonic() > until:
            raise NothingComesError(
                f"waited {LIMIT_S:g} s for {words}",
                "look at what the brokers say: cluster.errors()",
            )
        clock.wait(never, 0.01)
