"""ApiVersions (key 18), versions 0-3: which APIs are served, in which versions.

The first thing every client asks. Left out: features (KIP-584), which a broker without any may.
"""

from __future__ import annotations

from typing import Any

from phase3_raft.broker import Broker
from phase3_raft.dispatch import Asked
from phase3_raft.schemas import Fields


def handle(broker: Broker, request: Any, asked: Asked) -> Fields:
    """The table of `handlers`."""
    from phase3_raft.handlers import APIS, OF_CLUSTERS

    keys = [
        {
            "api_key": api.key,
            "min_version": api.first if api.advertised_first is None else api.advertised_first,
            "max_version": api.last,
        }
        for api in (APIS if broker.config.quorum is None else [*APIS, *OF_CLUSTERS])
    ]
    return {"error_code": 0, "api_keys": keys, "throttle_time": 0}
