"""DescribeCluster (key 60), version 0: the brokers, and which of them is the controller (KIP-700).

Left out: authorised operations.
"""

from __future__ import annotations

from typing import Any

from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields


def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The reply."""
    return {
        "throttle_time": 0,
        "error_code": 0,
        "cluster_id": broker.cluster_id,
        "controller_id": broker.controller_id,
        "brokers": [
            {"broker_id": one.id, "host": one.host, "port": one.port, "rack": one.rack}
            for one in broker.image.brokers.values()
            if not one.fenced
        ],
    }
