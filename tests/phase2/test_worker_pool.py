"""Real consumer processes: killed, paused, stopped, added; and none outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from pathlib import Path

import psutil
import pytest

from craft2.record_batch import encode_values
from phase2_groups.consumer_config import BadConsumerConfig
from phase2_groups.file_transport import FileTransport, create_topic
from phase2_groups.group_messages import OffsetToCommit
from phase2_groups.worker_pool import WorkerError, WorkerPool

PARTITIONS = 6


@pytest.fixture
def address(tmp_path):
    root = tmp_path / "queue"
    create_topic(root, "t", PARTITIONS)
    with FileTransport(root) as files:
        for number in range(PARTITIONS):
            batch = encode_values([b"%d-%d" % (number, n) for n in range(50)])
            files.produce({("t", number): batch}, acks=1, timeout_ms=1000)
    return f"file:{root}"


def pool(address, tmp_path, **settings):
    return WorkerPool(address, ["t"], "g", folder=tmp_path / "workers", **settings)


def shared_by(workers, *names):
    """All partitions have an owner, and the owners are these."""

    def reached():
        owners = workers.owners()
        return len(owners) == PARTITIONS and set(owners.values()) == set(names)

    return reached


def committed(address):
    with FileTransport(address.removeprefix("file:")) as files:
        partitions = [("t", number) for number in range(PARTITIONS)]
        return sum(found.offset for found in files.committed("g", partitions).values())


def test_the_partitions_of_a_killed_worker_go_to_the_others_and_the_reason_is_on_record(
    address, tmp_path
):
    with pool(address, tmp_path, workers=3, session_timeout_ms=3_000) as workers:
        workers.wait_until(shared_by(workers, "consumer-1", "consumer-2", "consumer-3"))
        workers.kill("consumer-2")
        workers.wait_until(shared_by(workers, "consumer-1", "consumer-3"))
        workers.stop("consumer-1")
        workers.wait_until(shared_by(workers, "consumer-3"))
        assert workers.add() == ["consumer-4"]
        workers.wait_until(shared_by(workers, "consumer-3", "consumer-4"))
        workers.wait_until(lambda: committed(address) == 50 * PARTITIONS)
        assert workers.running() == ["consumer-3", "consumer-4"]
        because = [e.because for e in workers.events() if e.kind == "rebalance-begins"]
    assert because[-3:] == [
        "consumer-2 sent no heartbeat for 3.0 s",
        "consumer-1 left: the consumer was closed",
        "consumer-4 joined",
    ]


def test_a_paused_worker_is_out_and_comes_back_as_a_new_member(address, tmp_path):
    with pool(address, tmp_path, workers=2, session_timeout_ms=3_000) as workers:
        workers.wait_until(shared_by(workers, "consumer-1", "consumer-2"))
        workers.pause("consumer-1")
        workers.wait_until(shared_by(workers, "consumer-2"))
        workers.resume("consumer-1")
        workers.wait_until(shared_by(workers, "consumer-1", "consumer-2"))
        assert [e.who for e in workers.events() if e.kind == "lost"] == ["consumer-1"] * 3


def test_cooperative_workers_keep_what_does_not_move(address, tmp_path):
    settings = {
        "partition_assignment_strategy": ("cooperative-sticky",),
        "session_timeout_ms": 30_000,  # whoever is thrown out on a busy machine revokes nothing
    }

    def all_have_two():  # the newcomer's two may come one by one, if one member is slow to revoke
        return set(Counter(workers.owners().values()).values()) == {PARTITIONS // 3}

    with pool(address, tmp_path, workers=2, **settings) as workers:
        workers.wait_until(shared_by(workers, "consumer-1", "consumer-2"))
        before = len(workers.events())
        workers.add()
        workers.wait_until(all_have_two)
        revoked = [e.partition for e in workers.events()[before:] if e.kind == "revoked"]
        assert len(revoked) == PARTITIONS // 3


def fails(record):
    raise ValueError(f"no room for {record.value!r}")


def test_a_handler_that_raises_ends_its_worker_with_its_words_and_commits_nothing(
    address, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    said = "consumer-1 has ended: ValueError: no room for b'"
    with (
        pool(address, tmp_path, workers=1, handler=fails) as workers,
        pytest.raises(WorkerError, match=said),
    ):
        workers.wait_until(lambda: False)
    assert committed(address) == 0


def fails_at_the_third(record):
    if record.value == b"0-2":
        raise ValueError("the third")


@pytest.mark.parametrize("automatic", [False, True])
def test_what_a_handler_that_raises_has_not_handled_is_not_committed(
    address, tmp_path, monkeypatch, automatic
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    settings = {"handler": fails_at_the_third, "enable_auto_commit": automatic}
    with (
        pool(address, tmp_path, workers=1, **settings) as workers,
        pytest.raises(WorkerError, match="the third"),
    ):
        workers.wait_until(lambda: False)
    with FileTransport(address.removeprefix("file:")) as files:
        assert files.committed("g", [("t", 0)]).get(("t", 0), OffsetToCommit(offset=0)).offset <= 2


def ends_with_the_first(record):
    os.kill(os.getpid(), signal.SIGTERM)


def never_ends(record):
    print("in hand", flush=True)
    threading.Event().wait()


@pytest.mark.parametrize("automatic", [False, True])
def test_a_worker_that_is_told_to_stop_commits_what_it_has_handled_and_nothing_else(
    address, tmp_path, monkeypatch, automatic
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    settings = {"handler": ends_with_the_first, "enable_auto_commit": automatic}
    with pool(address, tmp_path, workers=1, **settings) as workers:
        workers.wait_until(lambda: not workers.running())
        assert committed(address) == 1


def test_a_paused_worker_wakes_up_to_stop(address, tmp_path):
    with pool(address, tmp_path, workers=1) as workers:
        workers.wait_until(shared_by(workers, "consumer-1"))
        workers.pause("consumer-1")
        workers.stop("consumer-1")
        because = [e.because for e in workers.events() if e.kind == "rebalance-begins"]
        assert because[-1] == "consumer-1 left: the consumer was closed"


def test_a_handler_that_never_ends_does_not_keep_who_stops_its_worker(
    address, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with pool(address, tmp_path, workers=1, handler=never_ends) as workers:
        said = workers.folder / "consumer-1.log"
        workers.wait_until(lambda: "in hand" in said.read_text())
        with pytest.raises(WorkerError, match="consumer-1 still runs 0 s after it was told to"):
            workers.stop("consumer-1", limit_s=0)
        assert workers.running() == ["consumer-1"]


def test_a_closed_pool_starts_nobody(address, tmp_path):
    with pool(address, tmp_path, workers=1) as workers:
        pass
    with pytest.raises(WorkerError, match="the pool is closed"):
        workers.add()
    assert list(workers._processes) == ["consumer-1"]
    workers.stop("consumer-1")


def test_what_cannot_be_started_says_why(address, tmp_path):
    with pytest.raises(WorkerError, match="cannot be imported by another process"):
        pool(address, tmp_path, handler=lambda record: None)
    with pytest.raises(BadConsumerConfig, match="heartbeat_interval_ms is 5000"):
        pool(address, tmp_path, heartbeat_interval_ms=5000)
    with pytest.raises(WorkerError, match="give file:FOLDER"):
        pool("localhost", tmp_path)
    with pool(address, tmp_path) as workers, pytest.raises(WorkerError, match="no worker 'x'"):
        workers.kill("x")


PARENT = """
    import os, signal, sys, threading
    from phase2_groups.worker_pool import WorkerPool
    pool = WorkerPool(sys.argv[1], ["t"], "g", folder=sys.argv[2])
    thread = threading.Thread(target=pool.add, args=(2,))  # which ends long before the workers do
    thread.start()
    thread.join()
    # Both: one that has only begun may be paused before it has asked to end with its parent.
    pool.wait_until(lambda: len(pool.owners()) == 6 and len(set(pool.owners().values())) == 2)
    child = 0
    if sys.argv[3] == "paused":
        pool.pause("consumer-1")
    if sys.argv[3] == "forked":
        child = os.fork()
        if child == 0:
            os.close(1)
            signal.pause()
    print(child, *(process.pid for process in pool._processes.values()), flush=True)
    os.kill(os.getpid(), 9) if sys.argv[3] != "left without closing" else None
"""

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")


@pytest.mark.parametrize(
    "end",
    [
        "killed",
        "left without closing",
        pytest.param("paused", marks=only_linux),
        pytest.param("forked", marks=only_linux),
    ],
)
def test_no_worker_outlives_the_process_that_started_it(address, tmp_path, end):
    parent = [sys.executable, "-c", textwrap.dedent(PARENT), address, str(tmp_path / "w"), end]
    done = subprocess.run(parent, stdout=subprocess.PIPE, text=True, check=False)
    child, *workers = (int(pid) for pid in done.stdout.split())
    assert len(workers) == 2
    try:
        _, alive = psutil.wait_procs([p for p in map(_process, workers) if p], timeout=20)
        assert not alive
    finally:
        for pid in (child, *workers):
            if pid and (process := _process(pid)):
                process.kill()


def _process(pid):
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def test_workers_do_not_share_our_session_or_our_output(address, tmp_path, capfd):
    with pool(address, tmp_path, workers=1, handler=print) as workers:
        workers.wait_until(lambda: committed(address) == 50 * PARTITIONS)
        [process] = workers._processes.values()
        assert os.getsid(process.pid) == process.pid
    assert capfd.readouterr() == ("", "")
    assert "ConsumerRecord" in (tmp_path / "workers" / "consumer-1.log").read_text()
