"""What a broker counts of each API: requests, bytes, errors, and how long replies took.

The time of a request goes into one of some buckets, so that a million of them are fifteen numbers;
from these one can still tell, say, how many replies took longer than 5 ms, or estimate the 99th
percentile.

>>> meter = Meter()
>>> for seconds in (0.0002, 0.0004, 0.03):
...     meter.observe(seconds, received=100, sent=40)
>>> meter.requests, meter.buckets[0], meter.buckets[BUCKETS_S.index(0.05)]
(3, 2, 1)

Source: prometheus.io/docs/concepts/metric_types (histograms).
"""

from __future__ import annotations

from bisect import bisect_left

BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Meter:
    """What is counted of one API.

    buckets: how many replies took up to BUCKETS_S[i] seconds and more than the bound before; the
    last one has those that took longer. Invariant: together they are `requests`.
    """

    __slots__ = ("buckets", "failed", "received", "requests", "seconds", "sent")

    def __init__(self) -> None:
        self.requests = self.received = self.sent = self.failed = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BUCKETS_S) + 1)

    def observe(self, seconds: float, *, received: int, sent: int) -> None:
        """One reply; sizes in bytes."""
        self.requests += 1
        self.received += received
        self.sent += sent
        self.seconds += seconds
        self.buckets[bisect_left(BUCKETS_S, seconds)] += 1
