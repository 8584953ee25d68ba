"""The verbs round the ingestion service: ingest, loadtest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from craft2.apps.ingestion.sinks import PARTITIONS, QueueMode


def register(app: typer.Typer) -> None:
    """Add the verbs to `app`."""
    app.command()(ingest)
    app.command()(loadtest)


def ingest(
    mode: Annotated[QueueMode, typer.Option(help="Which queue keeps the metrics.")],
    root: Annotated[
        Path | None, typer.Option(help="The queue's folder; of the modes file and log.")
    ] = None,
    bootstrap: Annotated[
        str | None, typer.Option(help="host:port of a broker; of the mode kafka.")
    ] = None,
    topic: Annotated[str, typer.Option(help="Of the modes log and kafka.")] = "metrics",
    partitions: Annotated[int, typer.Option(min=1, help="Of a new queue.")] = PARTITIONS,
    host: Annotated[str, typer.Option(help="The address it listens at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Where it listens; 0: any free port.")
    ] = 8080,
    rate_limit: Annotated[
        float, typer.Option(min=0, help="Metrics a second of one client; 0: no limit.")
    ] = 10_000.0,
    with_stdin: Annotated[
        bool, typer.Option("--with-stdin", help="End when standard input does.")
    ] = False,
) -> None:
    """Take batches of metrics over HTTP and keep them in a queue: POST them to /metrics.

    Prints `ready HOST:PORT` when it serves. SIGTERM and Ctrl-C end it in good order.
    """
    from craft2.apps.ingestion.serve import listen, serve
    from craft2.apps.ingestion.sinks import open_sink
    from craft2.net import Address

    listener = listen(Address(host, port))  # before the queue is touched
    sink = open_sink(mode, root=root, bootstrap=bootstrap, topic=topic, partitions=partitions)
    serve(sink, mode, listener, rate_limit=rate_limit, with_stdin=with_stdin)


def loadtest(
    modes: Annotated[
        list[QueueMode] | None, typer.Argument(help="Which queues to compare; default: all.")
    ] = None,
    clients: Annotated[
        str, typer.Option(help="Numbers of clients, with commas.")
    ] = "20,50,100,200",
    requests: Annotated[int, typer.Option(min=1, help="Of each client.")] = 100,
    metrics: Annotated[int, typer.Option(min=1, max=1_000, help="In each request.")] = 10,
    bootstrap: Annotated[
        str | None, typer.Option(help="host:port of a broker; default: one of ours, for the test.")
    ] = None,
    results: Annotated[
        Path, typer.Option(help="Where rows are kept; its disk is the one that is measured.")
    ] = Path("results"),
) -> None:
    """Compare the queues under the same load; exit status 1 if an acknowledged batch is missing."""
    from rich.console import Console

    from craft2.apps.bench.results import Results
    from craft2.apps.bench.scenarios import bench_in
    from craft2.apps.cli_bench import progress
    from craft2.apps.ingestion.loadtest import compare_modes
    from craft2.apps.ingestion.loadtest_table import table

    console = Console()
    with bench_in(results) as bench, progress(console, "loadtest") as bench.say:
        runs = compare_modes(
            bench,
            modes=modes or tuple(QueueMode),
            clients=_numbers(clients),
            requests=requests,
            metrics=metrics,
            bootstrap=bootstrap,
        )
    Results(results).append(bench.rows)
    console.print(table(runs))
    if any(run.audit.lost for run in runs):
        raise typer.Exit(1)


def _numbers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) for part in parts):
        raise typer.BadParameter(f"{text!r} is no list such as 20,50", param_hint="--clients")
    return [int(part) for part in parts]
