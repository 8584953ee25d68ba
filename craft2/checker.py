"""Did the log keep its promises? Judged from outside, by what its clients were told.

The checker puts together what all clients say about a partition (which value is at which offset),
and looks for two statements that cannot both be true of one correct log. Its names for what it
finds are those of Jepsen's Kafka workload:

    lost-write             acknowledged at an offset; polls went past it, and none ever saw it
    unseen                 acknowledged, no poll ever saw it, and none went past it
    duplicate              one value at two offsets
    inconsistent-offsets   two values at one offset
    G1a                    a poll returned a value whose send failed (an aborted read)
    nonmonotonic-send      a client's second send lies before its first
    poll-skip              a consumer's next poll left out an offset that holds a message
    nonmonotonic-poll      a consumer's next poll went back, or returned the last message again
    int-nonmonotonic-send, int-poll-skip, int-nonmonotonic-poll
                           the same inside one operation (int: internal)

>>> from craft2.history import Message, Operation
>>> a, b = Message("t", 0, 4, "a"), Message("t", 0, 5, "b")
>>> report = check([
...     Operation("p", "send", 1, 2, "ok", sent=[a]),
...     Operation("p", "send", 3, 4, "ok", sent=[b]),
...     Operation("c", "poll", 5, 6, "ok", polled=[b]),
... ])
>>> print(report)
sent 2, acknowledged 2, delivered 1 once, 0 twice, 1 never
lost-write: 1
  t-0: p wrote 'a' at offset 4; c read on to offset 5, and no successful poll saw 'a'
>>> report.ok(), report.ok(allow={"lost-write"})
(False, True)

What may look wrong and is not: gaps between offsets (a transaction's markers take some); a consumer
that goes on elsewhere after a rebalance, a seek or a crash, if the history marks it; a send of
unknown outcome that turns up, or does not.

What the history has to bring: somebody who reads each partition from its start, before retention
takes it (else what nobody was there to read counts as lost), and to its end (else: unseen).

Where Jepsen gives one fault several names, it has one here: a lost write is not unseen as well; an
offset that nobody ever polled is lost, not skipped by every reader; values whose only other offset
is one with two values are not duplicates. Not here yet: precommitted-read and the cycles G0 and
G1c, which need transactions. Left out: int-send-skip, which Kafka's transactions always allow.

Source: jepsen/src/jepsen/tests/kafka.clj, docstring and the functions named `...-cases`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import TypeAlias

from craft2.checker_report import NAMES, Anomaly, CheckerError, DeliveryCount, Report, delivery
from craft2.history import (
    UNKNOWN,
    HistoryError,
    Message,
    Operation,
    Outcome,
    TopicPartition,
    Value,
)

__all__ = ["NAMES", "Anomaly", "CheckerError", "DeliveryCount", "Report", "check", "delivery"]


def check(history: Sequence[Operation]) -> Report:
    """Look for every anomaly of NAMES in a history, listed in any order that its times allow.

    Time and memory grow as its messages do: a million of them, each an operation of its own, took
    6 to 7 s and 0.7 GB. Raises HistoryError for a send that is ok and has no offset.
    """
    facts = _Facts(history)
    anomalies: dict[str, list[Anomaly]] = {name: [] for name in NAMES}
    for find in (_never_seen, _duplicates, _inconsistent_offsets, _aborted_reads):
        for partition in facts.partitions.values():
            for anomaly in find(facts, partition):
                anomalies[anomaly.name].append(anomaly)
    for follow in (_sends_of_each_client, _polls_of_each_client):
        for anomaly in follow(facts, history):
            anomalies[anomaly.name].append(anomaly)
    outcomes = Counter(writer.outcome for writer in facts.writers.values())
    unsent = {v for p in facts.partitions.values() for v in p.read} - facts.writers.keys()
    counts = {
        "sent": len(facts.writers),
        "acknowledged": outcomes["ok"],
        "unknown": outcomes["info"],
        "failed": outcomes["fail"],
        "polled": sum(len(operation.polled) for operation in history),
        "duplicates": len(anomalies["duplicate"]),
        "unsent": len(unsent),
    }
    found = {name: list_ for name, list_ in anomalies.items() if list_}
    return Report(found, counts, _delivered(facts, history))


class _Partition:
    """What the whole history says of one partition.

    said: (offset, value) -> the first operation that says that this value is at this offset. Polls
        count whatever their outcome (what they return must be safe), sends if they happened.
    read: value -> the first successful poll of it.
    end: the highest offset that a successful poll returned, and `reader` that poll.
    rank: offset -> 0, 1, 2... among those that any poll returned, so that a gap is no step.
    """

    def __init__(self, topic: str, number: int) -> None:
        self.topic, self.number = topic, number
        self.said: dict[tuple[int, Value], Operation] = {}
        self.read: dict[Value, Operation] = {}
        self.rank: dict[int, int] = {}
        self.end = UNKNOWN
        self.reader: Operation | None = None

    def sort(self) -> None:
        """To be called when everything is said."""
        self.log = sorted(self.said, key=itemgetter(0))  # (offset, value)
        self.value_at = dict(self.log)  # where an offset has two values: one of them
        self.last_offset = {value: offset for offset, value in self.log}
        self.polled = sorted(self.rank)
        self.rank = {offset: rank for rank, offset in enumerate(self.polled)}

    def anomaly(
        self,
        name: str,
        what: str,
        offsets: Iterable[int],
        values: Iterable[Value],
        evidence: Iterable[Operation],
    ) -> Anomaly:
        what = f"{self.topic}-{self.number}: {what}"
        once = tuple({id(operation): operation for operation in evidence}.values())
        return Anomaly(name, what, self.topic, self.number, tuple(offsets), tuple(values), once)


class _Facts:
    """The partitions, and `writers`: value -> the send of it that has the best outcome."""

    def __init__(self, history: Sequence[Operation]) -> None:
        self.partitions: dict[TopicPartition, _Partition] = {}
        self.writers: dict[Value, Operation] = {}
        for operation in history:
            for message in operation.polled:
                self._note_poll(message, operation)
        for operation in history:  # second, because polls can prove that a send happened
            for message in operation.sent:
                self._note_send(message, operation)
        for partition in self.partitions.values():
            partition.sort()

    def happened(self, operation: Operation) -> bool:
        """Whether its sends are in the log for certain. One that was read vouches for them all."""
        return operation.outcome == "ok" or (
            operation.outcome == "info"
            and any(m.value in self.partition(m).read for m in operation.sent)
        )

    def partition(self, message: Message) -> _Partition:
        at = message.topic, message.partition
        found = self.partitions.get(at)
        if found is None:
            found = self.partitions[at] = _Partition(*at)
        return found

    def _note_poll(self, message: Message, operation: Operation) -> None:
        partition = self.partition(message)
        partition.said.setdefault((message.offset, message.value), operation)
        partition.rank[message.offset] = 0
        if operation.outcome == "ok":
            partition.read.setdefault(message.value, operation)
            if message.offset > partition.end:
                partition.end, partition.reader = message.offset, operation

    def _note_send(self, message: Message, operation: Operation) -> None:
        known = self.writers.get(message.value)
        if known is None or _CERTAINTY[operation.outcome] > _CERTAINTY[known.outcome]:
            self.writers[message.value] = operation
        partition = self.partition(message)
        if message.offset != UNKNOWN:
            if self.happened(operation):
                partition.said.setdefault((message.offset, message.value), operation)
        elif operation.outcome == "ok":
            raise HistoryError(
                f"the send of {message.value!r} by {operation.client!r} is ok and has no offset",
                fix="give the acknowledged offset; where none is told (acks=0), say info",
            )


_CERTAINTY: dict[Outcome, int] = {"fail": 0, "info": 1, "ok": 2}


def _never_seen(facts: _Facts, partition: _Partition) -> Iterator[Anomaly]:
    for value, offset in partition.last_offset.items():
        writer = facts.writers.get(value)
        if value in partition.read or writer is None or not facts.happened(writer):
            continue
        what = f"{writer.client} wrote {value!r} at offset {offset}; "
        if partition.reader is not None and offset <= partition.end:
            what += f"{partition.reader.client} read on to offset {partition.end}, and no"
            what += f" successful poll saw {value!r}"
            evidence = [writer, partition.reader]
            yield partition.anomaly("lost-write", what, [offset], [value], evidence)
        elif writer.outcome == "ok":
            what += "no successful poll came that far"
            yield partition.anomaly("unseen", what, [offset], [value], [writer])


def _duplicates(_: _Facts, partition: _Partition) -> Iterator[Anomaly]:
    if len(partition.last_offset) == len(partition.log):
        return
    holds = Counter(offset for offset, _ in partition.log)
    places: dict[Value, list[int]] = defaultdict(list)
    for offset, value in partition.log:
        if holds[offset] == 1:  # else it is one of the inconsistent offsets
            places[value].append(offset)
    for value, offsets in places.items():
        if len(offsets) > 1:
            what = f"{value!r} is at offsets {_listed(offsets)}"
            evidence = [partition.said[offset, value] for offset in offsets]
            yield partition.anomaly("duplicate", what, offsets, [value], evidence)


def _inconsistent_offsets(_: _Facts, partition: _Partition) -> Iterator[Anomaly]:
    if len(partition.value_at) == len(partition.log):
        return
    for offset, places in groupby(partition.log, key=itemgetter(0)):
        values = [value for _, value in places]
        if len(values) > 1:
            evidence = [partition.said[offset, value] for value in values]
            views = [f"{v!r} for {o.client}" for v, o in zip(values, evidence, strict=True)]
            what = f"offset {offset} holds {_listed(views)}"
            yield partition.anomaly("inconsistent-offsets", what, [offset], values, evidence)


def _aborted_reads(facts: _Facts, partition: _Partition) -> Iterator[Anomaly]:
    for value, poll in partition.read.items():
        writer = facts.writers.get(value)
        if writer is not None and writer.outcome == "fail":
            offset = partition.last_offset[value]
            what = f"{poll.client} polled {value!r} at offset {offset};"
            what += f" its send by {writer.client} failed"
            yield partition.anomaly("G1a", what, [offset], [value], [writer, poll])


_Positions: TypeAlias = dict[TopicPartition, tuple[int, Operation]]  # last offset, and who says so


def _sends_of_each_client(facts: _Facts, history: Sequence[Operation]) -> Iterator[Anomaly]:
    last: dict[str, _Positions] = defaultdict(dict)
    for operation in sorted(history, key=lambda operation: operation.invoked):
        mine = last[operation.client]
        if operation.kind == "crash":
            mine.clear()  # what was in flight may land after what the next incarnation sends
        if not operation.sent or not facts.happened(operation):
            continue
        here: _Positions = {}
        for message in operation.sent:
            at = message.topic, message.partition
            partition = facts.partition(message)
            offset = message.offset
            if offset == UNKNOWN:
                offset = partition.last_offset.get(message.value, UNKNOWN)
            before = here.get(at) or mine.get(at)
            if before and UNKNOWN < offset < before[0]:
                values = [partition.value_at[before[0]], message.value]
                name = "int-nonmonotonic-send" if at in here else "nonmonotonic-send"
                what = f"{operation.client} sent {values[0]!r} (offset {before[0]}) and then"
                what += f" {values[1]!r} (offset {offset})"
                evidence = [before[1], operation]
                yield partition.anomaly(name, what, [before[0], offset], values, evidence)
            here[at] = offset, operation
        if operation.outcome == "ok":  # an unknown one may land at any time: nothing follows it
            mine.update(here)


def _polls_of_each_client(facts: _Facts, history: Sequence[Operation]) -> Iterator[Anomaly]:
    positions: dict[str, _Positions] = defaultdict(dict)
    for operation in sorted(history, key=_end):
        mine = positions[operation.client]
        if operation.kind == "crash":
            mine.clear()
        elif operation.kind == "rebalance":
            for at in operation.partitions or list(mine):
                mine.pop(at, None)
        elif operation.kind in ("assign", "subscribe") and operation.outcome != "fail":
            for at in list(mine):
                if at not in operation.partitions and at[0] not in operation.topics:
                    del mine[at]
        elif operation.polled:
            for at in operation.partitions:
                mine.pop(at, None)
            yield from _steps(facts, operation, mine)


def _end(operation: Operation) -> float:
    return operation.invoked if operation.completed is None else operation.completed


def _steps(facts: _Facts, operation: Operation, mine: _Positions) -> Iterator[Anomaly]:
    """Judge each message that the poll returned by the one before it; move `mine` along."""
    here: _Positions = {}
    for topic, number, offset, _ in operation.polled:
        at = topic, number
        before = here.get(at) or mine.get(at)
        internal = at in here
        here[at] = offset, operation
        if before is None or (internal and at in operation.partitions):
            continue
        partition = facts.partitions[at]
        first, second = partition.rank[before[0]], partition.rank[offset]
        if second == first + 1:
            continue
        name, offsets = "nonmonotonic-poll", [before[0], offset]
        what = f"{operation.client} polled offset {before[0]} and then {offset}"
        evidence = [before[1], operation]
        if second > first:
            name, offsets = "poll-skip", partition.polled[first + 1 : min(second, first + 1 + _FEW)]
            what += f", and skipped {_listed(offsets, second - first - 1)}"
            evidence.append(partition.said[offsets[0], partition.value_at[offsets[0]]])
        values = [partition.value_at[offset] for offset in offsets]
        name = f"int-{name}" if internal else name
        yield partition.anomaly(name, what, offsets, values, evidence)
    if operation.outcome == "ok":  # else the consumer goes back to where it was
        mine.update(here)


def _delivered(facts: _Facts, history: Sequence[Operation]) -> dict[str, DeliveryCount]:
    in_log: dict[str, set[Value]] = defaultdict(set)
    for partition in facts.partitions.values():
        in_log[partition.topic].update(partition.last_offset)
    effects: dict[str, list[Message]] = defaultdict(list)
    for operation in history:
        if operation.polled and operation.outcome == "ok":
            effects[operation.group].extend(operation.polled)
    return {
        group: delivery(
            set().union(*(in_log[topic] for topic in {m.topic for m in messages})),
            (m.value for m in messages),
        )
        for group, messages in effects.items()
    }


_FEW = 5  # of what may be many, an anomaly names so many


def _listed(things: Sequence[object], count: int = 0) -> str:
    """The first things in words, of `count` if that is more than there are in `things`."""
    shown = ", ".join(map(str, things[:_FEW]))
    more = max(len(things), count) - _FEW
    return f"{shown} and {more} more" if more > 0 else shown
