"""What notebook 28 shows: histories by hand, stories, films, close-ups."""

from __future__ import annotations

from importlib.resources import files

import msgspec
import pytest

from craft2.apps.lessons.breaking import (
    NothingBroke,
    close_up,
    failed_cluster_seed,
    film,
    first_broken,
    judge,
    lanes,
    poll,
    send,
    tell,
)
from craft2.apps.simulate.cluster_seeds import ClusterRun
from craft2.course.exercises.failed_cluster_seed import LINE

STORED = ClusterRun.load(str(files("craft2.apps.lessons").joinpath("failed_cluster_seed.json")))


@pytest.mark.parametrize(
    ("history", "found"),
    [
        ([send("a", 0), send("b", 1), poll(("b", 1))], {"lost-write"}),
        ([send("a", 0), poll(("a", 0), ("a", 1))], {"duplicate"}),
        ([send("b", 0), poll(("a", 0)), poll(("b", 0), who="other")], {"inconsistent-offsets"}),
        ([send("a", -1, "info"), send("b", 0), poll(("b", 0))], set()),
    ],
)
def test_a_history_by_hand_is_judged_in_its_order(history, found):
    assert judge(*history).anomalies.keys() == found


def test_the_trace_of_the_exercise_shows_the_mistake_and_then_the_damage(capsys):
    failed_cluster_seed()
    told = capsys.readouterr().out.splitlines()
    assert len(told) == len(STORED.timeline)
    assert told[LINE - 1] == " 17.  2,977 ms  reader      reads 2:96 at t-0, 149"
    watermarks = [line for line in told[: LINE - 1] if "high watermark" in line]
    assert watermarks[-1].endswith("broker 1    high watermark of t-0 is 149")
    assert "there was '2:96'" in told[-1]


def test_long_moments_are_broken_under_their_words(capsys):
    tell([(7, "fault", "word " * 30)])
    first, second = capsys.readouterr().out.splitlines()
    assert len(first) < 99
    assert second.startswith(" " * first.index("word") + "word")


def test_a_film_has_what_brokers_suffer_and_who_leads():
    found = lanes(STORED)
    assert list(found.lanes) == ["broker 1", "broker 2", "broker 3", "t-0"]
    assert [span.owner for span in found.lanes["broker 1"]] == ["runs", "cut off"]
    assert [span.owner for span in found.lanes["broker 3"]] == ["runs", "down", "runs"]
    assert [span.words for span in found.lanes["t-0"]] == [
        "broker 1 leads, epoch 1",
        "broker 3 leads, epoch 2",
    ]
    assert min(span.start_s for spans in found.lanes.values() for span in spans) == found.begin_s
    assert "broken: logs agree" in film(STORED).html


def test_several_things_at_once_are_one_span_and_a_cut_ends_when_any_cut_is_mended():
    run = msgspec.structs.replace(
        STORED,
        timeline=[
            (1_000, "fault", "broker-1 and broker-2, group are cut off, for 500 ms"),
            (1_200, "fault", "broker-1 is cut off from the other brokers, for 2000 ms"),
            (1_300, "fault", "broker-2 reaches broker-3 no more, for 1000 ms"),
            (1_400, "fault", "broker-1 is killed, and is back 300 ms later; broker-2 loses power, "
             "and is back 50 ms later"),
            (3_000, "controller", "nobody leads t-0 in epoch 3; 1 in sync"),
        ],
    )  # fmt: skip
    found = lanes(run).lanes
    assert [span[:4] for span in found["broker 1"] if span.owner != "runs"] == [
        (1.0, 1.2, "cut off", "cut off from broker 2, group"),
        (1.2, 1.4, "cut off", "cut off from broker 2, group; cut off from the other brokers"),
        (1.4, 1.5, "down", "cut off from broker 2, group; cut off from the other brokers; down"),
        (1.5, 1.7, "down", "down"),
    ]
    assert [span[:4] for span in found["broker 2"] if span.owner != "runs"] == [
        (1.3, 1.4, "cut off", "does not reach broker 3"),
        (1.4, 1.45, "down", "does not reach broker 3; down"),
        (1.45, 1.5, "cut off", "does not reach broker 3"),
    ]


def test_faults_and_decisions_are_told_though_only_the_last_moments_are(capsys):
    moments = [(1, "fault", "a"), (2, "broker 1", "b"), (3, "controller", "c"), (4, "reader", "d")]
    tell(moments, most=1)
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["a", "c", "d"]


def test_what_was_before_the_first_fault_is_cut_off():
    run = msgspec.structs.replace(
        STORED,
        timeline=[
            (100, "controller", "broker 3 leads t-0 in epoch 0; 3 in sync"),
            (200, "controller", "broker 2 leads t-0 in epoch 1; 2 in sync"),
            *STORED.timeline,
        ],
    )
    found = lanes(run)
    assert found.begin_s == pytest.approx(1.835)
    owners = [(span.owner, span.start_s) for span in found.lanes["t-0"]]
    assert owners[0] == ("broker 2", found.begin_s)
    assert [owner for owner, _ in owners] == ["broker 2", "broker 1", "broker 3"]
    assert {mark.label for mark in found.marks} == {"fault", "1", "2", "logs agree"}


@pytest.mark.parametrize("bug", ["led-by-anybody", "cuts-at-watermark"])
def test_a_close_up_is_of_the_same_run_and_has_every_append(bug):
    run = first_broken(bug)
    found = close_up(run)
    assert found[-1] == run.timeline[-1]
    partition = next(name for name in ("t-0", "t-1") if name in run.what)
    appends = [what for _, who, what in found if who.startswith("broker") and "appends" in what]
    assert len(appends) > 50
    assert all(f"to {partition}," in what for what in appends)


def test_without_a_mistake_nothing_is_found():
    with pytest.raises(NothingBroke, match="none of 1 seeds breaks a rule"):
        first_broken(seeds=range(1))
