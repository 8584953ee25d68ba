"""At most once, at least once, effectively once: processes killed at the worst moment, counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from craft2.apps.lessons.delivery import deliver, effects, send_over_a_bad_line
from craft2.apps.lessons.processes import Worker
from craft2.checker import delivery
from phase2_groups.file_transport import create_topic
from phase2_groups.producer import Producer
from phase2_groups.producer_config import ProducerConfig

ORDERS = [f"order {number}" for number in range(100)]


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = str(tmp_path_factory.mktemp("queue"))
    create_topic(root, "orders", 1)
    with Producer(ProducerConfig(bootstrap_servers=f"file:{root}")) as producer:
        producer.send_many("orders", [order.encode() for order in ORDERS])
    return root


@pytest.mark.parametrize(
    ("style", "counted"),
    [
        ("at most once", "95 once, 0 twice, 5 never"),
        ("at least once", "95 once, 5 twice, 0 never"),
        ("effectively once", "100 once, 0 twice, 0 never"),
    ],
)
def test_a_consumer_that_is_killed_half_way_through_a_poll(
    queue: str, tmp_path: Path, style: str, counted: str
) -> None:
    results = str(tmp_path / "results.sqlite")
    worker = Worker(deliver, queue, "orders", style, results, 35)
    worker.wait_for(36)  # the 36th is number 35
    worker.kill()
    Worker(deliver, queue, "orders", style, results, 0).finish()
    assert str(delivery(ORDERS, effects(results))) == counted


@pytest.mark.parametrize("idempotent", [False, True])
def test_answers_that_get_lost_make_copies_unless_the_producer_numbers_its_batches(
    tmp_path: Path, idempotent: bool
) -> None:
    create_topic(tmp_path, "orders", 2)
    report = send_over_a_bad_line(str(tmp_path), "orders", ORDERS, enable_idempotence=idempotent)
    if idempotent:
        assert report.ok()
        assert report.counts["polled"] == 100
    else:
        assert set(report.anomalies) == {"duplicate"}
        # Of 149 requests every third had its answer lost: 100 were answered.
        assert report.counts["polled"] == 149
        assert report.counts["duplicates"] == 49
