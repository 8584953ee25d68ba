"""What notebook 26 counts and draws, without a cluster; notebook 26 itself runs one."""

from __future__ import annotations

import threading

import pytest

from craft2.apps.cluster_admin import BrokerStatus, ClusterStatus, PartitionStatus
from craft2.apps.lessons import failover
from craft2.apps.lessons.failover import (
    NothingComesError,
    Sender,
    Watch,
    all_in_sync,
    leader_of,
    rates,
    throughput,
)
from craft2.clock import ManualClock
from craft2.viz import Mark, rates_with_gaps


def sender(acks, answers):
    """One that has sent, and had these answers at these seconds."""
    one = Sender.__new__(Sender)
    one.acks, one.began_s, one.answers = acks, 100.0, list(enumerate(answers))
    return one


def steady(gap):
    """A hundred a second, but for a second from 101 on, or so."""
    return [100 + n / 100 for n in range(300) if not gap[0] < n / 100 < gap[1]]


def test_the_longest_gap_and_the_rates():
    one = sender("all", steady((1.0, 2.0)))
    start, length = one.longest_gap_s()
    assert (start, length) == pytest.approx((101.0, 1.0))
    assert one.longest_gap_s(102.5)[1] == pytest.approx(0.01)  # it had ended by then
    seconds, values = rates([one], 0.5)["acks=all"]
    assert seconds == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert values == [100, 100, 2, 0, 100]


def test_the_chart_has_a_plot_for_each_with_its_gap():
    both = [sender("1", steady((1.0, 1.5))), sender("all", steady((1.0, 2.0)))]
    chart = throughput(both, "A leader dies", at_s=101.0, words="kill -9")
    assert [axes.get_ylabel() for axes in chart.axes] == ["acks=1", "acks=all"]
    words = [[text.get_text() for text in axes.texts] for axes in chart.axes]
    assert words == [["0.50 s", "kill -9"], ["1.00 s"]]
    alone = throughput(both[1:], "A leader dies", at_s=101.0, words="kill -9")
    colours = [axes.collections[0].get_facecolor().tolist() for axes in (*chart.axes, *alone.axes)]
    assert colours[0] != colours[1] == colours[2]


def test_what_the_columns_leave_out_is_said_above_them():
    seconds, values = [n / 10 for n in range(50)], [1_000.0] * 50
    values[20:22], values[22] = [0.0, 0.0], 9_000.0
    chart = rates_with_gaps({"all": (seconds, values)}, gaps={"all": (2.0, 0.2)})
    [axes] = chart.axes
    [words] = axes.texts
    assert words.get_text() == "0.20 s, then up to 9k/s: catching up"
    drawn = axes.collections[0].get_paths()[0].vertices[:, 1].max()
    assert drawn < words.xy[1] < axes.get_ylim()[1]


def status(leaders, isr=(1, 2, 3)):
    partitions = [PartitionStatus("t", n, who, (1, 2, 3), isr) for n, who in enumerate(leaders)]
    brokers = [BrokerStatus(n, "x:1", None, 0, 0) for n in (1, 2, 3)]
    return ClusterStatus("c", 1, brokers, partitions)


def test_who_leads_is_drawn_as_lanes(monkeypatch):
    told = [status((1, 2)), status((1, 2)), status((2, 2)), status((-1, 2))]
    heard, clock = threading.Event(), ManualClock()

    def read(bootstrap):
        clock.advance(1)
        if len(told) == 1:
            heard.set()
        return told.pop(0) if len(told) > 1 else told[0]

    monkeypatch.setattr(failover, "read_status", read)
    watch = Watch("x:1", clock)
    heard.wait(10)
    watch.stop()
    watch.marks.append(Mark(0.5, "", "kill -9 of broker 1", fault=True))
    assert watch.others_led_s("t", 1) == pytest.approx(2.5, abs=0.3)  # the third answer said so
    lanes = watch.lanes("t").lanes
    assert [span.owner for span in lanes["t-0"]] == ["broker 1", "broker 2", "nobody"]
    assert [span.owner for span in lanes["t-1"]] == ["broker 2"]
    assert watch.lanes("u", "t").lanes == lanes


def test_what_a_status_says_of_a_topic():
    assert leader_of(status((1, 2)), "t", 1) == 2
    assert leader_of(status((1, 2)), "u") == -1
    assert all_in_sync(status((1,)), "t")
    assert not all_in_sync(status((1,), isr=(1, 2)), "t")
    assert not all_in_sync(status((1,)), "u")


def test_waiting_ends_and_says_for_what():
    one = sender("all", [])
    one.topic, one._clock = "t", ManualClock()
    with pytest.raises(NothingComesError, match="3 answers for t"):
        one.wait_for(3)
