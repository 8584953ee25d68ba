"""A run that breaks a rule becomes a short trace that can be read, replayed, drawn and kept."""

from __future__ import annotations

import json

import pytest

from craft2.apps.lessons.raft_failures import show_failure
from craft2.apps.simulate.raft_bugs import BUGS, bug_named
from craft2.apps.simulate.raft_nodes import Action
from craft2.apps.simulate.raft_rules import Broken
from craft2.apps.simulate.raft_world import World
from craft2.apps.simulate.shrink import Shrinker, shrunk
from craft2.apps.simulate.trace import Replay, Trace, replay
from craft2.apps.simulate.trace_check import why_not
from phase3_raft.raft.messages import RaftError


def short(bug, rule):
    """A trace of a planted bug: of the first seed with which it breaks this rule."""
    ran = ((seed, run(seed, bug).broken) for seed in range(200))
    return shrunk(next(seed for seed, broken in ran if broken and broken.rule == rule), bug=bug)


def run(seed, bug):
    world = World(seed, server=BUGS[bug].server, disk=BUGS[bug].disk, recorded=True)
    world.broken = None
    try:
        world.run()
    except Broken as broken:
        world.broken = broken
    return world


@pytest.fixture(scope="module")
def elected():
    return short("half-elects", "election safety")


@pytest.mark.parametrize("seed", range(10))
def test_what_was_recorded_happens_again_when_it_is_replayed(seed):
    world = World(seed, recorded=True)
    world.run()
    assert why_not(5, world.actions) == ""
    again = Replay(5, bug_named(None))
    again.run(world.actions)
    assert again.broken is None
    assert again.actions == world.actions
    assert again.rules.committed == world.rules.committed


def test_a_trace_is_short_and_every_action_of_it_is_needed(elected):
    assert elected.rule == "election safety"
    assert len(elected.actions) <= 16  # two elections among five servers
    shrinker = Shrinker(5, BUGS["half-elects"], elected.rule)
    for place in range(len(elected.actions)):
        assert shrinker.still(elected.actions[:place] + elected.actions[place + 1 :]) is None


def test_a_trace_is_harmless_without_the_bug(elected):
    assert replay(elected).broken.rule == "election safety"
    assert replay(elected, bug_named(None)).broken is None


def test_a_trace_can_be_read(elected):
    lines = replay(elected).telling()
    assert lines[-1].startswith("election safety: servers ")
    assert any(line.endswith(": leader, adds 1 (no-op)") for line in lines)
    assert any("gets from" in line and "would you vote for me in term 1?" in line for line in lines)


def test_a_trace_is_kept_in_a_file_and_says_what_happened_there_too(elected, tmp_path):
    elected.save(tmp_path / "trace.json")
    assert Trace.load(tmp_path / "trace.json") == elected
    first = json.loads((tmp_path / "trace.json").read_text())["actions"][0]
    assert first["what"] == "start"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no json", "is no trace"),
        ('{"nodes": 3}', "is no trace"),
        ('{"nodes": 3, "actions": [], "format": 7}', "format 7"),
        ('{"nodes": 3, "actions": [], "bug": "votes-thrice"}', "did you mean votes-twice"),
        ('{"nodes": 0, "actions": []}', "nodes: 0, where 1 to 9"),
        ('{"nodes": 200000, "actions": []}', "nodes: 200000"),
        ('{"nodes": 3, "actions": []}', 'none of them is "start"'),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path, text, words):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(RaftError, match=words):
        Trace.load(path)


@pytest.mark.parametrize(
    "content",
    [
        b'{"nodes": 3, "actions": [], "what": "\xff"}',
        b'{"nodes": 3, "actions": [], "what": "\xed\xa0\x80"}',
        b'{"nodes": 3, "actions": [], "more": ' + b"[" * 9_000,
    ],
    ids=["no UTF-8", "half a character", "lists in each other"],
)
def test_a_file_that_cannot_even_be_read_as_text_is_refused(tmp_path, content):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(RaftError, match="is no trace"):
        Trace.load(path)


STARTED = {"ms": 5, "server": 1, "what": "start", "clock_ms": 5}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"what": "carry"}, r"actions\[1\].what: 'carry' is none of start, "),
        ({"server": 99}, r"actions\[1\].server: 99, and there are servers 1 to 3"),
        ({"ms": 4}, r"actions\[1\].ms: 4, after an action at 5"),
        ({"ms": 2.5}, r"Expected `int`, got `float` - at `\$.actions\[1\].ms`"),
        ({"clock_ms": -1}, r"actions\[1\].clock_ms: -1"),
        ({"arguments": [1, 2, 3]}, r"actions\[1\].arguments: .* length 0"),
        ({"what": "crash_soon"}, r"actions\[1\].arguments: .* length 2"),
        ({"what": "crash_soon", "arguments": [4, 0.5]}, r"arguments\[0\]: Expected `int` <= 3"),
        ({"what": "change", "arguments": ["x", "y"]}, r"arguments\[0\]: Expected `array`"),
        ({"what": "ask", "arguments": list("abcde")}, r"arguments\[0\]: Expected `int`"),
        ({"what": "ask", "arguments": [0, "list", 7, 0, 0]}, r"7 is no value to list"),
        ({"what": "ask", "arguments": [0, "write", None, 0, 0]}, r"None is no value to write"),
        ({"what": "deliver"}, r"actions\[1\].message: none, with 'deliver'"),
        ({"message": [6, 1, 2, 1]}, r"actions\[1\].message: one, with 'start'"),
        ({"what": "deliver", "message": [6, 3, 2, 1]}, r"message: from 3 to 2, delivered to 1"),
    ],
)
def test_a_damaged_trace_is_refused_with_the_place(tmp_path, change, words):
    path = tmp_path / "trace.json"
    actions = [STARTED, STARTED | change]
    path.write_text(json.dumps({"nodes": 3, "actions": actions}))
    with pytest.raises(RaftError, match=words) as refused:
        Trace.load(path)
    assert str(path) in str(refused.value)
    assert "craft2 raft simulate has written" in refused.value.fix


def test_a_cluster_that_is_down_at_the_end_of_a_long_trace_is_drawn():
    actions = [Action(0, 1, "start", 0), Action(1, 1, "crash", 1)]
    actions += [Action(2, 1, "start", 2), Action(2, 1, "crash", 2)] * 400
    story = replay(Trace(nodes=1, actions=[*actions, *[Action(3, 1, "ring", 3)] * 600]))
    assert story.telling()
    assert story.lanes()


def test_a_trace_is_drawn(elected):
    lanes = replay(elected).lanes()
    leads = {lane for lane, spans in lanes.lanes.items() for s in spans if "leader" in s.words}
    assert len(leads) == 2
    assert any(arrow.lost for arrow in lanes.arrows)
    assert any("election safety" in mark.because for mark in lanes.marks)


def test_what_a_read_shows_that_it_must_not_is_made_short_as_well():
    trace = short("reads-at-once", "linearizability")
    assert trace.rule == "linearizability"
    assert len(trace.actions) < 80
    assert replay(trace).broken.rule == "linearizability"


def test_of_a_run_in_which_nothing_happens_the_faults_are_taken_away():
    trace = shrunk(0, bug="no-no-op")
    assert trace.rule == "liveness"
    telling = replay(trace).telling()
    assert telling[-1].startswith("liveness: it did not happen that a read is answered")
    assert len(telling) < 40


def test_a_seed_that_breaks_no_rule_has_no_trace():
    assert shrunk(0, nodes=3) is None
    with pytest.raises(RaftError, match="breaks no rule"):
        show_failure(0, nodes=3)


def test_a_notebook_shows_the_failure_of_somebodys_own_server(capsys):
    film = show_failure(2, server=BUGS["half-elects"].server)
    assert "election safety" in film.html
    assert "gets from" in capsys.readouterr().out
