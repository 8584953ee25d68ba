"""The command line `craft2`.

Verbs of the course are here; the queue's and the benchmarks' are in `cli_queue` and `cli_bench`.
Each verb imports what it needs when it runs, so that `craft2 --help` answers at once.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from craft2.apps import (
    cli_bench,
    cli_broker,
    cli_chaos,
    cli_cluster,
    cli_consume,
    cli_ingest,
    cli_peer,
    cli_queue,
    cli_raft,
    cli_simulate,
)
from craft2.errors import Craft2Error

app = typer.Typer(
    help="Learn how Kafka works by building it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its columns cut long names short, and it keeps the ends of our lines
)

Folder = Annotated[
    Path | None,
    typer.Argument(help="the workbook folder; default: the one you are in, or workbook"),
]
ExerciseId = Annotated[str, typer.Argument(help="an exercise, such as 0.1")]


@app.command()
def lab(folder: Folder = None) -> None:
    """Open the workbook in JupyterLab, writing it first when it is missing."""
    from craft2.course.lab import lab as open_lab

    open_lab(folder or _workbook())


@app.command()
def start(folder: Folder = None) -> None:
    """Write a learner's edition into a folder; what is there already is kept."""
    from craft2.course.workbook import start as write_edition

    root = folder or _workbook()
    _say([*write_edition(root), f"next: craft2 lab {root} opens it; craft2 grade grades it"])


@app.command()
def update(folder: Folder = None) -> None:
    """Renew an edition, keeping what the learner wrote."""
    from craft2.course.edition import Edition
    from craft2.course.workbook import update as renew

    _say(renew(Edition.require(folder)))


@app.command()
def grade(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            help="exercises (10.1) and notebooks (10); default: all; and editions, one or many"
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="print CSV, for a class")] = False,
) -> None:
    """Run the checks of exercises and report: passed, failed, not started.

    Exit status 1 unless all of them pass; predictions do not count.
    """
    from craft2.course import grade as grading

    only = [word for word in what or () if re.fullmatch(r"\d+(\.\d+)?", word)]
    folders = [Path(word) for word in what or () if word not in only]
    rows = list(grading.grade(folders or [Path()], only=only))
    if json:
        typer.echo(grading.as_json(rows))
    elif csv:
        typer.echo(grading.as_csv(rows), nl=False)
    else:
        grading.print_table(rows)
    raise typer.Exit(not grading.all_pass(rows))


@app.command()
def report(
    folder: Folder = None,
    out: Annotated[
        Path | None, typer.Option(help="a file or a folder; default: report.html in the workbook")
    ] = None,
) -> None:
    """Write one HTML page: what you solved, your charts, your numbers beside reported ones."""
    from craft2.apps.report import write_report
    from craft2.course.edition import Edition

    typer.echo(f"written: {write_report(Edition.require(folder), out)}")


@app.command()
def hint(exercise: ExerciseId) -> None:
    """The next hint for an exercise."""
    from craft2.course.edition import Edition
    from craft2.course.help import next_hint

    typer.echo(next_hint(Edition.require(), exercise))


@app.command()
def solution(exercise: ExerciseId) -> None:
    """The solution of an exercise: after passing, or when asked for twice."""
    from craft2.course import help as course_help
    from craft2.course.edition import Edition

    typer.echo(course_help.solution(Edition.require(), exercise))


@app.command()
def solve(exercise: ExerciseId) -> None:
    """Write the solution into your file; an attempt is kept beside it."""
    from craft2.course import help as course_help
    from craft2.course.edition import Edition

    typer.echo(course_help.solve(Edition.require(), exercise))


def _workbook() -> Path:
    """The edition the current folder lies in, or `workbook` below the current folder."""
    from craft2.course.edition import WORKBOOK, Edition

    edition = Edition.find()
    return edition.root if edition else Path(WORKBOOK)


def _say(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)


@cache
def commands() -> typer.Typer:
    """All of them."""
    cli_queue.register(app)
    cli_bench.register(app)
    cli_raft.register(app)
    cli_broker.register(app)
    cli_cluster.register(app)
    cli_chaos.register(app)
    cli_ingest.register(app)
    cli_consume.register(app)
    cli_peer.register(app)
    cli_simulate.register(cli_raft.raft)
    return app


def main() -> None:
    """Entry point: our own errors end in one line, not in a traceback."""
    try:
        commands()()
    except Craft2Error as error:
        _end_with(f"craft2: {error}")
    except OSError as error:  # a folder that is a file, a place that cannot be written
        _end_with(f"craft2: {error}. Fix: give another path, or mend this one")


def _end_with(words: str) -> NoReturn:
    """Status 1. A broker's last words are dated: they are a line of its log."""
    from craft2.apps.broker_log import dated

    typer.echo(dated(words) if sys.argv[1:2] == ["broker"] else words, err=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
