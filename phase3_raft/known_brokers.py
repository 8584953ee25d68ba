"""The brokers that clients are told of: those that are there, and for a while those that were.

When a leader dies, its clients ask where its partitions are led now. If the reply did not name the
dead one any more, librdkafka would end what it has of that broker, with the records that wait for
it, in the same moment in which it hands them to the next leader; where the end comes first the
records find out a second later (`make bench ARGS=cluster-failover`: 1.9 s in place of 0.9 s from
`kill -9` to the next acknowledgement). So a broker that is gone is named some seconds longer. A
client may try to reach it meanwhile, as it did when nobody knew that it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from craft2.clock import Clock
from phase3_raft.metadata.image import Image
from phase3_raft.metadata.records import BrokerId, BrokerRecord, Record

NAMED_S = 5.0  # clients ask once a second, or more often


class KnownBrokers:
    """See the module. Invariant: `_there` are those that were not fenced when it last changed."""

    def __init__(self, image: Callable[[], Image], clock: Clock) -> None:
        self._image, self._clock = image, clock
        self._there: set[BrokerId] = set()
        self._gone_s: dict[BrokerId, float] = {}  # since when
        self._lives: dict[BrokerId, int] = {}  # the epoch of each one's registration

    def changed(self, records: Iterable[Record]) -> None:
        """The metadata say something new."""
        for record in records:
            if not isinstance(record, BrokerRecord):
                continue
            if not record.fenced:
                self._there.add(record.id)
            elif record.id in self._there:
                self._there.remove(record.id)
                self._gone_s[record.id] = self._clock.monotonic()

    def started_again(self, records: Iterable[Record]) -> list[BrokerId]:
        """Those whose process is another one than when this was last asked."""
        again = []
        for record in records:
            if isinstance(record, BrokerRecord):
                if self._lives.get(record.id, record.epoch) != record.epoch:
                    again.append(record.id)
                self._lives[record.id] = record.epoch
        return again

    def named(self) -> list[BrokerRecord]:
        """Those that clients are told of."""
        since = self._clock.monotonic() - NAMED_S
        return [
            one
            for one in self._image().brokers.values()
            if not one.fenced or self._gone_s.get(one.id, since) > since
        ]
