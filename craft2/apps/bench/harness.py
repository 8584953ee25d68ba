"""How things are measured here: closed loop, open loop, alternated pairs.

- **Closed loop**: N clients, each calls, waits for the answer, calls again.  It answers "how much
  can N such clients get through?".  While the system stalls, nobody calls: a stall costs one slow
  sample a client, and percentiles look better than what users would see.
- **Open loop**: calls are due at a fixed rate, whatever happened to the earlier ones, and latency
  counts from the moment a call was *due*.  A stall of a second at 1,000 calls/s then shows as a
  thousand late calls.  Leaving that out is known as coordinated omission (Gil Tene, "How NOT to
  Measure Latency").
- **Alternated pairs**: A B A B ..., and the ratio of each pair.  A shared machine is faster one
  minute than the next; both halves of a pair see the same minute.

Every latency is kept, so percentiles are exact; every failed call is counted by its kind.  Time
comes from a `Clock`, so that the tests of this file decide how long things take.

>>> from craft2.clock import ManualClock
>>> clock = ManualClock()
>>> load = closed_loop(lambda client: lambda: clock.advance(0.002), calls=5, warmup=0, clock=clock)
>>> load.calls, load.percentile(50), load.calls_per_s
(5, 2.0, 500.0)
"""

from __future__ import annotations

import itertools
import math
import statistics
import threading
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from craft2.clock import Clock, SystemClock
from craft2.errors import Craft2Error

Operation = Callable[[], object]
MakeOperation = Callable[[int], Operation]  # client number, from 0 -> what that client repeats

NOT_SENT = "NotSent"  # the kind of an open loop's calls that were due but never begun


class BenchError(Craft2Error):
    """A benchmark that cannot be run, as opposed to calls that fail while it runs."""


@dataclass
class Samples:
    """What one client saw."""

    latencies_ms: array[float] = field(default_factory=lambda: array("d"))  # of successful calls
    failed: Counter[str] = field(default_factory=Counter)  # by the name of the exception's class
    first_error: str = ""
    end_s: float = 0.0  # when its last call returned

    def call(self, operation: Operation, since_s: float, clock: Clock) -> None:
        """Call once and note the outcome; the latency counts from `since_s`."""
        try:
            operation()
        except Exception as error:
            self.fail(type(error).__name__, f"{type(error).__name__}: {error}")
        else:
            self.latencies_ms.append((clock.monotonic() - since_s) * 1000)

    def fail(self, kind: str, text: str, times: int = 1) -> None:
        self.failed[kind] += times
        self.first_error = self.first_error or text


@dataclass(frozen=True)
class Load:
    """What all clients saw together."""

    latencies_ms: array[float]  # of successful calls, in no particular order
    failed: Counter[str]
    first_error: str
    seconds: float  # from the common start to the last return

    @property
    def calls(self) -> int:
        """All calls, the failed ones too."""
        return len(self.latencies_ms) + self.failed.total()

    @property
    def calls_per_s(self) -> float:
        """Successful calls a second."""
        return len(self.latencies_ms) / self.seconds if self.seconds > 0 else 0.0

    @property
    def success_ratio(self) -> float:
        """Successful calls among all calls; 0 when there was none."""
        return len(self.latencies_ms) / self.calls if self.calls else 0.0

    def percentile(self, percent: float) -> float | None:
        """The latency in ms that `percent` percent of the calls did not exceed; None without calls.

        Nearest rank: always a latency that was measured, never one between two.
        """
        if not self.latencies_ms:
            return None
        ordered = sorted(self.latencies_ms)
        return ordered[max(math.ceil(percent / 100 * len(ordered)) - 1, 0)]

    def errors(self) -> str:
        """The failed calls in words: `3 × DiskFull (first: ...)`; empty when none failed."""
        if not self.failed:
            return ""
        kinds = ", ".join(f"{count} × {kind}" for kind, count in self.failed.most_common())
        return f"{kinds} (first: {self.first_error})"


@dataclass(frozen=True)
class Plan:
    """What each client is to do; goes to client processes as it is."""

    clients: int
    seconds: float
    calls: int | None  # closed loop: at most this many a client
    rate: float | None  # open loop: calls a second, of all clients together
    warmup: int  # calls of each client before the start that are not counted


def closed_loop(
    make_operation: MakeOperation,
    *,
    clients: int = 1,
    seconds: float = math.inf,
    calls: int | None = None,
    warmup: int = 3,
    processes: bool = False,
    clock: Clock | None = None,
) -> Load:
    """Measure `clients` that call, wait, and call again, for `seconds` or `calls` a client.

    `make_operation(client)` is called in the client's own thread or process and returns what it
    repeats; for `processes` it must be importable (defined in a module, not in a notebook).
    Raises `BenchError` when a client cannot start or fails in its warm-up.
    """
    if calls is None and math.isinf(seconds):
        raise BenchError("a closed loop without an end", fix="give seconds, calls, or both")
    plan = Plan(clients, seconds, calls, None, warmup)
    return _run(make_operation, plan, processes, clock or SystemClock())


def open_loop(
    make_operation: MakeOperation,
    *,
    rate: float,
    seconds: float,
    clients: int = 1,
    warmup: int = 3,
    processes: bool = False,
    clock: Clock | None = None,
) -> Load:
    """Measure calls that are due at `rate` a second in all, dealt out to `clients` in turn.

    A client that is late makes its overdue calls at once, each with the latency since it was due.
    What has not begun when twice the `seconds` have passed counts as failed, kind `NotSent`.
    `make_operation` and the errors are as for `closed_loop`.
    """
    plan = Plan(clients, seconds, None, rate, warmup)
    return _run(make_operation, plan, processes, clock or SystemClock())


def _run(make_operation: MakeOperation, plan: Plan, processes: bool, clock: Clock) -> Load:
    if plan.clients < 1:
        raise BenchError(f"{plan.clients} clients cannot load anything", fix="use at least 1")
    if processes:
        from craft2.apps.bench.client import run_processes

        start_s, samples = run_processes(make_operation, plan, clock)
    else:
        start_s, samples = _run_threads(make_operation, plan, clock)
    latencies: array[float] = array("d")
    failed: Counter[str] = Counter()
    for one in samples:
        latencies.extend(one.latencies_ms)
        failed.update(one.failed)
    first = next((one.first_error for one in samples if one.first_error), "")
    return Load(latencies, failed, first, max(one.end_s for one in samples) - start_s)


def _run_threads(
    make_operation: MakeOperation, plan: Plan, clock: Clock
) -> tuple[float, list[Samples]]:
    """One thread a client; all start together once the last has warmed up."""
    start_s = [0.0]
    barrier = threading.Barrier(
        plan.clients, action=lambda: start_s.__setitem__(0, clock.monotonic())
    )
    samples = [Samples() for _ in range(plan.clients)]
    broken: list[BenchError] = []

    def client(number: int) -> None:
        try:
            operation = prepare(make_operation, number, plan)
            barrier.wait()
            repeat(operation, number, plan, start_s[0], clock, samples[number])
        except BenchError as error:
            broken.append(error)
            barrier.abort()
        except threading.BrokenBarrierError:
            pass  # another client could not start; its error is raised below

    threads = [
        threading.Thread(target=client, args=(n,), name=f"client-{n}", daemon=True)
        for n in range(plan.clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise broken[0]
    return start_s[0], samples


def prepare(make_operation: MakeOperation, number: int, plan: Plan) -> Operation:
    """Client `number`'s operation, warmed up.  Raises `BenchError` where that fails."""
    try:
        operation = make_operation(number)
        for _ in range(plan.warmup):
            operation()
    except Exception as error:
        raise BenchError(
            f"client {number} failed before the measurement: {type(error).__name__}: {error}",
            fix="make one call of the operation by itself and see",
        ) from error
    return operation


def repeat(
    operation: Operation, number: int, plan: Plan, start_s: float, clock: Clock, samples: Samples
) -> None:
    """The loop of client `number`, open or closed, from `start_s` on."""
    if plan.rate is None:
        _repeat_closed(operation, plan, start_s, clock, samples)
    else:
        _repeat_open(operation, number, plan, plan.rate, start_s, clock, samples)
    samples.end_s = clock.monotonic()


def _repeat_closed(
    operation: Operation, plan: Plan, start_s: float, clock: Clock, samples: Samples
) -> None:
    end_s = start_s + plan.seconds
    for _ in itertools.count() if plan.calls is None else range(plan.calls):
        now = clock.monotonic()
        if now >= end_s:
            break
        samples.call(operation, now, clock)


def _repeat_open(
    operation: Operation,
    number: int,
    plan: Plan,
    rate: float,
    start_s: float,
    clock: Clock,
    samples: Samples,
) -> None:
    never = threading.Event()
    # Counted in calls, not seconds, so that rounding neither adds a call nor drops one.
    total = round(plan.seconds * rate)
    for turn in range(number, total, plan.clients):
        due_s = start_s + turn / rate
        early_s = due_s - clock.monotonic()
        if early_s > 0:
            clock.wait(never, early_s)
        elif -early_s > plan.seconds and clock.monotonic() > start_s + 2 * plan.seconds:
            left = len(range(turn, total, plan.clients))
            samples.fail(NOT_SENT, f"{NOT_SENT}: the clients fell behind the schedule", left)
            break
        samples.call(operation, due_s, clock)


@dataclass(frozen=True)
class Pairs:
    """The rates of two contenders, measured in turn; a larger rate is better."""

    ours: list[float]
    peer: list[float]

    @property
    def ratios(self) -> list[float]:
        """Ours over the peer's, pair by pair."""
        return [a / b for a, b in zip(self.ours, self.peer, strict=True)]

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)


def alternate(
    ours: Callable[[], float],
    peer: Callable[[], float],
    *,
    rounds: int = 5,
    warmup: int = 1,
) -> Pairs:
    """Measure `ours` and `peer` in turn, `rounds` times, after `warmup` rounds not counted.

    Each returns a rate above zero.  Raises `BenchError` for any other.
    """
    measured: list[tuple[float, float]] = []
    for _ in range(warmup + rounds):
        pair = ours(), peer()
        if min(pair) <= 0:
            raise BenchError(
                f"a rate of {min(pair)} has no ratio", fix="let every contender do some work"
            )
        measured.append(pair)
    kept = measured[warmup:]
    return Pairs([a for a, _ in kept], [b for _, b in kept])


def calls_per_second(work: Operation, *, seconds: float = 0.2, clock: Clock | None = None) -> float:
    """How often `work` runs in a second: whole calls for at least `seconds`, at least one."""
    clock = clock or SystemClock()
    start = now = clock.monotonic()
    count = 0
    while now - start < seconds or count == 0:
        work()
        count += 1
        now = clock.monotonic()
    return count / (now - start)
