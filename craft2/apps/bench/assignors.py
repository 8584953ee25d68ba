"""Assignors: a thousand members share out ten thousand partitions.

Every assignor, over topics few and large or many and small, everybody subscribed to all or each to
a random half, before anybody owns anything, and after a tenth of the members have left.
"""

from __future__ import annotations

import itertools
import random
from functools import partial

from craft2.apps.bench.scenarios import Bench, scenario
from phase2_groups.assignors import ASSIGNORS, Assignor, Subscription

PROMISED_S = 2.0
Case = tuple[dict[str, int], dict[str, Subscription]]  # topic -> partitions, and the members


def cases(members: int, partitions: int) -> dict[str, Case]:
    """The cases by name."""
    found: dict[str, Case] = {}
    chance = random.Random(1)
    for topics, half in itertools.product((10, partitions // 10), (False, True)):
        names = [f"t{number:05}" for number in range(topics)]
        counts = dict.fromkeys(names, partitions // topics)
        group = {}
        for number in range(members):
            some = sorted(chance.sample(names, topics // 2)) if half else names
            group[f"m{number:05}"] = Subscription(tuple(some))
        what = f"{topics:,} topics, {'half' if half else 'all'} of them each"
        found[f"{what}, new"] = (counts, group)
        owned = ASSIGNORS["sticky"].assign(counts, group)
        left = {
            name: member._replace(owned=tuple(owned[name]), generation=1)
            for name, member in list(group.items())[members // 10 :]
        }
        found[f"{what}, a tenth left"] = (counts, left)
    return found


@scenario("assignors", "1,000 members share 10,000 partitions: every assignor, beside 2 s")
def assignors(bench: Bench) -> None:
    """The slowest case of each assignor, a row each, beside what was promised.

    With --quick a tenth of the members and of the partitions.
    """
    members, partitions = (100, 1_000) if bench.quick else (1_000, 10_000)
    every = cases(members, partitions)
    for name, assignor in ASSIGNORS.items():

        def seconds(case: str, assignor: Assignor = assignor) -> float:
            start_s = bench.clock.monotonic()
            assignor.assign(*every[case])
            return bench.clock.monotonic() - start_s

        slowest = max(every, key=seconds)
        what = f"{name}, slowest with {slowest}"
        found = bench.within("assignors", what, partial(seconds, slowest), PROMISED_S)
        bench.add_total(
            partitions,
            1 / found.our_rate,
            phase=2,
            backend=name,
            scenario="assign partitions",
            clients=len(every[slowest][1]),
            size_bytes=0,
            notes=f"slowest with {slowest}; a message is a partition here",
        )
