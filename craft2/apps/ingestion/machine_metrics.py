"""Events that never run out: this machine's own load, read from the operating system.

    for key, time_ms, value in metrics(interval_s=1.0, clock=SystemClock(), count=10):
        queue.produce(key, value)

Each reading yields one event a metric, keyed by the metric's name ("cpu-0", "memory", "disk",
"network"), so that each metric keeps its order and metrics spread over the partitions.
"""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import psutil

from craft2.clock import Clock
from craft2.errors import Craft2Error

Values = dict[str, int | float]


class MetricEvent(NamedTuple):
    """One metric of one reading, as a message."""

    key: str  # the metric
    time_ms: int  # when it was read, milliseconds since 1970
    value: bytes  # JSON: host, metric, time_ms, and the numbers


def metrics(interval_s: float, clock: Clock, count: int | None = None) -> Iterator[MetricEvent]:
    """Read this machine every `interval_s` seconds, `count` times (without end if None).

    The first reading comes after one interval: a processor's load is a share of some time.  The
    counters of disk and network are given as differences since the reading before.
    Raises `Craft2Error` for an interval that is not above zero.
    """
    if interval_s <= 0:
        raise Craft2Error(
            f"metrics cannot be read every {interval_s} s", fix="use an interval above zero"
        )
    host = socket.gethostname()
    never = threading.Event()
    psutil.cpu_percent(percpu=True)  # starts the period its next call measures
    before = _counters()
    due_s = clock.monotonic()
    for _ in itertools.count() if count is None else range(count):
        due_s += interval_s
        # Late readings are not made up for by early ones, and do not shift the ones after them.
        clock.wait(never, max(due_s - clock.monotonic(), 0.0))
        now_ms, counters = clock.now_ms(), _counters()
        reading = _levels() | {
            name: {field: value - before[name].get(field, 0) for field, value in values.items()}
            for name, values in counters.items()
        }
        before = counters
        for metric, numbers in reading.items():
            head = {"host": host, "metric": metric, "time_ms": now_ms}
            yield MetricEvent(metric, now_ms, msgspec.json.encode(head | numbers))


def _levels() -> dict[str, Values]:
    """What has a value at any moment."""
    reading: dict[str, Values] = {
        f"cpu-{core}": {"busy_percent": busy}
        for core, busy in enumerate(psutil.cpu_percent(percpu=True))
    }
    memory = psutil.virtual_memory()
    reading["memory"] = {"used_bytes": memory.used, "available_bytes": memory.available}
    return reading


def _counters() -> dict[str, Values]:
    """What only ever grows; a container may have no disk of its own to count."""
    counters: dict[str, Values] = {}
    if disk := psutil.disk_io_counters():
        counters["disk"] = {"read_bytes": disk.read_bytes, "written_bytes": disk.write_bytes}
    if network := psutil.net_io_counters():
        counters["network"] = {
            "received_bytes": network.bytes_recv,
            "sent_bytes": network.bytes_sent,
        }
    return counters
