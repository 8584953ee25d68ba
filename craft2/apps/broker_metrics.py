"""What a broker counts, for Prometheus: `http://HOST:PORT/metrics`.

The HTTP server is a thread of `prometheus_client`; what it tells is collected in the broker's own
event loop, so nothing changes while it is read.

Source: prometheus.io/docs/instrumenting/exposition_formats
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from craft2.net import Address, NetError
from phase3_raft.broker import Broker
from phase3_raft.metrics import BUCKETS_S
from phase3_raft.topic_config import TopicConfig

_ANSWER_S = 10.0
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


def serve_metrics(broker: Broker, address: Address) -> Callable[[], None]:
    """Serve them from the running loop's broker; returns what ends it. Raises NetError."""
    registry = CollectorRegistry()
    registry.register(_Collector(broker, asyncio.get_running_loop()))
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise NetError(
            f"cannot serve metrics at {address}: {error.strerror or error}", "choose a free port"
        ) from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end


class _Collector(Collector):
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        self._broker, self._loop = broker, loop

    def describe(self) -> Iterable[Family]:
        return ()  # or the registry would collect already when this is registered

    def collect(self) -> Iterable[Family]:
        async def look() -> list[Family]:
            return [
                *_of_apis(self._broker),
                *_of_broker(self._broker),
                *_of_cluster(self._broker),
            ]

        return asyncio.run_coroutine_threadsafe(look(), self._loop).result(_ANSWER_S)


def _of_apis(broker: Broker) -> Iterator[Family]:
    meters = {name: one for name, one in broker.dispatch.meters.items() if one.requests}
    counters = {
        "requests": "Requests answered, by API.",
        "failed": "Requests that closed their connection.",
        "received": "Bytes of requests.",
        "sent": "Bytes of replies.",
    }
    for what, about in counters.items():
        family = CounterMetricFamily(f"craft2_api_{what}", about, labels=["api"])
        for name, meter in broker.dispatch.meters.items():
            if meter.requests or meter.failed:
                family.add_metric([name], getattr(meter, what))
        yield family
    seconds = HistogramMetricFamily(
        "craft2_api_seconds", "From a request's last byte to its reply.", labels=["api"]
    )
    bounds = [*map(str, BUCKETS_S), "+Inf"]
    for name, meter in meters.items():
        counts = accumulate(meter.buckets)  # Prometheus wants: up to this bound
        seconds.add_metric([name], list(zip(bounds, counts, strict=True)), meter.seconds)
    yield seconds


def _of_broker(broker: Broker) -> Iterator[Family]:
    yield GaugeMetricFamily("craft2_connections", "Open now.", value=broker.server.connections)
    yield GaugeMetricFamily("craft2_topics", "Topics.", value=len(broker.image.topics))
    about = {"start": "First offset.", "end": "Next offset.", "bytes": "Size on disk."}
    families = {
        name: GaugeMetricFamily(f"craft2_log_{name}", text, labels=["topic", "partition"])
        for name, text in about.items()
    }
    for (topic, number), partition in broker.partitions.all():
        start, end = partition.log.bounds
        values = {"start": start, "end": end, "bytes": partition.log.size}
        for name, value in values.items():
            families[name].add_metric([topic, str(number)], value)
    yield from families.values()


def _of_cluster(broker: Broker) -> Iterator[Family]:
    """What is worth an alarm, as far as this broker knows."""
    me, image = broker.config.broker_id, broker.image
    led = [one for one in image.partitions() if one.leader == me]
    behind = [one for one in led if len(one.isr) < len(one.replicas)]
    gauges = {
        "offline_partitions": (
            "Partitions of the cluster without a leader.",
            sum(one.leader < 0 for one in image.partitions()),
        ),
        "under_replicated_partitions": (
            "Partitions that this broker leads with fewer in sync than replicas.",
            len(behind),
        ),
        "under_min_isr_partitions": (
            "Partitions that this broker leads with fewer in sync than min.insync.replicas.",
            sum(len(one.isr) < _min_isr(broker, one.topic) for one in led),
        ),
        "controller_known": ("1 if this broker knows who decides.", broker.controller_id >= 0),
        "active_controller": ("1 if this broker decides.", broker.controller_id == me),
        "failed_logs": (
            "Partitions that this broker cannot write any more.",
            sum(one.log.failure is not None for _, one in broker.partitions.all()),
        ),
        "disk_free_bytes": (
            "Free on the disk of the data directory.",
            shutil.disk_usage(broker.config.data_dir).free,
        ),
    }
    for name, (about, value) in gauges.items():
        yield GaugeMetricFamily(f"craft2_{name}", about, value=value)


def _min_isr(broker: Broker, topic: str) -> int:
    settings = {**broker.config.topic_defaults, **broker.image.topics[topic].config}
    return TopicConfig(settings).number("min.insync.replicas")
