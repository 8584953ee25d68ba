"""The verbs produce, consume and inspect, as a person types them."""

import subprocess
import sys

import pytest

from craft2.record_batch import encode_values
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog


def craft2(*arguments, stdin=b""):
    command = [sys.executable, "-m", "craft2.apps.cli", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.fixture
def queue(tmp_path):
    status, _, said = craft2("produce", tmp_path / "q", stdin=b"UA\tone\nUA\ttwo\nno key\n")
    assert (status, "3 messages" in said) == (0, True)
    return tmp_path / "q"


@pytest.fixture
def log(tmp_path):
    with PartitionLog(tmp_path / "t-0", LogConfig(segment_bytes=300)) as log:
        for i in range(0, 9, 3):
            values = [b"value %d" % (i + n) for n in range(3)]
            log.append_as_leader(encode_values(values, timestamps=1_357_034_400_000), 0)
    return tmp_path / "t-0"


def test_consume_goes_on_where_the_group_stopped(queue):
    first = craft2("consume", queue, "--group", "g", "--max", 2)[1].splitlines()
    second = craft2("consume", queue, "--group", "g")[1].splitlines()
    assert len(first) == 2
    assert sorted(first + second) == ["0\t0\t\tno key", "2\t0\tUA\tone", "2\t1\tUA\ttwo"]
    assert craft2("consume", queue, "--group", "g")[1] == ""
    assert len(craft2("consume", queue, "--group", "other")[1].splitlines()) == 3


def test_flights_as_messages(tmp_path):
    assert craft2("produce", tmp_path / "q", "--flights", 5, "--partitions", 2)[0] == 0
    lines = craft2("consume", tmp_path / "q")[1].splitlines()
    assert len(lines) == 5
    assert all('"carrier":"' in line for line in lines)


def test_inspect_a_queue_and_a_message(queue):
    craft2("consume", queue, "--group", "g", "--max", 1)
    status, said, _ = craft2("inspect", queue, "--records")
    assert status == 0
    assert ["2", "2", "2"] in [line.split()[:3] for line in said.splitlines()]
    assert "group g: committed" in said
    assert "UA  two" in said
    message = queue / "partition-2/00000001.msg"
    message.write_bytes(message.read_bytes()[:-2])
    status, said, _ = craft2("inspect", message)
    assert status == 1
    assert "damaged" in said


def test_inspect_a_log_its_segments_and_its_records(log):
    status, said, _ = craft2("inspect", log)
    assert status == 0
    assert "0…5" in said
    assert "closed properly" in said
    segment = log / ("0" * 20 + ".log")
    status, said, _ = craft2("inspect", segment)
    assert (status, "3…5" in said, "2013-01-01 10:00:00" in said) == (0, True, True)
    assert "value 4" in craft2("inspect", segment, "--records")[1]


def test_the_hexdump_names_the_fields_and_points_at_a_wrong_crc(log):
    segment = log / ("0" * 20 + ".log")
    status, said, _ = craft2("inspect", segment, "--at", 4)
    assert status == 0
    assert "base offset        3" in said
    assert "right for bytes 21 to" in said
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    before = segment.read_bytes()
    status, said, _ = craft2("inspect", segment, "--at", 4)
    assert status == 1
    assert "<--" in said
    assert "a torn tail" in said
    assert segment.read_bytes() == before  # only looked at
    status, _, complaint = craft2("inspect", log / ("0" * 19 + "6.log"), "--at", 99)
    assert (status, "offset 99 is not in" in complaint) == (1, True)


def test_what_cannot_be_inspected_says_why(tmp_path):
    status, _, said = craft2("inspect", tmp_path)
    assert status == 1
    assert "neither a queue, nor a log" in said
    status, _, said = craft2("consume", tmp_path / "missing")
    assert (status, "is not a queue" in said) == (1, True)
    status, _, said = craft2("produce", tmp_path / "q", stdin=b"\xff\tvalue\n")
    assert (status, "line 1 has a key that is not UTF-8" in said) == (1, True)
