"""`craft2 cluster simulate`: whole clusters in virtual time, each from its seed."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from craft2.apps.words import counted

if TYPE_CHECKING:
    from craft2.apps.simulate.cluster_seeds import ClusterRun


def register(cluster: typer.Typer) -> None:
    """Add the verb `simulate` to `craft2 cluster`."""
    cluster.command()(simulate)


def simulate(
    seeds: Annotated[int, typer.Option(min=1, help="How many runs.")] = 100,
    first_seed: Annotated[int, typer.Option(help="The seed of the first one.")] = 0,
    bug: Annotated[str | None, typer.Option(help="Plant a mistake, and see it found.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    out: Annotated[
        Path, typer.Option(help="The folder for a failure's story, cluster-seed-N.json.")
    ] = Path(),
    short: Annotated[
        bool, typer.Option(help="Leave out the faults that a failure does not need.")
    ] = True,
    replay: Annotated[
        Path | None, typer.Option(help="Print a story again, in place of everything else.")
    ] = None,
    list_bugs: Annotated[bool, typer.Option("--list-bugs", help="Only list the mistakes.")] = False,
) -> None:
    """Run clusters of three brokers, with clients, through crashes, cuts and pauses.

    The brokers are those of `craft2 broker`, on simulated machines in virtual time. After every
    event every rule is checked. If one breaks, the faults that it needs are found, the story is
    printed and kept, and the exit status is 1.
    """
    from craft2.apps.cli_simulate import shown
    from craft2.apps.simulate.cluster_bugs import BUGS, bug_named
    from craft2.apps.simulate.cluster_seeds import ClusterRun, run_cluster_seeds

    console = Console(highlight=False, soft_wrap=True)
    if list_bugs:
        for name, each in BUGS.items():
            console.print(f"[bold]{name:24}[/bold] {each.about}")
        return
    if replay is not None:
        failed = ClusterRun.load(replay)
        _tell(console, failed)
        raise typer.Exit(1 if failed.is_broken else 0)
    bug_named(bug)
    make_folder(out)
    begun, counts, spent_s = time.monotonic(), Counter[str](), 0.0
    runs = run_cluster_seeds(range(first_seed, first_seed + seeds), bug, jobs)
    for done, run in enumerate(shown(console, runs, seeds), 1):
        if run.is_broken:
            _report(console, run, f"run {done:,} of {seeds:,}", out, short=short)
            raise typer.Exit(1)
        counts.update(run.counts)
        spent_s += run.seconds
    planted = f" though {BUGS[bug].about}" if bug else ""
    took_s = time.monotonic() - begun
    console.print(f"{seeds:,} seeds of 3 brokers in {took_s:.1f} s: no rule was broken{planted}")
    console.print(_summary(counts, spent_s))
    if bug:
        console.print("A bug needs the right faults at the right time: give it more --seeds.")


def make_folder(folder: Path) -> None:
    """Before anything runs: a failure must not be lost. Raises Craft2Error."""
    from craft2.errors import Craft2Error

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Craft2Error(
            f"--out {str(folder)!r} cannot be made: {error.strerror}", "name a folder of yours"
        ) from error


def _summary(counts: Counter[str], spent_s: float) -> Table:
    """What happened, and then what was done to the brokers."""
    from craft2.apps.simulate.cluster_faults import KINDS

    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    for name, count in counts.items():
        if name not in KINDS:
            table.add_row(f"{count:,}", name)
    table.add_row(f"{counts['events'] / spent_s:,.0f}", "events a second and process")
    for name in KINDS:
        table.add_row(f"{counts[name]:,}", f"fault: {name}")
    return table


def _report(console: Console, failed: ClusterRun, run: str, out: Path, *, short: bool) -> None:
    """What broke, the shortest way there, and how to see it again."""
    from craft2.apps.simulate.cluster_seeds import shortened

    console.print(f"[bold red]{failed.rule}[/bold red] is broken with seed {failed.seed} ({run})\n")
    if short:
        with console.status("making it short") as status:
            failed = shortened(failed, say=lambda text: status.update(f"making it short: {text}"))
    where = out / f"cluster-seed-{failed.seed}.json"
    failed.save(where)
    _tell(console, failed)
    planted = f" --bug {failed.bug}" if failed.bug else ""
    again = f"craft2 cluster simulate --seeds 1 --first-seed {failed.seed}{planted}"
    console.print(f"\nthe run again:     {again}")
    console.print(f"this story is in:  {where.absolute()}")
    console.print(f"this story again:  craft2 cluster simulate --replay {where}")


def _tell(console: Console, run: ClusterRun) -> None:
    """The story of a run, a line a moment."""
    left_out = f", {counted(len(run.without), 'other fault')} left out" if run.without else ""
    console.print(f"seed {run.seed}, {counted(len(run.faults), 'fault')}{left_out}")
    for ms, who, what in run.timeline:
        line = f"{ms:>7,} ms  {who:12} {what}"
        style = {"fault": "yellow", "broken": "bold red"}.get(who, "")
        console.print(escape(line), style=style)
