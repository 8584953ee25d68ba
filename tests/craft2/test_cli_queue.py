"""The verbs produce, consume file and inspect, as a person types them."""

import contextlib
import io
import json
import random
import shutil
import struct
import subprocess
import sys

import pytest
import typer
from crc32c import crc32c
from rich.console import Console
from typer.testing import CliRunner

from craft2.apps import cli_queue
from craft2.apps.inspect import CannotInspect, inspect
from craft2.record_batch import encode_values
from phase1_file_queue.log_config import LogConfig
from phase1_file_queue.partition_log import PartitionLog
from phase1_file_queue.partitioned_queue import PartitionedQueue
from phase2_groups.topics import create_topic


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


def consumed(queue, group="g"):
    """What `craft2 consume file` prints: a list of (partition, offset, key, value)."""
    status, lines, said = craft2("consume", "file", queue, group, "--until-end")
    assert status == 0, said
    return [tuple(json.loads(line)[f] for f in FIELDS) for line in lines.splitlines()]


FIELDS = ("partition", "offset", "key", "value")


def test_consume_goes_on_where_the_group_stopped(queue):
    found = consumed(queue)
    assert sorted(found[1:]) == [(2, 0, "UA", "one"), (2, 1, "UA", "two")]
    assert found[0] == (0, 0, None, "no key")
    assert consumed(queue) == []
    craft2("produce", queue, stdin=b"UA\tthree\n")
    assert consumed(queue) == [(2, 2, "UA", "three")]
    assert len(consumed(queue, "other")) == 4


def test_flights_as_messages(tmp_path):
    assert craft2("produce", tmp_path / "q", "--flights", 5, "--partitions", 2)[0] == 0
    found = consumed(tmp_path / "q")
    assert len(found) == 5
    assert all(value["carrier"] == key for _, _, key, value in found)


def test_inspect_a_queue_and_a_message(queue):
    assert len(consumed(queue)) == 3
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


def test_inspect_lists_the_topics_of_a_folder(tmp_path):
    create_topic(tmp_path, "flights", 3)
    create_topic(tmp_path, "bags", 1)
    (tmp_path / "holiday-0").mkdir()  # no log is in it
    status, said, _ = craft2("inspect", tmp_path)
    assert status == 0
    assert said.splitlines() == ["topic bags: 1 partition", "topic flights: 3 partitions"]
    status, _, error = craft2("inspect", tmp_path / "holiday-0")
    assert (status, "nor a folder of topics" in error) == (1, True)


def test_the_hexdump_names_the_fields_and_points_at_a_wrong_crc(log):
    segment = log / ("0" * 20 + ".log")
    status, said, _ = craft2("inspect", segment, "--at", 4)
    assert status == 0
    assert "base offset        3" in said
    assert "right for bytes 21 to" in said
    status, _, error = craft2("inspect", log, "--at", 4)
    assert (status, "is no segment. Fix: name a .log file" in error) == (1, True)
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


def test_inspect_a_brokers_folder_in_which_its_words_are_too(tmp_path):
    folder = tmp_path / "broker-1"
    create_topic(folder, "holiday", 1)
    (folder / "broker.log").write_text("craft2: a line\n")
    status, said, _ = craft2("inspect", folder)
    assert (status, said) == (0, "topic holiday: 1 partition\n")
    status, _, error = craft2("inspect", tmp_path)
    assert (status, f"look into a broker's: {folder}" in error) == (1, True)
    for more in ((), ("--at", 0)):
        status, _, error = craft2("inspect", folder / "broker.log", *more)
        assert (status, "no segment. Fix: read it as text; a segment's name" in error) == (1, True)


def test_what_cannot_be_inspected_says_why(tmp_path):
    status, _, said = craft2("inspect", tmp_path)
    assert status == 1
    assert "neither a queue, nor a log" in said
    status, _, said = craft2("inspect", tmp_path / "nosuch")
    assert (status, f"nothing is at '{tmp_path}/nosuch'. Fix: " in said) == (1, True)
    status, _, said = craft2("consume", "file", tmp_path / "missing", "g")
    assert (status, "is not a queue" in said) == (1, True)
    status, _, said = craft2("produce", tmp_path / "q", stdin=b"\xff\tvalue\n")
    assert (status, "line 1 has a key that is not UTF-8" in said) == (1, True)
    (tmp_path / "file").write_text("x")
    for arguments, words in [
        (("consume", "file", tmp_path / "file", "g"), "no queue.json"),
        (("produce", tmp_path / "file"), "is a file"),
        (("produce", tmp_path / "file/q"), "is a file"),
        (("consume", "file", tmp_path / "q", "a/b"), "group is 'a/b'"),
        (("consume", "file", tmp_path / "q", "g", 3), "has 4 partitions, not 3"),
    ]:
        status, _, said = craft2(*arguments, stdin=b"a\tb\n")
        assert (status, words in said, "Traceback" in said) == (1, True, False), said


@pytest.mark.parametrize(
    ("verb", "option", "value", "words"),
    [
        ("produce", "--separator", "", "it is empty"),
        ("produce", "--flights", "-1", "-1 is not in the range x>=0"),
        ("produce", "--partitions", "0", "0 is not in the range x>=1"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(tmp_path, verb, option, value, words):
    app = typer.Typer()
    cli_queue.register(app)
    result = CliRunner().invoke(app, [verb, str(tmp_path / "q"), option, value], input="a\tb\n")
    said = " ".join(result.output.replace("│", " ").split())  # it comes in a box, wrapped
    assert (result.exit_code, option in said, words in said) == (2, True, True), said
    assert not (tmp_path / "q").exists()


def look(path, **options):
    """(sound?, what it printed)"""
    screen = io.StringIO()
    sound = inspect(path, Console(file=screen, width=300), **options)
    return sound, screen.getvalue()


@pytest.fixture
def small(tmp_path):
    with PartitionedQueue(tmp_path / "q[bold]", 2, fsync=False) as queue:
        for i in range(6):
            queue.produce(None, f"value {i}")
    group = tmp_path / "q[bold]/consumer_offsets/[nice]"
    group.mkdir(parents=True)
    (group / "partition-0.offset").write_text("2\n")
    (group / "x.offset").write_text("a stranger")
    return tmp_path / "q[bold]"


def test_names_and_contents_are_not_taken_for_markup(small):
    sound, said = look(small, records=True)
    assert sound
    assert "group [nice]: committed 0: 2\n" in said
    assert "partition-1/00000002.msg" in said
    message = small / "partition-0/00000000.msg"
    message.write_bytes(b"[/bold] what")
    sound, said = look(message)
    assert not sound
    assert "q[bold]/partition-0/00000000.msg" in said
    assert "[/bold] what" in said


@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("partition-0/00000001.msg", None, "1 messages are missing, the first is"),
        ("partition-1", None, "partition-1' is missing"),
        ("partition-1/00000000.msg", b"x", "00000000.msg' is damaged"),
        ("partition-1/notes.txt", b"x", "notes.txt' is not a message file"),
        ("partition-1/offset.txt", b"hello", "offset.txt' holds b'hello'"),
        ("partition-1/offset.txt", b"\xff\xfe\x00", "instead of a number"),
        ("partition-1/offset.txt", b"9" * 18, "messages are missing, the first is"),
        ("consumer_offsets/[nice]/partition-0.offset", b"\xff", "instead of a number"),
        ("consumer_offsets/[nice]/partition-1.offset", b"7", "committed 7 of partition 1"),
        ("queue.json", b"\xff[]", "does not describe a queue"),
    ],
)
def test_a_queue_is_sound_only_if_all_of_it_is(small, name, content, words, records):
    if content is not None:
        (small / name).write_bytes(content)
    elif (small / name).is_dir():
        shutil.rmtree(small / name)
    else:
        (small / name).unlink()
    sound, said = look(small, records=records)
    assert (sound, words in said) == (False, True), said
    assert ("value 4" in said) == records


@pytest.mark.parametrize(("which", "words"), [(0, "first"), (1, "follow"), (-1, "recovery point")])
def test_a_log_without_one_of_its_segments_is_not_sound(tmp_path, which, words):
    with PartitionLog(tmp_path / "t-0", LogConfig(segment_bytes=100)) as log:
        for i in range(4):
            log.append_as_leader(encode_values([b"x" * 60], timestamps=i), 0)
    assert look(tmp_path / "t-0")[0]
    sorted((tmp_path / "t-0").glob("*.log"))[which].unlink()
    sound, said = look(tmp_path / "t-0")
    assert (sound, words in said) == (False, True), said


def test_records_that_are_wrong_under_a_right_checksum(tmp_path):
    batch = bytearray(encode_values([b"x" * 40], timestamps=1))
    batch[61:] = b"\xff" * (len(batch) - 61)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    path = tmp_path / ("0" * 20 + ".log")
    path.write_bytes(batch + encode_values([b"good"], timestamps=1, base_offset=1))
    sound, said = look(path, records=True)
    assert (sound, "at byte 0" in said, "good" in said) == (False, True, True)
    assert look(path, at=0)[0]  # the hexdump shows what is there


def test_inspect_survives_any_damage_to_a_segment(tmp_path):
    path = tmp_path / ("0" * 20 + ".log")
    whole = b"".join(encode_values([b"x" * 40] * 3, timestamps=1, base_offset=n) for n in (0, 3, 6))
    for seed in range(300):
        rng = random.Random(seed)
        data = bytearray(whole)
        for _ in range(3):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if seed % 2:  # the damage is under the checksum, so that it gets as far as the records
            struct.pack_into(">I", data, 17, crc32c(bytes(data[21 : len(whole) // 3])))
        path.write_bytes(data[: rng.randrange(len(data))])
        look(path, records=True)
        with contextlib.suppress(CannotInspect):  # says that no batch has this offset
            look(path, at=rng.randrange(9))
        if seed % 10 == 0:
            look(tmp_path)
