"""`craft2 loadtest`: every queue under the same load, a row each, and nothing lost."""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys

import msgspec
from rich.console import Console

from craft2.apps.bench.results import Result, Results
from craft2.apps.ingestion.audit import Audit
from craft2.apps.ingestion.load import PATIENCE, drive
from craft2.apps.ingestion.loadtest import Run
from craft2.apps.ingestion.loadtest_table import table
from craft2.net import Address

COMMAND = [sys.executable, "-P", "-m", "craft2.apps.cli", "loadtest"]


def shown(runs):
    screen = io.StringIO()
    Console(file=screen, width=120).print(table(runs))
    return screen.getvalue()


def test_it_prints_the_queues_side_by_side_and_keeps_the_rows(tmp_path):
    options = ["--clients", "2,4", "--requests", "10", "--results", str(tmp_path)]
    done = subprocess.run(
        [*COMMAND, *options], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "loadtest: log, 4 clients: 40 of 40" in done.stdout
    rows = Results(tmp_path).table().to_pylist()
    assert [(row["clients"], row["backend"], row["phase"]) for row in rows] == [
        (clients, backend, phase)
        for clients in (2, 4)
        for phase, backend in enumerate(["file", "log", "kafka"], 1)
    ]
    for row in rows:
        assert (row["scenario"], row["messages"]) == ("ingest", 10 * row["clients"])
        assert row["success_ratio"] == 1.0
        assert 0 < row["p50_ms"] <= row["p99_ms"]
    lines = [line.split("│")[1:-1] for line in done.stdout.splitlines() if line.startswith("│")]
    found = [[part.strip() for part in line] for line in lines]
    assert [line[:3] for line in found] == [
        [str(row["clients"]), row["backend"], "100.0%"] for row in rows
    ]
    assert {line[6] for line in found} == {"0"}
    assert [path for path in tmp_path.iterdir() if path.suffix != ".parquet"] == []


def test_what_failed_and_what_is_lost_is_in_the_table(tmp_path):
    options = ["--clients", "1", "--requests", "1", "--results", str(tmp_path), "log"]
    subprocess.run([*COMMAND, *options], capture_output=True, timeout=60, check=True)
    [row] = Results(tmp_path).table().to_pylist()
    row = msgspec.convert(row, Result)
    bad = Run(
        msgspec.structs.replace(row, success_ratio=0.5, notes="1 × HTTP 503 (first: full)"),
        Audit(acknowledged=1, stored=0, lost=17, twice=0, unasked=0),
    )
    said = shown([bad])
    assert "50.0%" in said
    assert "1 × HTTP 503" in said
    assert "17" in said


def test_clients_that_are_no_numbers_are_refused():
    for wrong in ("20,x", "", "0"):
        done = subprocess.run(
            [*COMMAND, "--clients", wrong], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2
        assert "no list such as 20,50" in done.stderr


class Refuses(asyncio.Protocol):
    """A service that answers 503, whatever it is asked."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.transport.write(b"HTTP/1.1 503 No\r\nContent-Length: 4\r\n\r\nfull")


def test_a_client_that_is_refused_again_and_again_stops():
    async def refused():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Refuses, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await drive(Address("127.0.0.1", port), clients=2, requests=100)

    outcome = asyncio.run(refused())
    assert outcome.failed == {"HTTP 503": 2 * PATIENCE}
    assert outcome.first_error == "HTTP 503: full"
    assert outcome.load().success_ratio == 0
