"""Kafka's record batch, format 2: the one unit that is sent, stored and fetched. (In progress.)"""

from craft2.batch_header import (
    CREATE_TIME,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    NO_PRODUCER,
    NO_TIMESTAMP,
    BatchHeader,
    BatchTooShort,
    Buffer,
    CorruptBatch,
    iter_headers,
    read_header,
    stamp,
    stamp_append_time,
    stamp_into,
    verify,
)

__all__ = [
    "CREATE_TIME",
    "HEADER_SIZE",
    "LOG_APPEND_TIME",
    "LOG_OVERHEAD",
    "NO_PRODUCER",
    "NO_TIMESTAMP",
    "BatchHeader",
    "BatchTooShort",
    "Buffer",
    "CorruptBatch",
    "iter_headers",
    "read_header",
    "stamp",
    "stamp_append_time",
    "stamp_into",
    "verify",
]
