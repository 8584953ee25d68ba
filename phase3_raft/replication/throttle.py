"""A limit on how fast new replicas catch up, so that clients still get their share.

A partition that moves is copied as fast as the network goes, unless it is *throttled*: the topic
names the replicas (`follower.replication.throttled.replicas`), the broker has the rate. What was
fetched is a debt, paid off at that rate; while there is one, nothing is fetched for throttled
replicas. Those in sync are never held back, or acks=all would be.

>>> throttle = Throttle()
>>> throttle.fetched(3_000, rate=1_000, now_s=0.0)
>>> throttle.is_in_debt(now_s=2.5), throttle.is_in_debt(now_s=3.0)
(True, False)

Source: KIP-73; Kafka's `ReplicationQuotaManager`, `ReplicaFetcherThread.shouldFollowerThrottle`.
"""

from __future__ import annotations

from phase3_raft.metadata.records import BrokerId
from phase3_raft.partition import Partition

_EVERY = "*"


def is_throttled(partition: Partition, me: BrokerId) -> bool:
    """Whether the copy of it on broker `me` is to be held back."""
    named = partition.config["follower.replication.throttled.replicas"]
    if not named or me in partition.record.isr:
        return False
    return named == _EVERY or f"{partition.record.partition}:{me}" in named.split(",")


class Throttle:
    """See the module. rate: bytes a second."""

    def __init__(self) -> None:
        self._paid_s = 0.0  # when what was fetched so far is paid off

    def fetched(self, size: int, rate: int, now_s: float) -> None:
        """So many bytes came for throttled replicas."""
        self._paid_s = max(self._paid_s, now_s) + size / rate

    def is_in_debt(self, now_s: float) -> bool:
        """Whether nothing more is to be fetched for them yet."""
        return now_s < self._paid_s
