"""The verbs that work on queues and logs: produce, inspect."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from craft2.errors import Craft2Error

Root = Annotated[Path, typer.Argument(help="the queue's directory")]
REPORT_EVERY_S = 1.0


class BadLine(Craft2Error):
    """A line of input that cannot become a message."""


def register(app: typer.Typer) -> None:
    """Add the verbs to `app`."""
    app.command()(produce)
    app.command()(inspect)


def produce(
    root: Root,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="For a new queue; an old one has its number. Default: 4."),
    ] = None,
    separator: Annotated[
        str, typer.Option(help="What stands between key and value; a line without it has no key.")
    ] = "\t",
    flights: Annotated[
        int, typer.Option(min=0, help="Produce so many flights instead of input.")
    ] = 0,
    fsync: Annotated[bool, typer.Option(help="Return only when safe from a power cut.")] = True,
) -> None:
    """Produce each line of standard input (key, TAB, value) into a queue of message files."""
    from phase1_file_queue.partitioned_queue import PartitionedQueue

    if not separator:
        raise typer.BadParameter(
            "it is empty, and no line can be cut there", param_hint="--separator"
        )
    if partitions is None and (root / "queue.json").exists():
        with PartitionedQueue.existing(root) as found:
            partitions = found.num_partitions
    count, started = 0, time.monotonic()
    reported = started
    with PartitionedQueue(root, partitions or 4, fsync) as queue:
        for key, value, timestamp in _messages(separator, flights):
            queue.produce(key, value, timestamp=timestamp)
            count += 1
            if time.monotonic() - reported > REPORT_EVERY_S and sys.stderr.isatty():
                reported = time.monotonic()
                typer.echo(f"\r{count:,} messages", nl=False, err=True)
        ends = ", ".join(f"{p}: {end}" for p, end in enumerate(queue.end_offsets()))
    seconds = time.monotonic() - started
    typer.echo(f"{count:,} messages in {seconds:.1f} s; next offsets {ends}", err=True)


def _messages(separator: str, flights: int) -> Iterable[tuple[str | None, bytes, int | None]]:
    if flights:
        from craft2.apps.ingestion.flights import flights as read_flights

        for event in read_flights(limit=flights):
            yield event.key, event.value, event.event_time_ms
        return
    for number, line in enumerate(sys.stdin.buffer, 1):
        key, found, value = line.rstrip(b"\n").partition(separator.encode())
        try:
            yield (key.decode(), value, None) if found else (None, key, None)
        except UnicodeDecodeError:
            raise BadLine(
                f"line {number} has a key that is not UTF-8: {key[:40]!r}",
                "give another --separator, or produce from Python",
            ) from None


def inspect(
    path: Annotated[Path, typer.Argument(help="a queue, a log, a .log file or a .msg file")],
    records: Annotated[bool, typer.Option("--records", help="Print every record, too.")] = False,
    at: Annotated[
        int | None, typer.Option(help="Hexdump of the batch with this offset, fields named.")
    ] = None,
) -> None:
    """Show what is inside, and whether it is whole; exit status 1 when something is damaged."""
    from rich.console import Console

    from craft2.apps.inspect import inspect as show

    console = Console(width=None if sys.stdout.isatty() else 160)
    if not show(path, console, records=records, at=at):
        raise typer.Exit(1)
