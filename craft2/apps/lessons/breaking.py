"""What notebook 28 looks at: a simulated cluster that broke a rule, as a film and line by line.

run = first_broken("unclean")     the first seed with which a planted bug shows
film(run)                         its brokers and partitions, from the first fault on
close_up(run)                     the same seed again, with every step of one partition
judge(send("a", 0), poll())       the checker's verdict on a history made by hand
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import partial
from importlib.resources import files
from itertools import pairwise
from typing import Any
from unittest.mock import patch

from craft2.apps.simulate import cluster_world
from craft2.apps.simulate.cluster_clients import BROKERS, PARTITIONS, TOPIC
from craft2.apps.simulate.cluster_rules import ClusterRules
from craft2.apps.simulate.cluster_seeds import ClusterRun, run_cluster_seed
from craft2.apps.simulate.seeds import spread
from craft2.checker import Report, check
from craft2.errors import Craft2Error
from craft2.history import Message, Operation, Outcome
from craft2.viz import Lanes, Mark, Player, Span, player

SEEDS = range(60)  # each planted bug shows within so many
Moment = tuple[int, str, str]  # ms, who, what

_LEADS = re.compile(r"(?:broker (\d) leads|nobody leads) (\S+) in epoch (\d+); (.*) in sync")
_DOWN, _CUT, _STILL, _RUNS = "down", "cut off", "stands still", "runs"
_SUFFERS = (  # what is told of it, and what it is in the picture, in short and in full
    (re.compile(r"broker-(\d) (?:is killed|loses power)(), and is back (\d+) ms"), _DOWN, _DOWN),
    (re.compile(r"broker-(\d) and ([^;]*) are cut off, for (\d+) ms"), _CUT, "cut off from "),
    (re.compile(r"broker-(\d) is cut off from ([^;]*), for (\d+) ms"), _CUT, "cut off from "),
    (re.compile(r"broker-(\d) reaches ([^;]*) no more, for (\d+) ms"), _CUT, "does not reach "),
    (re.compile(r"broker-(\d) stands still() for (\d+) ms"), _STILL, _STILL),
)
_ALWAYS_TOLD = ("fault", "controller")


class NothingBroke(Craft2Error):
    """No seed within bounds breaks a rule."""


def first_broken(
    bug: str | None = None, rule: str = "", seeds: Sequence[int] = SEEDS
) -> ClusterRun:
    """The first run that breaks a rule, or this one. Raises NothingBroke, NoSuchBug.

    Two processes look for a bug that has a name; what was changed by hand is in this one alone.
    """
    breaks = partial(_breaks, rule)
    jobs = 1 if bug is None else 2
    run: ClusterRun
    for run in spread(partial(run_cluster_seed, bug=bug), seeds, jobs, until=breaks):
        if breaks(run):
            return run
    raise NothingBroke(
        f"none of {len(seeds)} seeds breaks {rule or 'a rule'}",
        f"try more: seeds=range({10 * len(seeds)})",
    )


def _breaks(rule: str, run: ClusterRun) -> bool:
    return run.rule is not None and rule in ("", run.rule)


def send(value: str, offset: int, outcome: Outcome = "ok") -> Operation:
    """A producer's send, to partition 0; offset -1: it was not told one."""
    return Operation("producer", "send", 0, 0, outcome, sent=[Message(TOPIC, 0, offset, value)])


def poll(*found: tuple[str, int], who: str = "reader") -> Operation:
    """A consumer's poll that returned these values at these offsets."""
    polled = [Message(TOPIC, 0, offset, value) for value, offset in found]
    return Operation(who, "poll", 0, 0, "ok", polled=polled)


def judge(*operations: Operation) -> Report:
    """What the checker says of a history: these, one after the other."""
    return check([one._replace(invoked=n, completed=n) for n, one in enumerate(operations)])


def tell(moments: Iterable[Moment], *, numbered: bool = False, most: int = 100) -> None:
    """Print moments, a line each: the last `most` of them, and of those before them all faults and
    what the controller decided."""
    told = list(enumerate(moments, 1))
    for number, (ms, who, what) in told:
        if number <= len(told) - most and who not in _ALWAYS_TOLD:
            continue
        head = f"{f'{number:>3}. ' if numbered else ''}{ms:>6,} ms  {who:11} "
        print(textwrap.fill(head + what.rstrip(","), 98, subsequent_indent=" " * len(head)))


def close_up(run: ClusterRun, partition: str = "") -> list[Moment]:
    """The same run again: all that concerns this partition (that of which the broken rule speaks),
    with each append and each step of a high watermark, and the faults. Raises NothingBroke if it
    does not break the same rule."""
    named = re.search(rf"\b{TOPIC}-\d\b", run.what)
    partition = partition or (named[0] if named else f"{TOPIC}-0")
    with (
        patch.object(ClusterRules, "_changed", _told),
        patch.object(cluster_world, "LATELY", None),  # all that clients are told
    ):
        again = run_cluster_seed(run.seed, run.bug, run.without)
    if again.rule != run.rule:
        raise NothingBroke(f"seed {run.seed} breaks no rule any more", "look for another seed")
    return [
        moment
        for moment in again.timeline
        if moment[1] in ("fault", "broken") or re.search(rf"\b{partition}\b", moment[2])
    ]


_changed = ClusterRules._changed


def _told(
    self: ClusterRules, number: int, key: Any, now: Any, before: Any, *, first: bool = False
) -> None:
    """In place of `_changed`, whose arguments it takes: tell what is appended, and what is safe."""
    partition, _, watermark, end = now
    if key[0] == TOPIC:
        who, name = f"broker {number}", f"{key[0]}-{key[1]}"
        begin = max(before[3], partition.log.log_start)
        for one in partition.log.records(begin, end) if end > begin else ():  # else it was cut
            self._say(who, f"appends {(one.value or b'').decode()} to {name}, at {one.offset}")
        if watermark > before[2]:
            self._say(who, f"high watermark of {name} is {watermark}")
    _changed(self, number, key, now, before, first=first)


def lanes(run: ClusterRun) -> Lanes:
    """A lane a broker, with what it suffers, and a lane a partition, with who leads it."""
    end_s = run.timeline[-1][0] / 1_000
    suffered = {f"broker {number}": _suffered(run, number, end_s) for number in BROKERS}
    led: dict[str, list[tuple[float, str, str]]] = {
        f"{TOPIC}-{number}": [] for number in range(PARTITIONS)
    }
    marks = []
    for ms, who, what in run.timeline:
        now_s = ms / 1_000
        if who in ("fault", "broken"):
            label = "fault" if who == "fault" else run.rule or ""
            marks.append(Mark(now_s, label, what, fault=True))
        found = _LEADS.search(what) if who == "controller" else None
        if found is not None and found[2] in led:
            owner = f"broker {found[1]}" if found[1] else "nobody"
            led[found[2]].append((now_s, owner, f"{owner} leads, epoch {found[3]}"))
            marks.append(Mark(now_s, found[3], f"{found[2]}: {what}"))
    faults_s = [mark.second for mark in marks if mark.label == "fault"]
    begin_s = max(0.0, min(faults_s, default=0.0) - 0.2)
    drawn = {name: _between(spans, begin_s, end_s) for name, spans in suffered.items()}
    for name, changes in led.items():
        if not changes:
            continue
        ends = [*(begun for begun, _, _ in changes[1:]), end_s]
        drawn[name] = [
            Span(max(begin_s, begun), end, owner, words)
            for (begun, owner, words), end in zip(changes, ends, strict=True)
            if end > begin_s
        ]
    order = (*(f"broker {number}" for number in BROKERS), _DOWN, _CUT, _STILL)
    marks = [mark for mark in marks if mark.second >= begin_s]
    return Lanes(drawn, marks, end_s, grey={_RUNS, "nobody"}, begin_s=begin_s, order=order)


def _suffered(run: ClusterRun, number: int, end_s: float) -> list[Span]:
    """What a broker suffers, in spans that do not overlap: of several things at once the last one
    gives the colour, and the words name all."""
    found: list[Span] = []
    heals_s: list[float] = []  # each mends all cuts there are
    for ms, who, what in run.timeline:
        for pattern, short, words in _SUFFERS if who == "fault" else ():
            for whose, rest, for_ms in pattern.findall(what):
                until_s = (ms + int(for_ms)) / 1_000
                if short == _CUT:
                    heals_s.append(until_s)
                if whose == str(number):
                    found.append(Span(ms / 1_000, until_s, short, words + _names(rest)))
    for place, span in enumerate(found):
        if span.owner == _CUT:
            mended_s = min(second for second in heals_s if second > span.start_s)
            found[place] = span._replace(end_s=mended_s)
    edges = sorted({min(end_s, edge) for span in found for edge in (span.start_s, span.end_s)})
    spans: list[Span] = []
    for start, end in pairwise(edges):
        there = [span for span in found if span.start_s <= start < span.end_s]
        if not there:
            continue
        words = "; ".join(dict.fromkeys(span.words for span in there))
        if spans and spans[-1][1:4] == (start, there[-1].owner, words):
            spans[-1] = spans[-1]._replace(end_s=end)
        else:
            spans.append(Span(start, end, there[-1].owner, words))
    return spans


def _names(hosts: str) -> str:
    """broker-2, group -> broker 2, group."""
    return re.sub(r"\b(broker|producer|reader)-(\d)", r"\1 \2", hosts)


def _between(spans: list[Span], begin_s: float, end_s: float) -> list[Span]:
    """With what lies between them: there a broker runs."""
    edges = [begin_s, *(edge for span in spans for edge in (span.start_s, span.end_s)), end_s]
    gaps = [Span(a, b, _RUNS, " ") for a, b in list(pairwise(edges))[::2] if b > a]
    return sorted([*gaps, *spans])


def film(run: ClusterRun, at_s: float | None = None) -> Player:
    """The film of a run; it opens at its end, or at `at_s`."""
    title = f"broken: {run.rule}" if run.is_broken else f"seed {run.seed} breaks no rule"
    return player(lanes(run), title, "epoch", at_s=at_s)


def failed_cluster_seed() -> Player:
    """Print the trace of exercise 28.1, a run of brokers with a mistake in their code, and return
    its film. Which mistake it is, it does not say."""
    run = ClusterRun.load(str(files("craft2.apps.lessons").joinpath("failed_cluster_seed.json")))
    tell(run.timeline, numbered=True)
    return film(run)
