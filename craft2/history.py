"""A history: what clients did and what they saw, in one list, for `craft2.checker` to judge.

Nobody can look into a running system and see that it is right. What can be had is the outside view:
each client notes what it asked for, when, and what it was told. One such note is an `Operation`. It
ends in one of three ways, and the third is the one that needs care:

    ok     it happened, and this is the answer
    fail   it certainly did not happen
    info   nobody knows: no answer came. It may have happened, or may happen yet

A phase does not write operations. It emits events, and `history_from_events` reads them:

>>> from craft2.events import Events
>>> events = Events()
>>> _ = events.emit("send", who="p", topic="t", partition=0, offset=4, data={"value": "a"})
>>> _ = events.emit("poll", who="c", topic="t", partition=0, offset=4, data={"value": "a"})
>>> for operation in history_from_events(events.events):
...     print(operation)
p send ok, sent 'a' at t-0:4
c poll ok, polled 'a' at t-0:4

Source: the operations of Jepsen's Kafka workload, jepsen/src/jepsen/tests/kafka.clj.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from craft2.errors import Craft2Error
from craft2.events import Event, Scalar

Value: TypeAlias = int | str  # names one message: whoever sends it again means the same message
TopicPartition: TypeAlias = tuple[str, int]
Kind: TypeAlias = Literal[
    "send", "poll", "txn", "assign", "subscribe", "rebalance", "commit", "crash"
]
Outcome: TypeAlias = Literal["ok", "fail", "info"]

UNKNOWN = -1  # a partition or an offset that the client was not told; Kafka's clients use -1 too


class HistoryError(Craft2Error):
    """Events that do not say what a history needs."""


class Message(NamedTuple):
    """A value at its place. Only a send whose outcome is not ok may have a place UNKNOWN."""

    topic: str
    partition: int
    offset: int
    value: Value

    def __str__(self) -> str:
        partition, offset = ("?" if n == UNKNOWN else n for n in (self.partition, self.offset))
        return f"{self.value!r} at {self.topic}-{partition}:{offset}"


class Operation(NamedTuple):
    """One thing that one client did.

    Times are of any unit, as long as one client's grow; among equal ones the order in the list
    counts. What happens at once (rebalance, crash) has `completed` equal to `invoked`.

    A client does one thing after the other, or several at once (sends in flight): then the order
    of its sends is that in which they were invoked, and of its polls that in which they completed.
    """

    client: str  # a thread with a producer or consumer of its own is a client of its own
    kind: Kind
    invoked: float
    completed: float | None  # None: it never ended, or nobody saw it
    outcome: Outcome
    sent: Sequence[Message] = ()  # send: one; txn: any number, in the order of the calls
    polled: Sequence[Message] = ()  # poll and txn: in the order in which they were returned
    # assign: those that are read from now on. rebalance: those whose position starts anew (none
    # named: all of the client's). poll and txn: those rebalanced while it ran.
    partitions: Sequence[TopicPartition] = ()
    topics: Sequence[str] = ()  # subscribe: those that are read from now on
    committed: Sequence[tuple[str, int, int]] = ()  # commit: topic, partition, next offset to read
    group: str = ""  # of a consumer; to be named where several groups read the same

    def __str__(self) -> str:
        parts = [f"{self.client} {self.kind} {self.outcome}"]
        for verb, messages in (("sent", self.sent), ("polled", self.polled)):
            if messages:
                more = f" and {len(messages) - 3} more" if len(messages) > 3 else ""
                parts.append(f"{verb} {', '.join(map(str, messages[:3]))}{more}")
        return ", ".join(parts)


_ENDS: dict[str, Outcome] = {"send": "ok", "send-failed": "fail", "send-unknown": "info"}
_MARKS = ("rebalance", "assigned", "revoked", "seek")


def history_from_events(events: Iterable[Event]) -> list[Operation]:
    """The history that `events` tell; its times are their positions in the list, from 0.

    The events of one client (`who`) must be in the order in which it emitted them. How those of
    several clients are mixed does not matter. Kinds, and what an event of each must have:

        sending         topic, data["value"]. The call began. May be left out: then sends count as
                        made in the order of their answers. One without an answer is unknown.
        send            topic, partition, offset, data["value"]. It was acknowledged.
        send-failed     topic, data["value"]. It certainly did not happen.
        send-unknown    topic, data["value"]. No answer came.
        poll            topic, partition, offset, data["value"]; one event a message. Those of one
                        client with the same data["call"], if they have one, came from one call.
        assigned, revoked, seek, rebalance
                        topic, partition: the consumer goes on from another position there. Without
                        partition: everywhere. `who` is the consumer, not its coordinator.
        commit          topic, partition, offset: the next one to read.
        crash           the client died. A next one of that name may start over.

    `group` is taken from polls. Other kinds are passed over.
    Raises HistoryError for an event that lacks what it must have.
    """
    history: list[Operation] = []
    unanswered: dict[tuple[str, Value], tuple[int, Message]] = {}
    calls: dict[str, tuple[Scalar, list[Message]]] = {}  # the poll that a client is in
    for now, event in enumerate(events):
        who, kind = event.who, event.kind
        if kind == "sending":
            message = _message(event)
            unanswered[who, message.value] = now, message
        elif kind in _ENDS:
            message = _message(event, placed=kind == "send")
            began, _ = unanswered.pop((who, message.value), (now, message))
            history.append(Operation(who, "send", began, now, _ENDS[kind], sent=(message,)))
        elif kind == "poll":
            call = event.data.get("call")
            if call is None or calls.get(who, (None,))[0] != call:
                calls[who] = call, []
                polled, group = calls[who][1], event.group or ""
                history.append(Operation(who, "poll", now, now, "ok", polled=polled, group=group))
            calls[who][1].append(_message(event, placed=True))
        elif kind == "commit":
            place = _place(event)
            history.append(Operation(who, "commit", now, now, "ok", committed=(place,)))
        elif kind in _MARKS or kind == "crash":
            calls.pop(who, None)
            name: Kind = "crash" if kind == "crash" else "rebalance"
            whole = event.topic is None or event.partition is None
            partitions = () if whole else (_place(event, UNKNOWN)[:2],)
            history.append(Operation(who, name, now, now, "ok", partitions=partitions))
    for (who, _), (began, message) in unanswered.items():
        history.append(Operation(who, "send", began, None, "info", sent=(message,)))
    return sorted(history, key=lambda operation: operation.invoked)


def _message(event: Event, placed: bool = False) -> Message:
    value = event.data.get("value")
    if not isinstance(value, int | str):
        raise _lacks(event, 'data["value"]')
    return Message(*_place(event, None if placed else UNKNOWN), value)


def _place(event: Event, default: int | None = None) -> tuple[str, int, int]:
    """Topic, partition and offset of an event; for the numbers there may be a default."""
    partition = default if event.partition is None else event.partition
    offset = default if event.offset is None else event.offset
    if event.topic is None or partition is None or offset is None:
        raise _lacks(event, "topic, partition or offset")
    return event.topic, partition, offset


def _lacks(event: Event, what: str) -> HistoryError:
    return HistoryError(
        f"event {event.seq} of {event.who!r}, kind {event.kind!r}, lacks {what}",
        fix="emit it with the fields that history_from_events lists for its kind",
    )
