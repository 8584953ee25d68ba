"""What a stage is asked for by hand, and cannot be: said with its name, its value and the fix.

>>> check_terms({1: (1, 2, 1)}, numbers=(1, 2, 3))
Traceback (most recent call last):
phase3_raft.raft.messages.RaftError: logs[1] is (1, 2, 1). Fix: give terms from 1 on that never fall
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from phase3_raft.raft.messages import RaftError


def check_servers(name: str, servers: Sequence[int], numbers: Sequence[int]) -> None:
    """Some of the stage's servers, each once. name: of what they were given for."""
    if not servers or len({*servers}) < len(servers) or not {*servers} <= {*numbers}:
        raise RaftError(f"{name} is {servers!r}", f"name some of {[*numbers]}, each once")


def check_terms(logs: Mapping[int, Sequence[int]], numbers: Sequence[int]) -> None:
    """Logs to begin with: of servers that there are, with terms as a log can have them."""
    for number, terms in logs.items():
        if number not in numbers:
            raise RaftError(f"logs has a server {number!r}", f"name some of {[*numbers]}")
        strange = [term for term in terms if not isinstance(term, int) or term < 1]
        if strange or any(after < before for before, after in pairwise(terms)):
            raise RaftError(f"logs[{number}] is {terms!r}", "give terms from 1 on that never fall")


def check_number(name: str, value: object, but: str = "") -> None:
    """A whole number from 0 on. but: what to do for something else."""
    if not isinstance(value, int) or value < 0:
        raise RaftError(f"{name} is {value!r}", f"give a whole number from 0 on{but}")
