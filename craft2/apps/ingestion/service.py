"""The ingestion service: HTTP in, a queue behind it.

    POST /metrics   a batch of metrics (`metric_batch`); 200 when it is durable
    GET  /metrics   what was counted, for Prometheus
    GET  /health    200 while messages can be stored, 503 with the reason when the last one was not

What a client hears, and what it means for its batch:

    200                 stored: it survives `kill -9`, and a power cut as far as the mode promises
    400, 413, 422       it will never be taken like this; the body says which field, and the fix
    429                 this client is too fast; come back after `Retry-After` seconds
    503                 it could not be made durable; send it again after `Retry-After` seconds
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from craft2.apps.ingestion.metric_batch import MetricBatch, Refusal, message_of, parse
from craft2.apps.ingestion.rate_limit import RateLimiter
from craft2.apps.ingestion.sinks import QueueMode, Sink, SinkUnavailable
from craft2.clock import Clock

MAX_BODY_BYTES = 512 * 1024  # half of what a message may have: times of arrival are added
RATE_LIMIT = 10_000.0  # metrics a second, of one client
TRY_AGAIN_S = 1
_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_to_json = msgspec.json.Encoder().encode


class BodyTooLarge(Refusal):
    """More bytes than the service reads."""

    @property
    def status(self) -> int:
        return 413


class IngestionService:
    """The routes over one sink; `app` is what an HTTP server runs.

    The sink is the service's to close, when the server shuts down.
    """

    def __init__(
        self, sink: Sink, mode: QueueMode, clock: Clock, *, rate_limit: float = RATE_LIMIT
    ) -> None:
        self._sink, self._mode, self._clock = sink, mode, clock
        self._limiter = RateLimiter(rate_limit)
        self._problem: str | None = None  # why the last message was not stored, if it was not
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "craft2_ingest_requests", "Batches, by answer.", ["status"], registry=self._registry
        )
        self._metrics = Counter("craft2_ingest_metrics", "Metrics stored.", registry=self._registry)
        self._waiting = Gauge(
            "craft2_ingest_waiting", "Batches that are being stored.", registry=self._registry
        )
        self._seconds = Histogram(
            "craft2_ingest_store_seconds",
            "From a valid batch to its being durable.",
            buckets=_BUCKETS_S,
            registry=self._registry,
        )
        self.app = Starlette(
            routes=[
                Route("/metrics", self._post, methods=["POST"]),
                Route("/metrics", self._get_metrics, methods=["GET"]),
                Route("/health", self._health, methods=["GET"]),
            ],
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await self._sink.close()  # by now every request has its answer

    async def _post(self, request: Request) -> Response:
        try:
            response = await self._take(await read_body(request))
        except Refusal as refusal:
            response = _error(refusal.status, str(refusal))
        except ClientDisconnect:
            response = Response(status_code=400)  # to nobody
        self._requests.labels(str(response.status_code)).inc()
        return response

    async def _take(self, body: bytes) -> Response:
        batch = parse(body)
        count = len(batch.metrics)
        wait_s = self._limiter.take(batch.client_id, count, self._clock.monotonic())
        if wait_s:
            limit = f"{self._limiter.per_second:g}"
            words = f"client_id {batch.client_id!r} sends more than {limit} metrics a second"
            return _error(429, f"{words}. Fix: wait {wait_s:.3f} s", retry_s=math.ceil(wait_s))
        try:
            with self._waiting.track_inprogress():
                return await self._store(batch)
        except SinkUnavailable as error:
            self._problem = str(error)
            return _error(503, str(error), retry_s=TRY_AGAIN_S)

    async def _store(self, batch: MetricBatch) -> Response:
        began = self._clock.monotonic()
        message = message_of(batch, self._clock.now_ms())
        stored = await self._sink.store(batch.client_id, message)
        self._seconds.observe(self._clock.monotonic() - began)
        self._metrics.inc(len(batch.metrics))
        self._problem = None
        return _json({"accepted": len(batch.metrics)} | stored._asdict())

    async def _get_metrics(self, request: Request) -> Response:
        return Response(generate_latest(self._registry), media_type="text/plain; version=0.0.4")

    async def _health(self, request: Request) -> Response:
        if self._problem is not None:
            return _error(503, self._problem)
        return _json({"status": "ok", "mode": self._mode.value})


async def read_body(request: Request) -> bytes:
    """All of the request's body. Raises BodyTooLarge as soon as that is certain."""
    told = request.headers.get("content-length", "")
    size = int(told) if told.isdecimal() else 0
    chunks = []
    if size <= MAX_BODY_BYTES:
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                break
            chunks.append(chunk)
    if size > MAX_BODY_BYTES:
        raise BodyTooLarge(
            f"the body has {size} bytes or more, and {MAX_BODY_BYTES} are read",
            "send fewer metrics at a time",
        )
    return b"".join(chunks)


def _json(value: object, status: int = 200) -> Response:
    return Response(_to_json(value), status, media_type="application/json")


def _error(status: int, words: str, retry_s: int | None = None) -> Response:
    response = _json({"error": words}, status)
    if retry_s is not None:
        response.headers["Retry-After"] = str(retry_s)
    return response
