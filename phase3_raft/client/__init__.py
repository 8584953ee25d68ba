"""Phase 2's `Producer` and `Consumer` over the network: importing this teaches them `host:port`.

import phase3_raft.client
Producer(ProducerConfig(bootstrap_servers="localhost:9092"))
"""

from __future__ import annotations

from phase2_groups import connect
from phase3_raft.client.network_transport import NetworkTransport

connect.over_network = NetworkTransport

__all__ = ["NetworkTransport"]
