"""Exercise 25.1: what may consumers see?"""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any, NamedTuple

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import doing, equal, that

ALL = (1, 2, 3)
RUNS, STEPS = 200, 40


class _Case(NamedTuple):
    words: str
    isr: tuple[int, ...]
    ends: dict[int, int]  # of the followers; who is not in it has not asked for anything
    expected: int
    end: int = 10  # of our own log
    proposed: tuple[int, ...] = ()
    before: int = 0


CASES = (
    _Case("all have all", (1, 2, 3), {2: 10, 3: 10}, 10),
    _Case("the slowest of those in sync decides", (1, 2, 3), {2: 10, 3: 7}, 7),
    _Case("whoever is not in sync is not waited for", (1, 2), {2: 10, 3: 7}, 10),
    _Case("alone in sync, we decide", (1,), {2: 3, 3: 4}, 10),
    _Case("nobody can have more than there is", (1, 2), {2: 12}, 10),
    _Case("3 is in sync, and has not asked for anything yet", (1, 2, 3), {2: 10}, 4, before=4),
    _Case("3 is to be left out, and the controller has not said so yet", (1, 2, 3),
          {2: 10, 3: 7}, 7, proposed=(1, 2)),
    _Case("3 is to be taken in; if that is in force already, 3 may be the next leader", (1, 2),
          {2: 10, 3: 7}, 7, proposed=(1, 2, 3)),
    _Case("2 is to be left out and 3 taken in: both count", (1, 2), {2: 6, 3: 8}, 6,
          proposed=(1, 3)),
    _Case("the same, and 3 is the slower one", (1, 2), {2: 8, 3: 6}, 6, proposed=(1, 3)),
    _Case("it never falls: 3 is taken in, and is behind", (1, 2, 3), {2: 10, 3: 5}, 8, before=8),
    _Case("we follow: what the leader has told us counts", (), {}, 6, before=6),
    _Case("we follow, and were never told anything", (), {}, 0),
)  # fmt: skip


def check(module: ModuleType) -> str:
    """One answer a case, and a second term; then leaders whose controller is slow, by chance."""
    for case in CASES:
        _answer(module, case)
    _lead_again(module)
    for seed in range(RUNS):
        _lead(module, seed)
    return f"{len(CASES) + 1} moments, and {RUNS} leaders whose controller answers late"


def _answer(module: ModuleType, case: _Case) -> None:
    replicas = module.Replicas(1, max_lag_ms=100, high_watermark=case.before)
    if case.isr:
        replicas.lead(case.isr, ALL, 0, 0)
    else:
        replicas.follow()
    for who, end in case.ends.items():
        replicas.fetched(who, end, end=case.end, now_ms=1)
    if case.proposed:
        replicas.propose(case.proposed)
    call = (
        f"high_watermark(end={case.end}) with isr={case.isr}, proposed={case.proposed}, me=1, "
        f"the followers' ends {case.ends}, and {case.before} before"
    )
    doing(call)
    equal(call, replicas.high_watermark(case.end), case.expected, f"({case.words})")


def _lead_again(module: ModuleType) -> None:
    replicas = module.Replicas(1, max_lag_ms=100)
    replicas.lead(ALL, ALL, 0, 0)
    for who in (2, 3):
        replicas.fetched(who, 10, end=10, now_ms=1)
    doing("high_watermark(end=10) when all have all")
    equal("high_watermark(end=10) when all have all", replicas.high_watermark(10), 10)
    replicas.lead(ALL, ALL, 10, 2)
    call = "high_watermark(end=10), which was 10, when we lead anew and nobody has asked yet"
    doing(call)
    equal(call, replicas.high_watermark(10), 10, "(it never falls: somebody has seen it)")


def _lead(module: ModuleType, seed: int) -> None:
    """Invariant: whoever the controller may make the leader has all that consumers have seen."""
    chance = random.Random(seed)
    one = _Leader(module)
    for _ in range(STEPS):
        doing(f"a leader and its followers, run {seed}: {one.story}")
        chance.choice(
            (one.append, one.append, one.fetch, one.fetch, one.ask, one.decide, one.hear)
        )(chance)
        watermark = one.replicas.high_watermark(one.end)
        run = f"the high watermark in run {seed}, after: {'; '.join(one.story[-6:])}"
        that(
            run,
            isinstance(watermark, int) and watermark >= one.seen,
            expected=f"{one.seen} or more: it never falls",
            got=repr(watermark),
        )
        one.seen = watermark
        least = min(one.ends[who] for who in one.isr)
        that(
            run,
            watermark <= least,
            expected=f"at most {least}: the controller has the ISR {one.isr}, and whoever is in it "
            f"may lead next; they have { ({who: one.ends[who] for who in one.isr}) }",
            got=str(watermark),
        )


class _Leader:
    """Broker 1 leads; a controller grants what it asks for, and is heard later."""

    def __init__(self, module: ModuleType) -> None:
        self.ends = dict.fromkeys(ALL, 0)  # what each one really has
        self.seen = self.now_ms = 0
        self.isr: tuple[int, ...] = ALL  # the controller's
        self.asked: tuple[int, ...] = ()
        self.granted = False
        self.story: list[str] = []
        self.replicas: Any = module.Replicas(1, max_lag_ms=100)
        self.replicas.lead(self.isr, ALL, 0, 0)

    @property
    def end(self) -> int:
        return self.ends[1]

    def append(self, chance: random.Random) -> None:
        self.ends[1] += chance.randint(1, 3)
        self.story.append(f"our log ends at {self.end}")

    def fetch(self, chance: random.Random) -> None:
        self.now_ms += chance.randint(1, 90)
        who = chance.choice(ALL[1:])
        self.replicas.fetched(who, self.ends[who], end=self.end, now_ms=self.now_ms)
        self.story.append(f"{who} asks for what is from {self.ends[who]} on")
        self.ends[who] = min(self.end, self.ends[who] + chance.randint(0, 4))

    def ask(self, chance: random.Random) -> None:
        wanted = self.replicas.wanted_isr(self.end, self.now_ms)
        if wanted is not None:
            self.replicas.propose(wanted)
            self.asked, self.granted = wanted, False
            self.story.append(f"the controller is asked for the ISR {wanted}")

    def decide(self, chance: random.Random) -> None:
        if self.asked and not self.granted:
            self.isr, self.granted = self.asked, True
            self.story.append("it grants that, and its answer is on its way")

    def hear(self, chance: random.Random) -> None:
        if self.granted:
            self.replicas.changed(self.isr, ALL, self.now_ms)
            self.asked, self.granted = (), False
            self.story.append(f"we hear that the ISR is {self.isr}")


_BOTH = "{*self.isr, *self.proposed}"
_FOLLOWS = "if self.me not in self.isr:\n    return self._high_watermark\n"
_ENDS = "ends = [self.followers[who].end for who in counted]\n"
_MAX = "max(self._high_watermark, min([end, *ends]))"
_RIGHT = f"""{_FOLLOWS}
counted = {_BOTH} - {{self.me}}
{_ENDS}
self._high_watermark = {_MAX}
return self._high_watermark
"""

EXERCISE = Exercise(
    id="25.1",
    title="the high watermark",
    file="phase3_raft/replication/replicas.py",
    hints=(
        "Two sets of brokers: those in sync, and those that were asked for. The controller may "
        "have granted the new one already, and made one of its members the leader. Or it never "
        "will. Whose ends must not be passed in either case?",
        "Follow: return what is known. Lead: the smallest of `end` and the ends of everybody in "
        "isr or proposed, but for ourselves. Kept in self._high_watermark if it is higher.",
        "if self.me not in self.isr: return self._high_watermark. Else `counted` is made of the "
        "sets of self.isr, self.proposed and self.me: where with |, where with -? From `end`, "
        "self.followers[who].end of those counted and what was known before comes the answer, "
        "which is kept and returned: one of these is a max, and the rest a min.",
    ),
    check=check,
    explanation=(
        "Yes, it may advance while an ISR change is under way, but only as far as both outcomes "
        "allow. A leader that wants to leave 3 out still waits for it: the controller may refuse, "
        "and elect 3. One that wants to take 3 in waits for it already: the controller may have "
        "granted that, and the answer be lost. Counting both costs a moment, and makes the answer "
        "right whenever the news comes (KIP-497). It never falls, because somebody has seen it."
    ),
    wrong={
        "only the ISR that is known": edited(_RIGHT, (_BOTH, "{*self.isr}")),
        "the new ISR at once": edited(_RIGHT, (_BOTH, "set(self.proposed or self.isr)")),
        "only those in both": edited(
            _RIGHT, (_BOTH, "(set(self.isr) & set(self.proposed or self.isr))")
        ),
        "all replicas": edited(_RIGHT, (_BOTH, "set(self.followers)")),
        "it stands still while the controller is asked": edited(
            _RIGHT, (_ENDS, "if self.proposed:\n    return self._high_watermark\n" + _ENDS)
        ),
        "it may fall": edited(_RIGHT, (_MAX, "min([end, *ends])")),
        "the fastest decides": edited(_RIGHT, ("min([end, *ends])", "min(end, max([0, *ends]))")),
        "a majority is enough": edited(
            _RIGHT, ("min([end, *ends])", "sorted([end, *ends])[(len(ends) + 1) // 2]")
        ),
        "our own end is left out": edited(_RIGHT, ("min([end, *ends])", "min(ends or [end])")),
        "who was never heard of does not count": edited(
            _RIGHT, ("for who in counted]", "for who in counted if self.followers[who].end >= 0]")
        ),
        "a follower works it out, too": edited(_RIGHT, (_FOLLOWS, "")),
        "it is not kept": edited(
            _RIGHT,
            (f"self._high_watermark = {_MAX}\nreturn self._high_watermark", f"return {_MAX}"),
        ),
        "the last record's offset": edited(_RIGHT, (f"{_MAX}\n", f"{_MAX} - 1\n")),
    },
)
