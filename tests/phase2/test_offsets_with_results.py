"""Results and offsets in one transaction: what a death, a sleeper and a rival cannot do to it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from craft2.checker import delivery
from phase2_groups.consumer import Consumer
from phase2_groups.consumer_config import ConsumerConfig
from phase2_groups.file_transport import FileTransport, create_topic
from phase2_groups.offsets_with_results import EffectivelyOnce, ResultStore
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig

FLIGHTS = ("flights", 0)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "results.sqlite")


def test_the_offset_moves_with_the_results(path: str) -> None:
    store = ResultStore(path)
    assert store.next_offset(FLIGHTS) == 0
    assert store.save(FLIGHTS, 0, 2, ["a", "b"])
    assert store.save(FLIGHTS, 2, 3, ["c"])
    again = ResultStore(path)
    assert (again.next_offset(FLIGHTS), again.results()) == (3, ["a", "b", "c"])


@pytest.mark.parametrize("start", [0, 1, 3])
def test_who_began_elsewhere_stores_nothing(path: str, start: int) -> None:
    store = ResultStore(path)
    store.next_offset(FLIGHTS)
    store.save(FLIGHTS, 0, 2, ["a", "b"])
    assert not store.save(FLIGHTS, start, start + 2, ["x", "y"])
    assert (store.next_offset(FLIGHTS), store.results()) == (2, ["a", "b"])


DIE_IN_SAVE = """
import os, signal, sys
from phase2_groups.offsets_with_results import ResultStore

path, word = sys.argv[1:]
store = ResultStore(path)
store.next_offset(("flights", 0))

def die(statement):
    if statement.startswith(word):
        os.kill(os.getpid(), signal.SIGKILL)

store._database.set_trace_callback(die)
store.save(("flights", 0), 0, 3, ["a", "b", "c"])
"""


@pytest.mark.parametrize("word", ["BEGIN", "UPDATE", "INSERT", "COMMIT"])
def test_a_death_within_the_transaction_leaves_nothing_of_it(path: str, word: str) -> None:
    died = subprocess.run([sys.executable, "-c", DIE_IN_SAVE, path, word], check=False)
    assert died.returncode == -signal.SIGKILL
    store = ResultStore(path)
    assert (store.next_offset(FLIGHTS), store.results()) == (0, [])
    assert store.save(FLIGHTS, 0, 3, ["a", "b", "c"])


class Rival:
    """A connection that lets somebody else act before each of its statements."""

    def __init__(self, database: sqlite3.Connection, act: Any) -> None:
        self._database, self._act = database, act

    def __getattr__(self, name: str) -> Any:
        if name.startswith("execute"):
            self._act()
        return getattr(self._database, name)

    def __enter__(self) -> Any:
        return self._database.__enter__()

    def __exit__(self, *error: Any) -> Any:
        return self._database.__exit__(*error)


def test_of_two_who_read_the_same_one_stores(path: str) -> None:
    mine, others = ResultStore(path), ResultStore(path)
    others._database.execute("PRAGMA busy_timeout = 0")
    mine.next_offset(FLIGHTS)
    stored = []

    def act() -> None:
        try:
            stored.append(others.save(FLIGHTS, 0, 1, ["theirs"]))
        except sqlite3.OperationalError:  # the database is mine at this moment
            stored.append(False)

    mine._database = Rival(mine._database, act)  # type: ignore[assignment]
    stored.append(mine.save(FLIGHTS, 0, 1, ["mine"]))
    assert stored.count(True) == 1
    assert len(others.results()) == 1


def consumer_of(files: FileTransport, name: str) -> Consumer:
    config = ConsumerConfig(
        group_id="results",
        client_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=5,
        session_timeout_ms=500,
        heartbeat_interval_ms=100,
    )
    return Consumer(config, files)


def test_a_sleeper_does_not_store_what_others_have_stored(tmp_path: Path, path: str) -> None:
    create_topic(tmp_path / "queue", "flights", 1)
    sent = [str(number) for number in range(20)]
    with FileTransport(tmp_path / "queue") as files:
        with Producer(ProducerConfig(), files) as producer:
            producer.send_many("flights", [value.encode() for value in sent])
        asleep: list[EffectivelyOnce] = []

        def work(record: Any) -> str:
            if record.offset == 8 and asleep:  # it sleeps, and another one does it all meanwhile
                other = EffectivelyOnce(consumer_of(files, "other"), ResultStore(path), text)
                asleep.clear()
                other._start[FLIGHTS] = other._store.next_offset(FLIGHTS)
                other._consumer.assign([FLIGHTS])
                other._consumer.seek(FLIGHTS, other._start[FLIGHTS])
                while other._consumer.lag()[FLIGHTS]:
                    other.step(0)
            return text(record)

        def text(record: Any) -> str:
            return (record.value or b"").decode()

        with consumer_of(files, "sleeper") as consumer:
            sleeper = EffectivelyOnce(consumer, ResultStore(path), work)
            asleep.append(sleeper)
            consumer.subscribe(["flights"], sleeper)
            while not consumer.assignment() or consumer.lag()[FLIGHTS]:
                sleeper.step(20)
    assert str(delivery(sent, ResultStore(path).results())) == "20 once, 0 twice, 0 never"


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="unable to open"):
        ResultStore(os.path.join(tmp_path, "no such folder", "results.sqlite"))


def test_a_handler_that_raises_sees_the_same_records_again(tmp_path: Path, path: str) -> None:
    create_topic(tmp_path / "queue", "flights", 2)
    sent = [str(number) for number in range(20)]
    with FileTransport(tmp_path / "queue") as files:
        with Producer(ProducerConfig(), files) as producer:
            for number, value in enumerate(sent):
                producer.send("flights", value, partition=number % 2)
        troubles = iter([True, False, True])

        def work(record: Any) -> str:
            if record.value in (b"7", b"12") and next(troubles, False):
                raise ValueError("trouble")
            return record.value.decode()

        with consumer_of(files, "one") as consumer:
            once = EffectivelyOnce(consumer, ResultStore(path), work)
            consumer.subscribe(["flights"], once)
            raised = 0
            while not consumer.assignment() or any(consumer.lag().values()):
                try:
                    once.step(20)
                except ValueError:
                    raised += 1
    assert raised == 2
    assert str(delivery(sent, ResultStore(path).results())) == "20 once, 0 twice, 0 never"
