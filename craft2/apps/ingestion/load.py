"""Load for the service: so many clients, each sends a batch, waits for the answer, sends the next.

All clients are coroutines of one thread, so two hundred of them cost the service's machine little.
A client keeps what was acknowledged to it; that is the service's debt, and whoever reads the queue
afterwards can say whether it was paid.
"""

from __future__ import annotations

import asyncio
import threading
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from craft2.apps.bench.harness import Load
from craft2.apps.ingestion.http_client import BadReply, HttpClient, Reply
from craft2.clock import Clock, SystemClock
from craft2.errors import Craft2Error
from craft2.net import Address

CLIENTS = (20, 50, 100, 200)
REQUESTS = 100  # of each client
PATIENCE = 3
_to_json = msgspec.json.Encoder().encode


class LoadFailed(Craft2Error):
    """The load itself has failed, not the service."""


@dataclass
class Outcome:
    """What the clients saw together.

    acknowledged: (client, number of its request) of each batch that was answered 200.
    """

    latencies_ms: array[float] = field(default_factory=lambda: array("d"))
    failed: Counter[str] = field(default_factory=Counter)
    first_error: str = ""
    acknowledged: set[tuple[str, int]] = field(default_factory=set)
    seconds: float = 0.0

    def load(self) -> Load:
        """As the benchmarks know it."""
        return Load(self.latencies_ms, self.failed, self.first_error, self.seconds)

    def _note(self, client: str, number: int, reply: Reply, ms: float) -> None:
        if reply.status == 200:
            self.latencies_ms.append(ms)
            self.acknowledged.add((client, number))
        else:
            self._fail(f"HTTP {reply.status}", reply.body.decode(errors="replace"))

    def _fail(self, kind: str, words: str) -> None:
        self.failed[kind] += 1
        self.first_error = self.first_error or f"{kind}: {words}"


def batch_of(client: str, number: int, metrics: int) -> bytes:
    """The body of a client's request: its first metric has the number of the request as value."""
    values = [{"name": f"metric-{n}", "value": number + n} for n in range(metrics)]
    return _to_json({"client_id": client, "metrics": values})


async def drive(
    address: Address,
    *,
    clients: int,
    requests: int = REQUESTS,
    metrics: int = 10,
    prefix: str = "client",
    clock: Clock | None = None,
    told: Callable[[Outcome], object] = lambda outcome: None,
) -> Outcome:
    """Let `clients` send `requests` each. A client stops when the service is gone, or has refused
    it `PATIENCE` times in a row.

    metrics: in each request. prefix: of the clients' ids. told: called after each answer.
    """
    clock, outcome = clock or SystemClock(), Outcome()

    async def one(name: str) -> None:
        http, refused = HttpClient(address), 0
        try:
            for number in range(requests):
                body = batch_of(name, number, metrics)
                began = clock.monotonic()
                reply = await http.post("/metrics", body)
                outcome._note(name, number, reply, (clock.monotonic() - began) * 1000)
                told(outcome)
                refused = 0 if reply.status == 200 else refused + 1
                if refused == PATIENCE:
                    break
        except (OSError, BadReply) as error:
            outcome._fail(type(error).__name__, str(error))
        finally:
            http.close()

    began = clock.monotonic()
    await asyncio.gather(*(one(f"{prefix}-{number}") for number in range(clients)))
    outcome.seconds = clock.monotonic() - began
    return outcome


def run_load(address: Address, **how: Any) -> Outcome:
    """`drive`, in a thread and an event loop of its own: a notebook's thread has one already."""
    found: list[Outcome] = []

    def work() -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            found.append(runner.run(drive(address, **how)))

    thread = threading.Thread(target=work, name="load", daemon=True)
    thread.start()
    thread.join()
    if not found:
        raise LoadFailed("the load ended in an error", "see above: its thread has printed it")
    return found[0]


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # such as on Windows
        return None
    return uvloop.new_event_loop
