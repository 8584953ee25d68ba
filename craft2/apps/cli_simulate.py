"""`craft2 raft simulate`: thousands of clusters in virtual time, each from its seed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track
from rich.table import Table

if TYPE_CHECKING:
    from craft2.apps.simulate.seeds import Outcome
    from craft2.apps.simulate.trace import Trace

Result = TypeVar("Result")
SAY_S = 5  # seconds from one line of progress to the next, where there is no terminal


def register(raft: typer.Typer) -> None:
    """Add the verb `simulate` to `craft2 raft`."""
    raft.command()(simulate)


def simulate(
    seeds: Annotated[int, typer.Option(help="How many runs.")] = 1_000,
    first_seed: Annotated[int, typer.Option(help="The seed of the first one.")] = 0,
    nodes: Annotated[int, typer.Option(help="Servers of a cluster, 3 to 9.")] = 5,
    bug: Annotated[str | None, typer.Option(help="Plant a mistake, and see it found.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = 2,
    trace: Annotated[
        Path | None, typer.Option(help="The file for a failure's trace, in place of --out's.")
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The folder for a failure's trace, raft-seed-N.json.")
    ] = Path(),
    replay: Annotated[
        Path | None, typer.Option(help="Play a trace again, in place of everything else.")
    ] = None,
    list_bugs: Annotated[bool, typer.Option("--list-bugs", help="Only list the mistakes.")] = False,
) -> None:
    """Run Raft clusters through crashes, partitions and lost messages, in virtual time.

    After every event every rule is checked. If one breaks, the run is made as short as possible,
    printed and kept, and the exit status is 1.
    """
    from craft2.apps.simulate.raft_bugs import BUGS, bug_named
    from craft2.apps.simulate.seeds import run_seeds
    from craft2.apps.simulate.trace import Trace

    console = Console(highlight=False, soft_wrap=True)
    if list_bugs:
        for name, each in BUGS.items():
            console.print(f"[bold]{name:24}[/bold] {each.about}")
        return
    if replay is not None:
        raise typer.Exit(1 if _play(console, Trace.load(replay)) else 0)
    bug_named(bug)
    _check_numbers(seeds, nodes, jobs)
    _make_folder(out)
    begun, counts, spent_s = time.monotonic(), Counter[str](), 0.0
    outcomes = run_seeds(range(first_seed, first_seed + seeds), nodes, bug, jobs)
    for done, outcome in enumerate(shown(console, outcomes, seeds), 1):
        if outcome.broken is not None:
            run = f"run {done:,} of {seeds:,}"
            where = trace or out / f"raft-seed-{outcome.seed}.json"
            _report(console, outcome, run, nodes, bug, where)
            raise typer.Exit(1)
        counts.update(outcome.counts)
        spent_s += outcome.seconds
    took_s = time.monotonic() - begun
    planted = f" that {BUGS[bug].about}" if bug else ""
    console.print(
        f"{seeds:,} seeds of {nodes} servers in {took_s:.1f} s: no rule was broken{planted}"
    )
    console.print(_summary(counts, spent_s))


def _check_numbers(seeds: int, nodes: int, jobs: int) -> None:
    """Raises RaftError, with what would do."""
    from phase3_raft.raft.messages import RaftError

    if seeds < 1:
        raise RaftError(f"--seeds {seeds}: that is no run", "give 1 or more")
    if not 3 <= nodes <= 9:
        why = "fewer than 3 survive no fault" if nodes < 3 else "more than 9 are not tried"
        raise RaftError(f"--nodes {nodes}: {why}", "give 3 to 9")
    if jobs < 1:
        raise RaftError(f"--jobs {jobs}: nobody would run them", "give 1 or more")


def _make_folder(folder: Path) -> None:
    """Before anything runs: a failure must not be lost. Raises RaftError."""
    from phase3_raft.raft.messages import RaftError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RaftError(
            f"--out {str(folder)!r} cannot be made: {error.strerror}", "name a folder of yours"
        ) from error


def shown(console: Console, outcomes: Iterable[Result], count: int) -> Iterator[Result]:
    """The outcomes, while it is shown how many there are."""
    if console.is_terminal:
        yield from track(outcomes, "seeds", count, console=console, transient=True)
        return
    said_s = time.monotonic()
    for done, outcome in enumerate(outcomes, 1):
        yield outcome
        if time.monotonic() - said_s > SAY_S:
            said_s = time.monotonic()
            console.print(f"{done:,} of {count:,} seeds")


def _summary(counts: Counter[str], spent_s: float) -> Table:
    """What happened, in two columns: what servers did, and what was done to them."""
    from craft2.apps.simulate.raft_faults import FAULTS

    done = [name for name in counts if name not in FAULTS]
    table = Table.grid(padding=(0, 2))
    for justify in ("right", "left", "right", "left"):
        table.add_column(justify=justify)  # type: ignore[arg-type]
    for place in range(max(len(done), len(FAULTS))):
        row: list[str] = []
        for names in (done, list(FAULTS)):
            name = names[place] if place < len(names) else None
            row += [f"{counts[name]:,}", name] if name else ["", ""]
        table.add_row(*row)
    table.add_row(f"{counts['events'] / spent_s:,.0f}", "events a second and process")
    return table


def _report(
    console: Console,
    outcome: Outcome,
    run: str,
    nodes: int,
    bug: str | None,
    where: Path,
) -> None:
    """What broke, the shortest way there, and how to see it again."""
    from craft2.apps.simulate.shrink import shrunk

    assert outcome.broken is not None
    rule, _ = outcome.broken
    seed = outcome.seed
    events = outcome.counts["events"]
    console.print(
        f"[bold red]{rule}[/bold red] is broken with seed {seed} ({run}), after {events:,} events:"
    )
    with console.status("making it short") as status:
        trace = shrunk(seed, nodes, bug, say=lambda text: status.update(f"making it short: {text}"))
    assert trace is not None, "one seed is one run"
    console.print(f"  {escape(trace.what)}\n")  # in the whole run it may be another operation
    trace.save(where)
    _play(console, trace)
    planted = f" --bug {bug}" if bug else ""
    command = f"craft2 raft simulate --seeds 1 --first-seed {seed} --nodes {nodes}{planted}"
    console.print(f"\nthe whole run again:  {command}")
    console.print(f"this trace is in:     {where.absolute()}")
    console.print(f"this trace again:     craft2 raft simulate --replay {where}")


def _play(console: Console, trace: Trace) -> bool:
    """Print a trace; returns whether it breaks a rule."""
    from craft2.apps.simulate.trace import replay

    story = replay(trace)
    for line in story.telling():
        console.print(escape(line))
    return story.broken is not None
