"""Exercise 12.1: which batches go into the next request?"""

from __future__ import annotations

import random
from types import ModuleType
from typing import Any

from craft2.course.exercises.exercise import Exercise, edited
from craft2.course.expect import doing, equal, that

LINGER_MS, NOW = 10, 1_000
LIFETIMES, STEPS = 40, 60


class _Trial:
    """An accumulator whose lanes we fill as we like; batches go by names, such as `A1`."""

    def __init__(self, module: ModuleType, max_request_size: int = 1_000) -> None:
        config = module.ProducerConfig(
            linger_ms=LINGER_MS, max_request_size=max_request_size, batch_size=100
        )
        self.accumulator: Any = module.Accumulator(config, random=lambda: 0.0)
        self._module = module
        self._topic = module.Topic("t", 4, 0)
        self.names: dict[int, str] = {}  # by id of the batch
        self.batches: dict[str, Any] = {}

    def lane(self, letter: str) -> Any:
        return self._topic.lanes["ABCD".index(letter)]

    def add(
        self, letter: str, created_ms: int = 0, size: int = 100, *, is_open: bool = False
    ) -> Any:
        """A batch more, at the end of the lane A, B, C or D."""
        lane = self.lane(letter)
        batch = self._module.Batch(lane, created_ms)
        batch.size = size
        batch.timestamps = [0]
        lane.batches.append(batch)
        if is_open:
            lane.open = batch
        else:
            batch.count = 1
        self.accumulator.busy[lane.name] = lane
        number = sum(name.startswith(letter) for name in self.batches) + 1
        self.names[id(batch)] = f"{letter}{number}"
        self.batches[f"{letter}{number}"] = batch
        return batch

    def drain(self, words: str, now_ms: int = NOW) -> list[str]:
        """The names of the batches in the next request."""
        doing(f"drain({now_ms}): {words}")
        request = self.accumulator.drain(now_ms)
        known = isinstance(request, list) and all(id(batch) in self.names for batch in request)
        that(
            f"what drain returns; {words}",
            known,
            expected="a list of batches",
            got=f"{request!r:.80}",
        )
        return [self.names[id(batch)] for batch in request]

    def answered(self, name: str, retry_at_ms: int | None = None) -> None:
        """An answer came: the batch is done, or it is to be sent again from then on."""
        batch = self.batches[name]
        batch.in_flight = False
        batch.lane.in_flight -= 1
        if retry_at_ms is None:
            self.accumulator.remove(batch)
        else:
            batch.retry_at_ms = retry_at_ms

    def busy(self) -> list[str]:
        return ["ABCD"[lane.partition] for lane in self.accumulator.busy.values()]


def check(module: ModuleType) -> str:
    """Small situations, then lives of a producer with answers that fail and come in any order."""
    _in_order(module)
    _backing_off(module)
    _lingering(module)
    _sizes(module)
    _turns(module)
    for seed in range(LIFETIMES):
        _life(module, seed)
    return (
        "who lingers, backs off or has enough in flight waits, and holds up nobody else; "
        f"{STEPS} requests of each of {LIFETIMES} random producers kept size, order and turn"
    )


def _in_order(module: ModuleType) -> None:
    trial = _Trial(module)
    trial.lane("A").max_in_flight = 2
    for letter in "AABA":
        trial.add(letter)
    words = "sealed batches A1 A2 A3 and B1; A may have 2 in flight, B 1"
    request = trial.drain(words)
    why = "one batch of each partition, the oldest that is not in flight"
    equal(f"the first request; {words}", request, ["A1", "B1"], why)
    for name in request:
        batch = trial.batches[name]
        for field, value in (("in_flight", True), ("attempts", 1), ("lane.in_flight", 1)):
            got = batch.lane.in_flight if field == "lane.in_flight" else getattr(batch, field)
            equal(f"{field} of {name}, which is in the request", got, value)
    why = "A2: A has room for one more in flight. B has none"
    equal(f"the second request; {words}", trial.drain(words), ["A2"], why)
    equal(f"the third, while no answer has come; {words}", trial.drain(words), [], "A has 2")
    trial.answered("A2")
    words = "A1 is in flight, A2 has been answered, A3 is next; A may have 2"
    equal(f"the request; {words}", trial.drain(words), ["A3"])


def _backing_off(module: ModuleType) -> None:
    trial = _Trial(module)
    trial.lane("A").max_in_flight = 5
    for letter in "AAB":
        trial.add(letter)
    trial.add("C").retry_at_ms = NOW
    trial.batches["A1"].retry_at_ms = NOW + 1
    words = f"drain({NOW}); A1 backs off until {NOW + 1}, C1 until {NOW}, A2 and B1 are sealed"
    why = "A2 must not overtake A1; B has nothing to do with it; C1's time has come"
    equal(f"the request; {words}", trial.drain(words), ["B1", "C1"], why)
    equal("attempts of A1, which has not gone", trial.batches["A1"].attempts, 0)
    words = f"drain({NOW + 1}), a millisecond later"
    equal(f"the request; {words}", trial.drain(words, NOW + 1), ["A1"], "now A1 may go")
    trial.answered("A1", retry_at_ms=NOW + 50)
    words = f"A1 has failed, and backs off until {NOW + 50}"
    equal(f"the request; {words}", trial.drain(words, NOW + 49), [], "A2 waits behind A1")
    words = "the pause of A1 is over"
    equal(f"the request; {words}", trial.drain(words, NOW + 50), ["A1"])
    equal("attempts of A1, which goes for the second time", trial.batches["A1"].attempts, 2)


def _lingering(module: ModuleType) -> None:
    trial = _Trial(module)
    young = trial.add("A", NOW - LINGER_MS + 1, is_open=True)
    old = trial.add("B", NOW - LINGER_MS, is_open=True)
    trial.add("C", NOW)
    words = f"linger_ms={LINGER_MS}; A1 is open and 9 ms old, B1 open and 10, C1 sealed and 0"
    equal(f"the request; {words}", trial.drain(words), ["B1", "C1"], "A1 may still grow")
    opened = "the batch that takes records, of lane"
    equal(f"{opened} A, is A1", trial.lane("A").open is young, True, "A1 lingers on")
    why = "B1 is under way: seal it before it goes"
    equal(f"{opened} B, is B1", trial.lane("B").open is old, False, why)
    equal("count of B1", old.count, 1, "seal() counts the records")


def _sizes(module: ModuleType) -> None:
    trial = _Trial(module, max_request_size=250)
    for letter, size in (("A", 100), ("B", 150), ("C", 1), ("D", 1)):
        trial.add(letter, size=size)
    words = "max_request_size=250; A1 has 100 bytes, B1 150, C1 and D1 one each"
    equal(f"the request; {words}", trial.drain(words), ["A1", "B1"], "250 bytes are full")
    trial = _Trial(module, max_request_size=250)
    for letter, size in (("A", 100), ("B", 151), ("C", 100)):
        trial.add(letter, size=size)
    words = "max_request_size=250; A1 has 100 bytes, B1 151, C1 100"
    why = "the first one that does not fit ends the request: B1 comes first next time"
    equal(f"the request; {words}", trial.drain(words), ["A1"], why)
    for field in ("in_flight", "attempts"):
        equal(f"{field} of B1, which did not fit", int(getattr(trial.batches["B1"], field)), 0)
    trial = _Trial(module, max_request_size=250)
    trial.add("A", size=300)
    trial.add("B", size=1)
    words = "max_request_size=250; A1 has 300 bytes, B1 one"
    equal(f"the request; {words}", trial.drain(words), ["A1"], "else A1 could never be sent")


def _turns(module: ModuleType) -> None:
    trial = _Trial(module, max_request_size=200)
    trial.add("D", NOW, is_open=True)
    for letter in "ABC":
        trial.add(letter)
        trial.add(letter)
    words = "max_request_size=200, batches of 100; the lanes stand in self.busy as D (it lingers), "
    words += "A, B, C"
    equal(f"the request; {words}", trial.drain(words), ["A1", "B1"])
    equal(f"the lanes in self.busy after it; {words}", trial.busy(), ["D", "C", "A", "B"])
    for name in ("A1", "B1"):
        trial.answered(name)
    equal("the request after that", trial.drain(words), ["C1", "A2"], "it is C's turn")


def _life(module: ModuleType, seed: int) -> None:
    """Batches come, go, fail and are answered in any order; each request is looked at."""
    rng = random.Random(seed)
    trial = _Trial(module, max_request_size=rng.choice((150, 250, 1_000)))
    for letter in "ABCD":
        trial.lane(letter).max_in_flight = rng.choice((1, 2, 5))
    now = NOW
    for _ in range(STEPS):
        now += rng.randrange(6)
        letter = rng.choice("ABCD")
        if trial.lane(letter).open is None:
            trial.add(letter, now, rng.randrange(1, 200), is_open=rng.random() < 0.5)
        flying = [n for n, batch in trial.batches.items() if batch.in_flight]
        for name in rng.sample(flying, rng.randrange(len(flying) + 1)):
            trial.answered(name, rng.choice((None, now + rng.randrange(20))))
        _one_request(trial, now, f"random producer {seed} at {now}")


def _one_request(trial: _Trial, now_ms: int, words: str) -> None:
    """Hold one request against what had to wait, and what had not."""
    accumulator = trial.accumulator
    busy = trial.busy()
    reasons = {letter: _why_not(trial, letter, now_ms) for letter in busy}
    ready = [letter for letter in busy if not reasons[letter]]
    heads = {letter: trial.names[id(_next(trial.lane(letter)))] for letter in ready}
    attempts = {name: batch.attempts for name, batch in trial.batches.items()}
    request = trial.drain(words, now_ms)
    letters = [name[0] for name in request]
    for letter, name in zip(letters, request, strict=True):
        why = reasons.get(letter) or f"{heads[letter]} is its next batch"
        that(
            f"a request; {words}",
            heads.get(letter) == name,
            expected=f"no {name} in it: {why}",
            got=f"{name} in it",
        )
        batch = trial.batches[name]
        state = (batch.in_flight, batch.attempts, batch is batch.lane.open)
        equal(
            f"(in_flight, attempts, still open) of {name}, which goes; {words}",
            state,
            (True, attempts[name] + 1, False),
        )
    equal(
        f"lanes in a request; {words}",
        letters,
        ready[: len(letters)],
        "ready, in the order of busy",
    )
    sizes = [trial.batches[heads[letter]].size for letter in ready]
    most = accumulator.config.max_request_size
    fits = len(letters) < 2 or sum(sizes[: len(letters)]) <= most
    that(f"bytes of a request; {words}", fits, expected=f"{most} at most", got=str(sizes))
    if len(letters) < len(ready):
        that(
            f"a request of {letters}; {words}",
            bool(letters) and sum(sizes[: len(letters) + 1]) > most,
            expected=f"{heads[ready[len(letters)]]} in it, too",
            got="not in it",
            difference=f"it is ready, and fits: sizes {sizes[: len(letters) + 1]}, {most} at most",
        )
    waited = [letter for letter in busy if letter not in letters]
    equal(
        f"the lanes in self.busy after a request of {letters}; {words}",
        trial.busy(),
        waited + letters,
    )
    for letter in "ABCD":
        lane = trial.lane(letter)
        flying = sum(batch.in_flight for batch in lane.batches)
        equal(f"lane.in_flight of {letter}; {words}", lane.in_flight, flying)


def _next(lane: Any) -> Any:
    return next((batch for batch in lane.batches if not batch.in_flight), None)


def _why_not(trial: _Trial, letter: str, now_ms: int) -> str:
    """Why a lane has nothing for this request; empty if it has."""
    lane = trial.lane(letter)
    batch = _next(lane)
    if batch is None:
        return f"{letter} has no batch that is not in flight"
    name = trial.names[id(batch)]
    if lane.in_flight == lane.max_in_flight:
        return f"{letter} has {lane.in_flight} in flight, and may not have more"
    if batch.retry_at_ms > now_ms:
        return f"{name} backs off until {batch.retry_at_ms}"
    if batch is lane.open and now_ms - batch.created_ms < LINGER_MS:
        return f"{name} is {now_ms - batch.created_ms} ms old, and lingers"
    return ""


_NEXT = "next((b for b in lane.batches if not b.in_flight), None)"
_LANES = "list(self.busy.values())"
_FULL = " or lane.in_flight >= lane.max_in_flight"
_BACKOFF = "if now_ms < batch.retry_at_ms:\n        continue"
_LINGER = "        if now_ms < batch.created_ms + self.config.linger_ms:\n            continue\n"
_SEAL = "        self.seal(lane)\n"
_SIZE = "    if request and batch.size > room:\n        break\n"
_TURN = "    self.busy[lane.name] = self.busy.pop(lane.name)\n"
_RIGHT = f"""
request = []
room = self.config.max_request_size
for lane in {_LANES}:
    batch = {_NEXT}
    if batch is None{_FULL}:
        continue
    {_BACKOFF}
    if batch is lane.open:
{_LINGER}{_SEAL}{_SIZE}    room -= batch.size
    request.append(batch)
    batch.in_flight = True
    batch.attempts += 1
    lane.in_flight += 1
{_TURN}return request
"""

EXERCISE = Exercise(
    id="12.1",
    title="the drain",
    file="phase2_groups/accumulator.py",
    hints=(
        "One lane at a time: find its next batch, then ask the questions of the list, each of "
        "which may mean: nothing from this lane, on to the next. Only the size ends it for all. "
        "What happens to a dict that changes while you go through it?",
        "for lane in list(self.busy.values()); the next batch is the first of lane.batches that is "
        "not in_flight, or None. Skip the lane if there is none, if lane.in_flight has reached "
        "max_in_flight, if now_ms < batch.retry_at_ms, or if the batch is open and now_ms < "
        "created_ms + linger_ms. Do not look further back in a lane whose next batch has to wait.",
        "After those questions: if it is lane.open, self.seal(lane); if request and batch.size > "
        "room: break. Then room -= batch.size, append it, in_flight = True, attempts += 1, "
        "lane.in_flight += 1, and self.busy[lane.name] = self.busy.pop(lane.name), which moves the "
        "lane to the end.",
    ),
    check=check,
    explanation=(
        "Whatever makes the next batch of a partition wait makes all behind it wait, and no other "
        "partition: that is how order is kept where Kafka promises it, and nowhere else. A retry "
        "that is overtaken puts records in another order in the log for good (Kafka's producer "
        "without idempotence does so with more than one in flight). The size ends the request and "
        "the turn goes on, since a partition that is always asked last would starve."
    ),
    wrong={
        "overtakes who backs off": edited(
            _RIGHT,
            ("not b.in_flight)", "not b.in_flight and b.retry_at_ms <= now_ms)"),
        ),
        "who backs off stops everybody": edited(
            _RIGHT, (_BACKOFF, _BACKOFF.replace("continue", "break"))
        ),
        "backs off a millisecond too long": edited(
            _RIGHT, ("now_ms < batch.r", "now_ms <= batch.r")
        ),
        "the first batch, in flight or not": edited(_RIGHT, (_NEXT, "lane.batches[0]")),
        "one in flight, whatever is allowed": edited(_RIGHT, (_FULL, " or lane.in_flight")),
        "any number in flight": edited(_RIGHT, (_FULL, "")),
        "sealed batches linger, too": edited(
            _RIGHT,
            ("if batch is lane.open:", "if True:"),
            (_SEAL, "        if batch is lane.open:\n            self.seal(lane)\n"),
        ),
        "open ones wait for somebody to seal them": edited(
            _RIGHT, (_LINGER + _SEAL, "        continue\n")
        ),
        "not sealed": edited(_RIGHT, (_SEAL, "")),
        "open no more, but not sealed": edited(_RIGHT, (_SEAL, "        lane.open = None\n")),
        "sealed while it lingers": edited(_RIGHT, (_LINGER + _SEAL, _SEAL + _LINGER)),
        "any size": edited(_RIGHT, (_SIZE, "")),
        "one too many for the size": edited(_RIGHT, ("batch.size > room", "room < 0")),
        "a large one never goes": edited(_RIGHT, ("if request and", "if")),
        "smaller ones overtake": edited(_RIGHT, ("        break\n", "        continue\n")),
        "always the same lanes first": edited(_RIGHT, (_TURN, "")),
        "the turn of all lanes, sent or not": edited(
            _RIGHT, (_TURN, ""), (f"    batch = {_NEXT}", _TURN + f"    batch = {_NEXT}")
        ),
        "changes the dict it goes through": edited(_RIGHT, (_LANES, "self.busy.values()")),
        "all of a lane at once": edited(
            _RIGHT,
            (
                f"    batch = {_NEXT}\n    if batch is None{_FULL}:",
                f"    if batch.in_flight{_FULL}:",
            ),
            (f"lane in {_LANES}", "lane, batch in [(b.lane, b) for b in self.unfinished()]"),
        ),
        "attempts not counted": edited(_RIGHT, ("    batch.attempts += 1\n", "")),
        "the lane does not count": edited(_RIGHT, ("    lane.in_flight += 1\n", "")),
    },
)
