"""What must be true of a cluster's partitions after every single event.

Each rule is looked at where something has changed, against what was seen before, so that the event
which breaks it is the last one. What clients are told counts as seen.

    one leader an epoch     no two brokers lead a partition in one leader epoch
    logs agree              what is below two replicas' high watermarks is the same in both, and is
                            what clients were told
    one batch an epoch      what two replicas have of one leader epoch at one offset is the same, or
                            nobody could find out where their logs part (KIP-101)
    watermarks do not fall  of one leader, in one life of it
    watermarks are within   the log: nobody vouches for what it has not got
    in sync has everything  whoever is in the ISR has all that was acknowledged with acks=all, so
                            nothing is lost while one of them survives
    deleted stays deleted   whoever is in the ISR begins where DeleteRecords was told to have it
                            begin, so what was deleted does not come back with the next leader

The watermarks are looked at where the brokers keep them: to ask a replica for its own would move
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from craft2.apps.simulate.raft_rules import Broken
from craft2.batch_header import read_header
from phase2_groups.group_messages import TopicPartition
from phase3_raft.broker import Broker
from phase3_raft.metadata.records import PartitionRecord
from phase3_raft.partition import Partition

Say: TypeAlias = Callable[[str, str], object]
_Seen: TypeAlias = tuple[Partition, PartitionRecord, int, int]
_Content: TypeAlias = tuple[bytes | None, bytes | None]  # a record's key and value


class ClusterRules:
    """See the module. say: told who does what, of what a reader of the story wants to know.

    newest: each partition as the latest metadata have it that any broker knew.
    acknowledged: for each, the end of what producers were told. deleting: up to where somebody has
    asked for its records to be deleted.
    """

    def __init__(self, say: Say) -> None:
        self.newest: dict[TopicPartition, PartitionRecord] = {}
        self.acknowledged: dict[TopicPartition, int] = {}
        self.deleting: dict[TopicPartition, int] = {}
        self._deleted: dict[TopicPartition, int] = {}
        self.elections = 0
        self._say = say
        self._leaders: dict[tuple[TopicPartition, int], int] = {}  # (which, epoch) -> who
        self._content: dict[tuple[TopicPartition, int], _Content] = {}  # (which, offset)
        self._batches: dict[tuple[TopicPartition, int, int], int] = {}  # (, epoch, offset) -> CRC
        self._live: dict[int, Broker] = {}
        self._seen: dict[int, dict[TopicPartition, _Seen]] = {}

    def begins(self, number: int, broker: Broker) -> None:
        """A broker starts, with what its disk holds."""
        self._live[number], self._seen[number] = broker, {}

    def ends(self, number: int) -> None:
        """It is gone."""
        self._live.pop(number, None)

    def look(self, number: int) -> None:
        """Something has happened in a broker. Raises Broken."""
        broker = self._live.get(number)
        if broker is None:
            return
        seen = self._seen[number]
        for key, partition in broker.partitions._open.items():
            watermark, end = partition.replicas._high_watermark, partition.log.end_offset
            before = seen.get(key)
            now = partition, partition.record, watermark, end
            if before is None or before[0] is not partition:
                self._changed(number, key, now, (partition, partition.record, 0, end), first=True)
            elif before[2] != watermark or before[3] != end or before[1] is not partition.record:
                self._changed(number, key, now, before)
            else:
                continue
            seen[key] = now

    def _changed(
        self, number: int, key: TopicPartition, now: _Seen, before: _Seen, *, first: bool = False
    ) -> None:
        partition, record, watermark, end = now
        name = f"broker {number}"
        if first or record is not before[1]:
            self._role(number, key, record)
        if watermark > end:
            what = f"{name} vouches for {_name(key)} up to {watermark}, and has it up to {end}"
            raise Broken("watermarks are within", what)
        if record.leader == number and watermark < before[2]:
            what = f"{name}, which leads {_name(key)}, had {before[2]}, and has {watermark}"
            raise Broken("watermarks do not fall", what)
        if end < before[3]:
            self._say(name, f"cuts {_name(key)} at {end}; it ended at {before[3]}")
        if end < before[3] or first:
            self._in_sync(key)
        if end > before[3]:
            self._appended(name, key, partition, before[3])
        since = max(before[2], partition.log.log_start)  # offsets are compacted
        if watermark > since:
            for found in partition.log.records(since, watermark):
                self._agree(name, key, found.offset, (found.key, found.value))

    def _role(self, number: int, key: TopicPartition, record: PartitionRecord) -> None:
        if record.leader == number:
            leader = self._leaders.setdefault((key, record.leader_epoch), number)
            if leader != number:
                what = f"brokers {leader} and {number} lead {_name(key)}"
                raise Broken("one leader an epoch", f"{what} in epoch {record.leader_epoch}")
        known = self.newest.get(key)
        if known is not None and known.partition_epoch >= record.partition_epoch:
            return
        self.newest[key] = record
        leader_said = f"broker {record.leader} leads" if record.leader >= 0 else "nobody leads"
        in_sync = f"{', '.join(map(str, record.isr))} in sync"
        if known is None or known.leader_epoch != record.leader_epoch:
            self.elections += 1
            what = f"{leader_said} {_name(key)} in epoch {record.leader_epoch}; {in_sync}"
            self._say("controller", what)
        elif known.isr != record.isr:
            self._say("controller", f"{_name(key)}: {in_sync}")
        self._in_sync(key)

    def _in_sync(self, key: TopicPartition) -> None:
        """Those in the ISR that run have what was acknowledged, and not what was deleted."""
        record, needed = self.newest.get(key), self.acknowledged.get(key, 0)
        deleted = self._deleted.get(key, 0)
        for number in record.isr if record is not None else ():
            broker = self._live.get(number)
            partition = broker.partitions._open.get(key) if broker is not None else None
            if partition is not None and partition.log.end_offset < needed:
                what = f"broker {number} is in the ISR of {_name(key)} and has it up to "
                what += f"{partition.log.end_offset}; up to {needed} it is acknowledged"
                raise Broken("in sync has everything", what)
            if partition is not None and partition.log.log_start < deleted:
                what = f"broker {number} is in the ISR of {_name(key)}, which begins at "
                what += f"{partition.log.log_start} there; up to {deleted} it is deleted"
                raise Broken("deleted stays deleted", what)

    def _agree(self, who: str, key: TopicPartition, offset: int, content: _Content) -> None:
        known = self._content.setdefault((key, offset), content)
        if known != content:
            what = f"{_name(key)}, offset {offset}: {who} has {_words(content)}, and there was "
            raise Broken("logs agree", what + _words(known))

    def _appended(self, who: str, key: TopicPartition, partition: Partition, since: int) -> None:
        for batch in partition.log.batches(max(since, partition.log.log_start)):
            header = read_header(batch)
            epoch, offset = header.leader_epoch, header.base_offset
            known = self._batches.setdefault((key, epoch, offset), header.crc)
            if known != header.crc:
                what = f"{who} has another batch of {_name(key)} in epoch {epoch} at offset "
                raise Broken("one batch an epoch", f"{what}{offset} than there was")

    # What clients are told.

    def is_told(self, who: str, key: TopicPartition, offset: int, value: str) -> None:
        """A client is told that this is at that offset, for good."""
        self._agree(who, key, offset, (None, value.encode()))

    def is_acknowledged(self, key: TopicPartition, end: int) -> None:
        """A producer is told that what is before this offset stays, if it wrote that."""
        if end > self.acknowledged.get(key, 0):
            self.acknowledged[key] = end
            self._in_sync(key)

    def is_deleting(self, key: TopicPartition, start: int) -> None:
        """Somebody asks for what is before this offset to be deleted."""
        self.deleting[key] = max(start, self.deleting.get(key, 0))

    def is_deleted(self, key: TopicPartition, start: int) -> None:
        """He is told that it is."""
        if start > self._deleted.get(key, 0):
            self._deleted[key] = start
            self._in_sync(key)


def _name(key: TopicPartition) -> str:
    return f"{key[0]}-{key[1]}"


def _words(content: _Content) -> str:
    return repr((content[1] or b"").decode(errors="replace"))
