"""Brokers that speak Kafka's protocol, alone or as a cluster.

>>> from phase3_raft import LocalBroker, LocalCluster

These two start real processes, for a notebook's cell or a test. They are imported when they are
asked for: a broker needs neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phase3_raft.local_broker import LocalBroker
    from phase3_raft.local_cluster import LocalCluster

__all__ = ["LocalBroker", "LocalCluster"]


def __getattr__(name: str) -> Any:
    """See PEP 562."""
    if name == "LocalBroker":
        from phase3_raft.local_broker import LocalBroker

        return LocalBroker
    if name == "LocalCluster":
        from phase3_raft.local_cluster import LocalCluster

        return LocalCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
