"""The parts of `craft2 chaos`: the deck, the timeline, the verdict, links and disks."""

from __future__ import annotations

import contextlib
import doctest
import os
import random
from itertools import islice

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from craft2.apps.chaos import disks, links, timeline
from craft2.apps.chaos.brokers import Brokers
from craft2.apps.chaos.disks import Disks
from craft2.apps.chaos.faults import FAULTS, deal
from craft2.apps.chaos.links import NamespaceLinks, RelayLinks, make_links
from craft2.apps.chaos.picture import timeline_picture
from craft2.apps.chaos.report import summary, write_report
from craft2.apps.chaos.run import ChaosError, Outcome, Plan, alike, judge, placed, run
from craft2.apps.chaos.timeline import Timeline
from craft2.apps.chaos.topic import make_topic
from craft2.apps.chaos.watcher import Watcher
from craft2.apps.cli import commands
from craft2.clock import ManualClock, SystemClock
from craft2.history import UNKNOWN, Message, Operation

SOON_S = 60.0
why_not = links.why_no_namespaces()
needs_namespaces = pytest.mark.skipif(bool(why_not), reason=why_not)


def sent(value, offset, outcome="ok"):
    return Operation("p", "send", 1, 2, outcome, sent=(Message("t", 0, offset, value),))


def read(*found):
    polled = tuple(Message("t", 0, offset, value) for value, offset in found)
    return Operation("reader", "poll", 3, 4, "ok", polled=polled, group="reader")


def outcome_of(history, tmp_path):
    plan = Plan(minutes=1, seed=1, data_dir=tmp_path)
    outcome = Outcome(plan, Timeline(ManualClock()), ["somewhere"], {"slow-disk": "no disk"})
    judge(outcome, history, [one for one in history if one.client == "reader"], whole=True)
    return outcome


def test_the_example_in_the_text_is_true():
    assert doctest.testmod(timeline).failed == 0


def test_every_fault_is_dealt_before_one_comes_again_and_the_seed_decides_which():
    names = list(FAULTS)
    dealt = list(islice(deal(names, random.Random(1)), 2 * len(names)))
    assert sorted(dealt[: len(names)]) == sorted(dealt[len(names) :]) == sorted(names)
    assert dealt == list(islice(deal(names, random.Random(1)), 2 * len(names)))
    assert dealt != list(islice(deal(names, random.Random(2)), 2 * len(names)))


def test_a_fault_that_there_is_not_is_refused(tmp_path):
    plan = Plan(minutes=1, seed=1, data_dir=tmp_path, faults=("kill", "kil"))
    with pytest.raises(ChaosError, match=r"--faults kil\. Fix: take from kill, "):
        run(plan, ManualClock(), print)


def test_faults_of_which_none_can_be_dealt_out_are_refused(tmp_path):
    plan = Plan(minutes=1, seed=1, data_dir=tmp_path, faults=("full-disk",), root=False)
    with pytest.raises(ChaosError, match=r"can be dealt out: full-disk, no disk .*--no-root out$"):
        run(plan, ManualClock(), print)


def test_an_empty_list_of_faults_is_refused():
    refused = CliRunner().invoke(commands(), ["chaos", "--faults", " , "])
    assert str(refused.exception).startswith("--faults ' , ' names none. Fix: take from kill, ")


def test_a_folder_that_holds_something_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ChaosError, match="is not empty"):
        run(Plan(minutes=1, seed=1, data_dir=tmp_path), ManualClock(), print)


def test_a_lost_write_is_a_trouble_with_its_name_and_place(tmp_path):
    outcome = outcome_of([sent("a", 4), sent("b", 5), read(("b", 5))], tmp_path)
    assert not outcome.ok
    assert outcome.troubles[0].startswith("lost-write: 1, in the logs at the end; t-0: p wrote 'a'")
    assert "lost-write" in "\n".join(summary(outcome))


def test_what_is_behind_the_end_of_a_log_is_lost_too(tmp_path):
    outcome = outcome_of([sent("a", 4), sent("b", 5), read(("a", 4))], tmp_path)
    assert outcome.troubles[0].startswith("lost-write: 1, in the logs at the end; t-0: p wrote 'b'")


def test_what_was_read_once_and_is_gone_at_the_end_is_lost_all_the_same(tmp_path):
    worker = Operation("w", "poll", 2, 3, "ok", polled=(Message("t", 0, 4, "a"),), group="workers")
    outcome = outcome_of([sent("a", 4), sent("b", 5), worker, read(("b", 5))], tmp_path)
    assert outcome.troubles[0].startswith("lost-write: 1, in the logs at the end")


def test_an_acknowledgement_without_an_offset_is_a_promise_too(tmp_path):
    outcome = outcome_of([], tmp_path)
    history = [sent("a", UNKNOWN), sent("b", UNKNOWN), sent("c", UNKNOWN, "info")]
    found = placed(history, [read(("a", 7))], outcome)
    assert [one.sent[0].offset for one in found] == [7, UNKNOWN, UNKNOWN]
    assert [one.outcome for one in found] == ["ok", "info", "info"]
    [trouble] = outcome.troubles
    assert trouble.startswith("lost-write: 'b' at t-0:?")


def test_gaps_are_looked_for_in_all_partitions_together_and_in_each():
    found = Timeline(ManualClock())
    for partition, now in ((0, 1.0), (1, 2.0), (0, 4.5), (1, 5.0)):
        found.note_acknowledged(partition, now)
    assert found.longest_gap() == (2.0, 2.5)
    assert found.longest_gap_of_one() == (1.0, 3.5)


def test_lines_that_differ_in_numbers_are_told_once():
    assert alike(["broker 1 at 5 s", "odd", "broker 2 at 17 s"]) == {"broker 1 at 5 s": 2, "odd": 1}


def test_the_report_shows_what_was_left_out_and_is_drawn(tmp_path):
    outcome = outcome_of([sent("a", 4), read(("a", 4))], tmp_path)
    with outcome.timeline.struck("kill -9", 2):
        outcome.timeline.clock.advance(3)
    outcome.timeline.end_s = 10.0
    page = write_report(outcome, tmp_path / "out").read_text()
    assert "left out: no disk" in page
    assert "No promise was broken." in page
    assert (tmp_path / "out" / "timeline.png").read_bytes()[:4] == b"\x89PNG"
    chart = timeline_picture(outcome.timeline, 3, "")
    assert [one.get_text() for one in chart.legends[0].get_texts()] == ["kill -9"]


def test_relays_are_taken_with_the_reason_where_nothing_else_can_be(tmp_path):
    found = make_links([1, 2, 3], root=False)
    with contextlib.closing(found):
        assert isinstance(found, RelayLinks)
        assert "not asked for" in found.about
        assert found.within(1) == []
        assert len({*found.advertised.values()}) == 3
    plain = Disks(tmp_path, [1], 64, own=False)
    assert set(plain.lacks) == {"full-disk", "slow-disk"}
    plain.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_disk_is_full_for_real_and_slow_for_real_and_heals(tmp_path):
    found = Disks(tmp_path, [1], 16, own=True)
    if found.lacks:
        pytest.skip(found.about)
    with contextlib.closing(found):
        file = found.folder(1) / "file"
        found.fill(1)
        with pytest.raises(OSError, match="No space left"):
            file.write_bytes(bytes(64 * 1024))
        found.free(1)
        with found.slow(1):
            for _ in range(3):
                file.write_bytes(bytes(64 * 1024))
        assert file.stat().st_size == 64 * 1024
    assert not list((tmp_path / "broker-1").iterdir())  # unmounted
    disks.sweep_mounts()


# Brokers on several machines, or what a kernel makes look like them.


@needs_namespaces
def test_brokers_in_namespaces_serve_a_client_outside_and_outlive_one_that_is_cut_off(tmp_path):
    """Each binds to 0.0.0.0, has an advertised address and the same list of voters."""
    numbers, clock = (1, 2, 3), SystemClock()
    with contextlib.ExitStack() as stack:
        lines = NamespaceLinks(numbers)
        stack.callback(lines.close)
        assert all("0.0.0.0" in lines.options(number) for number in numbers)
        folders = Disks(tmp_path, numbers, 0, own=False)
        replicas = ["--replicas", "3", "--topic-default", "min.insync.replicas=2"]
        brokers = Brokers(numbers, tmp_path, lines, folders, replicas)
        stack.callback(brokers.close)
        watcher = Watcher(brokers.bootstrap_servers, "t", 3, Timeline(clock))
        watcher.start()
        stack.callback(watcher.close)
        servers = brokers.bootstrap_servers
        patience = {"socket.timeout.ms": 3_000, "log_level": 0}  # with a broker that is silent
        producer = Producer({"bootstrap.servers": servers, **patience})
        make_topic(brokers, "t", 1, Timeline(clock))
        producer.produce("t", b"before", partition=0)
        assert producer.flush(SOON_S) == 0
        assert watcher.wait_well(SOON_S), watcher.unwell

        lines.unplug(watcher.leaders[0])
        producer.produce("t", b"meanwhile", partition=0)
        assert producer.flush(SOON_S) == 0
        lines.heal()
        assert watcher.wait_well(SOON_S), watcher.unwell
        producer.produce("t", b"after", partition=0)
        assert producer.flush(SOON_S) == 0

        consumer = Consumer({"bootstrap.servers": servers, "group.id": "g"})
        stack.callback(consumer.close)
        consumer.assign([TopicPartition("t", 0, 0)])
        found = [one.value() for one in consumer.consume(3, SOON_S)]
        assert found == [b"before", b"meanwhile", b"after"]
    assert not any(name.endswith(f"-{os.getpid()}-1") for name in links.namespaces())
