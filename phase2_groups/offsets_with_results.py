"""Effectively once: how far a consumer is belongs into the transaction that stores what it did.

A commit after the work makes a crash repeat some of it, a commit before the work makes a crash lose
some. The gap between the two cannot be closed while they are stored in two places. So they are
stored in one: results and offsets are rows of the same database, and one transaction writes both.

    results   UA 1545 departed        offsets   flights  0  43
              UA 1714 departed                  flights  1  17
    committed together, or neither: after a crash the next reader asks the database where to begin

That also answers the member that slept through a rebalance. It cannot undo what others have done
since, because its transaction is only valid if the offset is still where it began to read.

A record may still be *handled* twice; it has its *effect* once. It works only where the effect is a
row in this database: a mail is not taken back by a rollback.

>>> import tempfile
>>> store = ResultStore(tempfile.mkdtemp() + "/results.sqlite")
>>> store.next_offset(("flights", 0))
0
>>> store.save(("flights", 0), 0, 2, ["UA 1545 departed", "UA 1714 departed"])
True
>>> store.save(("flights", 0), 0, 2, ["UA 1545 departed", "UA 1714 departed"])  # who woke up late
False
>>> store.next_offset(("flights", 0)), store.results()
(2, ['UA 1545 departed', 'UA 1714 departed'])

Source: "Storing Offsets Outside Kafka" in the documentation of Kafka's `KafkaConsumer`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence
from itertools import groupby

from phase2_groups.consumer import Consumer, RebalanceListener
from phase2_groups.fetch_buffer import ConsumerRecord
from phase2_groups.group_messages import TopicPartition

_TABLES = """
CREATE TABLE IF NOT EXISTS results (result TEXT);
CREATE TABLE IF NOT EXISTS offsets
    (topic TEXT, number INTEGER, next INTEGER, PRIMARY KEY (topic, number));
"""


class ResultStore:
    """An SQLite file with results, and with the offset behind the last record that each partition's
    results are of. Any number of processes may have it open; each takes an object of its own.

    Raises sqlite3.OperationalError when the file cannot be written, or stays locked for 30 s.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._database = sqlite3.connect(path, timeout=30)
        self._database.executescript(_TABLES)

    def next_offset(self, partition: TopicPartition) -> int:
        """The first offset that has no result yet."""
        with self._database:
            self._database.execute("INSERT OR IGNORE INTO offsets VALUES (?, ?, 0)", partition)
        [(offset,)] = self._database.execute(
            "SELECT next FROM offsets WHERE topic = ? AND number = ?", partition
        )
        return int(offset)

    # EXERCISE 13.2 the offset goes with the result
    def save(self, partition: TopicPartition, start: int, end: int, results: Sequence[str]) -> bool:
        """Store the results of the records from offset `start` on, before `end`; all or nothing.

        `self._database` is an SQLite connection. `with self._database:` makes what is within it
        one transaction: committed at its end, rolled back if it raises, and as if it had never
        begun if the process dies in it. `execute(sql, values)` returns a cursor, whose `rowcount`
        says how many rows an UPDATE has changed. The tables, as Python might write them:

            results(result)                  a row a result; they are only ever added
            offsets(topic, number, next)     a row a partition, there since `next_offset` was asked

        partition: (topic, number). Its `next` becomes `end`, if it is still `start`. If it is not,
        somebody else has been at work on this partition since these records were read: then
        nothing may be stored. Returns whether it was.

        Two processes may be in here at the same time. What one has read, the other can change,
        until the first has changed something itself: from then on the database is its own.
        """
        # BEGIN SOLUTION
        with self._database:
            moved = self._database.execute(
                "UPDATE offsets SET next = ? WHERE topic = ? AND number = ? AND next = ?",
                (end, *partition, start),
            )
            if not moved.rowcount:
                return False
            rows = [(result,) for result in results]
            self._database.executemany("INSERT INTO results VALUES (?)", rows)
            return True
        # END SOLUTION

    def add(self, result: str) -> None:
        """Store a result alone, as one does who commits elsewhere."""
        with self._database:
            self._database.execute("INSERT INTO results VALUES (?)", (result,))

    def results(self) -> list[str]:
        """All results, in the order in which they were stored."""
        return [result for (result,) in self._database.execute("SELECT result FROM results")]

    def close(self) -> None:
        """Give the file back."""
        self._database.close()


class EffectivelyOnce(RebalanceListener):
    """A consumer whose results are stored with their offsets. It never commits to the group.

    consumer: with enable_auto_commit=False; subscribe it with this object as its listener.
    handle: record -> its result.
    """

    def __init__(
        self, consumer: Consumer, store: ResultStore, handle: Callable[[ConsumerRecord], str]
    ) -> None:
        self._consumer = consumer
        self._store = store
        self._handle = handle
        self._start: dict[TopicPartition, int] = {}  # the end of what is stored, as we know it

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin where the results end; what the group has committed does not count."""
        for partition in partitions:
            self._start[partition] = self._store.next_offset(partition)
            self._consumer.seek(partition, self._start[partition])

    def step(self, timeout_ms: int = 1_000) -> int:
        """Poll, handle and store once. Returns how many results were stored.

        If the handler or the database raises, what is not stored will be polled again.
        """
        polled = self._consumer.poll(timeout_ms)
        try:
            return self._store_all(polled)
        except BaseException:
            for partition in self._consumer.assignment() & self._start.keys():
                self._consumer.seek(partition, self._start[partition])
            raise

    def _store_all(self, polled: Sequence[ConsumerRecord]) -> int:
        stored = 0
        for partition, records in groupby(polled, lambda record: (record.topic, record.partition)):
            handled = [(record.offset, self._handle(record)) for record in records]
            end = handled[-1][0] + 1
            results = [result for _, result in handled]
            if self._store.save(partition, self._start[partition], end, results):
                self._start[partition] = end
                stored += len(results)
            else:  # somebody else has had this partition: go on from where it is now
                self.on_partitions_assigned([partition])
        return stored
