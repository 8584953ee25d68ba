"""What docs/ and examples/ say is true: commands run, programs run, every setting is explained."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from craft2.apps.broker_file import read_settings
from craft2.apps.cli import commands
from craft2.apps.cluster_admin import read_status
from phase3_raft.local_broker import LocalBroker

ROOT = Path(__file__).resolve().parents[1]
GUIDE = (ROOT / "docs/operations.md").read_text()
LIMIT_S = 60
APP = commands()
VERBS = typer.main.get_command(APP).commands


def test_broker_yaml_explains_every_setting_and_changes_nothing():
    written = (ROOT / "docs/broker.yaml").read_text()
    made = CliRunner().invoke(APP, ["broker", "--example-config"]).output
    assert written == made, "craft2 broker --example-config > docs/broker.yaml"
    command = VERBS["broker"]
    known = {param.name for param in command.params}
    explained = {name.replace("-", "_") for name in re.findall(r"^#([a-z-]+):", written, re.M)}
    assert known - explained == {"config", "with_stdin", "example_config"}


def test_broker_yaml_can_be_used_when_its_comments_are_taken_away(tmp_path):
    text = (ROOT / "docs/broker.yaml").read_text()
    path = tmp_path / "broker.yaml"
    path.write_text(re.sub(r"^#([a-z-]+:.*)", r"\1", text, flags=re.M))
    command = VERBS["broker"]
    settings = read_settings(path, {param.name for param in command.params})
    defaults = {param.name: param.default for param in command.params}
    assert settings["port"] == 9092
    differ = {name for name, value in settings.items() if value not in (None, [], defaults[name])}
    assert not differ


# The helps.


def verbs(command, *words):
    """All that can be called, and with which words."""
    for name, one in getattr(command, "commands", {}).items():
        yield from verbs(one, *words, name)
    yield words, command


def test_no_help_cuts_a_name_short_in_80_columns():
    for words, command in verbs(typer.main.get_command(APP)):
        told = CliRunner(env={"COLUMNS": "80"}).invoke(APP, [*words, "--help"]).output
        assert max(map(len, told.splitlines())) <= 80
        names = [name for param in command.params for name in param.opts + param.secondary_opts]
        names += [str(param.envvar) for param in command.params if getattr(param, "envvar", None)]
        cut = [name for name in names if name.startswith(("--", "CRAFT2_")) and name not in told]
        assert (words, cut, "…" in told) == (words, [], False)


# The guide.


def commands():
    """Those of the guide, each as words."""
    blocks = re.findall(r"```\n(.*?)```", GUIDE, flags=re.DOTALL)
    return [line.split() for block in blocks for line in block.splitlines()]


def free_range(count):
    for first in range(21_000, 29_000, count):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in range(first, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return first
    pytest.fail("no ports")


def test_the_guides_commands_do_what_it_says(tmp_path):
    port = str(free_range(6))
    with contextlib.ExitStack() as stack:
        said = []

        def run(*words):
            words = [word.replace("19092", port) for word in words]
            command = [sys.executable, "-P", "-m", "craft2.apps.cli", *words[1:]]
            if words[2] not in ("up", "add-broker", "start-broker"):
                done = subprocess.run(
                    command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S
                )
                assert done.returncode == 0, (words, done)
                said.append(done.stdout)
                return
            process = stack.enter_context(
                subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
            )
            stack.callback(process.send_signal, signal.SIGTERM)
            while (line := process.stdout.readline()) != "ready\n":
                assert line, words

        here = [words for words in commands() if words[1] != "broker"]
        assert len(here) == 8
        run(*here[0])
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
        admin.create_topics([NewTopic("flights", 2, 3)])["flights"].result(LIMIT_S)
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}"})
        producer.produce("flights", b"departed")
        assert producer.flush(LIMIT_S) == 0
        for words in here[1:]:
            run(*words)
        assert said[-1].splitlines()[-1].startswith("broker 4 is forgotten")
        assert {one.id for one in read_status(f"127.0.0.1:{port}").brokers} == {1, 2, 3}


def test_the_guides_broker_on_several_machines_has_the_options_that_there_are():
    [words] = [words for words in commands() if words[1] == "broker"]
    command = VERBS["broker"]
    known = {name for param in command.params for name in param.opts}
    assert {word for word in words if word.startswith("--")} <= known
    for verb, option in re.findall(r"`craft2 cluster ([a-z-]+)[^`]*?(--[a-z-]+)", GUIDE):
        verbs = VERBS["cluster"].commands
        assert option in {name for param in verbs[verb].params for name in param.opts}


# The examples.


@pytest.fixture(scope="module")
def numbers():
    """A broker with a topic of a thousand numbers, sent by the first example."""
    with LocalBroker(options=["--group-initial-rebalance-delay-ms", "0"]) as broker:
        text = "".join(f"{n}\n" for n in range(1_000))
        told = example("producer.py", broker.bootstrap_servers, "numbers", text=text)
        assert told == "1000 of 1000 records are in numbers\n"
        yield broker.bootstrap_servers


def example(name, *words, text=""):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name, *words],
        env={"PYTHONPATH": str(ROOT)},
        input=text,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def refused(name, *words):
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name, *words],
        env={"PYTHONPATH": str(ROOT)},
        input="1\n",
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert (done.stdout, "Traceback" in done.stderr) == ("", False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_an_example_says_how_it_is_called(name):
    for words in ((), ("--help",)):
        status, said = refused(name, *words)
        assert (status, said.split(" HOST:PORT ")[0]) == (2, f"usage: python examples/{name}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("producer.py", ("t",)),
        ("consumer.py", ("t", "g")),
        ("backpressure.py", ("t", "g")),
        ("manual_offsets.py", ("t", "no/sums.json")),
    ],
)
def test_an_example_says_that_nobody_answers_at_an_address(name, words):
    status, said = refused(name, "127.0.0.1:1", *words)
    assert status == 1
    assert said.startswith(f"{name}: no broker answers at 127.0.0.1:1")
    assert "NETWORK_EXCEPTION" not in said


@pytest.mark.parametrize("name", ["consumer.py", "backpressure.py"])
def test_a_name_that_no_topic_can_have_is_refused(numbers, name):
    status, said = refused(name, numbers, "bad topic!", "g")
    assert status == 1
    assert said.startswith(f"{name}: 'bad topic!' is not the name of a topic. Fix: use up to 249")


def test_the_consumer_reads_all_once(numbers):
    lines = example("consumer.py", numbers, "numbers", "readers").splitlines()
    assert sorted(int(line.split("\t")[2]) for line in lines) == list(range(1_000))
    assert example("consumer.py", numbers, "numbers", "readers") == ""


def test_offsets_kept_with_the_result_count_every_number_once(numbers, tmp_path):
    for _ in range(2):
        told = example("manual_offsets.py", numbers, "numbers", tmp_path / "sums.json")
        assert told == f"1000 records, sum {sum(range(1_000))}\n"


def test_a_file_that_has_no_sums_of_the_topic_is_refused_and_stays(numbers, tmp_path):
    path = tmp_path / "sums.json"
    for text in ("no JSON", "[]", "{}", '{"topic": "numbers", "sums": [], "next": {"0": 1}}'):
        path.write_text(text)
        status, said = refused("manual_offsets.py", numbers, "numbers", path)
        assert (status, said) == (
            1,
            f"manual_offsets.py: {str(path)!r} is no file of sums. Fix: name another one\n",
        )
        assert path.read_text() == text
    path.write_text('{"topic": "others", "sums": {}, "next": {}}')
    status, said = refused("manual_offsets.py", numbers, "numbers", path)
    assert (status, "has sums of topic 'others', not 'numbers'. Fix: " in said) == (1, True)
    for where in (tmp_path, tmp_path / "no" / "sums.json"):
        status, said = refused("manual_offsets.py", numbers, "numbers", where)
        assert (status, said.endswith(". Fix: name a file of yours\n")) == (1, True)


def test_a_record_that_is_no_number_is_named(numbers, tmp_path):
    example("producer.py", numbers, "words", text="1\ntwo\n")
    status, said = refused("manual_offsets.py", numbers, "words", tmp_path / "sums.json")
    assert status == 1
    assert said.startswith("manual_offsets.py: words-0, offset 1: b'two' is no number. Fix: ")


def test_a_slow_handler_pauses_and_no_record_is_left_out(numbers):
    told = example("backpressure.py", numbers, "numbers", "workers")
    found = re.fullmatch(r"1000 records, (\d+) pauses, at most (\d+) waited\n", told)
    assert found, told
    assert int(found[1]) > 0
    assert int(found[2]) <= 150


# The reference.


@pytest.mark.prove
def test_the_reference_has_a_page_for_every_module_and_no_module_lacks_a_docstring(tmp_path):
    packages = ("phase1_file_queue", "phase2_groups", "phase3_raft", "craft2")
    made = subprocess.run(
        ["make", "-o", "install", "docs", f"API={tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert made.returncode == 0, made.stderr
    for package in packages:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if path.name != "__init__.py":
                assert text.lstrip().startswith(('"""', 'r"""')), path
                page = tmp_path / path.relative_to(ROOT).with_suffix(".html")
                assert page.exists(), page
