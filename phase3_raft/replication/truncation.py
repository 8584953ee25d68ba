"""Where a follower's log stops being the leader's: by epochs, not by offsets.

A leader that dies may have appended what nobody else has. When it comes back as a follower, its log
and the new leader's hold different records at the same offsets. Offsets alone do not show it. With
leader epochs they do: a record of one epoch at one offset is the same record everywhere.

So a follower says which epoch its last record is of. The leader looks where that epoch, or the
latest before it, ends in its own log. If that is not where the follower is, it answers with that
epoch and its end, and the follower cuts: behind that end, and behind where the epoch ends in its
own log. Then it asks again, until both agree.

>>> ours = {1: 10, 2: 25}  # epoch -> where it ends in our log, which ends at 25
>>> truncate_at((1, 14), end_of=lambda epoch: (1, 10))  # the leader's epoch 1 ends at 14
10
>>> truncate_at((2, 21), end_of=lambda epoch: (2, 25))
21

Source: KIP-101, KIP-279, KIP-595; Kafka's `AbstractFetcherThread.getOffsetTruncationState`.
"""

from __future__ import annotations

from collections.abc import Callable


# EXERCISE 25.2 truncate by epoch
def truncate_at(diverging: tuple[int, int], end_of: Callable[[int], tuple[int, int]]) -> int:
    """The offset at which a follower cuts its log.

    diverging: the leader's answer to "my last record is of epoch e". It is the largest epoch up to
    e that the leader has, and where that ends in the leader's log; (-1, -1): it has none.
    end_of: for any epoch, the largest one up to it that is in the follower's own log, and where
    that ends there; (-1, -1) if there is none.

    Nothing may be kept that the leader might not have, and as much as possible of the rest. Where
    there is nothing in common, that is offset 0. The follower asks again afterwards, so one answer
    need not be the last word; but each has to cut something.
    """
    # BEGIN SOLUTION
    epoch, end = diverging
    ours, our_end = end_of(epoch)
    if epoch < 0 or ours < 0:
        return 0
    return min(end, our_end)
    # END SOLUTION
