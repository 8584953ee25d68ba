"""What there is to see of the copies of a partition: plain data, for pictures and tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from craft2.record_batch import decode, read_header
from phase1_file_queue.partition_log import PartitionLog


class Letter(NamedTuple):
    """A message from one to another. lost: it never arrives."""

    sent_ms: int
    arrives_ms: int
    source: str
    target: str
    words: str
    lost: bool


class Cell(NamedTuple):
    """A record of a log. seen: it is before the high watermark, as this broker knows it."""

    epoch: int
    text: str
    seen: bool


class Look(NamedTuple):
    """A broker at one moment. role: "leads", "follows", "stalled" or "down". epoch: of the leader,
    as this broker knows it."""

    ms: int
    role: str
    epoch: int
    cells: tuple[Cell, ...]
    watermark: int


class Sent(NamedTuple):
    """A record, as its producer knows about it. state: "waiting", "acknowledged", "refused" (it was
    not appended), or "unknown": it was, and then its leader was the leader no more."""

    text: str
    offset: int
    state: str
    leader_epoch: int


def cells_of(log: PartitionLog, watermark: int) -> Iterator[Cell]:
    """The records of a log, one by one."""
    for batch in log.batches():
        epoch = read_header(batch).leader_epoch
        for record in decode(batch):
            yield Cell(epoch, (record.value or b"").decode(), record.offset < watermark)
