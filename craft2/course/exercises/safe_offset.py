"""Exercise 2.1: which offset may be committed while messages finish out of order?"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from types import ModuleType

from craft2.course.exercises.exercise import Exercise
from craft2.course.expect import doing, equal, that

FIRST = (0, 7)  # where a partition's committed offset stands at the start
THREADS, MESSAGES, SEEDS = 4, 300, 20


def check(module: ModuleType) -> str:
    """All orders of five messages, then long random runs of four threads."""
    orders = 0
    for first in FIRST:
        for order in itertools.permutations(range(first, first + 5)):
            _run(module, first, order)
            orders += 1
    for seed in range(SEEDS):
        _run(module, 100, _four_threads(random.Random(seed)))
    return (
        f"{orders} orders of five messages and {SEEDS} runs of {THREADS} threads: after each "
        "finished message the largest safe offset, and nothing kept that is no longer needed"
    )


def _four_threads(rng: random.Random) -> list[int]:
    """The order in which messages are finished, each thread holding one at a time."""
    order: list[int] = []
    held = list(range(100, 100 + THREADS))
    for following in range(100 + THREADS, 100 + MESSAGES):
        order.append(held.pop(rng.randrange(THREADS)))
        held.append(following)
    return order + held


def _run(module: ModuleType, first: int, order: Sequence[int]) -> None:
    tracker = module.CommitTracker(first)
    finished: set[int] = set()
    safe = first
    for number, offset in enumerate(order):
        finished.add(offset)
        while safe in finished:
            safe += 1
        before = ", ".join(map(str, order[max(0, number - 5) : number])) or "nothing"
        call = f"finish({offset}) after {before} (committed at first: {first})"
        doing(call)
        got = tracker.finish(offset)
        equal(f"what {call} returns", got, safe, _difference(got, safe, finished))
        equal(f"self.committed after {call}", tracker.committed, safe)
    that(
        f"self.ahead when all of {len(order)} messages are finished",
        not tracker.ahead,
        expected="empty: everything is committed",
        got=f"{len(tracker.ahead)} offsets: it would grow for ever",
    )


def _difference(got: object, safe: int, finished: set[int]) -> str:
    if type(got) is not int:
        return ""
    if got > safe:
        lost = next(offset for offset in range(safe, got) if offset not in finished)
        return f"{lost} is not finished: a crash now would lose it"
    return f"{got} is finished: it would be handled again" if got in finished else ""


EXERCISE = Exercise(
    id="2.1",
    title="the safe offset",
    file="phase1_file_queue/commit_tracker.py",
    hints=(
        "Say 0 and 2 are finished and 1 is not. What would a consumer that starts again at 3 "
        "never see? So how far may you go?",
        "Finished offsets go into `self.ahead`. Then ask again and again: is the offset at which "
        "`self.committed` stands finished? One finished message can close a gap, and the answer "
        "then moves by several at once.",
        "Add the offset to `self.ahead`; while `self.committed` is in `self.ahead`, remove it from "
        "there and add one to `self.committed`; return `self.committed`.",
    ),
    check=check,
    explanation=(
        "The committed offset may only move over a run without gaps, however much is finished "
        "behind the gap. So one slow message holds the commit back: a crash repeats everything "
        "behind it, which is the price for losing nothing. The set holds only what is ahead of the "
        "gap; with one thread in order it never holds more than one offset."
    ),
    wrong={
        "commit what was finished last": """
            self.committed = offset + 1
            return self.committed
        """,
        "commit the largest finished": """
            self.committed = max(self.committed, offset + 1)
            return self.committed
        """,
        "off by one: the last finished, not the next to read": """
            self.ahead.add(offset)
            while self.committed in self.ahead:
                self.ahead.remove(self.committed)
                self.committed += 1
            return self.committed - 1
        """,
        "moves by one at most": """
            self.ahead.add(offset)
            if self.committed in self.ahead:
                self.ahead.remove(self.committed)
                self.committed += 1
            return self.committed
        """,
        "only in order": """
            if offset == self.committed:
                self.committed += 1
            return self.committed
        """,
        "counts the finished ones": """
            self.ahead.add(offset)
            return self.committed + len(self.ahead)
        """,
        "jumps to the largest when the gap closes": """
            self.ahead.add(offset)
            if self.committed in self.ahead:
                self.committed = max(self.ahead) + 1
                self.ahead.clear()
            return self.committed
        """,
        "forgets nothing": """
            self.ahead.add(offset)
            while self.committed in self.ahead:
                self.committed += 1
            return self.committed
        """,
        "the smallest finished": """
            self.ahead.add(offset)
            return min(self.ahead)
        """,
        "nothing until there is something new": """
            self.ahead.add(offset)
            if self.committed not in self.ahead:
                return None
            while self.committed in self.ahead:
                self.ahead.remove(self.committed)
                self.committed += 1
            return self.committed
        """,
    },
)
