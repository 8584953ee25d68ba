"""The records of `__consumer_offsets`, in Kafka's own format.

A committed offset is a record whose key says what it is about and whose value says how far:

    key    int16 version (1)   string group   string topic   int32 partition
    value  int16 version (3)   int64 offset   int32 leader epoch   string metadata
           int64 commit time (ms)

The group itself is a record too, written when a generation has its assignment:

    key    int16 version (2)   string group
    value  int16 version (3)   string protocol type   int32 generation   string? protocol
           string? leader   int64 time (ms)   array of members, each:
             string member id   string? instance id   string client id   string client host
             int32 rebalance timeout   int32 session timeout   bytes subscription   bytes assignment

`string?` may be null; `kafka_fields` says how all these are written. A later record for a key
replaces the earlier one, and a null value deletes it: that is what allows the log to be compacted.

>>> key = offset_key("billing", "flights", 2)
>>> read_key(key)
OffsetKey(group='billing', topic='flights', partition=2)
>>> read_offset(offset_value(OffsetToCommit(offset=8), time_ms=1_700_000_000_000)).offset
8

Source: Kafka's OffsetCommitKey/Value.json and GroupMetadataKey/Value.json.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from craft2.errors import Craft2Error
from phase2_groups.group_messages import OffsetToCommit
from phase2_groups.group_state import Group, GroupMember, State
from phase2_groups.kafka_fields import Fields, opaque, string

_OFFSET_KEY, _GROUP_KEY = 1, 2
_VALUE_VERSION = 3


class BadOffsetRecord(Craft2Error):
    """Bytes that are not a record of `__consumer_offsets` in a version known here."""


class OffsetKey(NamedTuple):
    """What a committed offset is about."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """What a group's own record is about."""

    group: str


def _fields(data: bytes) -> Fields:
    def error(problem: str) -> BadOffsetRecord:
        return BadOffsetRecord(
            f"no record of __consumer_offsets: {problem} ({data[:60]!r})",
            "craft2 inspect shows the record; it is not in Kafka's format",
        )

    return Fields(data, error)


def _version(fields: Fields, *known: int) -> int:
    version = fields.number("h")
    if version not in known:
        raise BadOffsetRecord(
            f"version {version} of a record in __consumer_offsets",
            f"this program reads the versions {', '.join(map(str, known))}: use a newer one",
        )
    return version


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """The key of a committed offset."""
    head = struct.pack(">h", _OFFSET_KEY)
    return head + string(group) + string(topic) + struct.pack(">i", partition)


def offset_value(commit: OffsetToCommit, time_ms: int) -> bytes:
    """The value of a committed offset."""
    head = struct.pack(">hqi", _VALUE_VERSION, commit.offset, commit.leader_epoch)
    return head + string(commit.metadata) + struct.pack(">q", time_ms)


def group_key(group: str) -> bytes:
    """The key of a group's own record."""
    return struct.pack(">h", _GROUP_KEY) + string(group)


def group_value(group: Group, time_ms: int) -> bytes:
    """The value of a group's own record."""
    parts = [
        struct.pack(">h", _VALUE_VERSION),
        string(group.protocol_type or ""),
        struct.pack(">i", group.generation),
        string(group.protocol),
        string(group.leader or None),
        struct.pack(">qi", time_ms, len(group.members)),
    ]
    for member in group.members.values():
        parts += [
            string(member.member_id),
            string(member.group_instance_id),
            string(member.client_id),
            string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            opaque(member.subscription(group.protocol)),
            opaque(member.assignment),
        ]
    return b"".join(parts)


def read_key(key: bytes) -> OffsetKey | GroupKey:
    """What a record is about. Raises BadOffsetRecord."""
    fields = _fields(key)
    if _version(fields, 0, _OFFSET_KEY, _GROUP_KEY) == _GROUP_KEY:
        return GroupKey(fields.string() or "")
    return OffsetKey(fields.string() or "", fields.string() or "", fields.number("i"))


def read_offset(value: bytes) -> OffsetToCommit:
    """The committed offset in a value. Raises BadOffsetRecord."""
    fields = _fields(value)
    version = _version(fields, 0, 1, 2, 3)
    offset = fields.number("q")
    epoch = fields.number("i") if version == 3 else -1
    return OffsetToCommit(offset=offset, leader_epoch=epoch, metadata=fields.string() or "")


def read_generation(value: bytes) -> int:
    """The generation in a group's value. Raises BadOffsetRecord."""
    fields = _fields(value)
    _version(fields, 0, 1, 2, 3)
    fields.string()
    return fields.number("i")


def read_group(group: str, value: bytes, now_ms: int) -> Group:
    """The group as it was stored: Stable with its members, who are heard from now on, or Empty.

    So whoever takes a group over goes on with it, and no member has to join again. Of what a member
    can do, only the protocol in use is stored. Raises BadOffsetRecord.
    """
    fields = _fields(value)
    version = _version(fields, 0, 1, 2, 3)
    found = Group(group_id=group, protocol_type=fields.string() or None)
    found.generation = fields.number("i")
    found.protocol, found.leader = fields.string(), fields.string() or ""
    if version >= 2:
        fields.number("q")
    for _ in range(fields.number("i")):
        member_id = fields.string() or ""
        instance = fields.string() if version >= 3 else None
        client_id, host = fields.string() or "", fields.string() or ""
        rebalance_ms = fields.number("i") if version >= 1 else None
        session_ms = fields.number("i")
        subscription, assignment = fields.opaque() or b"", fields.opaque() or b""
        found.members[member_id] = GroupMember(
            member_id=member_id,
            group_instance_id=instance,
            client_id=client_id,
            client_host=host,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms if rebalance_ms is None else rebalance_ms,
            protocols=((found.protocol or "", subscription),),
            assignment=assignment,
            synced=True,
            deadline_ms=now_ms + session_ms,
        )
    found.state = State.STABLE if found.members else State.EMPTY
    return found
