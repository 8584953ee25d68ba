"""The settings of a partition log, and the errors it raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from craft2.errors import Craft2Error

FlushPolicy = Literal["never", "batch", "interval"]
Access = Literal["exclusive", "shared", "read"]


class LogError(Craft2Error):
    """Base of the log's own errors."""


class BadLogConfig(LogError):
    """A setting with a value that makes no sense."""


class NotALog(LogError):
    """The directory holds something else."""


class BadBatch(LogError):
    """Bytes handed to append that are not one or more valid batches for this place in the log."""


class RecordTooLarge(LogError):
    """A batch larger than `max_message_bytes`."""


class OffsetOutOfRange(LogError):
    """An offset before the log's start or behind its end."""


class LogInUse(LogError):
    """Somebody else has the log open for writing."""


class LogFailed(LogError):
    """A write or sync failed in a way that leaves the file's state unknown; open the log again."""


class CorruptLog(LogError):
    """Damage that no crash explains: it is reported, never skipped and never cut."""


@dataclass(frozen=True)
class LogConfig:
    """How a partition log behaves. Names as in Kafka, in snake case; sizes in bytes.

    segment_bytes, segment_ms: a segment is finished when it would get larger, or when a batch is
        this much later than the segment's first (by the records' own timestamps).
    retention_bytes, retention_ms: `apply_retention` deletes the oldest whole segments while more
        than this would remain, or when their latest record is older (records without timestamps
        are never too old); None keeps everything.
    max_message_bytes: the largest batch that may be appended.
    index_interval_bytes: an index entry at most every so many bytes of log.
    max_index_bytes: room for each index of a segment; when one is full the segment is finished.
    flush_policy: when `append_durably` returns. "batch": when its records are on disk (appends that
        wait together share a sync). "interval": at once, a sync follows within `flush_interval_ms`.
        "never": at once, the operating system writes when it likes.
    access: "exclusive": the only writer, for as long as the log is open. "shared": several writers,
        each append takes a kernel lock. "read": no writer; follows what the writers publish.
    """

    segment_bytes: int = 1024**3
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int | None = None
    retention_ms: int | None = None
    max_message_bytes: int = 1_048_588
    index_interval_bytes: int = 4096
    max_index_bytes: int = 10 * 1024**2
    flush_policy: FlushPolicy = "batch"
    flush_interval_ms: int = 100
    access: Access = "exclusive"

    def __post_init__(self) -> None:
        def require(name: str, good: bool, fix: str) -> None:
            if not good:
                raise BadLogConfig(f"{name} is {getattr(self, name)!r}", fix)

        for name, value in vars(self).items():
            if name not in ("flush_policy", "access"):
                optional = name.startswith("retention") and value is None
                whole = isinstance(value, int) and not isinstance(value, bool)
                require(name, optional or whole, "give a whole number")
        for name in ("segment_bytes", "segment_ms", "flush_interval_ms"):
            require(name, getattr(self, name) > 0, "give a positive number")
        require("max_message_bytes", self.max_message_bytes >= 0, "give 0 or more")
        require("segment_bytes", self.segment_bytes < 2**31, "give less than 2 GiB")
        require("index_interval_bytes", self.index_interval_bytes >= 0, "give 0 or more")
        require("max_index_bytes", self.max_index_bytes >= 24, "give 24 or more")
        for name in ("retention_bytes", "retention_ms"):
            value = getattr(self, name)
            require(name, value is None or value >= 0, "give 0 or more, or None to keep all")
        require(
            "flush_policy",
            self.flush_policy in ("never", "batch", "interval"),
            'give "never", "batch" or "interval"',
        )
        require(
            "access",
            self.access in ("exclusive", "shared", "read"),
            'give "exclusive", "shared" or "read"',
        )
