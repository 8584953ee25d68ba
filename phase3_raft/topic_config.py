"""The settings of a topic: names, defaults and checks as Kafka's, for those that do something here.

>>> TopicConfig.of({"retention.ms": "1000"}).log_config().retention_ms
1000
>>> TopicConfig.of({"retention.ms": "soon"})
Traceback (most recent call last):
phase3_raft.topic_config.BadConfig: retention.ms='soon'. Fix: give a whole number of -1 or more

Source: kafka.apache.org/documentation/#topicconfigs
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from phase1_file_queue.log_config import LogConfig
from phase2_groups.error_codes import ErrorCode
from phase3_raft.refused import Refused

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")
_REPLICAS = r"\*|(\d+:\d+(,\d+:\d+)*)?"
_MAX_INT64 = 2**63 - 1
_MAX_INT32 = 2**31 - 1


class BadConfig(Refused):
    """A setting that does not exist, or a value that it cannot have."""

    code = ErrorCode.INVALID_CONFIG


class Setting(NamedTuple):
    """One setting. values: what it can be, or pattern: how it is written, if it is not a whole
    number of `least` to `most`."""

    name: str
    default: str
    about: str
    least: int = 0
    most: int = _MAX_INT64
    values: tuple[str, ...] = ()
    pattern: str = ""

    @property
    def is_number(self) -> bool:
        """Whether it is one."""
        return not (self.values or self.pattern)

    def check(self, value: str) -> None:
        """Raises BadConfig."""
        if self.values:
            if value not in self.values:
                raise BadConfig(f"{self.name}={value!r}", f"give one of {', '.join(self.values)}")
            return
        if self.pattern:
            if not re.fullmatch(self.pattern, value):
                raise BadConfig(f"{self.name}={value!r}", f"{self.about}")
            return
        number = int(value) if _NUMBER.fullmatch(value) else self.least - 1
        if not self.least <= number <= self.most:
            limit = f" and at most {self.most}" if self.most < _MAX_INT64 else ""
            raise BadConfig(
                f"{self.name}={value!r}", f"give a whole number of {self.least} or more{limit}"
            )


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("cleanup.policy", "delete", "old segments are deleted", values=("delete",)),
        Setting(
            "compression.type",
            "producer",
            "batches are stored as the producer compressed them",
            values=("producer",),
        ),
        Setting(
            "flush.messages",
            str(_MAX_INT64),
            "sync after so many records; 1: every append is on disk before it is acknowledged",
            least=1,
        ),
        Setting(
            "follower.replication.throttled.replicas",
            "",
            "partition:broker,...: replicas that catch up at a limited rate; * is all of them",
            pattern=_REPLICAS,
        ),
        Setting("index.interval.bytes", "4096", "an index entry every so many bytes"),
        Setting(
            "leader.replication.throttled.replicas",
            "",
            "partition:broker,...: set by Kafka's tools beside the follower's, which counts here",
            pattern=_REPLICAS,
        ),
        Setting("max.message.bytes", "1048588", "the largest batch", most=_MAX_INT32),
        Setting(
            "message.timestamp.after.max.ms",
            "3600000",
            "a record may be so far ahead of the broker's clock (KIP-1030)",
        ),
        Setting(
            "message.timestamp.type",
            "CreateTime",
            "whose clock stamps records: the producer's, or the broker's when it appends",
            values=("CreateTime", "LogAppendTime"),
        ),
        Setting(
            "min.insync.replicas",
            "1",
            "acks=all needs so many replicas in sync",
            least=1,
            most=_MAX_INT32,
        ),
        Setting("retention.bytes", "-1", "keep at most so much of a partition", least=-1),
        Setting("retention.ms", "604800000", "keep records for so long", least=-1),
        Setting("segment.bytes", "1073741824", "the size of a segment", least=14, most=_MAX_INT32),
        Setting(
            "segment.index.bytes",
            str(10 * 1024**2),
            "room for each index of a segment",
            least=24,
            most=_MAX_INT32,
        ),
        Setting("segment.ms", "604800000", "the age at which a segment is finished", least=1),
        Setting(
            "unclean.leader.election.enable",
            "false",
            "one that is not in sync may lead if no other is there, and what it lacks is lost",
            values=("true", "false"),
        ),
    )
}


class TopicConfig:
    """The settings of one topic, those that were not set at their defaults.

    broker_stamps: whether records get the time of their append.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self._numbers: dict[str, int] = {}  # those that were asked for: every append asks
        self.broker_stamps = self["message.timestamp.type"] == "LogAppendTime"

    @classmethod
    def of(cls, values: Mapping[str, str]) -> TopicConfig:
        """Checked. Raises BadConfig."""
        for name, value in values.items():
            setting(name).check(value)
        return cls(values)

    def __getitem__(self, name: str) -> str:
        return self._values.get(name, SETTINGS[name].default)

    def number(self, name: str) -> int:
        """A setting that is a number."""
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = int(self[name])
        return found

    def log_config(self) -> LogConfig:
        """What phase 1's log needs to know."""

        def limit(name: str) -> int | None:
            value = self.number(name)
            return None if value < 0 else value

        return LogConfig(
            segment_bytes=self.number("segment.bytes"),
            segment_ms=self.number("segment.ms"),
            retention_bytes=limit("retention.bytes"),
            retention_ms=limit("retention.ms"),
            max_message_bytes=self.number("max.message.bytes"),
            index_interval_bytes=self.number("index.interval.bytes"),
            max_index_bytes=self.number("segment.index.bytes"),
            flush_policy="never",  # the broker decides when: see `partition`
        )


def setting(name: str) -> Setting:
    """The setting of this name. Raises BadConfig."""
    found = SETTINGS.get(name)
    if found is None:
        raise BadConfig(
            f"there is no setting {name!r} here", f"take one of {', '.join(sorted(SETTINGS))}"
        )
    return found
