"""`craft2 peer`: run what we compare ourselves with."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

peer = typer.Typer(help="Run what we compare ourselves with.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the verbs to `app`."""
    app.add_typer(peer, name="peer")


@peer.callback()
def _verbs() -> None:
    pass


@peer.command()
def kafka(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where it listens; 0: any free port.")
    ] = 9092,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where it keeps its data; default: nowhere for long.")
    ] = None,
) -> None:
    """Run Apache Kafka, one node, in the foreground; the first time its jars are fetched.

    Prints `ready HOST:PORT` when it serves. SIGTERM and Ctrl-C end it in good order.
    """
    from craft2.apps.kafka_peer import KafkaPeer

    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with KafkaPeer(data_dir, port=port) as broker:
            typer.echo(f"ready {broker.bootstrap_servers}")
            broker.wait()
    except KeyboardInterrupt:
        pass


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
