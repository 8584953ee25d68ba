"""The comparison as a table: for each number of clients, the queues one below the other."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from craft2.apps.ingestion.loadtest import Run


def table(runs: Sequence[Run]) -> Table:
    """One line a run; "times the first" compares with the first queue at as many clients."""
    machine = runs[0].row.machine
    found = Table(
        title=f"measured on {machine.cpu}; one fsync takes {machine.fsync_ms:.2f} ms",
        caption="lost: acknowledged and not in the queue afterwards",
    )
    columns = ("clients", "queue", "success", "requests/s", "p50 ms", "p99 ms", "lost")
    first: dict[int, float] = {}
    for name in (*columns, "times the first"):
        found.add_column(name, justify="left" if name == "queue" else "right")
    for number, run in enumerate(runs):
        row = run.row
        base = first.setdefault(row.clients, row.messages_per_s)
        last = number + 1 == len(runs) or runs[number + 1].row.clients != row.clients
        found.add_row(
            f"{row.clients:,}",
            row.backend,
            f"{row.success_ratio:.1%}",
            f"{row.messages_per_s:,.0f}",
            _ms(row.p50_ms),
            _ms(row.p99_ms),
            str(run.audit.lost),
            f"{row.messages_per_s / base:.1f}" if base else "",
            end_section=last,
        )
        if row.success_ratio < 1:
            found.add_row("", f"[dim]{row.notes}[/dim]")
    return found


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
