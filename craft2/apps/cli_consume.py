"""`craft2 consume`: read a queue as a member of a group, whichever kind of queue it is."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from craft2.apps.ingestion.sources import Source

consume = typer.Typer(
    help="Read a queue as a member of a group: write each message, then commit it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Group = Annotated[str, typer.Argument(help="Whose committed offsets to go on from.")]
Topic = Annotated[str, typer.Argument(help="The topic.")]
To = Annotated[
    Path | None,
    typer.Option(
        "--to",
        help="A file for JSON lines, or a name ending in .parquet for a folder of Parquet files. "
        "Default: JSON lines to standard output.",
    ),
]
UntilEnd = Annotated[
    bool, typer.Option("--until-end", help="Stop when everything there is has been read.")
]


def register(app: typer.Typer) -> None:
    """Add the verbs to `app`."""
    app.add_typer(consume, name="consume")


@consume.command()
def file(
    root: Annotated[Path, typer.Argument(help="The queue's folder.")],
    group: Group,
    partitions: Annotated[
        int | None, typer.Argument(min=1, help="How many the queue must have; default: any.")
    ] = None,
    to: To = None,
    until_end: UntilEnd = False,
) -> None:
    """Read a queue of message files."""
    from craft2.apps.ingestion.sources import FileSource

    _run(FileSource(root, group, partitions), to, until_end)


@consume.command()
def log(
    root: Annotated[Path, typer.Argument(help="The folder that holds TOPIC-0.")],
    topic: Topic,
    group: Group,
    to: To = None,
    until_end: UntilEnd = False,
) -> None:
    """Read a topic whose logs are in a folder."""
    from craft2.apps.ingestion.sources import LogSource

    _run(LogSource(root, topic, group), to, until_end)


@consume.command()
def kafka(
    bootstrap: Annotated[str, typer.Argument(help="host:port of a broker.")],
    topic: Topic,
    group: Group,
    to: To = None,
    until_end: UntilEnd = False,
) -> None:
    """Read a topic of a cluster that speaks Kafka's protocol."""
    from craft2.apps.ingestion.kafka_source import KafkaSource

    _run(KafkaSource(bootstrap, topic, group), to, until_end)


def _run(source: Source, to: Path | None, until_end: bool) -> None:
    """Copy until the end, or until SIGTERM or Ctrl-C: then what is in hand is committed first."""
    from craft2.apps.ingestion.outputs import copy, open_output

    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    try:
        output = open_output(to)
        try:
            count = copy(source, output, until_end=until_end, ending=ending.is_set)
        finally:
            output.close()
    finally:
        source.close()
    print(f"{count:,} messages", file=sys.stderr)
