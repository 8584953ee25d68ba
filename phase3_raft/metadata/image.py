"""The cluster's metadata at one offset of its log: a fold over records, and nothing else.

>>> image = Image()
>>> image.apply(TopicRecord("flights", "0" * 32))
>>> image.apply(PartitionRecord("flights", 0, (1,), (1,), 1, 0, 0))
>>> image.topics["flights"].partitions[0].leader
1
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from phase3_raft.metadata.records import (
    BrokerId,
    BrokerRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RemoveBrokerRecord,
    RemovedTopicsRecord,
    RemoveTopicRecord,
    TopicRecord,
)


@dataclass
class TopicImage:
    """A topic. partitions: by number, without a gap. config: only what was set."""

    name: str
    topic_id: str
    partitions: dict[int, PartitionRecord] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)


class Image:
    """See the module. Invariant: it depends on the records applied, in their order, alone. One of
    a topic that is not there changes nothing: what is committed has to be applied, on every broker
    and again after each start, whatever it is.

    removed: the ids of topics that are no more, whose files may still lie about.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Nothing is known."""
        self.brokers: dict[BrokerId, BrokerRecord] = {}
        self.topics: dict[str, TopicImage] = {}
        self.broker_config: dict[str, dict[str, str]] = {}  # by broker, "" for all
        self.removed: set[str] = set()
        self.next_producer_id = 0
        self.version = 0  # how many records were applied

    def apply(self, record: Record) -> None:
        """The next record of the log."""
        self.version += 1
        match record:
            case BrokerRecord():
                self.brokers[record.id] = record
            case RemoveBrokerRecord():
                self.brokers.pop(record.id, None)
            case TopicRecord():
                self.topics[record.name] = TopicImage(record.name, record.topic_id)
            case PartitionRecord():
                if record.topic in self.topics:
                    self.topics[record.topic].partitions[record.partition] = record
            case RemoveTopicRecord():
                gone = self.topics.pop(record.name, None)
                if gone is not None:
                    self.removed.add(gone.topic_id)
            case RemovedTopicsRecord():
                self.removed.update(record.topic_ids)
            case ConfigRecord():
                self._configure(record)
            case ProducerIdsRecord():
                self.next_producer_id = record.next_id

    def _configure(self, record: ConfigRecord) -> None:
        if record.kind == "topic":
            if record.resource not in self.topics:
                return
            settings = self.topics[record.resource].config
        else:
            settings = self.broker_config.setdefault(record.resource, {})
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value

    def records(self) -> list[Record]:
        """Records that make an equal image: a snapshot."""
        found: list[Record] = [RemovedTopicsRecord(tuple(sorted(self.removed)))]
        found += self.brokers.values()
        for topic in self.topics.values():
            found.append(TopicRecord(topic.name, topic.topic_id))
            found += topic.partitions.values()
            found += [ConfigRecord("topic", topic.name, *item) for item in topic.config.items()]
        for broker, config in self.broker_config.items():
            found += [ConfigRecord("broker", broker, *item) for item in config.items()]
        return [*found, ProducerIdsRecord(self.next_producer_id)]

    def copy(self) -> Image:
        """An equal one, to try records on."""
        twin = Image()
        for record in self.records():
            twin.apply(record)
        twin.version = self.version
        return twin

    def partitions(self) -> Iterator[PartitionRecord]:
        """All of them."""
        for topic in self.topics.values():
            yield from topic.partitions.values()

    def live(self) -> list[BrokerId]:
        """The brokers that are not fenced, in order."""
        return sorted(one.id for one in self.brokers.values() if not one.fenced)

    def partition(self, topic: str, number: int) -> PartitionRecord | None:
        """A partition, if there is one."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(number)
