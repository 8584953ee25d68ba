"""Figures that were reported for queues of these designs, and the learner's beside them.

Each figure says which rows of the results store answer it, and how to measure it when none does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]  # of the results store

QUEUE, LOG = ("queue", "file per message"), ("log",)
_NOTEBOOK_01 = ("in a terminal (or run notebook 01 to its end)", "craft2 bench queue")
_BENCH_LOG = ("in a terminal", "craft2 bench group-commit")
_MANY_CLIENTS = (
    "in a new cell at the end of notebook 01",
    "measure_clients(Results(results_folder()), clients=(20, 50, 100, 200))",
)


@dataclass(frozen=True)
class Figure:
    """One reported figure."""

    name: str
    reported: str  # in words
    compared: float | None  # the same as a number, where a ratio makes sense
    rows: Callable[[Row], bool]  # which rows are about it
    best: Callable[[Row], Any]  # the row with the largest is taken, the newest of equal ones
    value: Callable[[Row], float | None]
    unit: str
    how: tuple[str, str]  # to measure it: where, and what to run there


@dataclass(frozen=True)
class Line:
    """A figure with the learner's own; `yours` is empty where it was not measured."""

    name: str
    reported: str
    yours: str
    measured: str  # the row it comes from, in words
    ratio: str


def durable(*backends: str, clients: int | None = None) -> Callable[[Row], bool]:
    """Rows of phase 1 whose calls returned only when their message was safe from a power cut."""
    return lambda row: (
        row["phase"] == 1
        and row["backend"].split(",")[0] in backends
        and row["acks"] == "durable"
        and clients in (None, row["clients"])
    )


def _rate(row: Row) -> float:
    return float(row["messages_per_s"])


def _percent_ok(row: Row) -> float:
    return float(100 * row["success_ratio"])


def _many_clients(clients: int, success: float, rate: float) -> Figure:
    return Figure(
        f"File per message, {clients} clients",
        f"{rate:,.0f} messages/s, {success:g} % of calls succeed",
        rate,
        durable(*QUEUE, clients=clients),
        _rate,
        _rate,
        "messages/s",
        _MANY_CLIENTS,
    )


PHASE_1 = (
    Figure(
        "File per message: throughput",
        "about 800 messages/s",
        800,
        durable(*QUEUE),
        _rate,
        _rate,
        "messages/s",
        _NOTEBOOK_01,
    ),
    Figure(
        "File per message: latency of a call",
        "0.70 ms on average",
        None,
        durable(*QUEUE),
        lambda row: (-row["clients"], row["when_ms"]),
        lambda row: row["p50_ms"],
        "ms, the median",
        _NOTEBOOK_01,
    ),
    Figure(
        "File per message: calls that succeed under load",
        "98.7 %",
        None,
        durable(*QUEUE),
        lambda row: (row["clients"], row["when_ms"]),
        _percent_ok,
        "%",
        _NOTEBOOK_01,
    ),
    *(
        _many_clients(*each)
        for each in ((20, 95, 600), (50, 88, 750), (100, 75, 800), (200, 60, 650))
    ),
    Figure(
        "Log: throughput, every message safe",
        "100,000 messages/s and more, for Apache Kafka",
        100_000,
        durable(*LOG),
        _rate,
        _rate,
        "messages/s",
        _BENCH_LOG,
    ),
    Figure(
        "Log: bytes in, one partition",
        "50 MB/s",
        50,
        durable(*LOG),
        lambda row: row["mb_per_s"],
        lambda row: row["mb_per_s"],
        "MB/s",
        _BENCH_LOG,
    ),
    Figure(
        "Log: latency that 99 % of calls do not exceed",
        "10 ms",
        None,
        durable(*LOG),
        lambda row: (row["clients"], row["when_ms"]),
        lambda row: row["p99_ms"],
        "ms",
        _BENCH_LOG,
    ),
)


def lines(figures: Iterable[Figure], rows: Sequence[Row]) -> list[Line]:
    """Each figure with what `rows` (oldest first) have to say about it."""
    return [_line(figure, rows) for figure in figures]


def to_measure(figures: Sequence[Figure], found: Sequence[Line]) -> list[tuple[str, str]]:
    """Where and what to run for those of the figures that have none of the learner's yet."""
    missing = [f.how for f, line in zip(figures, found, strict=True) if not line.yours]
    return list(dict.fromkeys(missing))


def _line(figure: Figure, rows: Sequence[Row]) -> Line:
    about = [row for row in reversed(rows) if figure.rows(row) and figure.value(row) is not None]
    if not about:
        return Line(figure.name, figure.reported, "", "", "")
    row = max(about, key=figure.best)
    value = figure.value(row)
    assert value is not None
    many = "s" if row["clients"] != 1 else ""
    measured = f"{row['backend']}, {row['clients']} client{many}, fsync {row['fsync_policy']}"
    ratio = "" if figure.compared is None else f"{value / figure.compared:.2g} ×"
    yours = f"{short(value)} {figure.unit}"
    if row["success_ratio"] < 1 and figure.value is not _percent_ok:
        yours += f", {_percent_ok(row):.1f} % of calls succeed"
    return Line(figure.name, figure.reported, yours, measured, ratio)


def short(value: float) -> str:
    """A number for people: three digits that count, thousands separated."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
