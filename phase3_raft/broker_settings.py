"""Settings of brokers that can be changed while they run, as Kafka's tools do for a move.

Whatever else a broker can be told comes from its command line.

Source: KIP-73 (throttled replication), KIP-226 (dynamic settings); Kafka's `DynamicBrokerConfig`.
"""

from __future__ import annotations

from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import BrokerId
from phase3_raft.topic_config import Setting

FOLLOWER_RATE = "follower.replication.throttled.rate"
FOR_ALL = ""  # the broker whose settings count for those that have none of their own
SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            FOLLOWER_RATE,
            "",
            "bytes a second that this broker fetches for throttled replicas at most",
            least=1,
        ),
        Setting(
            "leader.replication.throttled.rate",
            "",
            "set by Kafka's tools beside the follower's, which counts here",
            least=1,
        ),
    )
}


def follower_rate(image: Image, broker: BrokerId) -> int | None:
    """Bytes a second that a broker may fetch for throttled replicas; None: as fast as it goes."""
    for whose in (str(broker), FOR_ALL):
        value = image.broker_config.get(whose, {}).get(FOLLOWER_RATE)
        if value is not None:
            return int(value)
    return None
