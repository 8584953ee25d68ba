"""Scenarios: named benchmarks that `craft2 bench` lists and runs.

A scenario is a function in a module of this folder:

    @scenario("disk", "what this disk allows")
    def disk(bench: Bench) -> None:
        load = closed_loop(...)
        bench.add(load, phase=0, backend="bare calls", scenario="append and sync", size_bytes=100)
        bench.compare("queue", "bare calls", pairs, unit="msg/s", target=0.9)

Targets are ratios measured in one run: a ratio says the same on a slow machine and a fast one.
"""

from __future__ import annotations

import importlib
import pkgutil
import statistics
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import craft2.apps.bench
from craft2.apps.bench.harness import (
    BenchError,
    Load,
    Operation,
    Pairs,
    alternate,
    calls_per_second,
)
from craft2.apps.bench.machine import Machine, describe
from craft2.apps.bench.results import Result
from craft2.clock import Clock, SystemClock


@dataclass(frozen=True)
class Comparison:
    """Two contenders in one run."""

    scenario: str
    ours: str
    peer: str
    our_rate: float  # medians, in `unit`
    peer_rate: float
    unit: str
    ratio: float  # the median of the ratios of the pairs
    target: float | None = None  # the least ratio we promise; None where the figure only informs

    @property
    def met(self) -> bool | None:
        """Whether the promise holds; None without one."""
        return None if self.target is None else self.ratio >= self.target


@dataclass
class Bench:
    """What a scenario is given: where to work, how long, and where results go."""

    folder: Path  # an empty folder of its own on the disk under test
    machine: Machine
    quick: bool = False  # a tenth of the time, for a first look
    clock: Clock = field(default_factory=SystemClock)
    say: Callable[[str], None] = lambda text: None  # progress, a line at a time
    run: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    rows: list[Result] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)

    def seconds(self, usual: float) -> float:
        """How long to measure what usually takes `usual` seconds."""
        return usual / 10 if self.quick else usual

    def new_folder(self, name: str) -> Path:
        """A fresh empty folder, under the disk being measured."""
        return Path(tempfile.mkdtemp(dir=self.folder, prefix=f"{name}-"))

    def add(
        self,
        load: Load,
        *,
        phase: int,
        backend: str,
        scenario: str,
        size_bytes: int,
        clients: int = 1,
        messages_per_call: int = 1,
        acks: str = "",
        fsync_policy: str = "",
        notes: str = "",
    ) -> Result:
        """Turn a measured load into a row of the results store, and keep it."""
        messages = len(load.latencies_ms) * messages_per_call
        rate = load.calls_per_s * messages_per_call
        row = Result(
            run=self.run,
            when_ms=self.clock.now_ms(),
            phase=phase,
            backend=backend,
            scenario=scenario,
            clients=clients,
            size_bytes=size_bytes,
            acks=acks,
            fsync_policy=fsync_policy,
            messages=messages,
            seconds=load.seconds,
            messages_per_s=rate,
            mb_per_s=rate * size_bytes / 1e6,
            p50_ms=load.percentile(50),
            p95_ms=load.percentile(95),
            p99_ms=load.percentile(99),
            p999_ms=load.percentile(99.9),
            max_ms=load.percentile(100),
            success_ratio=load.success_ratio,
            notes="; ".join(filter(None, [notes, load.errors()])),
            machine=self.machine,
        )
        self.rows.append(row)
        self.say(f"{scenario}, {backend}, {clients} client(s): {rate:,.0f} msg/s {load.errors()}")
        return row

    def add_total(
        self,
        messages: int,
        seconds: float,
        *,
        phase: int,
        backend: str,
        scenario: str,
        size_bytes: int,
        clients: int = 1,
        acks: str = "",
        fsync_policy: str = "",
        notes: str = "",
    ) -> Result:
        """Keep a row for messages that were timed all together; it has no percentiles."""
        rate = messages / seconds
        row = Result(
            run=self.run,
            when_ms=self.clock.now_ms(),
            phase=phase,
            backend=backend,
            scenario=scenario,
            clients=clients,
            size_bytes=size_bytes,
            acks=acks,
            fsync_policy=fsync_policy,
            messages=messages,
            seconds=seconds,
            messages_per_s=rate,
            mb_per_s=rate * size_bytes / 1e6,
            notes=notes,
            machine=self.machine,
        )
        self.rows.append(row)
        self.say(f"{scenario}, {backend}, {clients} client(s): {rate:,.0f} msg/s")
        return row

    def compare(
        self,
        scenario: str,
        ours: str,
        peer: str,
        pairs: Pairs,
        *,
        unit: str = "msg/s",
        target: float | None = None,
    ) -> Comparison:
        """Keep the outcome of alternated pairs for the table `craft2 bench` prints."""
        comparison = Comparison(
            scenario,
            ours,
            peer,
            statistics.median(pairs.ours),
            statistics.median(pairs.peer),
            unit,
            pairs.ratio,
            target,
        )
        self.comparisons.append(comparison)
        self.say(f"{ours} / {peer} = {pairs.ratio:.2f}")
        return comparison

    def promise(
        self,
        scenario: str,
        what: str,
        rate: Callable[[], float],
        promised: float,
        *,
        unit: str = "msg/s",
        rounds: int = 5,
    ) -> Comparison:
        """Measure a rate beside the one that was promised: the ratio to reach is 1."""
        pairs = alternate(rate, lambda: promised, rounds=rounds)
        return self.compare(scenario, what, "promised", pairs, unit=unit, target=1.0)

    def within(
        self,
        scenario: str,
        what: str,
        seconds: Callable[[], float],
        limit_s: float,
        *,
        rounds: int = 5,
        warmup: int = 1,
    ) -> Comparison:
        """Measure how long something takes beside the longest it may, as rates: 1 / seconds."""
        pairs = alternate(lambda: 1 / seconds(), lambda: 1 / limit_s, rounds=rounds, warmup=warmup)
        peer = f"promised: in {limit_s:g} s"
        return self.compare(scenario, what, peer, pairs, unit="1/s", target=1.0)


@dataclass(frozen=True)
class Scenario:
    """A registered benchmark."""

    name: str
    about: str  # one line
    function: Callable[[Bench], None]


PairsFunction = Callable[[], Sequence[tuple[str, Operation, Operation, float]]]

_REGISTRY: dict[str, Scenario] = {}


def scenario(name: str, about: str) -> Callable[[Callable[[Bench], None]], Callable[[Bench], None]]:
    """Register a function as the scenario `name`."""

    def register(function: Callable[[Bench], None]) -> Callable[[Bench], None]:
        _REGISTRY[name] = Scenario(name, about, function)
        return function

    return register


def scenarios() -> dict[str, Scenario]:
    """All scenarios by name: every module of this folder is imported, and registers its own.

    A module that has a function `pairs` instead, `() -> [(name, ours, peer, target ratio), ...]`
    with two callables that do the same work, is one scenario under the module's name.  A pair may
    be called "encode / aiokafka": what is done, and the peer's name.
    """
    for found in pkgutil.iter_modules(craft2.apps.bench.__path__):
        module = importlib.import_module(f"craft2.apps.bench.{found.name}")
        if hasattr(module, "pairs"):
            about = (module.__doc__ or found.name).strip().splitlines()[0]
            scenario(found.name, about)(partial(compare_pairs, module.pairs))
    return dict(sorted(_REGISTRY.items()))


def compare_pairs(pairs: PairsFunction, bench: Bench) -> None:
    """Time each pair of callables in turn, as calls a second, and compare them."""
    for name, ours, peer, target in pairs():
        seconds = bench.seconds(0.5)

        def rate(work: Operation, seconds: float = seconds) -> float:
            return calls_per_second(work, seconds=seconds, clock=bench.clock)

        measured = alternate(partial(rate, ours), partial(rate, peer), rounds=7)
        what, _, other = name.partition(" / ")
        bench.compare(what, "ours", other or "peer", measured, unit="calls/s", target=target)


def chosen(names: Sequence[str]) -> list[Scenario]:
    """The scenarios of these names, all of them for no name.  Raises `BenchError` for others."""
    known = scenarios()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise BenchError(
            f"no benchmark is called {', '.join(map(repr, unknown))}",
            fix=f"use one of: {', '.join(known)}",
        )
    return [known[name] for name in names] if names else list(known.values())


@contextmanager
def bench_in(folder: Path, *, quick: bool = False) -> Iterator[Bench]:
    """A `Bench` that works in a scratch folder inside `folder`, which is removed afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".bench-") as scratch:
        yield Bench(Path(scratch), describe(folder), quick)
