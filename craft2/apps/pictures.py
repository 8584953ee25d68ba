"""The README's pictures: `make pictures` measures, draws and photographs them again.

    docs/throughput.png    messages a second for 1 to 64 clients, measured by this very run
    docs/consumers.png     messages a second by consumers and partitions, measured too
    docs/broker.png        the broker and Apache Kafka, by partitions, size of requests and clients
    docs/notebook.png      a section of an executed notebook, as a browser shows it

The rows behind the charts go into the results store, like those of `craft2 bench`. Needs Chromium.
"""

# mypy: allow-untyped-calls
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.image
import nbformat
import numpy as np
from nbconvert import HTMLExporter

from craft2.apps.bench import broker_growth
from craft2.apps.bench.broker_growth import measure_growth
from craft2.apps.bench.disk import VALUE
from craft2.apps.bench.groups import HANDLER_S, measure_consumers
from craft2.apps.bench.harness import MakeOperation, closed_loop
from craft2.apps.bench.log import log_clients
from craft2.apps.bench.queue import queue_clients
from craft2.apps.bench.results import Result, Results
from craft2.apps.bench.scenarios import Bench, bench_in
from craft2.errors import Craft2Error
from craft2.viz import rates_by_growth, throughput_by_clients, throughput_by_consumers
from craft2.viz.style import GREY, Chart

NOTEBOOK, SECTION = "05_phase1_on_spark.ipynb", "5."
SIZE = (960, 3000)  # of the browser's window; what is left empty below is cut off
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_CLIENTS, _ROUNDS = (1, 4, 16, 64), 3

Make = Callable[[Path], MakeOperation]
LINES: tuple[tuple[str, Make, int, str], ...] = (
    ("file per message", queue_clients, 1, "every message"),
    ("file per message", partial(queue_clients, fsync=False), 1, "never"),
    ("log", partial(log_clients, size=1), 1, "every batch"),
    ("log, batches of 100", partial(log_clients, size=100), 100, "every batch"),
)


class PicturesError(Craft2Error):
    """A picture cannot be made on this machine."""


def measure(bench: Bench, seconds: float = 0.7) -> list[Result]:
    """Every line of the chart, three times, in turns: a busy minute hits all of them."""
    for _ in range(_ROUNDS):
        for clients in _CLIENTS:
            for backend, make, size, policy in LINES:
                folder = bench.new_folder("pictures")
                os.sync()  # what the one before left to be written is not paid for by this one
                bench.add(
                    closed_loop(make(folder), clients=clients, seconds=seconds),
                    phase=1,
                    backend=backend,
                    scenario="pictures",
                    clients=clients,
                    size_bytes=len(VALUE),
                    messages_per_call=size,
                    acks="written" if policy == "never" else "durable",
                    fsync_policy=policy,
                )
    return bench.rows


def throughput_picture(rows: list[Result]) -> Chart:
    """The chart of the README, with the machine below it."""
    title = "Messages a second, by number of clients"
    chart = throughput_by_clients(rows, title, ("a report on such a queue", 800.0))
    where = f"{_machine(rows)}; a sync takes {rows[0].machine.fsync_ms:.1f} ms"
    chart.axes[0].set_xlabel(f"clients (threads), each waits for its answer\n{where}", fontsize=8)
    return chart


def consumers_picture(rows: list[Result]) -> Chart:
    """The chart of the rows that `measure_consumers` adds, with the machine below it."""
    chart = throughput_by_consumers(rows)
    label = chart.axes[0].get_xlabel()
    what = f"{label}\na handler waits {HANDLER_S * 1000:g} ms for each message; {_machine(rows)}"
    chart.axes[0].set_xlabel(what, fontsize=8)
    return chart


def broker_picture(rows: list[Result]) -> Chart:
    """The chart of the rows that `measure_growth` adds, with the machine below it."""
    panels = {
        broker_growth.SPREAD: "Dealt out one by one",
        broker_growth.BATCHES: "More in each request",
        broker_growth.WAITING: "More clients, which wait",
    }
    chart = rates_by_growth(rows, panels)
    chart.supxlabel(_machine(rows), fontsize=8, color=GREY)
    return chart


def _machine(rows: list[Result]) -> str:
    machine = rows[0].machine
    return f"{machine.cpu}, {machine.cores} cores"


def section_of(notebook: Any, number: str) -> list[Any]:
    """The cells from the heading `## NUMBER ...` to the next such heading."""
    cells: list[Any] = []
    inside = False
    for cell in notebook.cells:
        texts = [cell.source]
        if cell.cell_type == "markdown":  # a heading may stand in the middle of a cell
            texts = re.split(r"(?m)^(?=## )", cell.source)
        for text in texts:
            if text.startswith("## ") and cell.cell_type == "markdown":
                inside = text.startswith(f"## {number}")
            if inside and text:
                cells.append(nbformat.from_dict(cell | {"source": text}))
    if not cells:
        raise PicturesError(f"no section begins with '## {number}'", "name one that is there")
    return cells


def photograph(path: Path, number: str, picture: Path) -> None:
    """A PNG of one section of an executed notebook."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = section_of(notebook, number)
    body, _ = HTMLExporter(embed_images=True).from_notebook_node(notebook)
    with tempfile.TemporaryDirectory(prefix="craft2-pictures-") as scratch:
        page, shot = Path(scratch, "page.html"), Path(scratch, "shot.png")
        page.write_text(body)
        command = [browser(), "--headless", "--disable-gpu", "--hide-scrollbars", "--no-sandbox"]
        command += [f"--screenshot={shot}", f"--window-size={SIZE[0]},{SIZE[1]}", page.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if not shot.is_file():
            last = "\n".join(done.stderr.splitlines()[-3:])
            raise PicturesError(f"{command[0]} took no picture: {last}", "try it by hand")
        matplotlib.image.imsave(picture, without_empty_end(matplotlib.image.imread(shot)))


def without_empty_end(pixels: Any, margin: int = 24) -> Any:
    """The picture (height, width, channels) without the rows of one colour at its end."""
    busy = np.flatnonzero((pixels != pixels[:, :1]).any(axis=(1, 2)))
    return pixels[: busy[-1] + margin] if len(busy) else pixels


def browser(names: Iterable[str] = _BROWSERS) -> str:
    """The path of a Chromium; PicturesError without one."""
    for name in names:
        if path := shutil.which(name):
            return path
    raise PicturesError(
        f"there is no {' or '.join(names)} on PATH",
        "install Chromium (Debian, Ubuntu: apt-get install chromium)",
    )


def main() -> None:
    """Make the pictures, in `docs/` of the folder one is in."""
    docs, notebook = Path("docs"), Path("notebooks", NOTEBOOK)
    try:
        if not notebook.is_file():
            raise PicturesError(f"there is no {notebook} here", "run it in the repository")
        docs.mkdir(exist_ok=True)
        photograph(notebook, SECTION, docs / "notebook.png")
        with bench_in(Path("results")) as bench:
            bench.say = print
            rows = list(measure(bench))
            measure_consumers(bench, _ROUNDS)
            of_groups = len(bench.rows)
            measure_growth(bench)
        Results("results").append(bench.rows)
        throughput_picture(rows).savefig(docs / "throughput.png", dpi=200)
        consumers_picture(bench.rows[len(rows) : of_groups]).savefig(
            docs / "consumers.png", dpi=200
        )
        broker_picture(bench.rows[of_groups:]).savefig(docs / "broker.png", dpi=200)
    except Craft2Error as error:
        sys.exit(f"pictures: {error}")
    for picture in sorted(docs.glob("*.png")):
        print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
