"""A failing seed in a notebook: the short trace of it, in words and as a film."""

from __future__ import annotations

from importlib.resources import files

from craft2.apps.simulate.raft_bugs import Bug
from craft2.apps.simulate.shrink import shrunk
from craft2.apps.simulate.trace import Trace, replay
from craft2.viz import Player, player
from phase3_raft.raft.messages import RaftError
from phase3_raft.raft.server import RaftServer


def show_failure(
    seed: int, nodes: int = 5, bug: str | None = None, server: type[RaftServer] | None = None
) -> Player:
    """Print the shortest trace of a seed that breaks a rule, and return its film.

    bug: a planted one; server: the class of the servers, in place of a planted bug. Raises
    RaftError if the seed breaks no rule.
    """
    classes = None if server is None else Bug("yours", server)
    trace = shrunk(seed, nodes, bug, classes)
    if trace is None:
        raise RaftError(f"seed {seed} with {nodes} servers breaks no rule", "give one that does")
    story = replay(trace, classes)
    for line in story.telling():
        print(line)
    return player(story.lanes(), f"{trace.rule}: {trace.what}", "", at_s=story.now_ms / 1000)


def failed_seed() -> Player:
    """Print the trace of exercise 23.3, a run with a mistake in one server's code, and return its
    film. Which mistake it is, it does not say."""
    trace = Trace.load(str(files("craft2.apps.lessons").joinpath("failed_seed.json")))
    story = replay(trace)
    for line in story.telling():
        print(line)
    return player(story.lanes(), f"broken: {trace.rule}", "", at_s=story.now_ms / 1000)
