"""Which brokers keep a new partition: spread over brokers and racks, its leaders too.

Brokers are put in an order in which neighbours are of different racks; partition after partition
starts one further, so each broker leads as many as the others, and has as many replicas.

>>> [place(number, 2, {1: None, 2: None, 3: None}) for number in range(3)]
[(1, 2), (2, 3), (3, 1)]
>>> place(0, 2, {1: "a", 2: "a", 3: "b"})
(1, 3)

A topic begins where the fewest partitions are led, or all small topics would be led by one broker:

>>> place(0, 2, {1: None, 2: None, 3: None}, start=begin({1: None, 2: None, 3: None}, {1: 4, 3: 2}))
(2, 3)

A broker that is away at the moment is taken only where there are not enough others: it follows when
it is back, and the topic has as many replicas as it was to have.

>>> place(1, 3, {1: None, 2: None}, away=[3])
(2, 1, 3)

Source: Kafka's `StripedReplicaPlacer` (which begins anywhere, by chance); KIP-36 (racks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

BrokerId = int


def place(
    number: int,
    replicas: int,
    racks: Mapping[BrokerId, str | None],
    away: Sequence[BrokerId] = (),
    start: int = 0,
) -> tuple[BrokerId, ...]:
    """The replicas of partition `number`, its leader first. racks: the brokers that are there, one
    at least; `away` are the others. Together they are as many as `replicas` at least. start: where
    partition 0 begins, as `begin` says."""
    if replicas > len(racks):
        turn = number % len(away)
        others_away = [*away[turn:], *away[:turn]][: replicas - len(racks)]
        return (*place(number, len(racks), racks, start=start), *others_away)
    striped = _striped(racks)
    count = len(striped)
    first = (start + number) % count
    # After each round the followers move on as well: the same two would be together for ever.
    shift = number // count % max(1, count - 1)
    others = [striped[(first + 1 + (shift + n) % (count - 1)) % count] for n in range(count - 1)]
    return _spread([striped[first], *others], replicas, racks)


def begin(racks: Mapping[BrokerId, str | None], leads: Mapping[BrokerId, int]) -> int:
    """Where a topic begins: at the first of the brokers that lead least."""
    striped = _striped(racks)
    return min(range(len(striped)), key=lambda place: leads.get(striped[place], 0))


def _striped(racks: Mapping[BrokerId, str | None]) -> list[BrokerId]:
    by_rack: dict[str | None, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    return [one for row in zip_longest(*by_rack.values()) for one in row if one is not None]


def _spread(
    order: list[BrokerId], replicas: int, racks: Mapping[BrokerId, str | None]
) -> tuple[BrokerId, ...]:
    """The first ones of the order, but none of a rack that has one while another rack has none."""
    chosen: list[BrokerId] = []
    while len(chosen) < replicas:
        left = [one for one in order if one not in chosen]
        used = [racks[one] for one in chosen]
        chosen.append(min(left, key=lambda one: used.count(racks[one])))
    return tuple(chosen)
