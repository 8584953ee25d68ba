"""`craft2 bench`: run benchmarks, print what they found as ratios, keep the rows."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from craft2.apps.bench.results import Result
    from craft2.apps.bench.scenarios import Comparison


def register(app: typer.Typer) -> None:
    """Add the verb `bench` to `app`."""
    app.command("bench")(bench)


def bench(
    names: Annotated[list[str] | None, typer.Argument(help="Which ones; all by default.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of the time, for a first look.")
    ] = False,
    listing: Annotated[bool, typer.Option("--list", help="Only list them.")] = False,
    results: Annotated[
        Path, typer.Option(help="Where rows are kept; its disk is the one that is measured.")
    ] = Path("results"),
) -> None:
    """Run the benchmarks and print their ratios; exit status 1 when a target is missed."""
    from craft2.apps.bench.results import Results
    from craft2.apps.bench.scenarios import bench_in, chosen, scenarios

    console = Console()
    if listing:
        for each in scenarios().values():
            console.print(f"[bold]{each.name:12}[/bold] {each.about}", highlight=False)
        return
    wanted = chosen(names or [])
    with bench_in(results, quick=quick) as run:
        for each in wanted:
            before = len(run.rows)
            try:
                with progress(console, each.name) as run.say:
                    each.function(run)
            finally:  # what was measured before an error, or Ctrl-C, is kept
                Results(results).append(run.rows[before:])
            if run.rows[before:]:
                console.print(rows_table(run.rows[before:]))
    if run.comparisons:
        console.print(comparison_table(run.comparisons))
    if any(each.met is False for each in run.comparisons):
        raise typer.Exit(1)


@contextlib.contextmanager
def progress(console: Console, name: str) -> Iterator[Callable[[str], None]]:
    """A line that says what was measured last, on a terminal; a line each elsewhere."""
    if not console.is_terminal:
        yield lambda text: console.print(f"{name}: {text}", markup=False, highlight=False)
        return
    with console.status(name) as status:
        yield lambda text: status.update(f"{name}: {text}")


def comparison_table(comparisons: list[Comparison]) -> Table:
    """The comparisons, one a line, as a rich table."""
    table = Table("scenario", title="rates: medians; ratio: the median of the ratios, pair by pair")
    for column in ("ours", "peer"):
        table.add_column(column, justify="right")
    for column in ("ratio", "target", "met?"):
        table.add_column(column, justify="right")
    for each in comparisons:
        table.add_row(
            each.scenario,
            f"{each.ours}\n{number(each.our_rate)} {each.unit}",
            f"{each.peer}\n{number(each.peer_rate)} {each.unit}",
            f"{each.ratio:.2f}",
            "" if each.target is None else f"≥ {each.target:g}",
            {None: "", True: "[green]yes[/green]", False: "[bold red]NO[/bold red]"}[each.met],
        )
    return table


def rows_table(rows: list[Result]) -> Table:
    """The rows of one run as a rich table."""
    machine = rows[0].machine
    table = Table(title=f"measured on {machine.cpu}; one fsync takes {machine.fsync_ms:.2f} ms")
    table.add_column("scenario")
    table.add_column("backend")
    for column in ("clients", "msg/s", "MB/s", "p50 ms", "p99 ms", "ok"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.scenario,
            row.backend,
            str(row.clients),
            number(row.messages_per_s),
            number(row.mb_per_s),
            "" if row.p50_ms is None else f"{row.p50_ms:.2f}",
            "" if row.p99_ms is None else f"{row.p99_ms:.2f}",
            f"{row.success_ratio:.1%}",
        )
        if row.notes:
            table.add_row(f"  [dim]{row.notes}[/dim]")
    return table


def number(value: float) -> str:
    """A rate for people: three digits that count, thousands separated."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
