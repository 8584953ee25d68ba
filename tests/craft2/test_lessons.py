"""What the notebooks lean on: processes that can be killed, crash tables, views, key order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from craft2.apps.bench.results import Results
from craft2.apps.lessons import files, loads, processes
from craft2.apps.lessons.crashes import WAYS, after_crashes, crash_table, failures
from craft2.apps.lessons.groups import at_rest
from craft2.apps.lessons.processes import (
    LIMIT_S,
    Worker,
    WorkerError,
    consume,
    consume_in_tens,
    consume_out_of_order,
    hashes,
    lives,
    produce,
    write_jsonl,
)
from craft2.clock import ManualClock
from craft2.events import Event, Events
from phase1_file_queue.partitioned_queue import PartitionedQueue
from phase1_file_queue.publish import publish
from phase1_file_queue.queue_consumer import QueueConsumer


def test_a_killed_worker_tells_all_it_had_acknowledged(tmp_path):
    worker = Worker(produce, tmp_path / "queue", 7, 1_000)
    worker.wait_for(20)
    acks = worker.kill()
    assert len(acks) >= 20
    assert [number for _, _, number in acks] == list(range(7, 7 + len(acks)))
    with PartitionedQueue.existing(tmp_path / "queue") as queue:
        assert all(queue.read(partition, offset) for partition, offset, _ in acks)


def test_a_killed_consumer_is_followed_by_one_that_misses_nothing(tmp_path):
    sent = Worker(produce, tmp_path / "queue", 0, 60).finish()
    first = Worker(consume, tmp_path / "queue", "g", 60)
    first.wait_for(20)
    before = set(first.kill())
    after = set(Worker(consume, tmp_path / "queue", "g", 60).finish())
    assert {ack[:2] for ack in sent} == before | after
    assert len(before & after) <= 4


def test_the_naive_service_loses_what_its_buffer_holds(tmp_path):
    worker = Worker(write_jsonl, tmp_path / "metrics.jsonl")
    worker.wait_for(1_500)
    acknowledged = len(worker.kill())
    whole, broken = files.jsonl_lines(tmp_path / "metrics.jsonl")
    assert whole < acknowledged
    assert len(broken) <= 1


@pytest.mark.parametrize(("commit", "lost", "again"), [("before", 5, 0), ("after", 0, 5)])
def test_commit_before_or_after_loses_or_repeats_the_rest_of_a_poll(tmp_path, commit, lost, again):
    sent = Worker(produce, tmp_path / "queue", 0, 60).finish()
    first = Worker(consume_in_tens, tmp_path / "queue", "g", commit, 25)
    first.wait_for(25)
    handled = first.kill() + Worker(consume_in_tens, tmp_path / "queue", "g", commit, 0).finish()
    found = loads.account(sent, handled)
    assert (len(found[0]), found[1]) == (lost, again)


@pytest.mark.parametrize(("commit", "lost"), [("latest", [(0, 0)]), ("safe", [])])
def test_committing_what_was_finished_last_loses_the_message_that_hangs(tmp_path, commit, lost):
    with PartitionedQueue(tmp_path / "queue", 1, fsync=False) as queue:
        sent = [queue.produce(None, "x") for _ in range(40)]
    place = (tmp_path / "queue", "g", commit)
    first = Worker(consume_out_of_order, *place, 0, 40)
    first.wait_for(39)
    handled = first.kill()
    handled += lives(lambda: Worker(consume_out_of_order, *place, 40, 40), ())
    assert loads.account(sent, handled)[0] == lost
    if not lost:
        assert loads.account(sent, handled)[1] == 39


def test_a_kill_that_comes_too_late_ends_the_lives_and_no_message_is_missed(tmp_path):
    with PartitionedQueue(tmp_path / "queue", 1, fsync=False) as queue:
        sent = [queue.produce(None, "x") for _ in range(40)]
    place = (tmp_path / "queue", "g", "safe")
    handled = lives(lambda: Worker(consume_out_of_order, *place, 40, 40), (5, 100, 100))
    assert loads.account(sent, handled)[0] == []
    with pytest.raises(WorkerError, match="ended with code"):
        lives(lambda: Worker(consume_out_of_order, *place, "forty"), (5,))


def test_a_consumer_that_stands_still_is_not_waited_for_for_ever(tmp_path):
    with PartitionedQueue(tmp_path / "queue", 1, fsync=False) as queue:
        queue.produce(None, "x")
    go = threading.Event()
    with QueueConsumer(tmp_path / "queue", "g") as consumer:
        consumer.start(lambda message: go.wait(30))
        with pytest.raises(loads.StandsStillError, match="group 'g' is still behind"):
            loads.drain(consumer, limit_s=0.05)
        go.set()
        loads.drain(consumer)


def test_a_worker_that_fails_says_why(tmp_path):
    (tmp_path / "queue").write_text("a file")
    worker = Worker(produce, tmp_path / "queue", 0, 5)
    with pytest.raises(WorkerError, match=r"'produce' ended with code 1 .* is a file"):
        worker.wait_for(1)


@pytest.mark.parametrize(
    ("handled", "errors", "words"),
    [
        (5, {}, "all 5 messages are handled, but only 3 are committed: is `finish`"),
        (4, {0: ValueError("the handler's words")}, "the handler's words"),
    ],
)
def test_a_worker_that_will_never_commit_all_gives_up_and_says_why(
    monkeypatch, handled, errors, words
):
    class Standing:
        def __init__(self):
            self.errors = errors

        def lag(self):
            return {0: 1, 1: 1}

        def committed(self, partition):
            return 1 + partition

    def give_up(why):
        raise WorkerError(why, "")

    monkeypatch.setattr(processes, "_give_up", give_up)
    clock = ManualClock()
    with pytest.raises(WorkerError, match=words):
        processes._wait_until_committed(Standing(), 5, lambda: handled, clock)
    assert clock.monotonic() < 3


def test_python_hashes_differ_between_processes_and_murmur2_does_not():
    ((one, kafka),), ((other, kafka_again),) = (Worker(hashes, "UA").finish() for _ in range(2))
    assert one != other
    assert kafka == kafka_again == 3670570746


PARENT = """
import sys
from craft2.apps.lessons.processes import Worker, consume
from craft2.clock import ManualClock
from craft2.events import Event, Events
from phase1_file_queue.partitioned_queue import PartitionedQueue
with PartitionedQueue(sys.argv[1], fsync=False) as queue:
    queue.produce("UA", "one")
worker = Worker(consume, sys.argv[1], "g", 2)  # it will wait for a second one, and say nothing
worker.wait_for(1)
print(worker._process.pid, flush=True)
sys.stdin.read()
"""


def test_a_worker_ends_with_its_parent_however_that_ends(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "queue")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    give_up = time.monotonic() + LIMIT_S / 2  # well before the worker ends by itself
    while files._alive(pid) and not _is_zombie(pid):
        assert time.monotonic() < give_up, "the worker lives on without its parent"
        os.sched_yield()


def _is_zombie(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_each_precaution_left_out_shows_in_a_column_of_its_own(capsys):
    table = crash_table(WAYS)
    assert table["no rename"]["empty"] > 0
    assert table["no rename"]["lost"] == 0
    assert table["no sync of the file"]["damaged"] > 0
    assert table["no sync of the directory"]["lost"] > 0
    assert table["no sync of the directory"]["damaged"] == 0
    assert all(failures(found) for found in table.values())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(WAYS)
    assert len({len(line) for line in lines}) == 1, "columns line up"


def test_publish_survives_every_crash_of_the_table():
    assert failures(after_crashes(publish)) == 0


def test_a_listing_shows_numbers_and_sizes_and_leaves_the_rest_out(tmp_path, capsys):
    with PartitionedQueue(tmp_path / "queue", num_partitions=1, fsync=False) as queue:
        for _ in range(5):
            queue.produce("UA", "x" * 30, timestamp=0)
    files.listing(tmp_path / "queue", most=2)
    assert capsys.readouterr().out.splitlines() == [
        "queue/",
        "    queue.json                    59 bytes",
        "    partition-0/",
        "        00000000.msg              92 bytes",
        "        00000001.msg              92 bytes",
        "        ... 3 more",
        "        offset.txt                holds 00000005",
    ]


def test_scratch_folders_of_dead_kernels_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_home", lambda: tmp_path / "results")
    mine = files.scratch()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    stale = mine.parent / f".lesson-{dead.pid}-abc"
    stale.mkdir()
    (stale / "file").write_text("left over")
    files.scratch()
    assert mine.is_dir()
    assert not stale.exists()


def test_an_error_is_told_with_paths_of_the_lesson(tmp_path, capsys):
    files.tell(ValueError(f"no {tmp_path}/queue/x here, " + "long " * 30), tmp_path)
    out = capsys.readouterr().out
    assert out.startswith("ValueError: no queue/x here")
    assert max(map(len, out.splitlines())) <= 96


def test_rates_are_measured_and_kept(tmp_path, capsys):
    store = Results(tmp_path / "results")
    rows = loads.measure_clients(store, clients=(1, 2), seconds=0.2)
    assert len(rows) == 6
    assert store.table().num_rows == 6
    assert {row.fsync_policy for row in rows if row.backend == "queue, no fsync"} == {"never"}
    loads.print_rates(rows)
    assert len(capsys.readouterr().out.splitlines()) == 7
    assert loads.queue_rate(tmp_path, fsync=False, seconds=0.5) > 0
    assert loads.bare_rate(tmp_path, seconds=0.5) > 0


def test_growing_a_queue_lets_a_later_message_overtake(tmp_path):
    from craft2.apps.ingestion.flights import flights

    events = list(flights(3_000))
    root = tmp_path / "queue"
    with PartitionedQueue(root, fsync=False) as queue:
        sent = loads.fill(queue, events[:2_500])
        queue.add_partitions(8)
        sent += loads.fill(queue, events[2_500:])
    number = {place: n for n, place in enumerate(sent)}
    handled = [number[place] for place in loads.consumption_order(root, "g")]
    assert sorted(handled) == list(range(3_000))
    late = loads.overtaken([e.key for e in events], handled)
    assert late
    for behind, ahead in late:
        assert behind < 2_500 <= ahead
        assert events[behind].key == events[ahead].key
        assert handled.index(ahead) < handled.index(behind)


@given(st.lists(st.sampled_from("abc"), max_size=12).flatmap(
    lambda keys: st.tuples(st.just(keys), st.permutations(range(len(keys))))
))  # fmt: skip
def test_overtaken_names_exactly_the_messages_that_came_after_a_later_one(case):
    keys, handled = case
    expected = {
        sent
        for place, sent in enumerate(handled)
        if any(keys[earlier] == keys[sent] and earlier > sent for earlier in handled[:place])
    }
    assert {behind for behind, _ in loads.overtaken(keys, handled)} == expected


def test_results_go_into_the_edition(tmp_path, monkeypatch):
    (tmp_path / "craft2.toml").write_text("")
    (tmp_path / ".craft2" / "notebooks").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / ".craft2" / "notebooks")
    assert files.results_folder() == tmp_path.resolve() / "results"
    monkeypatch.setenv("CRAFT2_RESULTS", "/elsewhere")
    assert files.results_folder() == Path("/elsewhere"), "grading adds nothing to the learner's"
    assert files.scratch().parent == tmp_path.resolve() / "results", "on the disk, all the same"
    monkeypatch.delenv("CRAFT2_RESULTS")
    monkeypatch.chdir(Path(__file__).parents[2] / "notebooks")
    assert files.results_folder() == Path(__file__).resolve().parents[2] / "results"


def test_a_group_is_at_rest_when_all_that_run_know_their_share_of_the_last_rebalance():
    log = Events("group")

    def happens(kind: str, generation: int, partition: int | None = None) -> list[Event]:
        topic = "flights" if partition is not None else None
        log.emit(kind, topic=topic, partition=partition, generation=generation)
        return log.events

    def says(who: str, kind: str, partition: int | None = None) -> list[Event]:
        happens(kind, 1, partition)
        log.events[-1] = msgspec.structs.replace(log.events[-1], who=who)
        return log.events

    assert not at_rest(happens("rebalance-begins", 0), ["a", "b"], 2)
    says("a", "assigned", 0)
    assert not at_rest(says("a", "assigned", 1), ["a", "b"], 2), "the group does not say stable yet"
    assert not at_rest(happens("stable", 1), ["a", "b"], 2), "b has no answer yet"
    assert at_rest(says("b", "idle"), ["a", "b"], 2)
    assert not at_rest(log.events, ["a", "b", "c"], 2), "c runs, and has not joined"
    assert not at_rest(log.events, ["a", "b"], 3)
    assert not at_rest(happens("rebalance-begins", 1), ["a", "b"], 2)
