"""`craft2 cluster`: several brokers on this machine, and what a cluster says of itself."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from craft2.apps import cli_cluster_admin, cli_cluster_simulate

cluster = typer.Typer(no_args_is_help=True, help="Several brokers that keep copies of each other.")

Bootstrap = Annotated[
    str,
    typer.Option(envvar="CRAFT2_BOOTSTRAP", help="host:port of any of its brokers."),
]


_LOOK_S = 0.5


def register(app: typer.Typer) -> None:
    """Add the verbs to `app`."""
    cli_cluster_admin.register(cluster)
    cli_cluster_simulate.register(cluster)
    app.add_typer(cluster, name="cluster")


@cluster.command()
def up(
    data_dir: Annotated[Path, typer.Option(help="A folder for each broker is made in it.")],
    brokers: Annotated[int, typer.Option(min=1, max=9, help="How many.")] = 3,
    base_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65_000,
            help="Brokers listen there and at the next ports, their Raft servers behind these; "
            "0: any that are free.",
        ),
    ] = 19_092,
    replicas: Annotated[
        int, typer.Option(min=1, help="Of a topic that nobody said otherwise about.")
    ] = 3,
    topic_default: Annotated[
        list[str] | None,
        typer.Option(help="name=value: a setting of topics that have none of their own."),
    ] = None,
) -> None:
    """Run brokers, each a process, until Ctrl-C or SIGTERM, which ends them all.

    Prints `broker ID pid PID HOST:PORT` for each, then `ready`, and a line if one ends.
    """
    import signal
    import threading

    from phase3_raft.local_cluster import LocalCluster

    options = [word for one in topic_default or () for word in ("--topic-default", one)]
    ending = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: ending.set())
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    with LocalCluster(
        brokers, data_dir, base_port=base_port, replicas=replicas, options=options
    ) as running:
        for number, address in running.addresses.items():
            print(f"broker {number} pid {running.pids[number]} {address}")
        print("ready", flush=True)
        while not ending.wait(_LOOK_S) and running.pids:
            for number, status in running.ended().items():
                print(f"broker {number} has ended with status {status}", flush=True)
        running.stop_all()


@cluster.command()
def status(bootstrap: Bootstrap) -> None:
    """Who leads what, and which replicas are in sync."""
    from rich.console import Console
    from rich.table import Table

    from craft2.apps.cluster_admin import read_status

    found = read_status(bootstrap)
    console = Console()
    brokers = Table("broker", "address", "rack", "leads", "replicas", title=found.cluster)
    for one in found.brokers:
        name = f"{one.id} (controller)" if one.id == found.controller else str(one.id)
        brokers.add_row(name, one.address, one.rack or "", str(one.leads), str(one.replicas))
    console.print(brokers)
    topics = Table("topic", "partition", "leader", "replicas", "in sync", "missing")
    for part in found.partitions:
        missing = [who for who in part.replicas if who not in part.isr]
        leader = str(part.leader) if part.leader >= 0 else "[red]nobody[/red]"
        topics.add_row(
            part.topic,
            str(part.partition),
            leader,
            _numbers(part.replicas),
            _numbers(part.isr),
            f"[red]{_numbers(missing)}[/red]" if missing else "",
        )
    if found.partitions:
        console.print(topics)


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
