"""What goes into a group's state machine and what comes out of it.

In: `Request`s of members, the answer of whoever stores things (`Stored`), and the time (`Tick`).
Out: `Effect`s, which the caller carries out *in their order*:

- `Reply`: the answer to one request, perhaps to another than the one just handed in, and perhaps
  long after it was. A member that joins is answered when everybody has joined.
- `Store`: write these committed offsets, or the group's new assignment, to its log; hand in
  `Stored` with the same number when they are safe. Only then do replies come that promise it.
- `Happened`: for the record, with its *because*.

Requests and replies carry the fields of Kafka's own (JoinGroup v9, SyncGroup v5, Heartbeat v4,
LeaveGroup v5, OffsetCommit v8). Times are in ms.

Source: kafka.apache.org/protocol; KIP-62 (two timeouts), KIP-345 (static members), KIP-394 (a new
member learns its id before it counts), KIP-800 (members say why).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from phase2_groups.error_codes import ErrorCode

TopicPartition = tuple[str, int]
Because = dict[str, str | int | float | bool | None]


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=True):
    """A request as the machine sees it; `token` is how its reply finds back."""

    token: str


class Join(Request, frozen=True, kw_only=True):
    """I want to be a member, or: I am one, and let us share out again.

    member_id: "" at first. new_member_id: what a new one will be called (the machine knows no
    randomness). protocols: assignor names in the member's order of preference, each with the
    member's subscription as bytes. reason: why it joins again, as a person would say it.
    """

    member_id: str
    new_member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    protocol_type: str = "consumer"
    protocols: tuple[tuple[str, bytes], ...] = ()
    require_known_member_id: bool = True  # JoinGroup v4 and later
    reason: str = ""


class Member(Request, frozen=True, kw_only=True):
    """A request of somebody who is a member already: of which generation, under which name."""

    member_id: str
    generation: int
    group_instance_id: str | None = None


class Sync(Member, frozen=True, kw_only=True):
    """Give me my partitions; from the leader also: these are everybody's."""

    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()  # (member id, assignment), the leader's only


class Heartbeat(Member, frozen=True, kw_only=True):
    """I am alive."""


class OffsetToCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The next offset to read; metadata is the client's own note."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Commit(Member, frozen=True, kw_only=True):
    """I have handled everything before these offsets. generation -1: by somebody who assigned
    partitions to itself and is no member."""

    offsets: tuple[tuple[str, int, OffsetToCommit], ...]


class Leaver(msgspec.Struct, frozen=True, kw_only=True):
    """Who leaves: a member id, or the instance id of a static member, whatever its member id."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str = ""


class Leave(Request, frozen=True, kw_only=True):
    """These members go now, not after a session timeout."""

    members: tuple[Leaver, ...]


class Stored(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=True):
    """What `Store` with this number asked for is safe, or failed with an error."""

    number: int
    error: ErrorCode = ErrorCode.NONE


class Tick(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag=True):
    """Time has passed."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to the request with this token. Fields that its kind does not have stay empty.

    members: only for a leader that joined: (member id, instance id, subscription) of everybody, in
    the order of their ids. skip_assignment: the leader must not share out anew (KIP-814).
    assignment: after a sync.
    partitions: after a commit, the error of each.
    """

    token: str
    error: ErrorCode = ErrorCode.NONE
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    protocol_type: str | None = None
    protocol: str | None = None
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False
    assignment: bytes = b""
    left: tuple[tuple[str, str | None, ErrorCode], ...] = ()
    partitions: tuple[tuple[str, int, ErrorCode], ...] = ()


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """Write to the group's log, then say `Stored(number)`.

    what: "offsets", those here; or "assignment", the group as it is now.
    """

    number: int
    what: Literal["offsets", "assignment"]
    offsets: tuple[tuple[str, int, OffsetToCommit], ...] = ()


class Happened(msgspec.Struct, frozen=True, kw_only=True):
    """Something to put on record: the fields of a `craft2.events.Event`."""

    kind: str
    because: str
    who: str = ""
    generation: int | None = None
    data: dict[str, Any] = {}


Input = Join | Sync | Heartbeat | Commit | Leave | Stored | Tick
Effect = Reply | Store | Happened
