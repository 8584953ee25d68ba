"""What notebook 15 leans on: four wrappers with one mistake each, their repairs, and a kill."""

from __future__ import annotations

import pytest

from craft2.apps.ingestion.sinks import QueueMode
from craft2.apps.lessons import ingesting, shared_producer
from craft2.apps.lessons.processes import Worker
from craft2.apps.lessons.shared_producer import in_topic, symptoms
from phase3_raft.local_broker import LocalBroker


@pytest.fixture(scope="module")
def bootstrap():
    with LocalBroker() as broker:
        yield broker.bootstrap_servers


def seen(bootstrap, name, count, threads=1):
    make = getattr(shared_producer, name)
    found = symptoms(make, bootstrap, name, count=count, threads=threads)
    assert found.accepted == count, "every send has returned, as if all were well"
    return found


def test_a_shared_field_mixes_the_messages_of_threads(bootstrap):
    found = seen(bootstrap, "A", 1_600, threads=16)
    assert len(found.found) == 1_600
    assert found.delivery.never > 0
    assert found.delivery.once < 1_600


def test_a_full_queue_that_is_ignored_drops_messages_once_it_is_full(bootstrap):
    found = seen(bootstrap, "B", 3_000)
    assert found.found[:500] == list(range(500))
    assert found.delivery.never > 0


def test_a_producer_that_is_let_go_takes_its_queue_along(bootstrap):
    for _ in range(10):  # on a busy machine the queue may be empty just then
        found = seen(bootstrap, "C", 1_000)
        assert found.found == list(range(len(found.found))), "the last ones are missing"
        if found.delivery.never > 0:
            return
    pytest.fail("the queue was empty each time that its producer was let go")


def test_lent_memory_that_is_used_again_holds_the_last_message(bootstrap):
    found = seen(bootstrap, "D", 100)
    assert len(found.found) == 100
    assert found.delivery.never > 50


@pytest.mark.parametrize(
    ("name", "count", "threads"),
    [("A", 1_600, 16), ("B", 3_000, 1), ("C", 1_000, 1), ("D", 100, 1)],
)
def test_the_repaired_ones_deliver_each_message_once(bootstrap, name, count, threads):
    found = seen(bootstrap, f"Repaired{name}", count, threads)
    assert sorted(found.found) == list(range(count))


def test_an_early_answer_is_a_promise_that_nobody_keeps(bootstrap):
    ingesting.make_topic(bootstrap, "early", 1)
    worker = Worker(shared_producer.answer_early, bootstrap, "early", 100)
    worker.wait_for(100)
    assert len(worker.kill()) == 100
    assert in_topic(bootstrap, "early") == []


@pytest.mark.parametrize("mode", list(QueueMode))
def test_a_kill_under_load_loses_nothing(bootstrap, tmp_path, mode):
    place = ingesting.place_of(mode, tmp_path, bootstrap)
    found = ingesting.kill_under_load(place, "killed", enough=50)
    assert found.acknowledged >= 50
    assert (found.lost, found.twice) == (0, 0)


def test_the_three_rates_are_of_one_producer(bootstrap):
    rates = ingesting.three_rates(bootstrap, "rates", 1_000)
    assert rates.handed_over >= rates.acknowledged > 0
    assert rates.one_by_one > 0
