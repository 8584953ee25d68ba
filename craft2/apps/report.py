"""`craft2 report`: one HTML page on what a learner solved and measured.

The page needs nothing else: styles and charts are inside it, it makes no request and runs no
script. Its text comes from `report.html.jinja` beside this file, which escapes all it is given.
What was not measured is said to be missing, with the way to measure it.
"""

from __future__ import annotations

import base64
import io
import statistics
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import jinja2

from craft2.apps.bench.machine import describe
from craft2.apps.bench.results import Results
from craft2.apps.report_figures import PHASE_1, QUEUE, Row, lines, to_measure
from craft2.clock import Clock, SystemClock
from craft2.course.checking import PASSED
from craft2.course.edition import Edition, write_whole
from craft2.course.grade import RECORDED, grade
from craft2.errors import Craft2Error
from craft2.viz import latency_distribution, throughput_by_clients
from craft2.viz.style import Chart

NAME = "report.html"


class ReportError(Craft2Error):
    """The report cannot be written where it should be."""


class Picture(NamedTuple):
    """A chart of the page."""

    title: str
    source: str  # a data: URL


def write_report(edition: Edition, out: Path | None = None, clock: Clock | None = None) -> Path:
    """Grade the edition, read its results store, write the page; returns its path.

    out: a file, or a folder that gets a `report.html`; by default the edition's.

    Raises ReportError if `out` cannot be written. A results file that cannot be read is named in
    the page; the others count.
    """
    out = out or edition.root
    out = out / NAME if out.is_dir() else out
    page = render(edition, list(grade([edition.root])), clock or SystemClock())
    try:
        write_whole(out, page)
    except OSError as error:
        raise ReportError(
            f"the report cannot be written to {str(out)!r}: {error.strerror}",
            "give another place with --out FILE.html",
        ) from error
    return out


def render(edition: Edition, grades: Sequence[dict[str, str]], clock: Clock) -> str:
    """The page, from the rows of `grade` and the results store of the edition."""
    table, problems = Results(edition.root / "results").readable()
    rows: list[Row] = table.to_pylist()
    figures = lines(PHASE_1, rows)
    exercises = [row for row in grades if row["title"] != "prediction"]
    predictions = [row for row in grades if row["title"] == "prediction"]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.jinja").render(
        name=edition.root.name,
        date=f"{datetime.fromtimestamp(clock.now_ms() / 1000):%d %B %Y, %H:%M}",
        exercises=exercises,
        passed=sum(row["status"] == PASSED for row in exercises),
        predictions=predictions,
        recorded=[row for row in predictions if row["status"] == RECORDED],
        figures=figures,
        to_measure=to_measure(PHASE_1, figures),
        pictures=pictures(rows),
        measured_on=machines([row["machine"] for row in rows]),
        here=_words(describe(edition.root, clock)),
        runs=len({row["run"] for row in rows}),
        problems=problems,
    )


def pictures(rows: Sequence[Row]) -> list[Picture]:
    """A chart of throughput for each scenario that tried several numbers of clients, and one of
    the latencies that a single client saw."""
    charts = []
    for scenario in dict.fromkeys(row["scenario"] for row in rows if row["phase"] == 1):
        some = [row for row in rows if row["scenario"] == scenario and row["phase"] in (0, 1)]
        if len({row["clients"] for row in some}) > 1:
            title = f"Throughput by number of clients: {scenario}"
            queue = any(row["backend"] in QUEUE for row in some)
            known = ("reported for such a queue", 800.0) if queue else None
            charts.append((title, throughput_by_clients(some, title, known)))
    alone = [row for row in rows if row["phase"] == 1 and row["clients"] == 1]
    if any(row["p50_ms"] is not None for row in alone):
        title = "Latency by percentile: one client"
        charts.append((title, latency_distribution(alone, title)))
    return [Picture(title, _data_url(chart)) for title, chart in charts]


def machines(described: Sequence[dict[str, Any]]) -> list[str]:
    """The machines of some rows in words, each once, with the median of its times to sync."""
    times: dict[str, list[float]] = {}
    for machine in described:
        times.setdefault(_but_sync(machine), []).append(machine["fsync_ms"])
    return [f"{words}; a sync takes {statistics.median(t):.2f} ms" for words, t in times.items()]


def _words(machine: Any) -> str:
    return machines([{name: getattr(machine, name) for name in machine.__struct_fields__}])[0]


def _but_sync(machine: dict[str, Any]) -> str:
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:g} GB, "
        f"{machine['filesystem']}, {machine['kernel']}, Python {machine['python']}"
    )


def _data_url(chart: Chart) -> str:
    svg = io.BytesIO()
    chart.savefig(svg, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.getvalue()).decode()}"
