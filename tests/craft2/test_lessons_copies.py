"""The stage of notebook 25: one partition's copies, driven by hand."""

from __future__ import annotations

import random

import pytest

from craft2.apps.lessons.copies import Copies, StageError
from craft2.apps.lessons.copies_film import film, lanes_of_copies

UNCLEAN = {"unclean.leader.election.enable": "true"}


def test_a_record_is_acknowledged_when_all_in_sync_have_it():
    copies = Copies(3)
    copies.stall(3)
    copies.produce("a")
    copies.run(100)
    assert copies.values(2) == ["a"]
    assert copies.acknowledged == []
    copies.go_on(3)
    copies.run(50)
    assert copies.acknowledged == ["a"]


def test_a_follower_that_stalls_leaves_the_isr_and_comes_back():
    copies = Copies(3, max_lag_ms=300)
    copies.run(50)
    copies.stall(3)
    copies.produce("a")
    copies.run(250)
    assert copies.record.isr == (1, 2, 3)
    copies.run(250)
    assert copies.record.isr == (1, 2)
    assert copies.acknowledged == ["a"]
    copies.go_on(3)
    copies.run(100)
    assert copies.record.isr == (1, 2, 3)


def test_too_few_in_sync_refuse():
    copies = Copies(2, settings={"min.insync.replicas": "2"})
    copies.stall(2)
    copies.produce("a")
    copies.run(500)
    copies.produce("b")
    assert [one.state for one in copies.sent] == ["unknown", "refused"]
    copies.produce("c", acks="1")
    assert copies.acknowledged == ["c"]


def test_what_a_leader_has_alone_is_cut_off_when_it_comes_back():
    copies = Copies(3)
    copies.produce("a")
    copies.run(100)
    copies.cut(1)
    copies.produce("b", acks="1")
    copies.produce("c")
    copies.run(200)
    assert copies.record.leader == 2
    assert copies.acknowledged == ["a", "b"]
    copies.produce("d")
    copies.run(50)
    copies.heal()
    copies.run(200)
    assert [copies.log(number) for number in (1, 2, 3)] == ["0:a 1:d |"] * 3
    assert copies.lost == ["b"]  # acks=1; c was never acknowledged
    said = [one.words for one in copies.post.letters if one.target == "broker 1"]
    assert "we differ: my epoch 0 ends at 1" in said  # so it keeps a, and fetches d alone
    assert copies.record.isr == (1, 2, 3)


@pytest.mark.parametrize(("settings", "leader"), [({}, -1), (UNCLEAN, 3)])
def test_only_an_unclean_election_loses(settings, leader):
    copies = Copies(3, settings=settings)
    copies.run(50)
    copies.stall(3)
    copies.run(100)
    copies.produce("a")
    copies.run(500)
    copies.kill(2)
    copies.run(100)
    copies.kill(1)
    copies.go_on(3)
    copies.run(200)
    assert copies.record.leader == leader
    copies.start(1)
    copies.run(300)
    assert copies.lost == (["a"] if leader == 3 else [])


def test_power_takes_what_was_not_synced():
    copies = Copies(3)
    copies.produce("a")
    copies.run(100)
    for number in (1, 2, 3):
        copies.lose_power(number)
    for number in (1, 2, 3):
        copies.start(number)
    copies.run(500)
    assert copies.lost == ["a"]


def test_who_does_not_run_is_named():
    copies = Copies(3)
    copies.kill(1)
    with pytest.raises(StageError, match="broker 1 does not run"):
        copies.produce("a")


def play(seed: int) -> Copies:
    """Anything but unclean elections and power cuts, by chance; then all is well for a while."""
    chance = random.Random(seed)
    copies = Copies(3)
    down: set[int] = set()
    stalled: set[int] = set()
    for number in range(60):
        who = chance.choice((1, 2, 3))
        what = chance.choice(("produce",) * 6 + ("kill", "start", "stall", "go_on", "cut", "heal"))
        leader = copies.record.leader
        if what == "produce" and leader > 0 and leader not in down:
            copies.produce(f"{number}")
        elif what == "kill" and who not in down and len(down) < 2:
            copies.kill(who)
            down.add(who)
            stalled.discard(who)
        elif what == "start" and down:
            copies.start(back := min(down))
            down.remove(back)
        elif what == "stall" and who not in stalled | down:
            copies.stall(who)
            stalled.add(who)
        elif what == "go_on" and stalled:
            copies.go_on(back := min(stalled))
            stalled.remove(back)
        elif what == "cut" and who not in down and not copies.post.cut_off:
            copies.cut(who)
        elif what == "heal":
            copies.heal()
        copies.controller_waits_ms = chance.choice((0, 0, 100))
        copies.run(chance.choice((3, 20, 100, 400)))
    for number in sorted(down):
        copies.start(number)
    for number in sorted(stalled):
        copies.go_on(number)
    copies.heal()
    copies.run(3_000)
    return copies


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_nothing_acknowledged_by_all_is_lost(seed):
    copies = play(seed)
    assert copies.record.isr == (1, 2, 3)
    assert copies.lost == []
    assert len({copies.log(number) for number in copies.numbers}) == 1
    assert len(copies.acknowledged) > 3


def test_the_same_steps_make_the_same_film():
    first, second = play(7), play(7)
    assert first.post.letters == second.post.letters
    assert film(first, "x").html == film(second, "x").html


def test_the_film_shows_epochs_watermarks_and_the_isr():
    copies = Copies(3)
    copies.produce("a")
    copies.run(100)
    copies.cut(1)
    copies.produce("b")
    copies.run(200)
    lanes = lanes_of_copies(copies, 0, copies.now_ms)
    assert [span.words for span in lanes.lanes["controller"]] == [
        "1 leads; ISR 1 2 3",
        "2 leads; ISR 2 3",
    ]
    assert [span.words for span in lanes.lanes["broker 2"]] == [
        "follows, epoch 0",
        "leads, epoch 1",
    ]
    last = lanes.boards["broker 1"][-1]
    assert [(box.words, box.sure) for box in last.boxes] == [("a", True), ("b", False)]
    assert last.bar == 1
    assert any(arrow.lost for arrow in lanes.arrows)
