"""Pictures of measurements and events, one function each, each a matplotlib figure."""

from craft2.viz.latency import latency_distribution
from craft2.viz.sizes import bytes_by_batch_size
from craft2.viz.skew import partition_skew
from craft2.viz.throughput import throughput_by_clients

__all__ = ["bytes_by_batch_size", "latency_distribution", "partition_skew", "throughput_by_clients"]
