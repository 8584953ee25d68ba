"""Mistakes that a cluster's brokers could make, planted one at a time: all are to be found.

A simulator that finds nothing says nothing. Each of these was somebody's bug (Kafka's, or ours), or
is what one sentence of a KIP forbids.

Missing are mistakes that cost time and no data, such as a broker that is fenced too early; a
broker's earlier life that is counted (KIP-903: `tests/phase3/test_cluster.py` has that; here every
record is synced before anybody counts it, and an empty disk is told by its id); and what takes such
a chain of events that it did not show within dozens of seeds: a new leader that says where the log
ends before it knows (KIP-207), a coordinator that does not read its partition anew when it gets it
back, a controller that obeys leaders of the past, one that forgets what is under way when who asked
for it hangs up (`tests/phase3/test_controller.py` has that: since records about a topic that is not
there change nothing, it does little harm), who takes a snapshot and hears of no removal in it
(`test_replica_safety.py` has that), a leader that answers who asks for one of another epoch
(KIP-320; that both compare the epochs of their records, KIP-595, catches it too, and 400 seeds
showed nothing).

>>> replicas = Replicas(me=1, max_lag_ms=500)
>>> replicas.lead(isr=(1, 2), replicas=(1, 2), begin=0, now_ms=0)
>>> with planted("own-end-only"):
...     replicas.high_watermark(7)
7
>>> replicas.high_watermark(7)
0
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, NamedTuple

from msgspec.structs import replace

from craft2.errors import Craft2Error
from phase2_groups.error_codes import ErrorCode
from phase3_raft.groups.coordinator import Coordinator
from phase3_raft.groups.offsets import OffsetsPartition
from phase3_raft.handlers import fetch
from phase3_raft.metadata import broker_changes
from phase3_raft.metadata.controller import Controller
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import ProducerIdsRecord
from phase3_raft.partition import Partition
from phase3_raft.partitions import Partitions
from phase3_raft.replication.replicas import Replicas


class Bug(NamedTuple):
    """about: what is wrong. changes: (where, name, what is there instead)."""

    about: str
    changes: tuple[tuple[Any, str, Any], ...]


class NoSuchBug(Craft2Error):
    """A bug's name that is none."""


# What is seen, and what is acknowledged.

_read = fetch.read


def _reads_to_the_end(one, limit):
    if one.follower < 0:
        one = one._replace(follower=99)  # nobody's number: it is not counted
    return _read(one, limit)


def _replicated_at_once(self, offset, epoch, tell):
    tell(ErrorCode.NONE)


_high_watermark = Replicas.high_watermark


def _own_end(self, end):
    return end if self.me in self.isr else _high_watermark(self, end)


_fetched = Replicas.fetched


def _one_too_far(self, who, offset, *, end, now_ms):
    _fetched(self, who, min(end, offset + 1), end=end, now_ms=now_ms)


# Who is in sync.


def _forgets_disks(before, now):
    return False


def _proposes_and_forgets(self, isr):
    self._asking = True


def _decides_alone(self, isr):
    self.isr, self._asking = isr, True


def _never_heard(self, *, refused):
    pass


# Who leads.

_led = broker_changes._led


def _same_epoch(image, one, live, **how):
    new = _led(image, one, live, **how)
    return None if new is None else replace(new, leader_epoch=one.leader_epoch)


def _whoever_asks(self, topic, number):
    found = self._open.get((topic, number))
    return found if found is not None else _partitions_led(self, topic, number)


_partitions_led = Partitions.led


def _leads_or_not(self):
    pass


class _NoTurn:
    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass


_controller = Controller.__init__


def _all_at_once(self, *arguments, **named):
    _controller(self, *arguments, **named)
    self._turn = _NoTurn()


# What a follower does.


_become = Partition.become


def _cuts_at_watermark(self, record):
    _become(self, record)
    if not self.leads and self.log.end_offset > self.replicas._high_watermark:
        self.truncate_to(self.replicas._high_watermark)


def _offsets_alone(one, limit):
    return _read(one._replace(last_epoch=-1), limit)


def _range_first(one, limit):
    partition = one.partition
    if isinstance(partition, Partition) and one.offset > partition.log.end_offset:
        one = one._replace(last_epoch=-1)
    return _read(one, limit)


_append_as_follower = Partition.append_as_follower


def _appends_unsynced(self, batches):
    _append_as_follower(self, batches)
    self._unflushed = 0


def _deletes_alone(self, begin, live):
    return begin


_wanted_isr = Replicas.wanted_isr


def _joins_with_all(self, end, now_ms, fenced=(), *, begin, writes):
    return _wanted_isr(self, end, now_ms, fenced, writes=writes)


# Groups and producers.


class _LedAlways(OffsetsPartition):
    leads = True


_offsets_append = OffsetsPartition.append


async def _appends_on(self, records):
    before, self.__class__ = self.__class__, _LedAlways
    try:
        await _offsets_append(self, records)
    finally:
        self.__class__ = before


def _here_for_ever(self, group):
    return True


async def _cuts_at_once(self):
    first = self._partition.log.end_offset
    self._write(list(self._written.items()))
    self._partition.advance_start(first)


async def _commits_alone(self, records):
    self._write(records)
    for key, value in records:
        self.table.take(key, value)


_begin = Partition._begin


def _forgets_producers(self, record):
    self.log._producers.restore(b"")
    _begin(self, record)


_apply = Image.apply


def _reuses_ids(self, record):
    _apply(self, ProducerIdsRecord(1_000) if isinstance(record, ProducerIdsRecord) else record)


BUGS: dict[str, Bug] = {
    "reads-to-the-end": Bug(
        "consumers read up to the log's end, not the high watermark",
        ((fetch, "read", _reads_to_the_end),),
    ),
    "answers-at-append": Bug(
        "acks=all is answered when the leader has appended",
        ((Partition, "when_replicated", _replicated_at_once),),
    ),
    "own-end-only": Bug(
        "a leader's own log is enough for the high watermark",
        ((Replicas, "high_watermark", _own_end),),
    ),
    "one-too-far": Bug(
        "a follower that asks for an offset is taken to have it",
        ((Replicas, "fetched", _one_too_far),),
    ),
    "proposed-uncounted": Bug(
        "who is about to join the ISR is not counted until the controller has said so (KIP-497)",
        ((Replicas, "propose", _proposes_and_forgets),),
    ),
    "isr-without-controller": Bug(
        "a leader changes the ISR, and tells the controller later (KIP-497)",
        ((Replicas, "propose", _decides_alone),),
    ),
    "refusal-unheard": Bug(
        "a leader waits for ever for the controller's yes to another ISR",
        ((Replicas, "answered", _never_heard),),
    ),
    "empty-in-sync": Bug(
        "a broker that comes back with an empty disk is in sync as before (ours; KIP-858)",
        ((broker_changes, "is_emptied", _forgets_disks),),
    ),
    "unclean": Bug(
        "somebody leads who was not in the ISR", ((broker_changes, "_may_lose", lambda *_: True),)
    ),
    "epoch-kept": Bug(
        "a new leader goes on in the leader epoch of the last one",
        ((broker_changes, "_led", _same_epoch),),
    ),
    "led-by-anybody": Bug(
        "a broker that leads no more appends what producers send it",
        ((Partitions, "led", _whoever_asks), (Partition, "_check_leads", _leads_or_not)),
    ),
    "two-decisions": Bug(
        "two decisions of the controller are made from one image",
        ((Controller, "__init__", _all_at_once),),
    ),
    "cuts-at-watermark": Bug(
        "a follower cuts its log at its own high watermark (before KIP-101)",
        ((Partition, "become", _cuts_at_watermark),),
    ),
    "offsets-alone": Bug(
        "a follower's log is compared with the leader's by offsets, not epochs (before KIP-101)",
        ((fetch, "read", _offsets_alone),),
    ),
    "longer-is-out-of-range": Bug(
        "a follower with a longer log than the leader's begins anew, and is in the ISR (ours)",
        ((fetch, "read", _range_first),),
    ),
    "follower-unsynced": Bug(
        "a follower does not sync what it has, though the topic's settings say so",
        ((Partition, "append_as_follower", _appends_unsynced),),
    ),
    "deletes-alone": Bug(
        "records are said to be deleted when the leader has deleted them (ours)",
        ((Replicas, "low_watermark", _deletes_alone),),
    ),
    "joins-with-deleted": Bug(
        "who has caught up joins the ISR before it has heard which records are deleted (ours)",
        ((Replicas, "wanted_isr", _joins_with_all),),
    ),
    "resigned-writes-on": Bug(
        "a group whose coordinator is elsewhere by now stores on, in the new leader's epoch (ours)",
        (
            (Coordinator, "_is_here", _here_for_ever),
            (OffsetsPartition, "append", _appends_on),
            (Partition, "_check_leads", _leads_or_not),
        ),
    ),
    "commits-alone": Bug(
        "a group's commit is answered when the coordinator has it",
        ((OffsetsPartition, "append", _commits_alone),),
    ),
    "compacts-at-once": Bug(
        "the log of offsets is cut before all replicas have what stays of it again (ours)",
        ((OffsetsPartition, "_compact", _cuts_at_once),),
    ),
    "sequences-forgotten": Bug(
        "a new leader knows nothing of what producers had sent",
        ((Partition, "_begin", _forgets_producers),),
    ),
    "ids-given-twice": Bug(
        "two brokers give the same producer ids away", ((Image, "apply", _reuses_ids),)
    ),
}


def bug_named(name: str | None) -> Bug:
    """A planted bug; no bug for None. Raises NoSuchBug for a name that is none."""
    if name is None:
        return Bug("none", ())
    if name not in BUGS:
        near = get_close_matches(name, BUGS, n=3, cutoff=0.7)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise NoSuchBug(
            f"there is no bug {name!r}",
            f"{meant}craft2 cluster simulate --list-bugs lists them all",
        )
    return BUGS[name]


@contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Meanwhile all brokers of this process have this bug. Raises NoSuchBug."""
    before = [(where, key, vars(where)[key]) for where, key, _ in bug_named(name).changes]
    for where, key, instead in bug_named(name).changes:
        setattr(where, key, instead)
    try:
        yield
    finally:
        for where, key, was in before:
            setattr(where, key, was)
