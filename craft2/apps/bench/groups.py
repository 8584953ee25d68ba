"""Groups of consumer processes: what more of them give.

The workers of a `WorkerPool` read a topic that is full when they start. Their handler waits 1 ms,
as for an answer from elsewhere, and notes when it has handled a record of which partition. The
scenarios read these notes; times are wall-clock times, so that they compare with the events' times.

`consumers`: records a second of all consumers together, for so many of them and so many partitions.
A consumer more helps for as long as there is a partition for it.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from craft2.apps.bench.harness import BenchError, Pairs
from craft2.apps.bench.scenarios import Bench, scenario
from craft2.record_batch import encode_values
from phase2_groups.fetch_buffer import ConsumerRecord
from phase2_groups.file_transport import FileTransport, create_topic
from phase2_groups.worker_pool import WorkerPool

TOPIC, VALUE = "t", b"0123456789" * 10
HANDLER_S = 0.001
CONSUMERS = PARTITIONS = (1, 2, 4, 8)
PATIENT_MS = 10_000  # a session timeout that no busy disk exceeds
_RECORDS = 40_000  # in a partition: more than a minute of work


def handle(record: ConsumerRecord) -> None:
    """Wait, and note when that was and which partition: in the file of what the worker prints."""
    time.sleep(HANDLER_S)
    os.write(1, b"%d %d\n" % (time.time_ns(), record.partition))


class Handled(NamedTuple):
    """A handler's note."""

    when_s: float
    partition: int
    who: str


class Notes:
    """What the workers' handlers have noted since this object was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sizes = {file: file.stat().st_size for file in self._files()}

    def _files(self) -> list[Path]:
        return list(self._folder.glob("consumer-*.log"))

    def read(self) -> list[Handled]:
        """In order of time."""
        found = []
        for path in self._files():
            with path.open("rb") as file:
                file.seek(self._sizes.get(path, 0))
                for line in file.read().splitlines():
                    when_ns, partition = line.split()
                    found.append(Handled(int(when_ns) / 1e9, int(partition), path.stem))
        return sorted(found)


def full_topic(bench: Bench, partitions: int, per_batch: int) -> str:
    """The address of a new folder with a topic that will keep consumers busy."""
    folder = bench.new_folder("groups")
    create_topic(folder, TOPIC, partitions)
    batch = encode_values([VALUE] * per_batch)
    with FileTransport(folder) as files:
        for _ in range(max(1, _RECORDS // per_batch)):
            files.produce({(TOPIC, n): batch for n in range(partitions)}, acks=1, timeout_ms=0)
    return f"file:{folder}"


class Group(WorkerPool):
    """Workers with the handler above, in a group of their own."""

    def __init__(self, bench: Bench, address: str, partitions: int, **settings: Any) -> None:
        folder = bench.new_folder("workers")
        self.partitions = partitions
        self._bench = bench
        super().__init__(
            address,
            [TOPIC],
            folder.name,
            handler=handle,
            folder=folder,
            **{"session_timeout_ms": PATIENT_MS, **settings},
        )

    def __enter__(self) -> Group:
        return self

    def settle(self) -> None:
        """Wait until everybody has joined, and every partition has an owner who is at work."""
        running = set(self.running())

        def reached() -> bool:
            owners = self.owners()
            joined = {event.who for event in self.events() if event.kind in ("assigned", "idle")}
            busy = set(owners.values())
            few = min(len(running), self.partitions)
            return (
                len(owners) == self.partitions
                and running <= joined
                and busy <= running
                and len(busy) == few
            )

        self.wait_until(reached)
        notes = self.notes()
        self.wait_until(lambda: {note.who for note in notes.read()} == set(self.owners().values()))

    def notes(self) -> Notes:
        """What they note from now on."""
        return Notes(self.folder)

    def work(self, seconds: float) -> list[Handled]:
        """Let them work for so long; what they handled in that time."""
        notes, start_s = self.notes(), time.time()
        self._bench.clock.wait(threading.Event(), seconds)
        return [note for note in notes.read() if start_s <= note.when_s < start_s + seconds]


def rates(bench: Bench, partitions: int) -> dict[int, float]:
    """Number of consumers -> records a second of all of them, of a topic with `partitions`."""
    found: dict[int, float] = {}
    address, seconds = full_topic(bench, partitions, per_batch=1_000), bench.seconds(2.0)
    with Group(bench, address, partitions) as group:
        everything = group.notes()
        for consumers in CONSUMERS:
            group.add(consumers - len(group.running()))
            group.settle()
            found[consumers] = len(group.work(seconds)) / seconds
            bench.say(
                f"{partitions} partition(s), {consumers} consumer(s): {found[consumers]:,.0f}"
            )
        done = Counter(note.partition for note in everything.read())
    if max(done.values()) >= _RECORDS:
        raise BenchError(f"a partition's {_RECORDS:,} records were all read", "measure for less")
    return found


def measure_consumers(bench: Bench, rounds: int) -> dict[tuple[int, int], list[float]]:
    """(partitions, consumers) -> a rate of each round; a row of medians for each."""
    found: dict[tuple[int, int], list[float]] = {}
    for _ in range(rounds):
        for partitions in PARTITIONS:
            for consumers, rate in rates(bench, partitions).items():
                found.setdefault((partitions, consumers), []).append(rate)
    for (partitions, consumers), several in found.items():
        bench.add_total(
            round(statistics.median(several) * bench.seconds(2.0)),
            bench.seconds(2.0),
            phase=2,
            backend=f"{partitions} partition{'s' if partitions > 1 else ''}",
            scenario="consume, 1 ms each",
            clients=consumers,
            size_bytes=len(VALUE),
        )
    return found


@scenario("consumers", "a handler that waits 1 ms: 1 to 8 consumers of 1 to 8 partitions")
def consumers(bench: Bench) -> None:
    """A row for each number of both; eight consumers beside one, target 7."""
    found = measure_consumers(bench, rounds=1 if bench.quick else 3)
    most = max(PARTITIONS)
    few, many = min(CONSUMERS), max(CONSUMERS)
    pairs = Pairs(found[most, many], found[most, few])
    ours, peer = f"{many} consumers, {most} partitions", f"{few} consumer"
    bench.compare("consumers", ours, peer, pairs, unit="records/s", target=7 * many / 8)
