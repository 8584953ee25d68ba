"""What a partition's leader knows of its replicas: who is in sync, and what they all have.

A follower that asks for records from offset 17 on has everything before 17. So a leader needs no
acknowledgements: the next fetch is one. From these offsets follow two things.

    high watermark   the smallest end among the replicas in sync. What is before it survives the
                     leader, so consumers see it, and a producer with acks=all is answered.
    in sync          a replica that has had all that there was within the last `max_lag_ms`. One
                     that is slower would hold everybody up, so it is left out of the ISR; one that
                     has come up to the high watermark again is taken in.

Lag is measured as time, not as messages: a burst of a thousand messages is no reason to leave
anybody out, and a replica that never gets the last one is.

The ISR itself belongs to the controller: a leader proposes another one and waits. Meanwhile it
counts whoever is in the old one *or* the new one, so neither outcome can make it promise too much.

>>> replicas = Replicas(me=1, max_lag_ms=500)
>>> replicas.lead(isr=(1, 2, 3), replicas=(1, 2, 3), begin=0, now_ms=0)
>>> replicas.fetched(2, 10, end=10, now_ms=1)
>>> replicas.fetched(3, 7, end=10, now_ms=1)
>>> replicas.high_watermark(end=10)
7
>>> replicas.wanted_isr(end=10, now_ms=600)  # 2 has all there is; 3 has been slow for too long
(1, 2)

Source: Kafka's `Partition`, `Replica`; KIP-497 (the controller has the ISR), KIP-16 (lag as time).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

BrokerId = int
UNKNOWN = -1


@dataclass(slots=True)
class Follower:
    """end: it has everything before this offset; -1: not heard of. begin: where its own log does.
    caught_up_ms: when it last had all that there was. asked_ms, asked_end: its last fetch, and
    where the log ended then."""

    end: int = UNKNOWN
    begin: int = UNKNOWN
    caught_up_ms: int = 0
    asked_ms: int = 0
    asked_end: int = 0


class Replicas:
    """See the module. Times in ms of one monotonic clock.

    Invariant: the high watermark never falls while the same broker leads.
    """

    def __init__(self, me: BrokerId, max_lag_ms: int, high_watermark: int = 0) -> None:
        self.me = me
        self.max_lag_ms = max_lag_ms
        self.followers: dict[BrokerId, Follower] = {}
        self.isr: tuple[BrokerId, ...] = ()
        self.proposed: tuple[
            BrokerId, ...
        ] = ()  # who is in an ISR that the controller was asked for
        self._asking = False
        self.begin = 0
        self._high_watermark = high_watermark

    def lead(
        self, isr: Iterable[BrokerId], replicas: Iterable[BrokerId], begin: int, now_ms: int
    ) -> None:
        """The controller says that we lead, and who is in sync. begin: where our log ends; whoever
        has less cannot be taken in, since it may have other records there."""
        self.begin, self.followers = begin, {}
        self.changed(isr, replicas, now_ms)

    def changed(self, isr: Iterable[BrokerId], replicas: Iterable[BrokerId], now_ms: int) -> None:
        """The controller says who is in sync by now, and which replicas there are."""
        self.isr, self.proposed, self._asking = tuple(isr), (), False
        before = self.followers
        self.followers = {
            who: before.get(who) or Follower(caught_up_ms=now_ms)
            for who in replicas
            if who != self.me
        }

    def follow(self) -> None:
        """Somebody else leads: what we knew of the others counts no more."""
        self.isr, self.proposed, self.followers, self._asking = (), (), {}, False

    # What followers say.

    def fetched(self, who: BrokerId, offset: int, *, end: int, now_ms: int) -> None:
        """A follower asks for records from `offset` on, where our log ends at `end`."""
        follower = self.followers.get(who)
        if follower is None:
            return
        if offset >= end:
            follower.caught_up_ms = now_ms
        elif offset >= follower.asked_end:  # it has all that there was when it last asked
            follower.caught_up_ms = max(follower.caught_up_ms, follower.asked_ms)
        follower.end, follower.asked_ms, follower.asked_end = offset, now_ms, end

    def begins(self, who: BrokerId, offset: int) -> bool:
        """A follower says where its log begins; whether that is news."""
        follower = self.followers.get(who)
        if follower is None or follower.begin == offset:
            return False
        follower.begin = offset
        return True

    def had_all(self, who: BrokerId, at_ms: int) -> None:
        """A follower of which we know that, until a moment ago, it had all that there was, has last
        asked at this time."""
        follower = self.followers.get(who)
        if follower is not None:
            follower.caught_up_ms = max(follower.caught_up_ms, at_ms)

    def started_again(self, who: BrokerId) -> None:
        """A follower's process is another one (KIP-903): it may have lost what it had, so it has
        nothing until it says what."""
        if who in self.followers:
            self.followers[who] = Follower(caught_up_ms=self.followers[who].caught_up_ms)

    # What follows from it.

    # EXERCISE 25.1 the high watermark
    def high_watermark(self, end: int) -> int:
        """What all replicas in sync have; `end` is where our own log ends.

        `self.isr` are the brokers in sync. `self.me` is one of them if we lead; if it is not, we
        follow, and what our leader has told us counts: `self._high_watermark`, as it is.

        `self.followers[who].end` is up to where another one has everything; UNKNOWN, -1, if it has
        not asked for anything yet. `self.proposed` are those of another ISR that the controller was
        asked for, empty if there is none: it may be in force already, or never be. Nobody may be
        left out whom either of the two counts.

        `self._high_watermark` is what was known before: the answer is kept there, and never falls.
        """
        # BEGIN SOLUTION
        if self.me not in self.isr:
            return self._high_watermark
        counted = {*self.isr, *self.proposed} - {self.me}
        ends = [self.followers[who].end for who in counted if who in self.followers]
        self._high_watermark = max(self._high_watermark, min([end, *ends]))
        return self._high_watermark
        # END SOLUTION

    def low_watermark(self, begin: int, live: Collection[BrokerId]) -> int:
        """What is before it is deleted on all replicas that are `live`; `begin` is where our own
        log does. The others will hear of it from their leader before they can lead."""
        begins = [one.begin for who, one in self.followers.items() if who in live]
        return min([begin, *begins])

    def learn_high_watermark(self, offset: int, end: int) -> None:
        """A leader has told us its high watermark; `end` is where our own log ends."""
        self._high_watermark = max(self._high_watermark, min(offset, end))

    def cut(self, end: int) -> None:
        """Our own log was cut here: it cannot have more in common with anybody."""
        self._high_watermark = min(self._high_watermark, end)

    def wanted_isr(
        self,
        end: int,
        now_ms: int,
        fenced: Collection[BrokerId] = (),
        *,
        begin: int = UNKNOWN,
        writes: bool = True,
    ) -> tuple[BrokerId, ...] | None:
        """The ISR as it should be; None: it is so, or the controller is being asked.

        fenced: brokers that the controller would not take in. begin: where our log does: whoever
        begins earlier has what was deleted, and is not taken in yet. writes: whether this leader
        can; if not, one of the others is to lead, if there is one in sync.
        """
        if self._asking or self.me not in self.isr:
            return None
        needed = max(self.high_watermark(end), self.begin)
        wanted = [self.me]
        for who, follower in self.followers.items():
            if who in self.isr:
                slow = now_ms - follower.caught_up_ms > self.max_lag_ms
                if not slow or follower.end >= end:
                    wanted.append(who)
            elif who not in fenced and follower.begin >= begin and follower.end >= needed:
                wanted.append(who)
        if not writes and (others := [who for who in wanted if who in self.isr and who != self.me]):
            return tuple(sorted(others))
        if set(wanted) == set(self.isr) and not self.proposed:
            return None
        return tuple(sorted(wanted))  # also to hear what became of another one, if nobody said it

    def propose(self, isr: tuple[BrokerId, ...]) -> None:
        """The controller is asked for this one: until it says otherwise, these count as well."""
        self.proposed, self._asking = tuple(sorted({*self.proposed, *isr})), True

    def answered(self, *, refused: bool) -> None:
        """The controller has refused it, and the ISR is as we know it; or what it is will be told
        by the metadata, and until then the one that was asked for counts as well."""
        self._asking = False
        if refused:
            self.proposed = ()
