"""The harness counts what it should, on a clock that only the measured operation moves."""

import itertools
import os
import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer import Typer
from typer.testing import CliRunner

from craft2.apps import cli_bench
from craft2.apps.bench import scenarios
from craft2.apps.bench.harness import (
    NOT_SENT,
    BenchError,
    Load,
    Pairs,
    Samples,
    alternate,
    calls_per_second,
    closed_loop,
    open_loop,
)
from craft2.apps.bench.machine import Machine, describe, filesystem_of
from craft2.apps.bench.results import Results
from craft2.clock import ManualClock, SystemClock


def taking(clock, *seconds):
    """An operation that takes these times in turn, over and over."""
    durations = itertools.cycle(seconds)
    return lambda client: lambda: clock.advance(next(durations))


# --- closed loop


def test_a_closed_loop_calls_until_its_time_is_over():
    clock = ManualClock()
    load = closed_loop(taking(clock, 0.25), seconds=1.0, warmup=2, clock=clock)
    assert list(load.latencies_ms) == [250.0] * 4
    assert (load.seconds, load.calls_per_s, load.success_ratio) == (1.0, 4.0, 1.0)


def test_the_last_call_may_end_after_the_time_and_the_rate_says_so():
    clock = ManualClock()
    load = closed_loop(taking(clock, 0.4), seconds=1.0, warmup=0, clock=clock)
    assert load.calls == 3
    assert load.seconds == pytest.approx(1.2)


def test_warm_up_calls_are_not_measured():
    clock = ManualClock()
    load = closed_loop(taking(clock, 9.0, 0.5), calls=1, warmup=1, clock=clock)
    assert list(load.latencies_ms) == [500.0]


def test_every_client_makes_its_calls_in_its_own_thread():
    seen = set()

    def make(client):
        return lambda: seen.add((client, threading.current_thread().name))

    load = closed_loop(make, clients=8, calls=5, warmup=1)
    assert load.calls == 40
    assert seen == {(n, f"client-{n}") for n in range(8)}


def test_failed_calls_are_counted_by_kind_and_never_enter_the_latencies():
    clock = ManualClock()
    outcomes = iter([None, OSError("disk gone"), None, ValueError("bad"), OSError("again")])

    def operation():
        clock.advance(0.1)
        if error := next(outcomes):
            raise error

    load = closed_loop(lambda client: operation, calls=5, warmup=0, clock=clock)
    assert dict(load.failed) == {"OSError": 2, "ValueError": 1}
    assert len(load.latencies_ms) == 2
    assert load.success_ratio == 0.4
    assert load.calls_per_s == pytest.approx(4.0)  # two successes in half a second
    assert load.errors() == "2 × OSError, 1 × ValueError (first: OSError: disk gone)"


def test_when_every_call_fails_there_is_no_rate_and_no_percentile():
    def operation():
        raise OSError("no")

    load = closed_loop(lambda client: operation, calls=3, warmup=0)
    assert (load.calls, load.calls_per_s, load.success_ratio) == (3, 0.0, 0.0)
    assert load.percentile(99) is None


@pytest.mark.parametrize("processes", [False, True])
def test_a_client_that_cannot_start_stops_the_measurement(processes):
    with pytest.raises(BenchError, match=r"client \d failed before .*ZeroDivisionError"):
        closed_loop(failing, clients=3, calls=1, processes=processes)


def failing(client):
    return lambda: client / 0


@pytest.mark.parametrize(
    ("arguments", "problem"), [({}, "without an end"), ({"calls": 1, "clients": 0}, "0 clients")]
)
def test_a_load_that_makes_no_sense_is_refused(arguments, problem):
    with pytest.raises(BenchError, match=problem):
        closed_loop(lambda client: lambda: None, **arguments)


# --- open loop


def test_an_open_loop_keeps_its_schedule():
    clock = ManualClock()
    load = open_loop(taking(clock, 0.01), rate=10, seconds=1.0, warmup=0, clock=clock)
    assert load.calls == 10
    assert load.latencies_ms.tolist() == pytest.approx([10.0] * 10)


def test_latency_counts_from_the_scheduled_time_so_a_stall_shows_in_every_call_it_delays():
    clock = ManualClock()
    stall = itertools.chain([0.45], itertools.repeat(0.0))
    make = lambda client: lambda: clock.advance(next(stall))  # noqa: E731
    load = open_loop(make, rate=10, seconds=1.0, warmup=0, clock=clock)
    assert load.latencies_ms.tolist() == pytest.approx([450, 350, 250, 150, 50, 0, 0, 0, 0, 0])

    clock = ManualClock()
    stall = itertools.chain([0.45], itertools.repeat(0.0))
    closed = closed_loop(make, calls=10, warmup=0, clock=clock)
    assert sum(ms > 1 for ms in closed.latencies_ms) == 1  # what a closed loop makes of it


def test_the_schedule_is_dealt_out_among_the_clients():
    load = open_loop(
        lambda client: lambda: None, rate=10, seconds=3.0, clients=4, clock=ManualClock()
    )
    assert load.calls == 30


def test_a_hopeless_schedule_is_given_up_and_what_was_not_sent_counts_as_failed():
    clock = ManualClock()
    load = open_loop(taking(clock, 0.5), rate=10, seconds=1.0, warmup=0, clock=clock)
    assert load.calls == 10
    assert load.failed[NOT_SENT] == 5
    assert load.success_ratio == 0.5


# --- processes


def appending(client):
    """Appends a line with its process and its group to a file."""
    print("this goes to the log of the client, not to the pipe of its answers")
    path = Path(os.environ["HARNESS_TEST_FILE"])

    def operation():
        with path.open("a") as file:
            file.write(f"{client} {os.getpid()} {os.getpgid(0)}\n")

    return operation


def test_client_processes_are_processes_in_groups_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("HARNESS_TEST_FILE", str(tmp_path / "lines"))
    load = closed_loop(appending, clients=2, calls=3, warmup=1, processes=True)
    assert load.calls == 6
    lines = [line.split() for line in (tmp_path / "lines").read_text().splitlines()]
    assert len(lines) == 8
    for client in "01":
        pids = {pid for n, pid, _ in lines if n == client}
        assert len(pids) == 1
        assert pids == {group for n, _, group in lines if n == client}
        assert not Path(f"/proc/{pids.pop()}").exists()  # and none is left


def dying(client):
    def operation():
        os.write(2, b"Segmentation something\n")
        os._exit(7)

    return operation


def test_a_client_process_that_dies_is_reported_with_what_it_said():
    with pytest.raises(BenchError, match=r"client process 0 ended with status 7; .*Segmentation"):
        closed_loop(dying, calls=1, processes=True)


def test_an_operation_no_process_can_import_is_refused():
    with pytest.raises(BenchError, match="define the operation in a module"):
        closed_loop(lambda client: lambda: None, calls=1, processes=True)


def hanging(client):
    """Opens the test's pipe, says so, and never returns."""

    def operation():
        pipe = os.open(os.environ["HARNESS_TEST_FILE"], os.O_WRONLY)
        os.write(pipe, b"up")
        threading.Event().wait()

    return operation


def test_a_client_process_does_not_outlive_its_parent(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code = (
        "from test_harness import closed_loop, hanging\n"
        "closed_loop(hanging, calls=1, warmup=0, processes=True)"
    )
    environment = {"HARNESS_TEST_FILE": str(pipe), "PYTHONPATH": str(Path(__file__).parent)}
    parent = subprocess.Popen([sys.executable, "-c", code], env=os.environ | environment)
    with pipe.open("rb", buffering=0) as client:
        assert client.read(2) == b"up"
        parent.kill()
        parent.wait()
        ready, _, _ = select.select([client], [], [], 30)
        assert ready, "the client is still there"
        assert client.read(1) == b""  # the kernel closed its end: it is gone


# --- percentiles, pairs, rates


@given(
    st.lists(st.floats(0.001, 1e6), min_size=1, max_size=200), st.sampled_from([50, 95, 99, 99.9])
)
def test_a_percentile_is_the_least_sample_that_so_many_do_not_exceed(values, percent):
    samples = Samples()
    samples.latencies_ms.extend(values)
    found = Load(samples.latencies_ms, samples.failed, "", 1.0).percentile(percent)
    assert found in values
    assert sum(v <= found for v in values) >= percent / 100 * len(values) - 1e-9
    below = [v for v in values if v < found]
    assert len(below) < percent / 100 * len(values) + 1e-9


def test_pairs_alternate_and_the_ratio_is_the_median_of_the_pairs():
    order = []
    ours, peers = iter([1, 10, 30, 90]), iter([1, 10, 20, 10])
    pairs = alternate(
        lambda: order.append("A") or next(ours),
        lambda: order.append("B") or next(peers),
        rounds=3,
    )
    assert "".join(order) == "ABABABAB"
    assert pairs == Pairs([10, 30, 90], [10, 20, 10])
    assert pairs.ratios == [1, 1.5, 9]
    assert pairs.ratio == 1.5  # and not 3, the ratio of the medians


def test_a_rate_of_zero_has_no_ratio():
    with pytest.raises(BenchError, match="has no ratio"):
        alternate(lambda: 1.0, lambda: 0.0)


def test_calls_per_second_makes_whole_calls_and_at_least_one():
    clock = ManualClock()
    assert calls_per_second(lambda: clock.advance(0.3), seconds=1.0, clock=clock) == pytest.approx(
        4 / 1.2
    )
    assert calls_per_second(lambda: clock.advance(5), seconds=1.0, clock=clock) == 0.2


# --- the machine, the registry, the command


def test_the_machine_describes_itself(tmp_path):
    machine = describe(tmp_path, SystemClock())
    assert machine.cpu
    assert machine.cores >= 1
    assert machine.memory_gb > 0.1
    assert filesystem_of(tmp_path) == machine.filesystem != "unknown"
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def command(monkeypatch):
    """`craft2 bench` over two made-up scenarios, one that meets its target and one that fails."""
    machine = Machine(
        cpu="abacus", cores=1, memory_gb=1.0, kernel="k", python="p", filesystem="f", fsync_ms=1.0
    )
    monkeypatch.setattr(scenarios, "describe", lambda folder: machine)

    def good(bench):
        clock = ManualClock()
        load = closed_loop(taking(clock, 0.001), calls=10, warmup=0, clock=clock)
        bench.add(load, phase=1, backend="ours", scenario="s", size_bytes=100, messages_per_call=5)
        bench.compare("s", "ours", "peer", Pairs([3.0], [2.0]), target=1.2)

    def bad(bench):
        good(bench)
        bench.compare("s", "ours", "peer", Pairs([1.0], [2.0]), target=0.9)

    def broken(bench):
        good(bench)
        raise OSError("gone")

    table = {
        function.__name__: scenarios.Scenario(function.__name__, "about", function)
        for function in (good, bad, broken)
    }
    monkeypatch.setattr(scenarios, "scenarios", lambda: table)
    app = Typer()
    cli_bench.register(app)
    return lambda *arguments: CliRunner().invoke(app, list(arguments), env={"COLUMNS": "120"})


def test_bench_prints_ratios_and_keeps_rows(command, tmp_path):
    done = command("good", "--results", str(tmp_path / "r"))
    assert done.exit_code == 0, done.output
    assert "1.50" in done.output
    assert "yes" in done.output
    (row,) = Results(tmp_path / "r").table().to_pylist()
    assert (row["messages"], row["messages_per_s"], row["mb_per_s"]) == (50, 5000.0, 0.5)
    assert (row["p50_ms"], row["max_ms"]) == pytest.approx((1.0, 1.0))
    assert row["machine"]["cpu"] == "abacus"
    assert len(list((tmp_path / "r").iterdir())) == 1  # the scratch folder is gone


def test_a_missed_target_is_an_exit_status(command, tmp_path):
    done = command("good", "bad", "--results", str(tmp_path / "r"))
    assert done.exit_code == 1
    assert "NO" in done.output
    rows = Results(tmp_path / "r").table().to_pylist()
    assert len({row["run"] for row in rows}) == 1


def test_rows_measured_before_an_error_are_kept(command, tmp_path):
    done = command("broken", "--results", str(tmp_path / "r"))
    assert isinstance(done.exception, OSError)
    assert Results(tmp_path / "r").table().num_rows == 1


def test_an_unknown_benchmark_is_named_with_those_there_are(command, tmp_path):
    error = command("fsynk", "--results", str(tmp_path / "r")).exception
    assert not (tmp_path / "r").exists()
    assert isinstance(error, BenchError)
    assert "'fsynk'" in str(error)
    assert "good" in str(error)


def test_a_module_of_pairs_becomes_comparisons(tmp_path):
    clock = ManualClock()
    work = [
        ("encode / aiokafka", lambda: clock.advance(0.01), lambda: clock.advance(0.02), 1.0),
        ("decode", lambda: clock.advance(0.02), lambda: clock.advance(0.01), 3.0),
    ]
    with scenarios.bench_in(tmp_path) as bench:
        bench.clock = clock
        scenarios.compare_pairs(lambda: work, bench)
    encode, decode = bench.comparisons
    assert (encode.scenario, encode.peer, decode.peer) == ("encode", "aiokafka", "peer")
    assert encode.our_rate == pytest.approx(100)
    assert (encode.ratio, encode.met) == (pytest.approx(2.0), True)
    assert (decode.ratio, decode.met) == (pytest.approx(0.5), False)


def test_the_disk_scenario_is_registered_and_measures_both_patterns(tmp_path):
    known = scenarios.scenarios()
    assert "disk" in known
    with scenarios.bench_in(tmp_path) as bench:
        bench.seconds = lambda usual: usual / 200
        known["disk"].function(bench)
    assert {row.scenario for row in bench.rows} == {"append and sync", "file per message"}
    assert [row.clients for row in bench.rows[::2]] == [1, 4, 16, 64]
    assert not any(row.notes for row in bench.rows), "errors are noted there"
    assert bench.comparisons[0].met is None
    assert list(tmp_path.iterdir()) == []
