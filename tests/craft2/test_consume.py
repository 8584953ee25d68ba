"""`craft2 consume`: three backends, two outputs; written first and committed then."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from craft2.apps.ingestion.load import run_load
from craft2.apps.ingestion.local_service import LocalService
from craft2.apps.ingestion.outputs import JsonLines, OutputError, copy, open_output
from craft2.apps.ingestion.sinks import QueueMode
from craft2.apps.ingestion.sources import FileSource, Row
from craft2.errors import Craft2Error
from phase1_file_queue.partitioned_queue import PartitionedQueue
from phase3_raft.local_broker import LocalBroker

COMMAND = [sys.executable, "-P", "-m", "craft2.apps.cli", "consume"]


def consume(*arguments):
    """(exit status, lines, what it said)"""
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, timeout=60, check=False
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.splitlines(), done.stderr.decode()


@pytest.fixture(scope="module")
def queues(tmp_path_factory):
    """The arguments of `craft2 consume` for a queue of each kind, with 60 batches in it."""
    root = tmp_path_factory.mktemp("queues")
    with LocalBroker(root / "broker") as broker:
        places = {
            QueueMode.FILE: {"root": root / "files"},
            QueueMode.LOG: {"root": root / "logs"},
            QueueMode.KAFKA: {"bootstrap": broker.bootstrap_servers},
        }
        for mode, place in places.items():
            with LocalService(mode, **place) as service:
                outcome = run_load(service.address, clients=6, requests=10, metrics=2)
                assert len(outcome.acknowledged) == 60
        yield {
            "file": lambda group: ("file", root / "files", group, 4),
            "log": lambda group: ("log", root / "logs", "metrics", group),
            "kafka": lambda group: ("kafka", broker.bootstrap_servers, "metrics", group),
        }


def in_order(rows):
    """Whether the rows of each partition have the offsets 0, 1, 2, ..."""
    by_partition = {}
    for partition, offset in rows:
        by_partition.setdefault(partition, []).append(offset)
    return all(offsets == list(range(len(offsets))) for offsets in by_partition.values())


@pytest.mark.parametrize("backend", ["file", "log", "kafka"])
def test_each_backend_gives_every_message_once_and_then_nothing(queues, backend):
    status, lines, said = consume(*queues[backend]("g"), "--until-end")
    assert (status, said) == (0, "60 messages\n")
    rows = [json.loads(line) for line in lines]
    assert in_order((row["partition"], row["offset"]) for row in rows)
    assert {(row["key"], row["value"]["metrics"][0]["value"]) for row in rows} == {
        (f"client-{client}", number) for client in range(6) for number in range(10)
    }
    assert all(row["time_ms"] > 0 for row in rows)
    assert consume(*queues[backend]("g"), "--until-end") == (0, [], "0 messages\n")
    assert len(consume(*queues[backend]("other"), "--until-end")[1]) == 60


def test_the_same_key_is_in_the_same_partition_whatever_the_queue(queues):
    places = []
    for backend, arguments in queues.items():
        rows = [json.loads(line) for line in consume(*arguments("keys"), "--until-end")[1]]
        places.append({row["key"]: row["partition"] for row in rows})
        assert len(places[-1]) == 6, backend
    assert places[0] == places[1] == places[2]


def test_parquet_has_every_message_and_a_file_can_be_appended_to(queues, tmp_path):
    arguments = queues["log"]
    assert consume(*arguments("p"), "--until-end", "--to", tmp_path / "t.parquet")[0] == 0
    table = pq.read_table(tmp_path / "t.parquet")
    assert table.column_names == list(Row._fields)
    assert table.num_rows == 60
    assert json.loads(table["value"][0].as_py())["metrics"]
    for group in ("one", "two"):
        assert consume(*arguments(group), "--until-end", "--to", tmp_path / "t.jsonl")[0] == 0
    assert len((tmp_path / "t.jsonl").read_text().splitlines()) == 120


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_what_it_has_in_hand(queues, number):
    command = [*COMMAND, *map(str, queues["log"](f"s-{number.name}"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        lines = [running.stdout.readline() for _ in range(60)]
        running.send_signal(number)
        rest, said = running.communicate()
    assert (running.returncode, rest, said) == (0, b"", b"60 messages\n")
    assert all(line.endswith(b"\n") for line in lines)
    assert consume(*queues["log"](f"s-{number.name}"), "--until-end")[1] == []


class Dies(Exception):
    pass


def test_who_dies_between_writing_and_committing_sees_the_messages_again(tmp_path):
    with PartitionedQueue(tmp_path / "q", 1) as queue:
        for number in range(5):
            queue.produce(None, b"%d" % number)

    class Reader(FileSource):
        def commit(self):
            raise Dies

    reader, output = Reader(tmp_path / "q", "g"), JsonLines.to(tmp_path / "out.jsonl")
    with pytest.raises(Dies):
        copy(reader, output, until_end=True, ending=lambda: False)
    reader.close()
    again = FileSource(tmp_path / "q", "g")
    assert copy(again, output, until_end=True, ending=lambda: False) == 5
    again.close()
    output.close()
    offsets = [json.loads(line)["offset"] for line in (tmp_path / "out.jsonl").open()]
    assert offsets == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


def test_what_cannot_be_written_is_not_committed(tmp_path):
    with PartitionedQueue(tmp_path / "q", 1) as queue:
        queue.produce(None, b"x")

    class Broken(JsonLines):
        def write(self, rows):
            raise OSError("no space left")

    for output, expected in ((Broken(None, sync=False), None), (open_output(tmp_path / "o"), 1)):
        source = FileSource(tmp_path / "q", "g")
        if expected is None:
            with pytest.raises(OSError, match="no space"):
                copy(source, output, until_end=True, ending=lambda: False)
        else:
            assert copy(source, output, until_end=True, ending=lambda: False) == expected
        source.close()


@pytest.mark.parametrize("torn", [b"", b"{", b'{"a":1', b"x" * 70_000])
def test_a_line_that_was_being_written_is_cut_off(tmp_path, torn):
    path = tmp_path / "out.jsonl"
    for whole in (b"", b'{"a":1}\n', b"y" * 70_000 + b"\n"):
        path.write_bytes(whole + torn)
        output = JsonLines.to(path)
        output.write([Row(0, 7, 5, b"k", b"v")])
        output.close()
        line = b'{"partition":0,"offset":7,"time_ms":5,"key":"k","value":"v"}\n'
        assert path.read_bytes() == whole + line


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b"12", 12),
        (b"plain", "plain"),
        (b'{"a":\n1}', '{"a":\n1}'),
        (b"\xff\x00", {"base64": base64.b64encode(b"\xff\x00").decode()}),
        (None, None),
        (b"[" * 5_000, "[" * 5_000),
    ],
)
def test_any_value_becomes_one_line(tmp_path, value, shown):
    output = JsonLines.to(tmp_path / "o.jsonl")
    output.write([Row(0, 0, 0, None, value)])
    output.close()
    [line] = (tmp_path / "o.jsonl").read_text().splitlines()
    assert json.loads(line)["value"] == shown


def test_what_cannot_be_read_or_written_to_says_why(queues, tmp_path):
    status, _, said = consume("log", tmp_path, "flights", "g")
    assert (status, "there is no topic 'flights'" in said) == (1, True)
    status, _, said = consume("kafka", "127.0.0.1:1", "t", "g")
    assert (status, "no broker answers at 127.0.0.1:1 within 5 s" in said) == (1, True)
    (tmp_path / "a.parquet").write_text("x")
    with pytest.raises(OutputError, match="is a file"):
        open_output(tmp_path / "a.parquet")
    status, _, said = consume(*queues["file"]("g")[:3], 5)
    assert (status, "has 4 partitions, not 5" in said) == (1, True)


def test_a_source_of_another_number_of_partitions_is_refused(queues):
    with pytest.raises(Craft2Error, match="give 4, or leave the number out"):
        FileSource(queues["file"]("x")[1], "x", 5)
