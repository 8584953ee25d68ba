"""`craft2 cluster`: several brokers on this machine, and what a cluster says of itself."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from craft2.apps import cli_cluster_admin, cli_cluster_brokers, cli_cluster_simulate
from craft2.apps.cli_cluster_admin import Bootstrap, DataDir
from craft2.apps.cluster_running import bootstrap_of, check_none_runs, how_to_stop
from craft2.apps.words import counted

if TYPE_CHECKING:
    from craft2.apps.cluster_admin import PartitionStatus
    from phase3_raft.local_cluster import Ended

cluster = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Several brokers that keep copies of each other.",
)

_LOOK_S = 0.5


def register(app: typer.Typer) -> None:
    """Add the verbs to `app`."""
    cli_cluster_brokers.register(cluster)
    cli_cluster_admin.register(cluster)
    cli_cluster_simulate.register(cluster)
    app.add_typer(cluster, name="cluster")


@cluster.command()
def up(
    data_dir: Annotated[Path, typer.Option(help="A folder for each broker is made in it.")],
    brokers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=9,
            help="How many found it: as before in a folder that was used, else 3, "
            "if it is not given.",
        ),
    ] = None,
    base_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_000,
            help="Brokers listen there and at the next ports, their Raft servers behind these; "
            "0: any that are free. As before in a folder that was used, else 19092, if it is not "
            "given.",
        ),
    ] = None,
    replicas: Annotated[
        int, typer.Option(min=1, help="Of a topic that nobody said otherwise about.")
    ] = 3,
    topic_default: Annotated[
        list[str] | None,
        typer.Option(help="name=value: a setting of topics that have none of their own."),
    ] = None,
    metrics_port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65_000,
            help="Serve /metrics for Prometheus there, for broker 1, and at the next ports for the "
            "others; 0: nowhere.",
        ),
    ] = 0,
) -> None:
    """Run brokers, each a process, until Ctrl-C or SIGTERM, which ends them all.

    Then it names the brokers of the folder that still run, since others started them.

    In a folder that was used before they go on, where they were, with those that were added; other
    settings have to be given again. Prints `broker ID pid PID HOST:PORT` for each, then `ready`,
    and a line if one ends.
    """
    import threading

    from phase3_raft.cluster_folder import LOG_FILE, known_voters
    from phase3_raft.local_cluster import LocalCluster

    check_none_runs(data_dir)
    known = known_voters(str(data_dir))
    count = brokers or len(known) or 3
    if base_port is None and not known:
        base_port = 19_092
    options = [word for one in topic_default or () for word in ("--topic-default", one)]
    ending = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: ending.set())
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    with LocalCluster(
        count,
        data_dir,
        base_port=base_port,
        metrics_port=metrics_port,
        replicas=replicas,
        options=options,
    ) as running:
        for number, address in running.addresses.items():
            print(f"broker {number} pid {running.pids[number]} {address}")
        print("ready")
        print(f"what the brokers say is in {data_dir / 'broker-N' / LOG_FILE}", flush=True)
        while not ending.wait(_LOOK_S) and running.pids:
            for number, ended in running.ended().items():
                print(f"broker {number} {_how(ended)}", flush=True)
        none_left = not running.pids
        running.stop_all()
    for number, command in how_to_stop(data_dir).items():
        print(f"broker {number} still runs, since this did not start it; to end it: {command}")
    if none_left:
        print("none of these brokers is left; what was acknowledged is kept: run this again")
        raise typer.Exit(1)


def _how(ended: Ended) -> str:
    if ended.status < 0:
        return f"was ended by {signal.Signals(-ended.status).name}"
    said = ended.said.splitlines() if ended.status else []
    return f"has ended with status {ended.status}" + (f": {said[-1]}" if said else "")


@cluster.command()
def status(
    context: typer.Context,
    bootstrap: Bootstrap = None,
    data_dir: DataDir = None,
    topic: Annotated[str | None, typer.Option(help="Of this topic alone, all partitions.")] = None,
) -> None:
    """Who leads what, and which replicas are in sync. Of the topics that brokers keep for
    themselves, such as __consumer_offsets, a line, and what nobody leads."""
    from rich.console import Console
    from rich.table import Table

    from craft2.apps.cluster_admin import AdminError, read_status

    found = read_status(bootstrap_of(context, bootstrap, data_dir))
    console = Console()
    parts, lines = shown(found.partitions, topic)
    if topic is not None and not parts:
        names = ", ".join(sorted({one.topic for one in found.partitions}))
        fix = f"name one of {names}" if names else "make one: none is there yet"
        raise AdminError(f"there is no topic {topic!r}", fix)
    brokers = Table("broker", "address", "rack", "leads", "replicas", title=found.cluster)
    for one in found.brokers:
        name = f"{one.id} (controller)" if one.id == found.controller else str(one.id)
        brokers.add_row(name, one.address, one.rack or "", str(one.leads), str(one.replicas))
    console.print(brokers)
    if found.controller < 0:
        console.print(
            "[red]no controller: this is what was before it was gone, and nothing can be changed. "
            "Most voters do not run, or cannot be reached: start them.[/red]"
        )
    topics = Table("topic", "partition", "leader", "replicas", "in sync", "missing")
    for part in parts:
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
    if parts:
        console.print(topics)
    for line in lines:
        console.print(line, highlight=False)


def shown(
    partitions: Sequence[PartitionStatus], topic: str | None = None
) -> tuple[list[PartitionStatus], list[str]]:
    """What there is to show: partitions, and lines for those that are not worth one each."""
    if topic is not None:
        return [one for one in partitions if one.topic == topic], []
    own = sorted({one.topic for one in partitions if one.topic.startswith("__")})  # the brokers'
    rows = [one for one in partitions if one.topic not in own or one.leader < 0]
    return rows, [_folded(name, [one for one in partitions if one.topic == name]) for name in own]


def _folded(name: str, partitions: Sequence[PartitionStatus]) -> str:
    missing = [set(one.replicas) - set(one.isr) for one in partitions]
    well = sum(not one for one in missing)
    parts = counted(len(partitions), "partition")
    line = f"{name}: {parts}, {f'{well} with all replicas' if any(missing) else 'all'} in sync"
    for broker, count in sorted(Counter(who for some in missing for who in some).items()):
        line += f"; broker {broker} is missing in {count}"
    return line


def _numbers(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
