"""kcat, librdkafka on the command line: what people reach for to look into a topic.

It has no administrator: it lists, and a topic that it writes to is made. It cannot say when a
record was, nor write an empty value that is not null.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
SOON_S = 60


def kcat(bootstrap, *arguments, text="", status=0):
    done = subprocess.run(
        ["kcat", "-b", bootstrap, *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_it_lists_brokers_and_topics(bootstrap, name):
    kcat(bootstrap, "-P", "-t", name, text="x\n")
    told = json.loads(kcat(bootstrap, "-L", "-J", "-t", name))
    assert [one["topic"] for one in told["topics"]] == [name]
    assert told["topics"][0]["partitions"][0]["leader"] == told["brokers"][0]["id"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_lines_come_back_with_keys_headers_and_nulls(bootstrap, name, codec):
    settings = ("-X", f"compression.codec={codec}", "-H", "source=gate 7", "-Z")
    kcat(bootstrap, "-P", "-t", name, *settings, "-K:", text="a:1\nb:\n")
    kcat(bootstrap, "-P", "-t", name, *settings, text="no key\n")
    found = kcat(bootstrap, "-C", "-t", name, "-e", "-J").splitlines()
    assert [(one["key"], one["payload"], one["offset"]) for one in map(json.loads, found)] == [
        ("a", "1", 0),
        ("b", None, 1),
        (None, "no key", 2),
    ]
    assert {tuple(json.loads(one)["headers"]) for one in found} == {("source", "gate 7")}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_each_kind_of_acknowledgement(bootstrap, name, acks):
    idempotent = ("-X", "enable.idempotence=true") if acks == "all" else ()
    kcat(bootstrap, "-P", "-t", name, text="first\n")
    kcat(bootstrap, "-P", "-t", name, "-X", f"acks={acks}", *idempotent, text="1\n2\n3\n")
    assert kcat(bootstrap, "-C", "-t", name, "-c", "4").split() == ["first", "1", "2", "3"]


def test_large_messages_come_back_and_larger_ones_are_refused(bootstrap, name, tmp_path):
    sizes = {900_000: 0, 2_000_000: 1}
    for size, status in sizes.items():
        (tmp_path / "message").write_text("x" * size)
        settings = ("-X", "message.max.bytes=3000000")
        said = kcat(
            bootstrap, "-P", "-t", name, *settings, str(tmp_path / "message"), status=status
        )
        assert ("Broker: Message size too large" in said) == bool(status)
    assert kcat(bootstrap, "-C", "-t", name, "-e") == "x" * 900_000 + "\n"


def test_offsets_are_counted_from_the_end_and_by_time(bootstrap, name):
    kcat(bootstrap, "-P", "-t", name, text="".join(f"{n}\n" for n in range(10)))
    assert kcat(bootstrap, "-C", "-t", name, "-e", "-o", "-3") == "7\n8\n9\n"
    assert kcat(bootstrap, "-C", "-t", name, "-e", "-o", "s@1", "-c", "1") == "0\n"
    assert f"{name} [0] offset 10" in kcat(bootstrap, "-Q", "-t", f"{name}:0:-1")
    kcat(bootstrap, "-P", "-t", name, text="later\n")
    earlier, later = kcat(bootstrap, "-C", "-t", name, "-e", "-o", "-2", "-f", "%T ").split()
    assert f"{name} [0] offset 10" in kcat(bootstrap, "-Q", "-t", f"{name}:0:{int(earlier) + 1}")
    assert kcat(bootstrap, "-C", "-t", name, "-e", "-o", f"s@{later}") == "later\n"


def test_a_group_goes_on_where_it_was(bootstrap, name):
    kcat(bootstrap, "-P", "-t", name, text="".join(f"{n}\n" for n in range(6)))
    settings = ("-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000")
    first = kcat(bootstrap, *settings, "-c", "4", "-G", name, name)
    second = kcat(bootstrap, *settings, "-c", "2", "-G", name, name)
    assert (first + second).split() == [str(n) for n in range(6)]


@contextmanager
def member(bootstrap, group, *topics):
    """A member of a group. Yields it, and what waits until so much is assigned to it."""
    settings = ("session.timeout.ms=6000", "heartbeat.interval.ms=300")
    settings += ("partition.assignment.strategy=roundrobin",)  # range: each topic begins with one
    options = [part for one in settings for part in ("-X", one)]
    with subprocess.Popen(
        ["kcat", "-b", bootstrap, *options, "-G", group, *topics],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        timer = threading.Timer(SOON_S, process.kill)
        timer.start()

        def assigned(count):
            for line in process.stderr:
                found = re.findall(r"(\S+) \[0\]", line.partition("assigned: ")[2])
                if len(found) == count:
                    return set(found)
            raise AssertionError(f"{count} partitions were not assigned")

        yield process, assigned
        timer.cancel()
        process.terminate()


def test_two_members_share_the_partitions_and_one_takes_over(bootstrap, name):
    topics = {f"{name}-a", f"{name}-b"}
    for topic in topics:
        kcat(bootstrap, "-P", "-t", topic, text="x\n")
    with member(bootstrap, name, *topics) as (first, owned_by_first):
        assert owned_by_first(2) == topics
        with member(bootstrap, name, *topics) as (_, owned_by_second):
            assert owned_by_first(1) | owned_by_second(1) == topics
            first.terminate()
            assert owned_by_second(2) == topics


def test_what_cannot_be_is_told(bootstrap, name):
    assert "Invalid topic" in kcat(bootstrap, "-C", "-t", "a topic", "-e", status=1)
    kcat(bootstrap, "-P", "-t", name, text="x\n")
    reset = ("-X", "auto.offset.reset=error")
    assert "Offset out of range" in kcat(
        bootstrap, "-C", "-t", name, "-o", "1000", "-e", *reset, status=1
    )


def test_a_partition_that_is_not_there_is_told(bootstrap, name):
    kcat(bootstrap, "-P", "-t", name, text="x\n")
    assert "partition 7 does not exist" in kcat(
        bootstrap, "-C", "-t", name, "-p", "7", "-e", status=1
    )
