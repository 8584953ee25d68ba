"""A run: brokers, clients, faults one after the other, and at the end the verdict.

When the time is up everything is mended. Senders wait for their last answers, the group reads to
the end, somebody else reads every partition from its start, and the checker judges two histories:
what the senders were told against what is in the logs now, and what everybody saw at any time.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException

from craft2.apps.chaos.brokers import Brokers, NotWell
from craft2.apps.chaos.clients import GROUP, Clients
from craft2.apps.chaos.disks import Disks
from craft2.apps.chaos.faults import FAULTS, WIPE, World, deal
from craft2.apps.chaos.links import make_links
from craft2.apps.chaos.timeline import Timeline
from craft2.apps.chaos.topic import make_topic
from craft2.apps.chaos.watcher import Watcher
from craft2.checker import Report, check
from craft2.clock import Clock
from craft2.errors import Craft2Error
from craft2.history import UNKNOWN, Operation, Value

TOPIC = "chaos"
KEPT, SEEN = "in the logs at the end", "as everybody saw it"  # the two histories
_HOLD_S, _CALM_S = (3.0, 5.0), (1.0, 2.5)  # from, to
_PATIENCE_S = 60.0
_MESSAGE_BYTES = 400  # on a disk, with what indexes and a group's offsets take; generous
Say = Callable[[str], object]


class ChaosError(Craft2Error):
    """A run that cannot be."""


@dataclass(frozen=True)
class Plan:
    """What is run. faults: names; none: all that this machine can, but `wipe`. rate: messages a
    second. root: whether what only root can do may be tried."""

    minutes: float
    seed: int
    data_dir: Path
    brokers: int = 3
    partitions: int = 6
    senders: int = 2
    workers: int = 2
    rate: float = 400.0
    faults: Sequence[str] = ()
    root: bool = True


@dataclass
class Outcome:
    """What a run showed.

    left_out: fault -> why. not_reached: faults for which there was no
    time. troubles: what makes it a failure, in words.
    """

    plan: Plan
    timeline: Timeline
    where: list[str]
    left_out: dict[str, str]
    struck: Counter[str] = field(default_factory=Counter)
    not_reached: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    history: list[Operation] = field(default_factory=list)
    judged: dict[str, Report] = field(default_factory=dict)
    errors: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[float, str]] = field(default_factory=list)
    complaints: dict[int, list[str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether all promises were kept."""
        return not self.troubles


def run(plan: Plan, clock: Clock, say: Say) -> Outcome:
    """Run it; says a line for each thing that happens. Raises ChaosError, LinksError, DisksError,
    NetError."""
    unknown = sorted(set(plan.faults) - set(FAULTS))
    if unknown:
        raise ChaosError(f"--faults {','.join(unknown)}", f"take from {', '.join(FAULTS)}")
    if plan.data_dir.exists() and any(plan.data_dir.iterdir()):
        raise ChaosError(f"the folder {str(plan.data_dir)!r} is not empty", "name another one")
    numbers = range(1, plan.brokers + 1)
    size_mb = 96 + int(plan.minutes * 60 * plan.rate * _MESSAGE_BYTES / 1024**2)
    timeline = Timeline(clock)
    with ExitStack() as stack:
        disks = Disks(plan.data_dir, numbers, size_mb, own=plan.root)
        stack.callback(disks.close)
        links = make_links(numbers, root=plan.root)
        stack.callback(links.close)
        wanted = plan.faults or [name for name in FAULTS if name != WIPE]
        lacks = {**links.lacks, **disks.lacks}
        left_out = {name: lacks[name] for name in wanted if name in lacks}
        if len(left_out) == len(set(wanted)):
            why = "; ".join(f"{name}, {lacks[name]}" for name in left_out)
            raise ChaosError(
                f"no fault that is asked for can be dealt out: {why}",
                "name others" if plan.root else "name others, or leave --no-root out",
            )
        outcome = Outcome(plan, timeline, [links.about, disks.about], left_out)
        options = [
            "--replicas",
            "3",
            "--topic-default",
            "min.insync.replicas=2",
            "--no-auto-create",
        ]
        brokers = Brokers(numbers, plan.data_dir, links, disks, options)
        stack.callback(brokers.close)
        clients = Clients(brokers.bootstrap_servers, TOPIC, plan.partitions, timeline)
        watcher = Watcher(brokers.bootstrap_servers, TOPIC, plan.brokers, timeline)
        chance = random.Random(plan.seed)
        make = partial(make_topic, brokers, TOPIC, plan.partitions, timeline)
        world = World(brokers, links, disks, watcher, clients, timeline, chance, make)
        where = outcome.where if plan.root else []  # without root there is nothing to tell
        for words in (*where, *(f"left out: {n}, {why}" for n, why in left_out.items())):
            say(words)
        try:
            make()
            watcher.start()
            stack.callback(watcher.close)
            world.wait_well()
            clients.start(plan.senders, plan.workers, plan.rate, random.Random(plan.seed))
            names = [name for name in wanted if name not in left_out]
            outcome.not_reached = names
            _strike(world, outcome, names, plan.minutes * 60, say)
        except NotWell as error:
            outcome.troubles.append(error.problem)
            say(f"{timeline.now():6.1f} s  {error.problem}")
        links.heal()
        _finish(clients, outcome, say)
        outcome.complaints = brokers.complaints()
    return outcome


def _strike(world: World, outcome: Outcome, names: Sequence[str], seconds: float, say: Say) -> None:
    """Faults, with calm between them, for so long. Raises NotWell."""
    timeline, chance, never = world.timeline, world.chance, threading.Event()
    began = timeline.now()
    deck = deal(names, chance)

    def wait(bounds: tuple[float, float]) -> None:
        timeline.clock.wait(never, chance.uniform(*bounds))

    def tell(words: str) -> None:
        timeline.events.append((timeline.now(), words))
        say(f"{timeline.now():6.1f} s  {words}")

    while len(timeline.ack_times) < outcome.plan.partitions:  # or there was nothing to lose
        if timeline.now() - began > _PATIENCE_S:
            raise NotWell(f"after {_PATIENCE_S:.0f} s not all partitions take messages")
        timeline.clock.wait(never, 0.1)
    wait(_CALM_S)
    began = timeline.now()  # so that one fault strikes, however long the beginning took
    while names and timeline.now() - began < seconds:
        name = next(deck)
        with FAULTS[name][1](world) as words:
            tell(words)
            outcome.struck[name] += 1
            outcome.not_reached = [one for one in names if not outcome.struck[one]]
            wait(_HOLD_S)
        mended = timeline.now()
        told = len(timeline.events)
        world.wait_well()
        for when, noted in timeline.events[told:]:
            say(f"{when:6.1f} s  {noted}")
        say(f"{timeline.now():6.1f} s  well again, {timeline.now() - mended:.1f} s after")
        wait(_CALM_S)
    timeline.end_s = timeline.now()


def _finish(clients: Clients, outcome: Outcome, say: Say) -> None:
    """The last answers, the last messages, the verdict."""
    timeline = outcome.timeline
    timeline.end_s = timeline.end_s or timeline.now()
    say(f"{timeline.now():6.1f} s  all is mended; the senders wait for their last answers")
    left = clients.stop_sending(_PATIENCE_S)
    if left:
        outcome.troubles.append(f"{left} sends had no answer {_PATIENCE_S:.0f} s after the end")
    final, whole = list[Operation](), False
    try:
        say(f"{timeline.now():6.1f} s  somebody reads everything, from the start")
        ends = clients.ends()
        final, whole = clients.read_all(ends, _PATIENCE_S)
        say(f"{timeline.now():6.1f} s  the group reads to the end")
        patience_s = 0 if _missing(clients.history, final) else _PATIENCE_S  # nobody has that
        for number, position in clients.drain(ends, patience_s).items():
            words = f"the group {GROUP} stands at {TOPIC}-{number}:{position}, its end is"
            outcome.troubles.append(f"{words} {ends[number]}, {patience_s:.0f} s after all ended")
    except KafkaException as error:
        outcome.troubles.append(f"nobody says where the partitions end: {error}")
        clients.drain({}, 0)
    outcome.errors, outcome.failed = clients.errors, clients.failed
    judge(outcome, [*placed(clients.history, final, outcome), *final], final, whole=whole)


def _missing(history: list[Operation], final: list[Operation]) -> set[Value]:
    """What was acknowledged and is not there."""
    acknowledged = {one.sent[0].value for one in history if one.sent and one.outcome == "ok"}
    return acknowledged - {message.value for poll in final for message in poll.polled}


def placed(history: list[Operation], final: list[Operation], outcome: Outcome) -> list[Operation]:
    """The history in which every acknowledged message has a place: that at which it is now, where
    the acknowledgement named none. One that is nowhere is a trouble, and the checker's no more."""
    where = {message.value: message for poll in final for message in poll.polled}
    found: list[Operation] = []
    for one in history:
        if one.kind == "send" and one.outcome == "ok" and one.sent[0].offset == UNKNOWN:
            message = where.get(one.sent[0].value)
            if message is None:
                outcome.troubles.append(f"lost-write: {one.sent[0]} was acknowledged, is nowhere")
                one = one._replace(outcome="info")
            else:
                one = one._replace(sent=(message,))
        found.append(one)
    return found


def judge(
    outcome: Outcome, history: list[Operation], final: list[Operation], *, whole: bool
) -> None:
    """Note what the checker finds.

    final: the polls of the last reader, which are in the history as well. whole: whether it came to
    the ends; then what it has not seen is lost, also where nothing follows.
    """
    outcome.history = history
    sends = [one for one in history if one.kind == "send"]
    outcome.judged = {KEPT: check([*sends, *final]), SEEN: check(history)}
    for name, report in outcome.judged.items():
        for kind, found in report.anomalies.items():
            kind = "lost-write" if kind == "unseen" and name == KEPT and whole else kind
            if not any(one.startswith(f"{kind}: ") for one in outcome.troubles):
                outcome.troubles.append(f"{kind}: {len(found)}, {name}; {found[0].what}")
    group = outcome.judged[SEEN].delivered.get(GROUP)
    if group is not None and group.never:
        outcome.troubles.append(f"the group {GROUP} never had {group.never} messages")


_NUMBERS = re.compile(r"\d+")


def alike(lines: Sequence[str]) -> dict[str, int]:
    """Lines that differ in numbers only, and how many of each there are."""
    counts: Counter[str] = Counter()
    first: dict[str, str] = {}
    for line in lines:
        kind = _NUMBERS.sub("#", line)
        counts[kind] += 1
        first.setdefault(kind, line)
    return {first[kind]: count for kind, count in counts.most_common()}
