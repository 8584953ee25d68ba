"""No accepted batch is lost, in any mode: real processes, killed under load and started again.

What was acknowledged is compared with what is in the queue afterwards. Batches without an answer
may be there or not.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest

from craft2.apps.ingestion.audit import audit, open_source, stored_batches
from craft2.apps.ingestion.load import run_load
from craft2.apps.ingestion.local_service import LocalService
from craft2.apps.ingestion.sinks import QueueMode
from craft2.local_process import NotStarted
from craft2.net import free_ports
from phase3_raft.local_broker import LocalBroker

CLIENTS, ENOUGH = 8, 60
FAST = ("--rate-limit", "0")


@pytest.fixture(scope="module")
def broker():
    with LocalBroker() as broker:
        yield broker


@pytest.fixture(params=list(QueueMode))
def place(request, tmp_path):
    """(mode, where its queue is) as keywords."""
    if request.param is not QueueMode.KAFKA:
        return {"mode": request.param, "root": tmp_path / "queue"}
    broker = request.getfixturevalue("broker")
    return {"mode": request.param, "bootstrap": broker.bootstrap_servers}


@pytest.fixture
def topic(tmp_path):
    return f"t-{tmp_path.name}"


def service(place, topic, *options):
    return LocalService(**place, options=(*FAST, "--topic", topic, *options))


def load_until(service, end, prefix):
    """What clients saw that send without end, when `end` comes after some acknowledgements."""
    ended = []

    def told(outcome):
        if len(outcome.acknowledged) >= ENOUGH and not ended:
            ended.append(True)
            end()

    return run_load(service.address, clients=CLIENTS, requests=10**6, prefix=prefix, told=told)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_acknowledged_is_there_after_the_service_was_ended(place, topic, number):
    acknowledged = set()
    for life in ("first", "second"):  # the second one opens what the first one left
        with service(place, topic) as running:
            outcome = load_until(running, lambda: running.process.send_signal(number), life)
            status = running.process.wait()
        assert status == {signal.SIGKILL: -9, signal.SIGTERM: 0}[number]
        assert len(outcome.acknowledged) >= ENOUGH
        acknowledged |= outcome.acknowledged
    with service(place, topic) as running:
        outcome = run_load(running.address, clients=2, requests=5, prefix="third")
    assert len(outcome.acknowledged) == 10
    found = audit(
        acknowledged | outcome.acknowledged, stored_batches(open_source(**place, topic=topic))
    )
    assert found.lost == 0, found
    assert found.twice == 0, found
    assert found.unasked <= 2 * CLIENTS
    if number == signal.SIGTERM:
        assert found.unasked == 0, "it answers what it has taken, before it ends"


def test_a_broker_that_is_killed_and_comes_back_costs_no_batch(tmp_path, topic):
    restarts = []
    with LocalBroker(tmp_path / "broker") as broker:
        place = {"mode": QueueMode.KAFKA, "bootstrap": broker.bootstrap_servers}

        def told(outcome):
            if len(outcome.acknowledged) >= ENOUGH and not restarts:
                broker.kill()
                broker.start()
                restarts.append(len(outcome.acknowledged))

        with service(place, topic) as running:
            outcome = run_load(running.address, clients=CLIENTS, requests=50, told=told)
        assert restarts
        assert outcome.load().success_ratio == 1.0, outcome.load().errors()
        found = audit(outcome.acknowledged, stored_batches(open_source(**place, topic=topic)))
    assert found == (CLIENTS * 50, CLIENTS * 50, 0, 0, 0)


# What it says when it cannot even start.


def refused(*arguments):
    """(exit status, what it said) of a service that does not start."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "craft2.apps.cli", "ingest", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, " ".join(done.stderr.replace("│", " ").split())


def test_a_mode_that_does_not_exist_is_named_with_those_that_do(tmp_path):
    status, said = refused("--mode", "redis", "--root", tmp_path)
    assert status == 2
    assert "'redis' is not one of 'file', 'log', 'kafka'" in said


def test_a_port_in_use_is_named_and_the_queue_not_touched(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = refused("--mode", "file", "--root", tmp_path / "q", "--port", port)
    assert status == 1
    assert f"cannot listen at 127.0.0.1:{port}: Address already in use. Fix: choose another" in said
    assert not (tmp_path / "q").exists()


def test_a_bootstrap_where_nobody_answers_is_said_in_bounded_time():
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    status, said = refused("--mode", "kafka", "--bootstrap", nobody, "--port", 0)
    assert status == 1
    assert f"no broker answers at {nobody} within 10 s" in said
    assert "Fix: start one" in said


def test_the_root_of_another_kind_is_refused(tmp_path):
    with LocalService(QueueMode.LOG, root=tmp_path):
        pass
    with pytest.raises(NotStarted, match=r"holds logs, no message files\. Fix: use --mode"):
        LocalService(QueueMode.FILE, root=tmp_path)
