"""The stage of the notebooks: the real servers, stepped by hand, played again, and drawn."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

from craft2.apps.panel.raft_panel import Do, RaftPanel
from craft2.apps.simulate.film import film, lanes_of_stage
from craft2.apps.simulate.stage import Stage
from phase3_raft.raft.messages import Append, RaftError
from phase3_raft.raft.state import NotLeader


def led(servers=3, **made):
    stage = Stage(servers, **made)
    stage.time_out(1)
    stage.run(100)
    assert stage.leader == 1
    return stage


def test_what_is_proposed_reaches_all_logs():
    stage = led()
    stage.propose(1, "x = 3")
    assert stage.log(1) == "1: no-op | 1: x = 3"
    stage.run(80)
    assert {stage.log(n) for n in stage.numbers} == {"1: no-op, 1: x = 3 |"}


def test_two_timers_at_once_may_split_the_vote():
    stage = Stage(4)
    stage.time_out(1, 2)
    while stage.now_ms < 100 and max(look[-1].term for look in stage.looks.values()) < 1:
        stage.run(1)
    assert stage.leader is None
    assert stage.run_until_led() in stage.numbers
    assert stage.leaders == [stage.leader]


def test_a_leader_that_is_cut_off_keeps_what_nobody_else_has_until_it_is_overwritten():
    stage = led(5)
    stage.cut(1)
    stage.propose(1, "lost")
    new = stage.run_until_led(besides=1)
    assert "lost" in stage.log(1)
    stage.heal()
    stage.run(300)
    assert "lost" not in stage.log(1)
    assert stage.log(1) == stage.log(new)


def test_a_dropped_message_does_not_arrive_and_is_sent_again():
    stage = led()
    stage.propose(1, "x = 3")
    flying = [one.number for one in stage.on_the_way() if isinstance(one.message, Append)]
    stage.drop(*flying)
    assert {stage.letters[number].fate for number in flying} == {"dropped"}
    stage.run(13)
    assert stage.log(2) == "1: no-op |"
    stage.run(200)
    assert stage.log(2) == "1: no-op, 1: x = 3 |"


def test_who_is_stopped_comes_back_with_its_disk():
    stage = led()
    stage.stop(3)
    stage.propose(1, "x = 3")
    stage.run(60)
    assert stage.looks[3][-1].role == "down"
    stage.start(3)
    assert stage.terms(3) == (1,)
    stage.run(200)
    assert stage.terms(3) == (1, 1)


def test_the_same_steps_give_the_same_story_and_a_fork_another():
    stage = led(5)
    stage.stop(2)
    stage.run(50)
    stage.propose(1, "x = 3")
    stage.run(100)
    again = stage.fork(stage.now_ms)
    assert [vars(a) for a in again.letters] == [vars(b) for b in stage.letters]
    assert again.looks == stage.looks
    other = stage.fork(100)
    other.run(150)
    assert "x = 3" not in other.log(1)
    assert other.looks[2][-1].role != "down"


def test_logs_of_the_papers_figures_are_a_beginning():
    stage = Stage(3, logs={1: (1, 1, 2), 2: (1, 1), 3: (1, 1, 1)}, committed=2)
    assert stage.terms(1) == (1, 1, 2)
    assert stage.log(3) == "1: 1, 1: 2 | 1: 3"
    stage.time_out(3)  # its log is behind that of 1, not that of 2
    assert stage.run_until_led() == 3 or stage.leader == 1


@pytest.mark.parametrize(
    ("act", "named"),
    [
        (lambda s: s.propose(2, "x"), "server"),
        (lambda s: s.stop(9), "server 9 is not running"),
        (lambda s: s.start(1), "server 1 cannot be started"),
        (lambda s: s.drop(10_000), "message 10000 is not on the way"),
        (lambda s: s.fork(10**6), "at_ms is 1000000"),
        (lambda s: s.cut(1, 99), "name some of"),
        (lambda s: s.run(-5), "ms is -5.*time does not go back, fork does"),
        (lambda s: s.run(1.5), "ms is 1.5.*whole number"),
        (lambda s: s.fork(1.5), "at_ms is 1.5.*whole number"),
        (lambda s: s.propose(1, 5), 'the command 5 is no text.*propose "5"'),
        (lambda s: s.change_voters(1, 1, 2, 3, "x"), r"voters is \(1, 2, 3, 'x'\)"),
        (lambda s: s.change_voters(1, 1, 2, 9), r"voters is \(1, 2, 9\).*some of \[1, 2, 3\]"),
        (lambda s: s.change_voters(1), r"voters is \(\)"),
        (lambda s: s.cut(), r"what to cut off is \(\).*name some of \[1, 2, 3\]"),
        (lambda s: Stage(0), "a stage of 0 servers"),
        (lambda s: Stage(3, voters=[]), r"voters is \(\).*name some of \[1, 2, 3\]"),
        (lambda s: Stage(3, voters=[1, 1]), r"voters is \(1, 1\).*each once"),
        (lambda s: Stage(3, voters=[1, 4]), r"voters is \(1, 4\)"),
        (lambda s: Stage(3, logs={1: [3, 1, 2]}), r"logs\[1\] is \[3, 1, 2\].*never fall"),
        (lambda s: Stage(3, logs={1: ["a"]}), r"logs\[1\] is \['a'\].*terms from 1 on"),
        (lambda s: Stage(3, logs={2: [0]}), r"logs\[2\] is \[0\].*terms from 1 on"),
        (lambda s: Stage(3, logs={9: [1]}), r"logs has a server 9.*name some of \[1, 2, 3\]"),
        (lambda s: Stage(3, committed=-1), "committed is -1"),
        (lambda s: RaftPanel(s).press("nonsense"), "Let 10 ms pass"),
    ],
)
def test_what_makes_no_sense_is_named(act, named):
    with pytest.raises(RaftError, match=named):
        act(led())


def test_a_leader_says_that_it_is_there_in_every_heartbeat_from_the_first_on():
    stage = Stage(5, seed=4)
    stage.run_until_led()
    began = stage.now_ms
    stage.run(400)
    sent = {
        one.sent_ms
        for one in stage.letters
        if one.sent_ms > began and one.message.sender == stage.leader
    }
    times = sorted({began} | sent)
    assert max(b - a for a, b in pairwise(times)) <= 60


def test_what_was_refused_is_not_played_again():
    stage = led()
    stage.stop(1)
    for refused in (
        lambda: stage.propose(1, "x"),
        lambda: stage.time_out(9),
        lambda: stage.read(9),
    ):
        with pytest.raises(RaftError):
            refused()
    assert stage.fork(stage.now_ms).leaders == []


def test_a_film_has_lanes_arrows_and_boards():
    stage = led()
    stage.cut(3)
    stage.propose(1, "x = 3")
    stage.run(50)
    lanes = lanes_of_stage(stage, 0, stage.now_ms)
    assert [span.words for span in lanes.lanes["server 1"]][-1] == "leader, term 1"
    lost = [arrow for arrow in lanes.arrows if arrow.lost]
    assert lost
    assert all("cut off" in arrow.words for arrow in lost)
    last = lanes.boards["server 1"][-1]
    assert [(box.words, box.sure) for box in last.boxes] == [("no-op", True), ("x = 3", True)]
    assert "match/next of 2: 2/3, 3: " in last.words
    assert any(mark.because.startswith("server 1 leads term 1") for mark in lanes.marks)
    assert "cut off from the others: server 3" in json.dumps(lanes.marks)
    assert "message" in film(stage).html


def test_a_film_can_halt_at_every_message_that_arrives():
    stage = led()
    stops = [
        json.loads(re.search(r'"stops": (\[.*?\])', film(stage, every_message=each).html)[1])
        for each in (False, True)
    ]
    arrivals = {one.arrives_ms / 1000 for one in stage.letters if one.sent_ms < stage.now_ms}
    assert set(stops[1]) - set(stops[0]) == arrivals - set(stops[0])


def test_the_panel_does_what_its_buttons_say_and_keeps_the_branch_that_was_left():
    panel = RaftPanel(Stage(3))
    panel.press(Do.RING, 1)
    panel.press(Do.RUN)
    assert panel.status().startswith("100 ms; server 1 leads")
    panel.press(Do.PROPOSE, 1)
    panel._buttons[Do.DROP].click()
    panel.press(Do.STEP)
    panel.press(Do.STOP, 2)
    panel.press(Do.START, 2)
    panel.press(Do.CUT, 3)
    panel.press(Do.HEAL)
    panel.press(Do.BACK, 100)
    assert panel.stage.log(1) == "1: no-op |"
    assert len(panel.branches) == 2
    assert "x = 1" in panel.branches[0].log(1)
    with pytest.raises(NotLeader):
        panel.press(Do.PROPOSE, 2)
    panel._server.value = 2
    panel._buttons[Do.PROPOSE].click()
    assert "server 2" in panel._status.value
