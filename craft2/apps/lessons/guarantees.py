"""Notebook 29: what each guarantee of the course costs, measured in one run, and what it survives.

    fates()                            name -> Fate: what is kept after a kill, a power cut, ...
    with bench_in(folder) as bench:
        measure_writing(bench)         rows of the results store, in the order of the course
        measure_reading(bench)
    print_table(bench.rows)

A client sends a message of 100 bytes, waits for what was promised, and sends the next. One client
alone tells how long a guarantee takes; many at once how many messages get through, since what waits
together is often paid for together.
"""

from __future__ import annotations

import itertools
import socket
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from craft2.apps.bench.broker_load import connected, produce_frame, topic, waiting_client
from craft2.apps.bench.cluster import leader_of
from craft2.apps.bench.disk import VALUE
from craft2.apps.bench.harness import BenchError, Load, MakeOperation, Operation, closed_loop
from craft2.apps.bench.log import log_clients
from craft2.apps.bench.queue import queue_clients
from craft2.apps.bench.results import Result
from craft2.apps.bench.scenarios import Bench
from craft2.apps.lessons.survival import Fate
from phase2_groups.consumer import Consumer
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.fetch_buffer import ConsumerRecord
from phase2_groups.file_transport import create_topic
from phase2_groups.offsets_with_results import EffectivelyOnce, ResultStore
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig
from phase2_groups.transport import LATEST
from phase3_raft.client.network_transport import NetworkTransport
from phase3_raft.local_broker import LocalBroker
from phase3_raft.local_cluster import LocalCluster

CLIENTS, SECONDS = 16, 0.8
WRITING, READING = "guarantees", "guarantees, read"
STYLES = ("at most once", "at least once", "effectively once")
_ACKS = {"0": 0, "1": 1, "all": -1}
_RECORDS, _POLL, _TAKES = 4_000, 100, 5
_ASK_EVERY = 200
_SYNCED = {"flush.messages": "1"}


def measure_writing(bench: Bench) -> None:
    """A row with one client and one with CLIENTS, for each way to keep a message."""
    for backend, fsync in (("file a message", False), ("file a message, synced", True)):
        _measure(bench, 1, backend, queue_clients(bench.new_folder("queue"), fsync=fsync))
    _measure(bench, 1, "log", log_clients(bench.new_folder("log"), 1, "never"))
    _measure(bench, 1, "log, synced", log_clients(bench.new_folder("log"), 1, "batch"))
    with LocalBroker(bench.new_folder("broker")) as broker:
        places = {1: broker.bootstrap_servers}
        for acks, synced in (("0", False), ("1", False), ("1", True)):
            _measure_broker(bench, "one broker", places, acks, synced)
    with LocalCluster(data_dir=bench.new_folder("cluster")) as cluster:
        for acks, synced in (("0", False), ("1", False), ("all", False), ("all", True)):
            _measure_broker(bench, "three brokers", cluster.addresses, acks, synced)


def _measure_broker(
    bench: Bench, who: str, places: dict[int, str], acks: str, synced: bool
) -> None:
    """places: number -> address of each broker; topics have a replica on each."""
    bootstrap, copies = ",".join(places.values()), len(places)
    settings = {"min.insync.replicas": str(min(2, copies)), **(_SYNCED if synced else {})}
    with topic(bootstrap, 1, copies, **settings) as name:
        address = places[leader_of(bootstrap, name)]
        waiting_client(address, name, 1)()  # until its leader leads
        backend = f"{who}, acks={acks}" + (", synced" if synced else "")
        make = _Clients(address, name, _ACKS[acks])
        _measure(bench, 3, backend, make.client, make)


class _Clients:
    """Clients of one topic, each on a connection of its own, each with one message a request.

    With acks=0 nothing tells a client that the broker does not keep up. So each _ASK_EVERY-th time
    it asks for an answer: with more on the way, the broker has no time for its heartbeats.
    """

    def __init__(self, address: str, name: str, acks: int) -> None:
        self._address, self._acks = address, acks
        self._frame, self._last = (produce_frame(name, 1, len(VALUE), n) for n in (acks, 1))
        self._open: list[socket.socket] = []

    def client(self, number: int) -> Operation:
        """What a client repeats."""
        connection = connected(self._address)
        self._open.append(connection)
        if self._acks:
            return partial(_ask, connection, self._frame)
        turn = itertools.count(1)

        def send() -> None:
            if next(turn) % _ASK_EVERY:
                connection.sendall(self._frame)
            else:
                _ask(connection, self._last)

        return send

    def finish(self) -> None:
        """Wait until everything that was sent without asking is done, and hang up."""
        for connection in self._open:
            if not self._acks:
                _ask(connection, self._last)  # requests are answered in their order
            connection.close()
        self._open = []


def _ask(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(frame)
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL))
    if len(connection.recv(size, socket.MSG_WAITALL)) < size or not size:
        raise BenchError("the broker hung up", "see what it says")


def _measure(
    bench: Bench, phase: int, backend: str, make: MakeOperation, clients: _Clients | None = None
) -> None:
    for count in (1, CLIENTS):
        began = bench.clock.monotonic()
        load = closed_loop(make, clients=count, seconds=bench.seconds(SECONDS), clock=bench.clock)
        if clients is not None:
            ended = bench.clock.monotonic()
            clients.finish()  # takes time where nobody has waited for answers
            load = replace(load, seconds=load.seconds + bench.clock.monotonic() - ended)
        if load.failed:
            raise BenchError(f"{backend}: {load.errors()}", "make one call by itself and see")
        bench.add(
            load,
            phase=phase,
            backend=backend,
            scenario=WRITING,
            clients=count,
            size_bytes=len(VALUE),
            acks=backend.partition("acks=")[2].partition(",")[0],
            fsync_policy="every batch" if "synced" in backend else "never",
            notes=f"{bench.clock.monotonic() - began:.1f} s in all",
        )


# Reading: where the results are, and how far one is.


class _Results(ResultStore):
    """Stores many results at once, without an offset."""

    def add_all(self, results: Sequence[str]) -> None:
        with self._database:
            self._database.executemany("INSERT INTO results VALUES (?)", [(r,) for r in results])


def measure_reading(bench: Bench) -> None:
    """A row for each of STYLES: a group of one handles a topic of a folder, 100 records a poll, and
    stores a result for each in SQLite, which syncs. Each is done _TAKES times, in turns, since it
    takes less than a second; the take with the median rate counts."""
    root = bench.new_folder("topics")
    create_topic(root, "flights", 1)
    with Producer(ProducerConfig(bootstrap_servers=f"file:{root}")) as producer:
        producer.send_many("flights", [VALUE] * _RECORDS)
    takes = {style: list[Load]() for style in STYLES}
    for take in range(_TAKES):
        for style in STYLES:
            takes[style].append(_read(bench, root, style, take))
    for style, loads in takes.items():
        bench.add(
            sorted(loads, key=lambda load: load.calls_per_s)[_TAKES // 2],
            phase=2,
            backend=style,
            scenario=READING,
            size_bytes=len(VALUE),
            messages_per_call=_POLL,
            fsync_policy="every batch",
        )


def _read(bench: Bench, root: Path, style: str, take: int) -> Load:
    """Each call is a poll, its results, and whatever it takes to say how far that is."""
    config = ConsumerConfig(
        bootstrap_servers=f"file:{root}",
        group_id=f"{style}, {take}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=_POLL,
    )
    store = _Results(root / f"{style}-{take}.sqlite")
    taken: array[float] = array("d")
    with Consumer(config) as consumer:
        once = EffectivelyOnce(consumer, store, _text)

        def step() -> int:
            if style == "effectively once":
                return once.step(100)
            records = consumer.poll(100)
            if style == "at most once":
                consumer.commit()
            store.add_all([_text(record) for record in records])
            if style == "at least once":
                consumer.commit()
            return len(records)

        consumer.subscribe(["flights"], once if style == "effectively once" else None)
        while not consumer.assignment() or any(consumer.lag().values()):
            began = bench.clock.monotonic()
            if step():
                taken.append((bench.clock.monotonic() - began) * 1_000)
    store.close()
    taken = taken[2:]  # the first ones make the files
    return Load(taken, Counter(), "", sum(taken) / 1_000)


def _text(record: ConsumerRecord) -> str:
    return (record.value or b"").decode()


def alone(rows: Iterable[Result], backend: str) -> Result:
    """The row of this backend with one client. Raises KeyError."""
    return _row(rows, backend, 1)


def crowd(rows: Iterable[Result], backend: str) -> Result:
    """The row of this backend with CLIENTS clients. Raises KeyError."""
    return _row(rows, backend, CLIENTS)


def _row(rows: Iterable[Result], backend: str, clients: int) -> Result:
    for row in rows:
        if (row.backend, row.clients) == (backend, clients):
            return row
    raise KeyError(backend)


def print_table(rows: Sequence[Result], fates: Mapping[str, Fate]) -> None:
    """A line a backend: what it survives, its rate with CLIENTS clients and that by the one of the
    line before, if both keep messages in the same place, and what one client alone waits."""
    print(f"{'':65}{f'{CLIENTS} clients at once':>21}{'one client':>16}")
    print(f"{'':32}{'survives':>33}{'messages/s':>12}{'x before':>9}{'p50 ms':>8}{'p99 ms':>8}")
    place, before = "", 0.0
    for name, fate in fates.items():
        many, one = crowd(rows, name), alone(rows, name)
        place, last_place = name.partition(",")[0], place
        ratio = f"{many.messages_per_s / before:.2g}" if place == last_place else ""
        line = f"{name:32}{fate!s:>33}{many.messages_per_s:>12,.0f}{ratio:>9}"
        print(f"{line}{one.p50_ms:>8.2f}{one.p99_ms:>8.2f}")
        before = many.messages_per_s


def kill_after_acks_0(folder: Path, count: int = 20_000) -> tuple[int, int]:
    """Send messages with acks=0 and kill the broker: how many were sent, and how many of them it
    has when it is started again."""
    with LocalBroker(folder) as broker, topic(broker.bootstrap_servers, 1) as name:
        waiting_client(broker.bootstrap_servers, name, 1)  # sends one, and has its answer
        connection, frame = connected(broker.bootstrap_servers), produce_frame(name, 1, 100, 0)
        for _ in range(count):
            connection.sendall(frame)
        broker.kill()
        connection.close()
        broker.start()
        with NetworkTransport(broker.bootstrap_servers) as transport:
            end = transport.list_offsets({(name, 0): LATEST})[name, 0].offset
    return count, end - 1


def backends(rows: Iterable[Result]) -> list[str]:
    """Each once, in the order in which they were measured."""
    return list(dict.fromkeys(row.backend for row in rows))
