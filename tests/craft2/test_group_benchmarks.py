"""The benchmarks of phase 2 measure what they say: each runs once, small, and leaves its rows."""

from __future__ import annotations

import pytest
from test_results import row

from craft2.apps.bench import assignors, groups, producer, rebalance, scenarios
from craft2.apps.bench.groups import Handled
from craft2.apps.bench.harness import BenchError, alternate
from craft2.apps.bench.kafka_peers import Client
from craft2.apps.bench.results import Results
from craft2.apps.bench.scenarios import bench_in, chosen
from craft2.apps.pictures import consumers_picture
from craft2.viz import throughput_by_consumers


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """A quick one, whose contenders take one turn."""

    def once(ours, peer, *, rounds=1, warmup=1):
        return alternate(ours, peer, rounds=1, warmup=warmup)

    for module in (scenarios, producer):
        monkeypatch.setattr(module, "alternate", once)
    with bench_in(tmp_path, quick=True) as bench:
        yield bench


def rows_of(bench, name, tmp_path):
    """Run a scenario; its rows as the results store gives them back."""
    [scenario] = chosen([name])
    scenario.function(bench)
    Results(tmp_path / "results").append(bench.rows)
    rows = Results(tmp_path / "results").table().to_pylist()
    assert {(each["phase"], each["success_ratio"]) for each in rows} == {(2, 1.0)}
    assert all(each["messages_per_s"] > 0 for each in rows)
    return rows


def targets(bench):
    return {each.ours: each.target for each in bench.comparisons if each.target is not None}


def test_send_is_compared_with_two_clients_with_the_acknowledgements_and_without(bench, tmp_path):
    rows = rows_of(bench, "send", tmp_path)
    compared = [(each.ours, each.peer, each.target) for each in bench.comparisons]
    assert compared == [
        ("ours: send", "kafka-python", 6.0),
        ("ours: send, the calls alone", "kafka-python", None),
        ("ours: send", "librdkafka", 0.3),
        ("ours: send, the calls alone", "librdkafka", None),
    ]
    assert [each["backend"] for each in rows[:3]] == ["files", "kafka-python", "files"]


def test_a_client_that_loses_messages_has_no_rate(bench):
    kept = []
    lossy = Client(lambda value: kept or kept.append(value), lambda: None, lambda: len(kept))
    with pytest.raises(BenchError, match="0 of 7 messages are stored"):
        producer.send_all(bench, lossy, 7)


def test_send_many_stands_beside_its_promise(bench, tmp_path):
    rows = rows_of(bench, "send-many", tmp_path)
    assert targets(bench) == {"send_many, acks 1": 1.0}
    assert [(each["acks"], each["messages"]) for each in rows] == [
        ("written", 100_000),
        ("durable", 100_000),
    ]


def test_poll_and_poll_arrow_stand_beside_their_promises(bench, tmp_path):
    rows = rows_of(bench, "poll", tmp_path)
    assert targets(bench) == {"poll": 1.0, "poll_arrow": 1.0}
    assert [each["scenario"] for each in rows] == ["poll", "poll_arrow"]


def test_every_assignor_stands_beside_the_promise_with_its_slowest_case(bench, tmp_path):
    rows = rows_of(bench, "assignors", tmp_path)
    assert [each["backend"] for each in rows] == list(assignors.ASSIGNORS)
    assert list(targets(bench).values()) == [1.0] * 4


def test_in_the_assignors_cases_everybody_left_owns_what_it_was_given():
    counts, members = assignors.cases(20, 200)["10 topics, half of them each, a tenth left"]
    assert len(members) == 18
    assert {len(member.topics) for member in members.values()} == {5}
    owned = [partition for member in members.values() for partition in member.owned]
    assert len(owned) == len(set(owned))
    assert len(owned) >= 150
    assert all(number < counts[topic] for topic, number in owned)


def test_consumers_and_partitions_have_a_row_each_and_a_chart(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(groups, "CONSUMERS", (1, 2))
    monkeypatch.setattr(groups, "PARTITIONS", (1, 2))
    monkeypatch.setattr(groups, "_RECORDS", 20_000)
    rows = rows_of(bench, "consumers", tmp_path)
    assert [(each["backend"], each["clients"]) for each in rows] == [
        ("1 partition", 1),
        ("1 partition", 2),
        ("2 partitions", 1),
        ("2 partitions", 2),
    ]
    assert targets(bench) == {"2 consumers, 2 partitions": 1.75}
    label = consumers_picture(bench.rows).axes[0].get_xlabel()
    assert "waits 1 ms" in label
    assert bench.machine.cpu in label


def test_consumers_that_run_out_of_records_have_no_rate(bench, monkeypatch):
    monkeypatch.setattr(groups, "CONSUMERS", (1,))
    monkeypatch.setattr(groups, "_RECORDS", 1)
    monkeypatch.setattr(groups.Group, "settle", lambda group: group.wait_until(group.notes().read))
    with pytest.raises(BenchError, match="were all read"):
        groups.rates(bench, 1)


def test_a_rebalance_is_timed_and_only_the_eager_protocol_gives_up_what_stays(
    bench, tmp_path, monkeypatch
):
    monkeypatch.setattr(groups, "_RECORDS", 10_000)
    monkeypatch.setattr(rebalance, "PARTITIONS", 4)
    monkeypatch.setattr(rebalance, "SESSION_TIMEOUT_MS", 600)
    rows = rows_of(bench, "rebalance", tmp_path)
    given_up = {each["backend"]: each["notes"].partition(" ")[0] for each in rows}
    assert list(given_up) == [
        "a consumer is killed",
        "a consumer leaves",
        "range, a third joins",
        "cooperative-sticky, a third joins",
    ]
    assert given_up["range, a third joins"] > "0"
    assert given_up["cooperative-sticky, a third joins"] == "0"
    assert [each.target for each in bench.comparisons] == [1.0, 1.0, 1.0, 0.5]


def test_a_gap_is_between_records_of_one_partition_that_stays():
    notes = [Handled(when, number, "a") for when, number in enumerate((0, 1, 1, 0, 2, 2, 2, 0))]
    assert rebalance.longest_gap(notes, {0, 1}, 0, 7) == 5
    assert rebalance.longest_gap(notes, {0, 2}, 0, 7) == 4
    assert rebalance.longest_gap(notes, {1}, 1, 3) == 1


def test_a_partition_that_stands_still_all_the_time_is_the_longest_gap():
    notes = [Handled(float(when), 0, "a") for when in range(10)]
    assert rebalance.longest_gap(notes, {0, 1}, 2, 9) == 7
    assert rebalance.longest_gap([*notes, Handled(3, 1, "a")], {0, 1}, 2, 9) == 6


def test_notes_begin_where_they_are_taken(tmp_path):
    first, second = tmp_path / "consumer-1.log", tmp_path / "consumer-2.log"
    first.write_bytes(b"1000000000 7\n")
    notes = groups.Notes(tmp_path)
    with first.open("ab") as file:
        file.write(b"3000000000 0\n")
    second.write_bytes(b"2000000000 1\n")
    assert notes.read() == [Handled(2.0, 1, "consumer-2"), Handled(3.0, 0, "consumer-1")]


def test_the_chart_has_a_line_for_each_number_of_partitions_and_what_would_be_ideal():
    rows = [
        row(
            backend=f"{partitions} partitions", clients=n, messages_per_s=800.0 * min(n, partitions)
        )
        for partitions in (2, 4)
        for n in (1, 2, 4)
    ]
    axes = throughput_by_consumers(rows).axes[0]
    drawn = [list(line.get_ydata()) for line in axes.lines]
    assert drawn == [[800, 1600, 3200], [800, 1600, 1600], [800, 1600, 3200]]
    assert [text.get_text() for text in axes.texts] == ["2 partitions", "4 partitions"]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "4"]
