"""What the records of committed offsets add up to: the latest record of each key counts.

A record without a value takes its key away. Whoever has read the log from its start has the table;
phase 2 keeps one for a log of files, phase 3 one for each partition of `__consumer_offsets`.

>>> from phase2_groups.offset_records import offset_key, offset_value
>>> table = OffsetsTable()
>>> for offset in (5, 8):
...     value = offset_value(OffsetToCommit(offset=offset), time_ms=0)
...     table.take(offset_key("billing", "flights", 0), value)
>>> table.offsets["billing"]["flights", 0].offset, len(table.latest)
(8, 1)

Source: Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

from phase2_groups.group_messages import OffsetToCommit, TopicPartition
from phase2_groups.offset_records import GroupKey, read_generation, read_key, read_offset


class OffsetsTable:
    """See the module. offsets, generations: by group.

    Invariant: they say what the records in `latest` say, and no group in them is empty.
    """

    def __init__(self) -> None:
        self.latest: dict[bytes, bytes] = {}
        self.offsets: dict[str, dict[TopicPartition, OffsetToCommit]] = {}
        self.generations: dict[str, int] = {}

    def take(self, key: bytes, value: bytes | None) -> None:
        """The next record of the log."""
        if value is None:
            if self.latest.pop(key, None) is None:
                return
        else:
            self.latest[key] = value
        about = read_key(key)
        if isinstance(about, GroupKey):
            if value is None:
                del self.generations[about.group]
            else:
                self.generations[about.group] = read_generation(value)
            return
        offsets = self.offsets.setdefault(about.group, {})
        if value is None:
            del offsets[about.topic, about.partition]
            if not offsets:
                del self.offsets[about.group]
        else:
            offsets[about.topic, about.partition] = read_offset(value)

    def groups(self) -> list[str]:
        """Those that have committed, or have had members."""
        return sorted(self.offsets.keys() | self.generations.keys())

    def keys_of(self, group: str) -> list[bytes]:
        """All keys that speak of a group."""
        return [key for key in self.latest if read_key(key).group == group]
