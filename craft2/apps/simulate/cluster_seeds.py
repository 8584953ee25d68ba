"""Whole clusters from their seeds: one run, many, and the few faults that a broken one needs.

    failed = run_cluster_seed(4, bug="unclean")
    failed.rule, failed.what       which rule is broken, and how; None and "" if none is
    failed.timeline                [(ms, who, what), ...] up to there, in order
    failed.faults                  those that came to something: Fault(number, ms, kind, seed)
    shortened(failed)              the same rule, broken by as few faults as possible
    failed.save(path)              as JSON; ClusterRun.load(path) has it back

>>> run = run_cluster_seed(1)
>>> run.rule, run.counts["leaders"] > 3
(None, True)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from craft2.apps.simulate.cluster_admin import NAMED
from craft2.apps.simulate.cluster_bugs import planted
from craft2.apps.simulate.cluster_faults import Fault
from craft2.apps.simulate.cluster_world import ClusterWorld
from craft2.apps.simulate.raft_rules import Broken
from craft2.apps.simulate.seeds import spread
from craft2.apps.simulate.shrink import less
from craft2.apps.words import counted
from craft2.errors import Craft2Error

Say = Callable[[str], object]


class BadRun(Craft2Error):
    """A file that is not a run."""


class ClusterRun(msgspec.Struct, kw_only=True):
    """What one seed came to.

    rule: the one that broke, or None; what: how. without: numbers of faults that were left out.
    timeline: (ms, who, what) of faults, leaders, ISRs, logs that were cut, and the last things
    that clients were told. counts: of what, how often. seconds: of a processor.
    """

    seed: int
    bug: str | None
    rule: str | None
    what: str
    faults: list[Fault]
    timeline: list[tuple[int, str, str]]
    counts: dict[str, int]
    seconds: float
    without: frozenset[int] = frozenset()

    @property
    def is_broken(self) -> bool:
        """Whether a rule is."""
        return self.rule is not None

    def save(self, path: str | Path) -> None:
        """As JSON. Raises OSError."""
        Path(path).write_bytes(msgspec.json.format(msgspec.json.encode(self)))

    @classmethod
    def load(cls, path: str | Path) -> ClusterRun:
        """What `save` wrote. Raises BadRun."""
        try:
            return msgspec.json.decode(Path(path).read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError) as error:
            raise BadRun(
                f"{str(path)!r} holds no run of a cluster: {error}",
                "name a file that craft2 cluster simulate has written",
            ) from error


def run_cluster_seed(
    seed: int, bug: str | None = None, without: frozenset[int] = frozenset()
) -> ClusterRun:
    """One run. Raises NoSuchBug."""
    begun = time.process_time()
    world = ClusterWorld(seed, without=without)
    rule, what = None, ""
    with planted(bug):
        try:
            world.run()
        except Broken as error:
            rule, what = error.rule, error.what
        except Exception as error:  # some bugs trip over themselves first
            rule, what = "no error", f"{type(error).__name__}: {error}"
    # Of topics that come and go there is no word, unless they are what is broken.
    aside = NAMED.search if not NAMED.search(what) else lambda words: None
    told = [moment for moment in (*world.story, *world.lately) if not aside(moment[2])]
    timeline = sorted(told, key=lambda moment: moment[0])
    if rule is not None:
        timeline.append((world.timeline.now_ms, "broken", f"{rule}: {what}"))
    return ClusterRun(
        seed=seed,
        bug=bug,
        rule=rule,
        what=what,
        faults=world.faults,
        timeline=timeline,
        counts=dict(world.summary()),
        seconds=time.process_time() - begun,
        without=without,
    )


def run_cluster_seeds(
    seeds: Sequence[int], bug: str | None = None, jobs: int = 2
) -> Iterator[ClusterRun]:
    """Runs, in order. Whoever has seen enough may stop taking."""
    return spread(partial(run_cluster_seed, bug=bug), seeds, jobs, until=_is_broken)


def _is_broken(run: ClusterRun) -> bool:
    return run.is_broken


def shortened(failed: ClusterRun, say: Say = lambda text: None) -> ClusterRun:
    """The same seed with as few faults as break the same rule.

    To leave a fault out changes when messages arrive, so the rest is not what it was; what counts
    is that the rule breaks again. say: told of progress.
    """
    every = {fault.number for fault in ClusterWorld(failed.seed).plan}
    best = failed

    def still(kept: list[int]) -> list[int] | None:
        nonlocal best
        say(counted(len(kept), "fault"))
        run = run_cluster_seed(failed.seed, failed.bug, frozenset(every - set(kept)))
        if run.rule != failed.rule:
            return None
        best = run
        return [fault.number for fault in run.faults]

    kept = [fault.number for fault in failed.faults]
    still(less(still(kept) or kept, still))
    return best
