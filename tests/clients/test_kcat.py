"""kcat, librdkafka on the command line: what people reach for to look into a topic."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

pytestmark = [
    pytest.mark.prove,
    pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed"),
]


def kcat(bootstrap, *arguments, text="", status=0):
    done = subprocess.run(
        ["kcat", "-b", bootstrap, "-q", *arguments],
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


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_lines_come_back_with_keys_and_headers(bootstrap, name, codec):
    kcat(bootstrap, "-P", "-t", name, "-K:", "-z", codec, "-H", "source=gate 7", text="a:1\nb:2\n")
    found = kcat(bootstrap, "-C", "-t", name, "-e", "-f", "%k %s %h %o\n")
    assert found == "a 1 source=gate 7 0\nb 2 source=gate 7 1\n"


def test_offsets_are_counted_from_the_end_and_by_time(bootstrap, name):
    kcat(bootstrap, "-P", "-t", name, text="".join(f"{n}\n" for n in range(10)))
    assert kcat(bootstrap, "-C", "-t", name, "-e", "-o", "-3") == "7\n8\n9\n"
    assert kcat(bootstrap, "-C", "-t", name, "-e", "-o", "s@1", "-c", "1") == "0\n"
    assert f"{name} [0] offset 10" in kcat(bootstrap, "-Q", "-t", f"{name}:0:-1")


def test_a_group_goes_on_where_it_was(bootstrap, name):
    kcat(bootstrap, "-P", "-t", name, text="".join(f"{n}\n" for n in range(6)))
    settings = ("-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000")
    first = kcat(bootstrap, *settings, "-c", "4", "-G", name, name)
    second = kcat(bootstrap, *settings, "-c", "2", "-G", name, name)
    assert (first + second).split() == [str(n) for n in range(6)]


def test_a_partition_that_is_not_there_is_told(bootstrap, name):
    kcat(bootstrap, "-P", "-t", name, text="x\n")
    assert "partition 7 does not exist" in kcat(
        bootstrap, "-C", "-t", name, "-p", "7", "-e", status=1
    )
