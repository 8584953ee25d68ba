"""`craft2 chaos`: faults on real brokers, under real clients, and a verdict."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to `app`."""
    app.command()(chaos)


def chaos(
    minutes: Annotated[float, typer.Option(min=0, help="How long faults are dealt out.")] = 2.0,
    seed: Annotated[int, typer.Option(help="Decides which fault comes when, and who is hit.")] = 1,
    brokers: Annotated[int, typer.Option(min=3, max=9, help="How many.")] = 3,
    rate: Annotated[float, typer.Option(min=1, help="Messages a second.")] = 400.0,
    faults: Annotated[
        str | None, typer.Option(help="Only these, such as kill,full-disk; see --list-faults.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="The brokers' folder; default: a temporary one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for report.html, timeline.png, chaos.json.")
    ] = None,
    root: Annotated[
        bool, typer.Option(help="Use what only root can do: network namespaces, disks.")
    ] = True,
    list_faults: Annotated[bool, typer.Option("--list-faults", help="Only list them.")] = False,
) -> None:
    """Break brokers while clients use them, mend all, and check that no promise was broken.

    kill -9, stopped processes, cut links, slow and full disks, restarts; idempotent librdkafka
    producers with acks=all and a consumer group. The exit status is 1 if anything that was
    acknowledged is lost, doubled or out of order, or if the cluster does not recover.
    """
    from craft2.apps.chaos.faults import FAULTS
    from craft2.apps.chaos.report import summary, write_report
    from craft2.apps.chaos.run import ChaosError, Plan, run
    from craft2.clock import SystemClock

    if list_faults:
        for name, (about, _) in FAULTS.items():
            typer.echo(f"{name:18}{about}")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was made is removed all the same
    named = tuple(name.strip() for name in (faults or "").split(",") if name.strip())
    if faults is not None and not named:
        raise ChaosError(f"--faults {faults!r} names none", f"take from {', '.join(FAULTS)}")
    folder = data_dir or Path(tempfile.mkdtemp(prefix="craft2-chaos-"))
    try:
        plan = Plan(
            minutes=minutes,
            seed=seed,
            data_dir=folder,
            brokers=brokers,
            rate=rate,
            faults=named,
            root=root,
        )
        outcome = run(plan, SystemClock(), typer.echo)
    finally:
        if data_dir is None:
            shutil.rmtree(folder, ignore_errors=True)
    for line in summary(outcome):
        typer.echo(line)
    if out is not None:
        typer.echo(f"written: {write_report(outcome, out)}")
    raise typer.Exit(0 if outcome.ok else 1)
