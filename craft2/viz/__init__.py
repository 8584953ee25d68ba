"""Pictures of measurements and events, one function each, each a matplotlib figure."""

from craft2.viz.consumers import throughput_by_consumers
from craft2.viz.costs import costs_of_guarantees
from craft2.viz.gaps import rates_with_gaps
from craft2.viz.growth import rates_by_growth
from craft2.viz.lanes import Lanes, Mark, Span, lanes_of_group
from craft2.viz.latency import latency_distribution
from craft2.viz.lingering import batches_and_latency
from craft2.viz.moves import moves_by_step
from craft2.viz.over_time import lag_over_time, latency_over_time, rate_over_time
from craft2.viz.player import Player, player
from craft2.viz.segments import SegmentPicture, segment_map
from craft2.viz.sizes import bytes_by_batch_size
from craft2.viz.skew import partition_skew
from craft2.viz.throughput import throughput_by_clients
from craft2.viz.timeline import lane_timeline

__all__ = [
    "Lanes",
    "Mark",
    "Player",
    "SegmentPicture",
    "Span",
    "batches_and_latency",
    "bytes_by_batch_size",
    "costs_of_guarantees",
    "lag_over_time",
    "lane_timeline",
    "lanes_of_group",
    "latency_distribution",
    "latency_over_time",
    "moves_by_step",
    "partition_skew",
    "player",
    "rate_over_time",
    "rates_by_growth",
    "rates_with_gaps",
    "segment_map",
    "throughput_by_clients",
    "throughput_by_consumers",
]
