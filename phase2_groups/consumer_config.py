"""The settings of a `Consumer`. Names as in Kafka's clients, in snake case; times in ms.

>>> ConsumerConfig(group_id="billing", max_poll_records=0, heartbeat_interval_ms=60_000)
Traceback (most recent call last):
...
phase2_groups.consumer_config.BadConsumerConfig: 2 settings cannot be used:
  max_poll_records is 0: give a whole number from 1 to 2147483647
  heartbeat_interval_ms is 60000, not less than session_timeout_ms (45000): give a third of it

Source: kafka.apache.org/documentation/#consumerconfigs
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from craft2.errors import Craft2Error
from phase2_groups.assignors import ASSIGNORS
from phase2_groups.kafka_fields import is_text


class BadConsumerConfig(Craft2Error):
    """Settings that make no sense; all of them are named."""


@dataclass(frozen=True, kw_only=True)
class ConsumerConfig:
    """How a consumer behaves.

    bootstrap_servers: where the topics are; `file:FOLDER` for topics in files, `host:port` (several
        with commas) for brokers, after `import phase3_raft.client`.
    group_id: None: no group, so only `assign`, and no commits.
    auto_offset_reset: where to begin when the group has no committed offset, or when the one it has
        is gone: "earliest", "latest", or "none" for an error.
    max_poll_records: the most that one `poll` returns.
    max_poll_interval_ms: a member whose application does not poll for this long is out.
    partition_assignment_strategy: assignors in order of preference (see `assignors`).
    group_instance_id: makes this a static member: it may restart without a rebalance.
    fetch_max_wait_ms, fetch_max_bytes, max_partition_fetch_bytes: of one fetch.
    metadata_max_age_ms: how often to look whether topics have grown (Kafka: five minutes).
    isolation_level: both read up to the high watermark, until there are transactions.
    default_api_timeout_ms: how long `commit` and `close` may take before they raise.
    check_crcs: whether to check the batches' checksums.
    """

    bootstrap_servers: str = ""
    group_id: str | None = None
    client_id: str = "consumer"
    auto_offset_reset: Literal["earliest", "latest", "none"] = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    max_poll_records: int = 500
    max_poll_interval_ms: int = 300_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    partition_assignment_strategy: tuple[str, ...] = ("range", "cooperative-sticky")
    group_instance_id: str | None = None
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 * 1024**2
    max_partition_fetch_bytes: int = 1024**2
    retry_backoff_ms: int = 100
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 60_000
    metadata_max_age_ms: int = 1_000
    check_crcs: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.partition_assignment_strategy, list):
            object.__setattr__(
                self, "partition_assignment_strategy", tuple(self.partition_assignment_strategy)
            )
        problems = [*self._wrong_values(), *self._contradictions()]
        if problems:
            count = "1 setting" if len(problems) == 1 else f"{len(problems)} settings"
            raise BadConsumerConfig(f"{count} cannot be used:\n  " + "\n  ".join(problems))

    def _wrong_values(self) -> list[str]:
        found = []
        for name, value in vars(self).items():
            least = 0 if name in _MAY_BE_ZERO else 1
            kind = type(_DEFAULTS.get(name))
            if kind is int and (type(value) is not int or not least <= value <= MAX_INT):
                found.append(f"{name} is {value!r}: give a whole number from {least} to {MAX_INT}")
            if kind is bool and not isinstance(value, bool):
                found.append(f"{name} is {value!r}: give True or False")
        for name in ("bootstrap_servers", "client_id", "group_id", "group_instance_id"):
            value, optional = getattr(self, name), name.startswith("group_")
            if not (is_text(value) or (optional and value is None)):
                found.append(f"{name} is {value!r}: give a text{' or None' * optional}")
            elif value is not None and len(value.encode()) > _LONGEST_TEXT:
                found.append(f"{name} has {len(value)} letters: give {_LONGEST_TEXT} at most")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                found.append(f"{name} is {getattr(self, name)!r}: give one of {', '.join(allowed)}")
        strategies = self.partition_assignment_strategy
        if isinstance(strategies, str) or not isinstance(strategies, Collection) or not strategies:
            found.append(
                f"partition_assignment_strategy is {strategies!r}: give a tuple of names, "
                f"of {', '.join(ASSIGNORS)}"
            )
            return found
        for name in strategies:
            if name not in tuple(ASSIGNORS):
                near = difflib.get_close_matches(str(name).lower(), ASSIGNORS, n=1, cutoff=0)
                found.append(
                    f"partition_assignment_strategy names {name!r}: there are "
                    f"{', '.join(ASSIGNORS)}; perhaps {near[0]!r} was meant"
                )
        return found

    def _contradictions(self) -> list[str]:
        found = []
        try:
            if self.heartbeat_interval_ms >= self.session_timeout_ms:
                found.append(
                    f"heartbeat_interval_ms is {self.heartbeat_interval_ms}, not less than "
                    f"session_timeout_ms ({self.session_timeout_ms}): give a third of it"
                )
        except TypeError:  # one of them is no number, which has been said
            pass
        if self.group_id is None and self.group_instance_id is not None:
            found.append(
                f"group_instance_id is {self.group_instance_id!r} without a group_id: give both"
            )
        if self.group_id == "":
            found.append("group_id is empty: give the group a name, or None for no group")
        return found


_DEFAULTS = {
    name: value for name, value in vars(ConsumerConfig).items() if isinstance(value, bool | int)
}
MAX_INT = 2**31 - 1  # times and sizes are int32 on the wire
_LONGEST_TEXT = 2**15 - 1  # bytes of a string there
_MAY_BE_ZERO = ("fetch_min_bytes", "fetch_max_wait_ms", "retry_backoff_ms")
_CHOICES = {
    "auto_offset_reset": ("earliest", "latest", "none"),
    "isolation_level": ("read_uncommitted", "read_committed"),
}
