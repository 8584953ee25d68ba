"""Words that the command line puts together: no two stops, and one fault is not faults."""

from __future__ import annotations

import doctest
import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from craft2 import errors
from craft2.apps import cli_cluster_simulate, words
from craft2.apps.simulate.cluster_clients import _shown
from craft2.errors import Craft2Error
from craft2.history import Message


@pytest.mark.parametrize("module", [errors, words])
def test_the_examples_hold(module):
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ("no", "no. Fix: go"),
        ("no.", "no. Fix: go"),
        ("who?", "who? Fix: go"),
        ("stop!", "stop! Fix: go"),
        ("", ". Fix: go"),
    ],
)
def test_an_error_has_one_stop_before_its_fix(problem, told):
    assert str(Craft2Error(problem, "go")) == told
    assert str(Craft2Error(problem)) == problem


@pytest.mark.parametrize(
    ("faults", "without", "told"),
    [
        (1, 3, "seed 7, 1 fault, 3 other faults left out"),
        (2, 1, "seed 7, 2 faults, 1 other fault left out"),
        (2, 0, "seed 7, 2 faults"),
    ],
)
def test_the_story_of_a_run_counts_its_faults(faults, without, told):
    console = Console(file=io.StringIO(), width=100)
    run = SimpleNamespace(seed=7, faults=range(faults), without=range(without), timeline=[])
    cli_cluster_simulate._tell(console, run)
    assert console.file.getvalue() == f"{told}\n"


def test_messages_are_told_without_a_comma_behind_them():
    first, last = (Message("t", 1, offset, f"2:{offset}") for offset in (71, 73))
    assert _shown([first]) == "2:71 at t-1, 71"
    assert _shown([first, last]) == "2:71 to 2:73 at t-1, 71 to 73"
